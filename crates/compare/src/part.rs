//! A compared part, as received by reports and gates.

use super::{Pieces, Portrait};
use probe_judge::{PartEvidence, PartJudgement};
use probe_pair::{BySlot, PartPair};

/// All results for one step of one rank.
#[derive(Debug, Clone, Copy)]
pub struct PartReport<'a> {
    /// The two sides and their pairing.
    pub pair: &'a PartPair,
    /// Evidence for the slots.
    pub evidence: &'a PartEvidence,
    /// The judgements.
    pub judged: &'a PartJudgement,
    /// Numbers of the values; see [`probe_pair::value_numbers`].
    pub values: &'a BySlot<Option<u32>>,
    /// Words for the pieces of each value that ranks hold, by the places of op and slot; empty if ranks pair one to one.
    pub pieces: &'a Pieces,
    /// Closer looks at values at fault.
    pub portraits: &'a [Portrait],
    /// Number of parts of the whole comparison, as far as known: parts that cannot be read drop out.
    pub parts: usize,
}
