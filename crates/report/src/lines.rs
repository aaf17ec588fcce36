//! Text wrapped to a width. Lines break between words; a path or op name is never split, so that it can be copied.

use super::paint::{Paint, Style};

/// Lines being built.
#[derive(Debug)]
pub(super) struct Lines {
    out: String,
    paint: Paint,
    width: usize,
    /// Indentation of continuation lines.
    indent: usize,
    /// Length of the current line in characters.
    column: usize,
    /// True if a space is needed before the next word.
    spaced: bool,
}

impl Lines {
    /// Creates lines of at most `width` characters, unless a single word is longer.
    pub(super) const fn new(width: usize, paint: Paint) -> Self {
        Self { out: String::new(), paint, width, indent: 0, column: 0, spaced: false }
    }

    /// Begins a line with `label`, padded to `indent`; continuation lines are indented to the same column.
    pub(super) fn begin(&mut self, label: &str, indent: usize) {
        self.indent = indent;
        self.out.push_str(label);
        self.column = label.chars().count();
        if !label.is_empty() || indent > 0 {
            self.pad_to(indent);
        }
        self.spaced = false;
    }

    /// Appends `text`, which may break at its spaces. A sign of per cent stays with its number.
    pub(super) fn words(&mut self, text: &str) {
        let mut words = text.split(' ').filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            match words.next_if(|next| next.starts_with('%')) {
                Some(unit) => self.whole(Style::Plain, &format!("{word} {unit}")),
                None => self.whole(Style::Plain, word),
            }
        }
    }

    /// Appends `text` unbroken.
    pub(super) fn whole(&mut self, style: Style, text: &str) {
        if text.is_empty() {
            return;
        }
        let long = text.chars().count();
        let gap = usize::from(self.spaced);
        if self.column + gap + long > self.width && self.column > self.indent {
            self.end();
            self.pad_to(self.indent);
        } else if gap > 0 {
            self.out.push(' ');
            self.column += 1;
        }
        self.out.push_str(&self.paint.on(style, text));
        self.column += long;
        self.spaced = true;
    }

    /// Appends pieces separated by commas.
    pub(super) fn list(&mut self, pieces: impl IntoIterator<Item = (Style, String)>) {
        let mut pieces = pieces.into_iter().peekable();
        while let Some((style, mut piece)) = pieces.next() {
            if pieces.peek().is_some() {
                piece.push(',');
            }
            self.whole(style, &piece);
        }
    }

    /// Ends the line.
    pub(super) fn end(&mut self) {
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push('\n');
        self.column = 0;
        self.spaced = false;
    }

    /// Adds a separate line.
    pub(super) fn line(&mut self, style: Style, text: &str) {
        self.out.push_str(&self.paint.on(style, text));
        self.end();
    }

    /// Returns all lines.
    pub(super) fn into_text(self) -> String {
        self.out
    }

    fn pad_to(&mut self, column: usize) {
        let missing = column.saturating_sub(self.column).max(usize::from(self.column > 0));
        self.out.extend(std::iter::repeat_n(' ', missing));
        self.column += missing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Colour;

    #[test]
    fn lines_break_between_words_and_never_in_a_name() {
        let mut lines = Lines::new(20, Paint(Colour::Never));
        lines.begin("why", 5);
        lines.words("one two three four five");
        lines.whole(Style::Plain, "Functional.scaled_dot_product_attention.0");
        lines.words("six");
        lines.end();
        lines.words("of the samples: 99.9 %,");
        lines.end();
        lines.begin("", 0);
        lines.list(["ab", "cd"].map(|text| (Style::Bad, text.to_owned())));
        lines.end();
        assert_eq!(
            lines.into_text(),
            "why  one two three\n     four five\n     Functional.scaled_dot_product_attention.0\n     six\nof the samples:\n     99.9 %,\nab, cd\n"
        );
    }
}
