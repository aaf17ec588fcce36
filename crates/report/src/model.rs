//! Contents of `report.json` as plain structs, separate from the code that writes it.
//!
//! Names and meanings are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::ser::Serializer;
use serde::{Deserialize, Deserializer, Serialize};

pub use super::culprit::Culprit;
use probe_judge::{Counts, FaultGroup, Finding, Incomplete, Role, RunInfo, Summary, Verdict};

/// Version of the machine-readable reports. Raised when a field changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole comparison.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "probe comparison report", deny_unknown_fields))]
pub struct Report<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote the file.
    pub tool: Tool,
    /// The verdict on the run; decides the exit code.
    pub verdict: RunWord,
    /// The earliest op at fault; null if there is none.
    pub first_divergence: Option<Culprit>,
    /// Ops at fault, ranked: the first divergence, then the others, origin before consequence.
    pub culprits: Vec<Culprit>,
    /// The culprits again: each fault once, with the steps and ranks that show it, in the same order.
    pub faults: Vec<Fault<'a>>,
    /// Tallies over all steps and ranks.
    pub counts: CountsByName,
    /// Everything that could not be read or compared.
    pub incomplete: Vec<Place<'a>>,
    /// Statements about the whole run, each made once.
    pub notes: &'a [String],
    /// The trusted run.
    pub baseline: Run<'a>,
    /// The run under test.
    pub candidate: Run<'a>,
    /// Wall time of the comparison, in seconds.
    pub seconds: f64,
}

/// Program that wrote the file.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

impl Tool {
    /// This build.
    pub const THIS: Self = Self { name: probe_dump::PROGRAM, version: env!("CARGO_PKG_VERSION") };
}

/// Verdict of a whole comparison.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RunWord {
    /// Everything compared agrees. Exit code 0.
    Agree,
    /// At least one op is at fault. Exit code 1.
    Diverged,
    /// Something could not be read or compared. Exit code 3.
    Incomplete,
}

impl From<probe_judge::RunVerdict> for RunWord {
    fn from(verdict: probe_judge::RunVerdict) -> Self {
        match verdict {
            probe_judge::RunVerdict::Agree => Self::Agree,
            probe_judge::RunVerdict::Diverged => Self::Diverged,
            probe_judge::RunVerdict::Incomplete => Self::Incomplete,
        }
    }
}

impl From<RunWord> for probe_judge::RunVerdict {
    fn from(word: RunWord) -> Self {
        match word {
            RunWord::Agree => Self::Agree,
            RunWord::Diverged => Self::Diverged,
            RunWord::Incomplete => Self::Incomplete,
        }
    }
}

/// One fault, in all the steps and ranks that show it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Fault<'a> {
    /// Position of its first finding in `culprits`.
    pub culprit: u64,
    /// Steps that show it.
    pub steps: &'a [u64],
    /// Ranks that show it.
    pub ranks: &'a [u32],
    /// Findings it stands for, one for each step and rank that shows it.
    pub findings: u64,
    /// Ops that differ because of it, all steps and ranks together.
    pub followers: u64,
}

impl<'a> From<&'a FaultGroup> for Fault<'a> {
    fn from(group: &'a FaultGroup) -> Self {
        let FaultGroup { first, steps, ranks, findings, followers } = group;
        Self { culprit: *first as u64, steps, ranks, findings: *findings, followers: *followers }
    }
}

/// Tallies by name.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct CountsByName {
    /// Parts (one step of one rank) compared.
    pub parts: u64,
    /// Ops present on both sides.
    pub ops_paired: u64,
    /// Ops in the baseline only.
    pub ops_baseline_only: u64,
    /// Ops in the candidate only.
    pub ops_candidate_only: u64,
    /// Slots, all verdicts together.
    pub slots: u64,
    /// Slots by verdict.
    pub verdicts: Tally,
    /// Ops by role.
    pub roles: Tally,
    /// Bytes of tensor data read, both sides together.
    pub bytes: u64,
}

impl From<&Counts> for CountsByName {
    fn from(counts: &Counts) -> Self {
        Self {
            parts: counts.parts,
            ops_paired: counts.ops_paired,
            ops_baseline_only: counts.ops_baseline_only,
            ops_candidate_only: counts.ops_candidate_only,
            slots: counts.verdicts.iter().sum(),
            verdicts: Tally(
                Verdict::ALL
                    .iter()
                    .map(|&verdict| (verdict.name().into(), counts.verdict(verdict)))
                    .collect(),
            ),
            roles: Tally(Role::ALL.iter().map(|&role| (role.name().into(), counts.role(role))).collect()),
            bytes: counts.bytes,
        }
    }
}

impl From<CountsByName> for Counts {
    fn from(counts: CountsByName) -> Self {
        let CountsByName {
            parts,
            ops_paired,
            ops_baseline_only,
            ops_candidate_only,
            // Follows from the verdicts.
            slots: _,
            verdicts,
            roles,
            bytes,
        } = counts;
        Self {
            parts,
            ops_paired,
            ops_baseline_only,
            ops_candidate_only,
            verdicts: Verdict::ALL.map(|verdict| verdicts.of(verdict.name())),
            roles: Role::ALL.map(|role| roles.of(role.name())),
            bytes,
        }
    }
}

