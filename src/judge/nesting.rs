//! Which ops ran inside which module call.

use std::collections::HashMap;

use crate::dump::{Op, OpKind, Phase};
use crate::pair::PartPair;

/// Deepest nesting of modules that is followed.
const MAX_NESTING: usize = 200;

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

    /// True when `inner` ran inside the module call `outer`, or is the backward op that made the parameter gradient `outer`.
    pub(super) fn encloses(&self, outer: &Op, inner: &Op) -> bool {
        if outer.name.kind() != OpKind::Module || outer.name == inner.name {
            return false;
        }
        let backward;
        let outer_name = match outer.name.phase() {
            Phase::ParameterGradient => {
                let Some(name) = outer.name.in_phase(Phase::Backward) else { return false };
                if inner.name.as_str() == name {
                    return true;
                }
                backward = name;
                backward.as_str()
            }
            phase if phase == inner.name.phase() => outer.name.as_str(),
            _ => return false,
        };
        let by_path = match (outer.name.module_path(), inner.name.module_path()) {
            (Some(outer_path), Some(inner_path)) => {
                outer.name.phase() == inner.name.phase()
                    && inner_path.strip_prefix(outer_path).is_some_and(|rest| rest.starts_with('.'))
            }
            _ => false,
        };
        by_path || self.ancestors(inner.name.as_str()).any(|ancestor| ancestor == outer_name)
    }

    /// Names of the module calls around the op called `name`, innermost first.
    pub(super) fn ancestors(&self, name: &'a str) -> impl Iterator<Item = &'a str> {
        std::iter::successors(self.parents.get(name).copied(), |parent| self.parents.get(parent).copied())
            .take(MAX_NESTING)
    }
}
