//! Bytes as hexadecimal digits.

use std::fmt::Write as _;

/// Returns the first `count` bytes, two digits each.
pub fn hexadecimal(bytes: &[u8], count: usize) -> String {
    let mut text = String::with_capacity(2 * count);
    for byte in bytes.iter().take(count) {
        // Writing to a string cannot fail.
        _ = write!(text, "{byte:02x}");
    }
    text
}
