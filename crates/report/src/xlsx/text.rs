//! Text prepared for a cell.
//!
//! Text is always written as text, so a value that begins with `=` is never a formula.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::super::visible::visible;

/// Maximum number of UTF-16 units in a cell, a limit of Excel.
pub(super) const MAX_CELL_TEXT: usize = 32_767;

/// Returns `text` fit for a cell: without invisible characters, and visibly cut to at most [`MAX_CELL_TEXT`].
pub(super) fn cell_text(text: &str) -> Cow<'_, str> {
    let text = visible(text);
    match cut(&text) {
        Some(cut) => Cow::Owned(cut),
        None => text,
    }
}

/// Escapes the markup of XML in the text of a cell, and what a spreadsheet would take for a character by its number
/// (`_x0041_`; ECMA-376, part 1, 22.9.2.19).
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'&' | b'<' | b'>' | b'_')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for (place, character) in text.char_indices() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '_' if is_numbered(&text.as_bytes()[place..]) => out.push_str("_x005F_"),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// Returns true if `text` begins with `_x`, four hexadecimal digits and `_`.
fn is_numbered(text: &[u8]) -> bool {
    match text {
        [b'_', b'x', digits @ ..] => {
            digits.iter().take(4).all(u8::is_ascii_hexdigit) && digits.get(4) == Some(&b'_')
        }
        _ => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_hold_no_control_characters() {
        assert_eq!(cell_text("a\u{1b}\u{0}b\n"), "a\\x1b\\x00b\\n");
        assert!(matches!(cell_text("=1+1"), Cow::Borrowed("=1+1")));
    }

    #[test]
    fn long_text_is_cut_visibly_at_the_limit() {
        assert_eq!(cell_text(&"a".repeat(MAX_CELL_TEXT)).len(), MAX_CELL_TEXT);
        for text in ["a".repeat(40_000), "层".repeat(40_000), "𝄞".repeat(20_000)] {
            let cut = cell_text(&text);
            assert!(cut.encode_utf16().count() <= MAX_CELL_TEXT);
            assert!(cut.ends_with("40000 characters in all]"), "{}", &cut[cut.len() - 40..]);
        }
    }
}
