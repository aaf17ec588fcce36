//! Contents of `gate.json` as plain structs, separate from the code that writes it.
//!
//! Names and meanings are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

use std::collections::BTreeMap;

use serde::Serialize;

use super::text::answer;
use crate::model::{Place, Tool};
use probe_dump::Word;
use probe_gate::environment::{Difference, Environments, fingerprint};
use probe_gate::outcome::SideInfo;
use probe_gate::{Culprit, GateOutcome, State, Status};

/// Version of `gate.json`. Raised when a field changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole gate.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "gate.json of probe gate", deny_unknown_fields))]
pub struct GateReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote the file.
    pub tool: Tool,
    /// The answer: `pass`, `flaky`, `drift`, `regression` or `unverified`.
    pub state: Word<State>,
    /// Exit code of the command: 0, 1 or 3.
    pub exit_code: u8,
    /// The answer in one line.
    pub answer: String,
    /// How the baseline was made: `golden` or `paired`.
    pub mode: &'static str,
    /// Culprits, the first cause first; waived ones last.
    pub culprits: &'a [Culprit],
    /// The set-ups of both sides, and what differs.
    pub environment: EnvironmentEntry<'a>,
    /// Everything that was missing or could not be read.
    pub unverified: Vec<Place<'a>>,
    /// Number of cases by status.
    pub counts: CountsEntry,
    /// Earlier results of the same commit, baseline and environment that this result contradicts.
    pub evidence: &'a [String],
    /// Statements about the whole.
    pub notes: &'a [String],
    /// Cause of moved numbers, `commit` or `environment`, as determined by running the base commit in the new environment; null if unknown.
    pub moved_by: Option<&'static str>,
    /// Steps of narrowing the first culprit down to an op by running both sides again, one line per comparison; empty if not done.
    pub narrowed: &'a [String],
    /// The commit under test; null if unknown.
    pub commit: Option<&'a str>,
    /// Identifier of the content of the baseline; empty if it is a folder.
    pub baseline_hash: &'a str,
    /// The trusted side.
    pub baseline: SideEntry,
    /// The side under test.
    pub candidate: SideEntry,
    /// File of the policy; null for the default.
    pub policy: Option<String>,
    /// The command that shows more.
    pub next: &'a str,
    /// Wall time, in seconds.
    pub seconds: f64,
}

/// The environments.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct EnvironmentEntry<'a> {
    /// True if both sides recorded a setting in common, by which drift can be detected.
    pub known: bool,
    /// Settings that differ.
    pub differences: &'a [Difference],
    /// 16 digits that identify the baseline's settings; empty if none were recorded.
    pub baseline_fingerprint: String,
    /// 16 digits that identify the candidate's settings; empty if none were recorded.
    pub candidate_fingerprint: String,
    /// The baseline's settings.
    pub baseline: &'a BTreeMap<String, String>,
    /// The candidate's settings.
    pub candidate: &'a BTreeMap<String, String>,
}

/// Number of cases by status.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct CountsEntry {
    /// Their bounds hold.
    pub passed: u64,
    /// A bound is broken.
    pub failed: u64,
    /// They differ because of another case.
    pub follows: u64,
    /// A waiver lets them pass.
    pub waived: u64,
    /// They could not be judged.
    pub unverified: u64,
}

/// One side.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct SideEntry {
    /// Paths as given.
    pub paths: Vec<String>,
    /// Format in words.
    pub format: String,
    /// Points of scalars in it.
    pub points: u64,
    /// Steps in it.
    pub steps: u64,
}

impl<'a> From<&'a Environments> for EnvironmentEntry<'a> {
    fn from(environments: &'a Environments) -> Self {
        Self {
            known: environments.is_known(),
            differences: &environments.differences,
            baseline_fingerprint: fingerprint(&environments.baseline),
            candidate_fingerprint: fingerprint(&environments.candidate),
            baseline: &environments.baseline,
            candidate: &environments.candidate,
        }
    }
}

impl From<&SideInfo> for SideEntry {
    fn from(side: &SideInfo) -> Self {
        Self {
            paths: side.paths.iter().map(|path| path.display().to_string()).collect(),
            format: side.format.clone(),
            points: side.points as u64,
            steps: side.steps as u64,
        }
    }
}

impl<'a> From<&'a GateOutcome> for GateReport<'a> {
    fn from(outcome: &'a GateOutcome) -> Self {
        let count = |status: Status| outcome.count(status) as u64;
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            state: Word(outcome.state),
            exit_code: outcome.exit_code(),
            answer: answer(outcome),
            mode: outcome.mode.name(),
            culprits: &outcome.culprits,
            environment: (&outcome.environment).into(),
            unverified: outcome.unverified.iter().map(Into::into).collect(),
            counts: CountsEntry {
                passed: count(Status::Passed),
                failed: count(Status::Failed),
                follows: count(Status::Follows),
                waived: count(Status::Waived),
                unverified: count(Status::Unverified),
            },
            evidence: &outcome.evidence,
            notes: &outcome.notes,
            moved_by: outcome.moved_by.map(probe_gate::MovedBy::name),
            narrowed: &outcome.narrowed,
            commit: outcome.candidate.commit.as_deref(),
            baseline_hash: &outcome.baseline_hash,
            baseline: (&outcome.baseline).into(),
            candidate: (&outcome.candidate).into(),
            policy: outcome.policy.as_ref().map(|path| path.display().to_string()),
            next: &outcome.next,
            seconds: outcome.seconds,
        }
    }
}

/// Returns the file.
///
/// # Errors
/// None in practice: every value can be written as JSON.
pub fn json(outcome: &GateOutcome) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(&GateReport::from(outcome))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Returns the committed JSON Schema of `gate.json`.
#[cfg(feature = "schema")]
pub fn gate_schema() -> String {
    let schema = schemars::schema_for!(GateReport<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