/// Counts by word, in the order of the words.
#[derive(Debug)]
pub struct Tally(pub Vec<(Cow<'static, str>, u64)>);

impl Tally {
    /// Returns the count of a word; 0 if it is not there.
    fn of(&self, word: &str) -> u64 {
        self.0.iter().find(|(known, _)| known == word).map_or(0, |&(_, count)| count)
    }
}

impl Serialize for Tally {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(word, count)| (word, count)))
    }
}

impl<'de> Deserialize<'de> for Tally {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let counts = BTreeMap::<String, u64>::deserialize(deserializer)?;
        Ok(Self(counts.into_iter().map(|(word, count)| (word.into(), count)).collect()))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Tally {
    fn schema_name() -> Cow<'static, str> {
        "Tally".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Counts by word; every word is present, also with 0.",
            "type": "object",
            "additionalProperties": { "type": "integer", "minimum": 0 },
        })
    }
}

/// One thing that could not be compared.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Place<'a> {
    /// The place: a file, a part, or a slot.
    pub place: Cow<'a, str>,
    /// The reason, and the remedy if there is one.
    pub reason: Cow<'a, str>,
}

impl<'a> From<&'a Incomplete> for Place<'a> {
    fn from(incomplete: &'a Incomplete) -> Self {
        Self { place: (&incomplete.place).into(), reason: (&incomplete.reason).into() }
    }
}

impl From<Place<'_>> for Incomplete {
    fn from(Place { place, reason }: Place<'_>) -> Self {
        Self { place: place.into_owned(), reason: reason.into_owned() }
    }
}

/// One of the two runs.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Run<'a> {
    /// Path as the user gave it.
    pub path: Cow<'a, str>,
    /// Format in words.
    pub format: Cow<'a, str>,
    /// Kind of data recorded for tensors; empty if there is none.
    pub task: Cow<'a, str>,
    /// Level as the capture tool names it; empty if there is none.
    pub level: Cow<'a, str>,
    /// Steps found.
    pub steps: Cow<'a, [u64]>,
    /// Ranks found.
    pub ranks: Cow<'a, [u32]>,
    /// Ops read, all steps and ranks together.
    pub ops: u64,
}

impl<'a> From<&'a RunInfo> for Run<'a> {
    fn from(run: &'a RunInfo) -> Self {
        Self {
            path: (&run.path).into(),
            format: (&run.format).into(),
            task: (&run.task).into(),
            level: (&run.level).into(),
            steps: (&run.steps).into(),
            ranks: (&run.ranks).into(),
            ops: run.ops,
        }
    }
}

impl From<Run<'_>> for RunInfo {
    fn from(run: Run<'_>) -> Self {
        let Run { path, format, task, level, steps, ranks, ops } = run;
        Self {
            path: path.into_owned(),
            format: format.into_owned(),
            task: task.into_owned(),
            level: level.into_owned(),
            steps: steps.into_owned(),
            ranks: ranks.into_owned(),
            ops,
        }
    }
}

impl<'a> From<&'a Summary> for Report<'a> {
    fn from(summary: &'a Summary) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            verdict: summary.verdict.into(),
            first_divergence: summary.first_divergence.as_ref().map(Into::into),
            culprits: summary.culprits.iter().map(Into::into).collect(),
            faults: summary.groups.iter().map(Into::into).collect(),
            counts: (&summary.counts).into(),
            incomplete: summary.incomplete.iter().map(Into::into).collect(),
            notes: &summary.notes,
            baseline: (&summary.baseline).into(),
            candidate: (&summary.candidate).into(),
            seconds: summary.seconds,
        }
    }
}

/// The part of a [`Report`] from which its summary is made again.
#[derive(Debug, Deserialize)]
struct Answer<'a> {
    verdict: RunWord,
    first_divergence: Option<Culprit>,
    culprits: Vec<Culprit>,
    counts: CountsByName,
    #[serde(borrow)]
    incomplete: Vec<Place<'a>>,
    notes: Vec<String>,
    baseline: Run<'a>,
    candidate: Run<'a>,
    seconds: f64,
}

/// Reads a summary back from the text of `report.json`.
///
/// # Errors
/// Names, on one line, the field that is missing or has another form.
pub(super) fn summary(text: &str) -> Result<Summary, serde_json::Error> {
    let answer: Answer<'_> = serde_json::from_str(text)?;
    let Answer {
        verdict,
        first_divergence,
        culprits,
        counts,
        incomplete,
        notes,
        baseline,
        candidate,
        seconds,
    } = answer;
    let culprits: Vec<Finding> = culprits.into_iter().map(Into::into).collect();
    Ok(Summary {
        verdict: verdict.into(),
        first_divergence: first_divergence.map(Into::into),
        groups: probe_judge::fault_groups(&culprits),
        culprits,
        counts: counts.into(),
        incomplete: incomplete.into_iter().map(Into::into).collect(),
        notes,
        baseline: baseline.into(),
        candidate: candidate.into(),
        seconds,
    })
}

/// Returns the committed JSON Schema of `report.json`.
#[cfg(feature = "schema")]
pub fn report_schema() -> String {
    let schema = schemars::schema_for!(Report<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
