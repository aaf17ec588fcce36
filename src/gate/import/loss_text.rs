//! Lines of a step and a loss: `1 8.048324584960938`, as torchtitan keeps them.

use super::{Found, number, step};

/// Name of the one scalar.
const NAME: &str = "loss";

/// Whether the first lines are of this form.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(bytes.get(..bytes.len().min(4096)).unwrap_or_default());
    let mut lines = head.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().is_some_and(|line| pair(line).is_some())
}

pub(super) fn scalars(text: &str) -> Result<Found, String> {
    let mut found = Found::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (step, value) = pair(line).ok_or_else(|| {
            format!("line {}: expected a step and a loss, found {:?}", index + 1, cut(line))
        })?;
        found.add(NAME, step, value);
    }
    Ok(found)
}

fn pair(line: &str) -> Option<(u64, f64)> {
    let mut words = line.split_ascii_whitespace();
    let found = (step(words.next()?)?, number(words.next()?)?);
    words.next().is_none().then_some(found)
}

fn cut(line: &str) -> String {
    line.chars().take(60).collect()
}
