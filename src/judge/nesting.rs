//! Which ops ran inside which module call.

use std::collections::HashMap;

use crate::pair::PartPair;

/// Deepest nesting of modules that is followed.
pub(super) const MAX_NESTING: usize = 200;

/// Which module call an op ran in: as recorded, and as module paths tell.
#[derive(Debug)]
pub(super) struct Nesting<'a> {
    parents: HashMap<&'a str, &'a str>,
}

impl<'a> Nesting<'a> {
    pub(super) fn of(pair: &'a PartPair) -> Self {
        let ops = pair.baseline.ops.iter().chain(&pair.candidate.ops);
        let parents = ops.filter_map(|op| Some((op.name.as_str(), op.parent.as_deref()?))).collect();
        Self { parents }
    }

    /// Names of the module calls around the op called `name`, innermost first.
    pub(super) fn ancestors(&self, name: &str) -> impl Iterator<Item = &'a str> {
        std::iter::successors(self.parents.get(name).copied(), |parent| self.parents.get(parent).copied())
            .take(MAX_NESTING)
    }
}
