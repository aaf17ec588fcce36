//! Makes text from files fit for one line of a message.

/// Longest text from a file that a message shows, in characters.
const SHOWN: usize = 200;

/// Returns `text` with everything escaped that could break the line, move the cursor or hide letters, truncated to a
/// readable length.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(SHOWN));
    for c in text.chars().take(SHOWN) {
        if is_deceptive(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Returns true for control characters, line separators, and marks that change direction or have no
/// width.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_long_text_do_not_reach_a_message() {
        assert_eq!(printable("layer.0 'weight' é 层"), "layer.0 'weight' é 层");
        assert_eq!(printable("a\n\u{1b}[31mb\u{202e}"), "a\\n\\u{1b}[31mb\\u{202e}");
        assert_eq!(printable(&"x".repeat(500)).len(), SHOWN + 3);
    }
}
