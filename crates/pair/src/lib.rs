//! Which part, op and slot of the candidate answers which of the baseline.
//!
//! Parts pair by step and rank, ops by name and, where names do not tell, as sequences by their data, slots by path. What exists on one side
//! only stays in the result. [`align`] is the one place that decides which ops belong together.

mod across_kernels;
mod across_levels;
mod across_tools;
mod by_slot;
mod cut;
mod mapping;
mod merged;
mod ops;
mod parts;
mod rows;
mod sequence;
mod slot_pairs;
mod strangers;
mod substitution;
#[cfg(test)]
mod tests;
mod values;

pub use across_kernels::{align_kernels, holds_kernels};
pub use across_levels::keep_shared_kinds;
pub use across_tools::{keep_common, keep_common_slots};
pub use by_slot::BySlot;
pub use cut::keep_reached;
pub use mapping::Mapping;
pub use ops::{align, pair_slots};
pub use parts::{Pairing, PartMatch, pair_parts};
pub use rows::{keep_first_batch, shared_rows};
pub use sequence::{apart, slot_key, value_key};
pub use slot_pairs::SlotPairs;
pub use substitution::substitutions;
pub use values::value_numbers;

use probe_dump::{Op, Rank, Slot};

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
    /// Indices into [`Rank::ops`](probe_dump::Rank::ops) of the two sides.
    pub ops: Paired,
    /// Indices into [`Op::slots`](probe_dump::Op::slots) of the two sides.
    pub slots: SlotPairs,
}

/// How the ops of two ranks pair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Alignment {
    /// Pairs in execution order of the baseline; ops of the candidate alone stand behind the op they followed.
    pub ops: Vec<OpPair>,
    /// Remarks, such as modules that have another path.
    pub notes: Vec<String>,
}

/// Ops without a partner between two pairs: some of one side in the place of some of the other (`matmul` for `expand`, `bmm`, `view`), or of
/// one side alone (an op that hands on what it read).
///
/// Where what they hand on agrees, such a difference of structure is none of results.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Substitution {
    /// Positions in [`Alignment::ops`] of those of the baseline, in execution order.
    pub baseline: Vec<usize>,
    /// Positions in [`Alignment::ops`] of those of the candidate, in execution order.
    pub candidate: Vec<usize>,
    /// Where ops that both sides have read what the group made on either side: positions in [`Alignment::ops`] and in
    /// [`OpPair::slots`]; the nearest few. Empty where no such op reads any of it, or too little was recorded to tell.
    pub boundary: Vec<(usize, usize)>,
    /// Places among [`PartPair::substitutions`] of later groups whose ops read what this one made, or make it again; the nearest few. An
    /// activation here and the product with it there may together stand in the place of one op of the other side.
    pub feeds: Vec<usize>,
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
    /// Runs of ops without a partner.
    pub substitutions: Vec<Substitution>,
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

    /// The two slots at a place of the op at a place; none where there is no such place.
    pub fn slot_at(&self, op: usize, slot: usize) -> (Option<&Slot>, Option<&Slot>) {
        let pair = self.ops.get(op).and_then(|op| Some((op, op.slots.get(slot)?)));
        pair.map_or((None, None), |(op, slots)| self.slot(op, slots))
    }

    /// Name of the op, taken from the baseline where it has one.
    pub fn name(&self, pair: &OpPair) -> &str {
        let (b, c) = self.op(pair);
        b.or(c).map_or("", |op| op.name.as_str())
    }
}
