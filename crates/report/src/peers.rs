//! Output of `probe peers --format json` as plain structs, separate from the code that prints it.
//!
//! Names and meanings are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

use serde::Serialize;

use super::model::Tool;
use probe_compare::peers::{Birth, OddRank, Peers, StepPeers};

/// Version of the format. Raised when a field changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The ranks of one dump against one another.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "JSON of probe peers", deny_unknown_fields))]
pub struct PeersReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The answer: `agree`, `differ` or `incomplete`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["agree", "differ", "incomplete"])))]
    pub verdict: &'static str,
    /// The dump as it was given.
    pub path: String,
    /// Ranks that were looked at.
    pub ranks: Vec<u32>,
    /// Steps that were looked at, with what was found in each.
    pub steps: Vec<StepEntry<'a>>,
    /// Everything that could not be read.
    pub incomplete: &'a [String],
}

/// Findings of one step.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct StepEntry<'a> {
    /// Iteration.
    pub step: u64,
    /// Values of which more ranks than one hold the same.
    pub replicated: u64,
    /// Ranks that hold another value than their peers, the earliest first.
    pub odd: Vec<OddEntry<'a>>,
    /// Ops that made NaN or infinity of finite values; the first is the origin if it is NaN.
    pub births: Vec<BirthEntry<'a>>,
    /// Ranks that have NaN or infinity from a collective.
    pub received: Vec<ReceivedEntry<'a>>,
}

/// A rank that differs from its peers.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct OddEntry<'a> {
    /// The rank.
    pub rank: u32,
    /// The other rank if there are only two and the wrong one is unknown; null otherwise.
    pub or: Option<u32>,
    /// Values in which it differs.
    pub values: u64,
    /// The first of them: op and slot.
    pub first: &'a str,
    /// Place of that op in execution order, from 0.
    pub order: usize,
}

/// An op that made NaN or infinity of finite values.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct BirthEntry<'a> {
    /// The rank.
    pub rank: u32,
    /// Name of the op.
    pub op: &'a str,
    /// The result.
    pub slot: &'a str,
    /// Place in execution order, from 0.
    pub order: usize,
    /// Collectives that the rank had taken part in before.
    pub collectives: usize,
    /// True for NaN, false for infinity.
    pub nan: bool,
}

/// A rank that was handed NaN or infinity.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ReceivedEntry<'a> {
    /// The rank.
    pub rank: u32,
    /// The first collective that handed it over.
    pub op: &'a str,
}

impl<'a> From<&'a Peers> for PeersReport<'a> {
    fn from(found: &'a Peers) -> Self {
        let verdict = match (found.faults.is_empty(), found.agree()) {
            (false, _) => "incomplete",
            (true, false) => "differ",
            (true, true) => "agree",
        };
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            verdict,
            path: found.path.display().to_string(),
            ranks: found.ranks.iter().copied().collect(),
            steps: found.steps.iter().map(Into::into).collect(),
            incomplete: &found.faults,
        }
    }
}

impl<'a> From<&'a StepPeers> for StepEntry<'a> {
    fn from(found: &'a StepPeers) -> Self {
        let StepPeers { step, replicated, odd, births, received } = found;
        let odd = odd.iter().map(|OddRank { rank, or, values, first, order }| OddEntry {
            rank: *rank,
            or: *or,
            values: *values,
            first,
            order: *order,
        });
        let births = births.iter().map(|Birth { rank, collectives, order, op, slot, nan }| BirthEntry {
            rank: *rank,
            op,
            slot,
            order: *order,
            collectives: *collectives,
            nan: *nan,
        });
        Self {
            step: *step,
            replicated: *replicated,
            odd: odd.collect(),
            births: births.collect(),
            received: received.iter().map(|(rank, op)| ReceivedEntry { rank: *rank, op }).collect(),
        }
    }
}

/// Returns the document as printed.
///
/// # Errors
/// None in practice: every value can be written as JSON.
pub fn json(found: &Peers) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&PeersReport::from(found))?;
    text.push('\n');
    Ok(text)
}

/// Returns the committed JSON Schema of the document.
#[cfg(feature = "schema")]
pub fn peers_schema() -> String {
    let schema = schemars::schema_for!(PeersReport<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
