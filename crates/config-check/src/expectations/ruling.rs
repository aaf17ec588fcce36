//! Verdicts with their reasons.

use crate::part::Verdict;

/// A verdict with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ruling {
    /// The verdict.
    pub(crate) verdict: Verdict,
    /// The reason it matters, or why it may differ.
    pub(crate) why: String,
    /// The advice; empty if there is nothing to do.
    pub(crate) todo: String,
}

impl Ruling {
    /// Creates a ruling without advice.
    pub(crate) fn new(verdict: Verdict, why: impl Into<String>) -> Self {
        Self { verdict, why: why.into(), todo: String::new() }
    }

    /// Adds advice.
    pub(crate) fn todo(mut self, todo: impl Into<String>) -> Self {
        self.todo = todo.into();
        self
    }
}
