//! Text out of files, made fit for one line of a message.

/// Longest piece of foreign text shown in a message, in characters.
const SHOWN: usize = 120;

/// `text` with control characters escaped, cut after a readable length.
pub(crate) fn printable(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_long_text_do_not_reach_a_message() {
        assert_eq!(printable("layer.0 weight"), "layer.0 weight");
        assert_eq!(printable("a\n\u{1b}[31mb"), "a\\n\\u{1b}[31mb");
        assert_eq!(printable(&"x".repeat(500)).len(), SHOWN + 3);
    }
}
