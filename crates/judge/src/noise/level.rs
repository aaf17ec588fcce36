//! Levels of families.

/// The largest error of a family is at most this multiple of its level: below all thresholds of the judge, the
/// smallest of which is 2 bits, so that no measured value looks faulty.
const LARGEST: f64 = 4.0;

/// Level of a family, from the own errors of its calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    pub(super) median: f64,
    pub(super) largest: f64,
    pub(super) calls: usize,
}

impl Level {
    /// Returns the error that any call of the family may have.
    pub(super) fn of_any(self) -> f64 {
        self.median.max(self.largest / LARGEST)
    }
}

/// Formats a count with its noun.
pub(super) fn number(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
