//! Names of calls: counts them, and gives the calls of a recomputed region the numbers they had the first time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

type Counters = HashMap<Arc<str>, u32>;

/// The forward op that created a node of the autograd graph.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) scope: Option<Arc<str>>,
    /// Number of its place, from [`Stacks`](crate::stack::Stacks).
    pub(crate) place: Option<usize>,
}

/// Numbering of one step.
#[derive(Debug, Default)]
pub(crate) struct Names {
    counters: Counters,
    /// Counters at the first entry into each checkpointed region.
    regions: HashMap<isize, Counters>,
    /// Region being recomputed, and its counters.
    recompute: Option<(isize, Counters)>,
    /// Sequence number of an autograd node -> the op that was about to create it.
    origins: BTreeMap<u64, Origin>,
}

/// Position of a call relative to checkpointed regions: outside, or in which pass over one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    None,
    Forward(isize),
    Recompute(isize),
}

impl Names {
    /// Returns the number of this call of `key`, from 0.
    pub(crate) fn number(&mut self, key: &str, region: Region) -> u32 {
        let counters = match region {
            Region::None => &mut self.counters,
            Region::Forward(id) => {
                if !self.regions.contains_key(&id) {
                    self.regions.insert(id, self.counters.clone());
                }
                &mut self.counters
            }
            Region::Recompute(id) => {
                if self.recompute.as_ref().is_none_or(|(current, _)| *current != id) {
                    // A region entered before the step began continues counting.
                    let start = self.regions.get(&id).unwrap_or(&self.counters).clone();
                    self.recompute = Some((id, start));
                }
                match &mut self.recompute {
                    Some((_, counters)) => counters,
                    None => &mut self.counters,
                }
            }
        };
        if let Some(next) = counters.get_mut(key) {
            *next += 1;
            return *next - 1;
        }
        counters.insert(key.into(), 1);
        0
    }

    /// Takes back the last number given for `key`, if it was `number`.
    pub(crate) fn give_back(&mut self, key: &str, number: u32) {
        let recompute = self.recompute.as_mut().map(|(_, counters)| counters);
        for counters in std::iter::once(&mut self.counters).chain(recompute) {
            if let Some(next) = counters.get_mut(key)
                && *next == number + 1
            {
                *next = number;
                return;
            }
        }
    }

    /// Notes which op runs while `next` is the next sequence number: the node it creates, if any, is the one before.
    pub(crate) fn note_origin(&mut self, next: u64, origin: impl FnOnce() -> Origin) {
        // The node belongs to the first op after its creation; later ones created none of their own. Before the first
        // node there is none.
        if let Some(node) = next.checked_sub(1) {
            self.origins.entry(node).or_insert_with(origin);
        }
    }

    /// Returns the forward op behind the node with this sequence number.
    pub(crate) fn origin(&self, sequence: u64) -> Option<&Origin> {
        self.origins.range(..=sequence).next_back().map(|(_, origin)| origin)
    }

    /// Resets everything for a new step.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
