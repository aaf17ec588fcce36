//! A compared part, as reports and gates receive it.

use super::Portrait;
use probe_judge::{PartEvidence, PartJudgement};
use probe_pair::{BySlot, PartPair};

/// Everything known of one step of one rank.
#[derive(Debug, Clone, Copy)]
pub struct PartReport<'a> {
    /// The two sides and their pairing.
    pub pair: &'a PartPair,
    /// What is known of the slots.
    pub evidence: &'a PartEvidence,
    /// What was decided.
    pub judged: &'a PartJudgement,
    /// Numbers of the values; see [`probe_pair::value_numbers`].
    pub values: &'a BySlot<Option<u32>>,
    /// What was looked at more closely.
    pub portraits: &'a [Portrait],
    /// Number of parts of the whole comparison, as far as it is known: what cannot be read drops out.
    pub parts: usize,
}
