//! Pairs the parts, ops and slots of the candidate with those of the baseline.
//!
//! Parts pair by step and rank; ops by name, or as sequences by their data if names are not sufficient; slots
//! by path. Anything that exists on one side only stays in the result. [`align`] is the one place that decides
//! which ops belong together.

mod across_frameworks;
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

pub use across_frameworks::{CommonTerms, torch_name};
pub use across_kernels::{align_kernels, holds_kernels};
pub use across_levels::keep_shared_kinds;
pub use across_tools::{keep_common, keep_common_slots};
pub use by_slot::BySlot;
pub use cut::keep_reached;
pub use mapping::{LayoutLine, Mapping};
pub use ops::{align, pair_slots};
pub use parts::{Many, Pairing, PartMatch, pair_parts};
pub use rows::{keep_first_batch, shared_rows};
pub use sequence::{apart, slot_key, value_key};
pub use slot_pairs::SlotPairs;
pub use substitution::substitutions;
pub use values::value_numbers;

use probe_dump::{Op, Rank, Slot};

/// The two ends of a pair as indices, or the one end if it is unpaired.
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

/// Two paired ops, or one unpaired op, and the slots in it.
#[derive(Debug, Clone, PartialEq)]
pub struct OpPair {
    /// Indices into [`Rank::ops`](probe_dump::Rank::ops) of the two sides.
    pub ops: Paired,
    /// Indices into [`Op::slots`](probe_dump::Op::slots) of the two sides.
    pub slots: SlotPairs,
}

/// Pairing of the ops of two ranks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Alignment {
    /// Pairs in execution order of the baseline; candidate-only ops follow the op that preceded them.
    pub ops: Vec<OpPair>,
    /// Remarks, such as modules with a different path.
    pub notes: Vec<String>,
}

/// Unpaired ops between two pairs: ops of one side that replace some of the other (`matmul` for `expand`,
/// `bmm`, `view`), or ops of one side only (an op that passes on what it read).
///
/// If the results they pass on agree, the structure differs but the results do not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Substitution {
    /// Positions in [`Alignment::ops`] of the baseline's ops, in execution order.
    pub baseline: Vec<usize>,
    /// Positions in [`Alignment::ops`] of the candidate's ops, in execution order.
    pub candidate: Vec<usize>,
    /// Slots where paired ops read the group's results on either side: positions in [`Alignment::ops`] and in
    /// [`OpPair::slots`]; the nearest few. Empty if no such op reads any of them, or if too little was
    /// recorded to tell.
    pub boundary: Vec<(usize, usize)>,
    /// Positions in [`PartPair::substitutions`] of later groups whose ops read this group's results, or make
    /// them again; the nearest few. An activation and the product that uses it may together replace one op of
    /// the other side.
    pub feeds: Vec<usize>,
}

/// One step of one rank on both sides, with its ops paired in execution order.
#[derive(Debug)]
pub struct PartPair {
    /// Iteration, by the baseline's numbering.
    pub step: u64,
    /// Rank, by the baseline's numbering.
    pub rank: u32,
    /// Steps since this rank's previous compared step; `None` for the first.
    pub since: Option<u64>,
    /// The baseline's recording.
    pub baseline: Rank,
    /// The candidate's recording.
    pub candidate: Rank,
    /// Pairs in execution order of the baseline; candidate-only ops follow the op that preceded them.
    pub ops: Vec<OpPair>,
    /// Runs of unpaired ops.
    pub substitutions: Vec<Substitution>,
}

impl PartPair {
    /// Returns the two ops of a pair.
    pub fn op(&self, pair: &OpPair) -> (Option<&Op>, Option<&Op>) {
        (
            pair.ops.baseline().and_then(|index| self.baseline.ops.get(index)),
            pair.ops.candidate().and_then(|index| self.candidate.ops.get(index)),
        )
    }

    /// Returns the two slots of a slot pair inside `pair`.
    pub fn slot(&self, pair: &OpPair, slot: Paired) -> (Option<&Slot>, Option<&Slot>) {
        let (b, c) = self.op(pair);
        (b.and_then(|op| op.slots.get(slot.baseline()?)), c.and_then(|op| op.slots.get(slot.candidate()?)))
    }

    /// Returns the two slots at a position of the op at a position; none if there is no such position.
    pub fn slot_at(&self, op: usize, slot: usize) -> (Option<&Slot>, Option<&Slot>) {
        let pair = self.ops.get(op).and_then(|op| Some((op, op.slots.get(slot)?)));
        pair.map_or((None, None), |(op, slots)| self.slot(op, slots))
    }

    /// Returns the name of the op: the baseline's, if it has one.
    pub fn name(&self, pair: &OpPair) -> &str {
        let (b, c) = self.op(pair);
        b.or(c).map_or("", |op| op.name.as_str())
    }
}
