//! Markdown for the summary of a CI job: short, and safe to render whatever it contains.

use super::visible::{shorten, visible};

/// Maximum number of lines of a page.
const LINES: usize = 40;

/// Maximum number of remarks.
const NOTES: usize = 6;

/// Maximum number of characters of a cell.
const CELL: usize = 160;

/// A page: the answer, supporting facts, a table, and remarks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    /// The answer, as a heading.
    pub(crate) title: String,
    /// Labels and texts shown below the title.
    pub(crate) facts: Vec<(String, String)>,
    /// Names of the columns.
    pub(crate) columns: Vec<&'static str>,
    /// Rows of the table.
    pub(crate) rows: Vec<Vec<String>>,
    /// Remarks.
    pub(crate) notes: Vec<String>,
    /// The command that shows more; empty if there is none.
    pub(crate) next: String,
}

impl Page {
    /// Returns the text, at most 40 lines: rows are dropped first, then remarks, and their number is stated.
    pub(crate) fn text(&self) -> String {
        let mut head = vec![format!("### {}", inline(&self.title, CELL * 2)), String::new()];
        for (label, text) in &self.facts {
            head.push(format!("- **{}**: {}", inline(label, CELL), inline(text, CELL * 3)));
        }
        let tail = if self.next.is_empty() {
            Vec::new()
        } else {
            vec![String::new(), format!("More: {}", code(&self.next))]
        };
        let room = LINES.saturating_sub(head.len() + tail.len());
        // A blank line before them, and a line stating the number left out.
        let notes = self.notes.len().min(NOTES);
        let of_notes = if notes == 0 { 0 } else { 1 + notes + usize::from(notes < self.notes.len()) };
        // A blank line and the two header lines of the table; a blank line and a line for the rows left out.
        let shown = self.rows.len().min(room.saturating_sub(5 + of_notes));
        if shown > 0 {
            head.push(String::new());
            head.push(format!("| {} |", self.columns.join(" | ")));
            head.push(format!("|{}", "---|".repeat(self.columns.len())));
            for row in &self.rows[..shown] {
                let cells: Vec<String> = row.iter().map(|cell| inline(cell, CELL)).collect();
                head.push(format!("| {} |", cells.join(" | ")));
            }
        }
        if shown < self.rows.len() {
            head.push(String::new());
            head.push(format!("and {} more", self.rows.len() - shown));
        }
        if notes > 0 {
            head.push(String::new());
            head.extend(self.notes[..notes].iter().map(|note| format!("- {}", inline(note, CELL * 3))));
            if notes < self.notes.len() {
                head.push(format!("- and {} more", self.notes.len() - notes));
            }
        }
        head.extend(tail);
        let mut text = head.join("\n");
        text.push('\n');
        text
    }
}

/// Returns text on one line that Markdown and HTML render literally.
pub(crate) fn inline(text: &str, width: usize) -> String {
    let text = visible(text);
    let mut out = String::with_capacity(text.len() + 8);
    for letter in shorten(&text, width).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' | '!' => out.extend(['\\', letter]),
            // A name containing `@` would mention people.
            '@' => out.push_str("&#64;"),
            letter => out.push(letter),
        }
    }
    out
}

/// Returns text as inline code.
fn code(text: &str) -> String {
    format!("`{}`", visible(text).replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_at_most_40_lines_and_says_what_it_leaves_out() {
        let many =
            |word: &str, count: usize| (0..count).map(|index| format!("{word} {index}")).collect::<Vec<_>>();
        for (rows, notes, cut) in
            [(0, 0, false), (1, 1, false), (20, 6, false), (30, 3, true), (500, 100, true), (0, 100, true)]
        {
            let page = Page {
                title: "regression".into(),
                facts: vec![("baseline".into(), "a".into()), ("candidate".into(), "b".into())],
                columns: vec!["op", "why"],
                rows: many("op", rows).into_iter().map(|name| vec![name, "x".into()]).collect(),
                notes: many("note", notes),
                next: "probe compare a b".into(),
            };
            let text = page.text();
            assert!(text.lines().count() <= LINES, "{rows} {notes}: {}", text.lines().count());
            assert_eq!(text.contains("more\n"), cut, "{rows} {notes}\n{text}");
            assert!(text.ends_with("More: `probe compare a b`\n"));
        }
    }

    #[test]
    fn nothing_in_a_name_is_markup() {
        assert_eq!(inline("Tensor.__add__|<b>@me", 100), "Tensor.\\_\\_add\\_\\_\\|&lt;b&gt;&#64;me");
        assert_eq!(inline("a\nb", 100), "a\\\\nb");
        assert_eq!(code("a`b"), "`a'b`");
    }
}
