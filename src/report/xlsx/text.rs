//! Text on its way into a spreadsheet: the table of shared strings, and what makes any text safe in a cell.
//!
//! Text is always written as text, so a value that begins with `=` is never a formula.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::super::visible::visible;
use super::style::{MAIN, XML};

/// Most UTF-16 units in a cell, a limit of Excel.
pub(super) const MAX_CELL_TEXT: usize = 32_767;

/// Most bytes kept in the table of shared strings; later new texts are written where they stand.
const MAX_SHARED_BYTES: usize = 64 << 20;

/// Texts that occur often, each once.
#[derive(Debug, Default)]
pub(super) struct SharedStrings {
    index: HashMap<Box<str>, u32>,
    xml: String,
    uses: u64,
}

impl SharedStrings {
    /// Number of `text` in the table; `None` when the table is full.
    pub(super) fn number(&mut self, text: &str) -> Option<u32> {
        let number = if let Some(&number) = self.index.get(text) {
            number
        } else {
            if self.xml.len() + text.len() > MAX_SHARED_BYTES {
                return None;
            }
            let number = u32::try_from(self.index.len()).ok()?;
            self.xml.push_str("<si><t xml:space=\"preserve\">");
            escape(text, &mut self.xml);
            self.xml.push_str("</t></si>");
            self.index.insert(text.into(), number);
            number
        };
        self.uses += 1;
        Some(number)
    }

    /// The part `xl/sharedStrings.xml`.
    pub(super) fn part(&self) -> String {
        let (uses, count) = (self.uses, self.index.len());
        format!("{XML}<sst xmlns=\"{MAIN}\" count=\"{uses}\" uniqueCount=\"{count}\">{}</sst>", self.xml)
    }
}

/// Appends `text` as it may stand in a cell: nothing invisible, at most [`MAX_CELL_TEXT`] long and then visibly
/// cut, markup escaped, and nothing that Excel would take for one of its own `_x0041_` escapes.
pub(super) fn escape(text: &str, out: &mut String) {
    let text = visible(text);
    let cut = cut(&text);
    let text = cut.as_deref().unwrap_or(&text);
    for (at, character) in text.char_indices() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '_' if is_excel_escape(&text[at..]) => out.push_str("_x005F_"),
            other => out.push(other),
        }
    }
}

fn cut(text: &str) -> Option<String> {
    // No character takes more UTF-16 units than UTF-8 bytes.
    if text.len() <= MAX_CELL_TEXT {
        return None;
    }
    let units = text.encode_utf16().count();
    if units <= MAX_CELL_TEXT {
        return None;
    }
    let mut note = String::new();
    _ = write!(note, "... [cut, {units} characters in all]");
    let mut left = MAX_CELL_TEXT - note.len();
    let mut kept: String = text
        .chars()
        .take_while(|character| {
            let fits = character.len_utf16() <= left;
            left = left.saturating_sub(character.len_utf16());
            fits
        })
        .collect();
    kept.push_str(&note);
    Some(kept)
}

/// True when `text` begins with `_xHHHH_`.
fn is_excel_escape(text: &str) -> bool {
    matches!(text.as_bytes(), [b'_', b'x', digits @ .., ] if digits.len() >= 5
        && digits[..4].iter().all(u8::is_ascii_hexdigit) && digits[4] == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = String::new();
        escape(text, &mut out);
        out
    }

    #[test]
    fn cells_hold_no_markup_and_no_control_characters() {
        assert_eq!(escaped("<a href=\"x\">&"), "&lt;a href=\"x\"&gt;&amp;");
        assert_eq!(escaped("a\u{1b}\u{0}b\n"), "a\\x1b\\x00b\\n");
        assert_eq!(escaped("_x001B_ _x00G1_ _x"), "_x005F_x001B_ _x00G1_ _x");
        assert_eq!(escaped("=1+1"), "=1+1");
    }

    #[test]
    fn long_text_is_cut_visibly_at_the_limit() {
        assert_eq!(escaped(&"a".repeat(MAX_CELL_TEXT)).len(), MAX_CELL_TEXT);
        for text in ["a".repeat(40_000), "层".repeat(40_000), "𝄞".repeat(20_000)] {
            let cut = escaped(&text);
            assert!(cut.encode_utf16().count() <= MAX_CELL_TEXT);
            assert!(cut.ends_with("40000 characters in all]"), "{}", &cut[cut.len() - 40..]);
        }
    }

    #[test]
    fn each_text_is_kept_once() {
        let mut strings = SharedStrings::default();
        assert_eq!(strings.number("a"), Some(0));
        assert_eq!(strings.number("b"), Some(1));
        assert_eq!(strings.number("a"), Some(0));
        assert!(strings.part().contains("count=\"3\" uniqueCount=\"2\""));
    }
}
