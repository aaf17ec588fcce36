//! Nesting of ops in module calls.

use std::collections::HashMap;

use probe_dump::{Op, Rank};
use probe_pair::PartPair;

/// Deepest nesting of modules that is followed.
pub(super) const MAX_NESTING: usize = 200;

/// The module call around each op, as each side recorded it: calls with the same name need not correspond.
#[derive(Debug)]
pub(super) struct Nesting<'a> {
    baseline: HashMap<&'a str, &'a str>,
    candidate: HashMap<&'a str, &'a str>,
}

impl<'a> Nesting<'a> {
    pub(super) fn of(pair: &'a PartPair) -> Self {
        let parents = |side: &'a Rank| {
            side.ops.iter().filter_map(|op| Some((op.name.as_str(), op.parent.as_deref()?))).collect()
        };
        Self { baseline: parents(&pair.baseline), candidate: parents(&pair.candidate) }
    }

    /// Returns the names of the module calls around an op of the baseline or the candidate, innermost first.
    pub(super) fn ancestors(&self, op: &'a Op, of_baseline: bool) -> impl Iterator<Item = &'a str> {
        let parents = if of_baseline { &self.baseline } else { &self.candidate };
        std::iter::successors(op.parent.as_deref(), |parent| parents.get(parent).copied()).take(MAX_NESTING)
    }
}
