//! Which part, op and slot of the candidate answers which of the baseline.
//!
//! Parts pair by step and rank, ops by name, slots by path. What exists on one side only stays in the result.
//! [`align`] is the one place that decides which ops belong together; a cleverer alignment of differing op
//! sequences replaces the body of that function and nothing else.

mod across_tools;
mod ops;
mod parts;

pub use across_tools::{keep_common, keep_common_slots};
pub use ops::{align, pair_slots};
pub use parts::{Pairing, PartMatch, pair_parts};

use crate::dump::{Op, Rank, Slot};

/// The two ends of a pair as indices, or the one end that has no partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paired {
    /// Present on both sides: baseline index, candidate index.
    Both(usize, usize),
    /// Only the baseline has it.
    BaselineOnly(usize),
    /// Only the candidate has it.
    CandidateOnly(usize),
}

impl Paired {
    /// Index on the baseline side.
    pub const fn baseline(self) -> Option<usize> {
        match self {
            Self::Both(b, _) | Self::BaselineOnly(b) => Some(b),
            Self::CandidateOnly(_) => None,
        }
    }

    /// Index on the candidate side.
    pub const fn candidate(self) -> Option<usize> {
        match self {
            Self::Both(_, c) | Self::CandidateOnly(c) => Some(c),
            Self::BaselineOnly(_) => None,
        }
    }
}

/// Two ops that answer one another, or one without a partner, and the slots in it.
#[derive(Debug, Clone, PartialEq)]
pub struct OpPair {
    /// Indices into [`Rank::ops`](crate::dump::Rank::ops) of the two sides.
    pub ops: Paired,
    /// Indices into [`Op::slots`](crate::dump::Op::slots) of the two sides.
    pub slots: Vec<Paired>,
}

/// One step of one rank on both sides, with its ops paired in execution order.
#[derive(Debug)]
pub struct PartPair {
    /// Iteration, as the baseline numbers it.
    pub step: u64,
    /// Rank, as the baseline numbers it.
    pub rank: u32,
    /// Steps since the one of this rank that is compared before it; `None` for the first.
    pub since: Option<u64>,
    /// What the baseline recorded.
    pub baseline: Rank,
    /// What the candidate recorded.
    pub candidate: Rank,
    /// Pairs in execution order of the baseline; ops of the candidate alone stand behind the op they followed.
    pub ops: Vec<OpPair>,
}

impl PartPair {
    /// The two ops of a pair.
    pub fn op(&self, pair: &OpPair) -> (Option<&Op>, Option<&Op>) {
        (
            pair.ops.baseline().and_then(|index| self.baseline.ops.get(index)),
            pair.ops.candidate().and_then(|index| self.candidate.ops.get(index)),
        )
    }

    /// The two slots of a pair inside `pair`.
    pub fn slot(&self, pair: &OpPair, slot: Paired) -> (Option<&Slot>, Option<&Slot>) {
        let (b, c) = self.op(pair);
        (b.and_then(|op| op.slots.get(slot.baseline()?)), c.and_then(|op| op.slots.get(slot.candidate()?)))
    }

    /// Name of the op, taken from the baseline where it has one.
    pub fn name(&self, pair: &OpPair) -> &str {
        let (b, c) = self.op(pair);
        b.or(c).map_or("", |op| op.name.as_str())
    }
}
