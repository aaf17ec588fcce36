//! Places of ops: those in the folded run, from which ops are left out before it is compared, and those inside a module call.

use std::collections::HashMap;
use std::hash::BuildHasher;

use probe_dump::{Op, OpName, Rank};
use probe_pair::{OpPair, PartPair};

use super::{Layouts, NEAR_BY};

impl Layouts {
    /// Returns the names of the ops of the run on many ranks, in order; none if ranks pair one to one.
    pub(crate) fn names(&self, baseline: &Rank, candidate: &Rank) -> Vec<Box<str>> {
        let folded = if self.of_baseline { baseline } else { candidate };
        let ops = if self.ranks.is_empty() { &[][..] } else { &folded.ops };
        ops.iter().map(|op| op.name.as_str().into()).collect()
    }

    /// Moves what is known of values to the places that their ops have now, of which some have been left out since `names` were taken.
    pub(crate) fn follow(&mut self, names: &[Box<str>], baseline: &Rank, candidate: &Rank) {
        let folded = if self.of_baseline { baseline } else { candidate };
        if self.ranks.is_empty() || names.len() == folded.ops.len() {
            return;
        }
        let now = places(names, &folded.ops);
        self.remarks = moved(std::mem::take(&mut self.remarks), &now);
        self.spread = moved(std::mem::take(&mut self.spread), &now);
        let apart = std::mem::take(&mut self.apart).into_iter();
        self.apart = apart.filter_map(|(op, slot)| Some((*now.get(&op)?, slot))).collect();
    }
}

/// Returns the new place of each op that is left, by the place that it had.
fn places(names: &[Box<str>], ops: &[Op]) -> HashMap<usize, usize> {
    let mut left = names.iter().enumerate();
    let place = |(now, op): (usize, &Op)| {
        let (before, _) = left.find(|(_, name)| ***name == *op.name.as_str())?;
        Some((before, now))
    };
    ops.iter().enumerate().map_while(place).collect()
}

fn moved<T, S: BuildHasher + Default>(
    known: HashMap<(usize, usize), T, S>,
    now: &HashMap<usize, usize>,
) -> HashMap<(usize, usize), T, S> {
    known.into_iter().filter_map(|((op, slot), of)| Some(((*now.get(&op)?, slot), of))).collect()
}

/// Returns the first op that ran in a module call, or the place of the op itself.
pub(super) fn first_inside(pair: &PartPair, order: usize) -> usize {
    let name = pair.name(&pair.ops[order]);
    let own = OpName::parse(name);
    // Not all formats say what a call ran in; the paths of modules do.
    let inside = |op: &OpPair| {
        let (b, c) = pair.op(op);
        let is_submodule = |inner: &OpName| {
            let rest = inner.module_path().zip(own.module_path()).and_then(|(a, b)| a.strip_prefix(b));
            rest.is_some_and(|rest| rest.starts_with('.')) && inner.phase() == own.phase()
        };
        b.or(c).is_some_and(|op| op.parent.as_deref() == Some(name) || is_submodule(&op.name))
    };
    let start = order.saturating_sub(NEAR_BY);
    (start..order).find(|&place| inside(&pair.ops[place])).unwrap_or(order)
}

#[cfg(test)]
mod tests {
    use probe_dump::OpName;

    use super::*;

    #[test]
    fn ops_that_are_left_have_the_places_behind_what_is_left_out() {
        let names: Vec<Box<str>> = ["a.0.forward", "b.0.forward", "c.0.forward"].map(Into::into).into();
        let ops = ["b.0.forward", "c.0.forward"].map(|name| Op::new(OpName::parse(name)));
        assert_eq!(places(&names, &ops), HashMap::from([(1, 0), (2, 1)]));
    }
}
