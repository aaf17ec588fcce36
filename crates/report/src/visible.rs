//! Makes text from dumps safe to display: op names, stack frames and reasons are controlled by whoever made the dump.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Replaces every character of `text` that could control a terminal, break a cell or reorder the text by a visible
/// escape: control characters, line breaks, and marks that set the text direction or have no width.
pub fn visible(text: &str) -> Cow<'_, str> {
    // Nearly all text is plain ASCII.
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) || !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if steers(c) && c.is_ascii() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c if steers(c) => _ = write!(out, "\\u{{{:x}}}", u32::from(c)),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Returns `text` with its line breaks, each line made [`visible`].
pub fn lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

fn steers(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns at most `width` characters of `text`. If it is longer, the middle is replaced by an ellipsis, since both
/// ends of an op name are informative.
pub(crate) fn shorten(text: &str, width: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= width {
        return Cow::Borrowed(text);
    }
    let kept = width.saturating_sub(1);
    // The end of an op name distinguishes it from others (API, call number, phase), so it gets two thirds.
    let front = kept / 3;
    let mut out: String = text.chars().take(front).collect();
    if width > 0 {
        out.push('…');
    }
    out.extend(text.chars().skip(length - (kept - front)));
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steering_characters_are_shown_and_others_kept() {
        assert!(matches!(visible("Functional.gelu.0"), Cow::Borrowed(_)));
        assert_eq!(visible("层.注意力 é"), "层.注意力 é");
        assert_eq!(visible("a\u{1b}[31mb\n\u{7f}\u{9b}"), "a\\x1b[31mb\\n\\x7f\\u{9b}");
        assert_eq!(visible("x\u{202e}y\u{200b}"), "x\\u{202e}y\\u{200b}");
    }

    #[test]
    fn the_middle_gives_way() {
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("abcdefgh", 5), "a…fgh");
        assert_eq!(shorten("abcdefgh", 1), "…");
        assert_eq!(shorten("äöüßéè", 4), "ä…éè");
        assert_eq!(shorten("ab", 0), "");
    }
}
