//! Contents of `report.json` as plain structs, separate from the code that writes it.
//!
//! Names and meanings are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

#[cfg(feature = "schema")]
use std::borrow::Cow;
use std::ops::Range;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::number;
use probe_judge::{
    Counts, ErrorPlace, FaultGroup, Finding, Incomplete, LargestError, Role, RunInfo, Summary, Verdict,
};
use probe_measure::{Basis, Metric};

/// Version of the machine-readable reports. Raised when a field changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole comparison.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "probe comparison report", deny_unknown_fields))]
pub struct Report<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// What wrote the file.
    pub tool: Tool,
    /// The verdict on the run; decides the exit code.
    pub verdict: RunWord,
    /// The earliest op at fault; null when there is none.
    pub first_divergence: Option<Culprit<'a>>,
    /// Ops at fault, ranked: the first divergence, then the others, origin before consequence.
    pub culprits: Vec<Culprit<'a>>,
    /// The culprits again: each fault once, with the steps and ranks that show it, in the same order.
    pub faults: Vec<Fault<'a>>,
    /// Tallies over all steps and ranks.
    pub counts: CountsByName,
    /// What could not be read or compared.
    pub incomplete: Vec<Place<'a>>,
    /// Statements about the whole run, each said once.
    pub notes: &'a [String],
    /// The trusted run.
    pub baseline: Run<'a>,
    /// The run under test.
    pub candidate: Run<'a>,
    /// Wall time of the comparison, in seconds.
    pub seconds: f64,
}

/// What wrote the file.
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
#[derive(Debug, Clone, Copy, Serialize)]
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

/// Where in a tensor an error lies. Indices are those of the baseline's shape.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Spot<'a> {
    /// Sizes of the dimensions.
    pub shape: &'a [u64],
    /// The largest error among the elements that are finite on both sides; null where they are equal or were not compared.
    pub largest: Option<Largest<'a>>,
    /// The greatest and the least element of both sides, where elements were not compared and the places of these were recorded; null
    /// otherwise.
    pub extremes: Option<Extremes<'a>>,
    /// For each dimension the first index and the one after the last of the range that holds 99 % of the elements that are NaN or infinite
    /// on one side alone, or else of the squared error; null where it was not looked for.
    pub region: Option<Vec<[u64; 2]>>,
}

/// The first of the greatest and of the least finite elements.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Extremes<'a> {
    /// The greatest.
    pub greatest: OfSides<'a>,
    /// The least.
    pub least: OfSides<'a>,
}

/// An element of each side.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct OfSides<'a> {
    /// That of the baseline.
    pub baseline: Located<'a>,
    /// That of the candidate.
    pub candidate: Located<'a>,
}

/// An element and where it is.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Located<'a> {
    /// Its index in each dimension.
    pub index: &'a [u64],
    /// Its value; the modulus, for complex.
    pub value: f64,
}

impl<'a> OfSides<'a> {
    fn of([baseline, candidate]: &'a [probe_judge::Located; 2]) -> Self {
        let located = |found: &'a probe_judge::Located| Located { index: &found.index, value: found.value };
        Self { baseline: located(baseline), candidate: located(candidate) }
    }
}

/// The element with the largest absolute error.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Largest<'a> {
    /// Its index in each dimension.
    pub index: &'a [u64],
    /// What the baseline holds there.
    pub baseline: f64,
    /// What the candidate holds there.
    pub candidate: f64,
}

impl<'a> From<&'a ErrorPlace> for Spot<'a> {
    fn from(place: &'a ErrorPlace) -> Self {
        let ends = |ranges: &Vec<Range<u64>>| ranges.iter().map(|range| [range.start, range.end]).collect();
        let largest = |found: &'a LargestError| Largest {
            index: &found.index,
            baseline: found.baseline,
            candidate: found.candidate,
        };
        Self {
            shape: &place.shape,
            largest: place.largest.as_ref().map(largest),
            extremes: place.extremes.as_deref().map(|found| Extremes {
                greatest: OfSides::of(&found.greatest),
                least: OfSides::of(&found.least),
            }),
            region: place.region.as_ref().map(ends),
        }
    }
}

/// An op at fault.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Culprit<'a> {
    /// Iteration.
    pub step: u64,
    /// Rank.
    pub rank: u32,
    /// Place of the op in execution order within its step and rank, from 0.
    pub order: u64,
    /// Full op name.
    pub op: &'a str,
    /// Path of the slot that shows the fault; empty for an op without partner.
    pub slot: &'a str,
    /// Kind of fault.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = words(&probe_judge::Cause::ALL.map(probe_judge::Cause::name)))))]
    pub cause: &'static str,
    /// Role of the op in the spread of error.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = words(&Role::ALL.map(Role::name)))))]
    pub role: &'static str,
    /// Metrics of the slot by name; null where undefined or unknown.
    pub metrics: Metrics<'a>,
    /// True when the metrics are no exact values: estimates from sketches, or lower bounds from recorded statistics.
    pub estimated: bool,
    /// What the metrics rest on: `data` (exact), `sketch` (within 20 %) or `statistics` (lower bounds); null where there are none.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = with_null(&Basis::ALL.map(Basis::name)))))]
    pub basis: Option<&'static str>,
    /// Relative l2 error of the baseline against the reference run; null where not known, or without one.
    pub reference_error_baseline: Option<f64>,
    /// The same of the candidate.
    pub reference_error_candidate: Option<f64>,
    /// Where in the tensor the error lies, or the extremes where the elements were not compared; null where neither is known.
    pub place: Option<Spot<'a>>,
    /// Why, in words.
    pub reason: &'a str,
    /// Ops of its step and rank that differ because of it.
    pub followers: u64,
    /// Call stack, innermost first, framework frames left out; empty where not recorded.
    pub stack: &'a [String],
    /// Source line of the innermost user frame as `file:line`; null where not recorded.
    pub source: Option<&'a str>,
    /// Path of the module it belongs to; null where not known.
    pub module: Option<&'a str>,
    /// Operators of the runtime that it launched, where the candidate recorded them.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[cfg_attr(feature = "schema", schemars(default))]
    pub below: &'a [String],
    /// The op of the framework that launched it, of operators recorded in the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<&'a str>,
}

impl<'a> From<&'a Finding> for Culprit<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            step: finding.step,
            rank: finding.rank,
            order: finding.order as u64,
            op: &finding.op,
            slot: &finding.slot,
            cause: finding.cause.name(),
            role: finding.role.name(),
            metrics: Metrics(&finding.metrics),
            estimated: finding.is_estimated(),
            basis: finding.basis.map(Basis::name),
            reference_error_baseline: finding.reference.baseline,
            reference_error_candidate: finding.reference.candidate,
            place: finding.place.as_ref().map(Into::into),
            reason: &finding.reason,
            followers: finding.followers,
            stack: &finding.stack,
            source: finding.source.as_deref(),
            module: finding.module.as_deref(),
            below: &finding.below,
            caller: finding.caller.as_deref(),
        }
    }
}

/// Metrics by name, in column order.
#[derive(Debug)]
pub struct Metrics<'a>(pub &'a [(Metric, Option<f64>)]);

impl Serialize for Metrics<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for &(metric, value) in self.0 {
            match value.map(|value| (value, number::word(value))) {
                None => map.serialize_entry(metric.name(), &())?,
                Some((_, Some(word))) => map.serialize_entry(metric.name(), word)?,
                Some((value, None)) => map.serialize_entry(metric.name(), &value)?,
            }
        }
        map.end()
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Metrics<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Metrics".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let properties: serde_json::Map<String, serde_json::Value> = probe_measure::ALL_METRICS
            .iter()
            .map(|metric| {
                let value = serde_json::json!({
                    "description": metric.meaning(),
                    "anyOf": [{ "type": ["number", "null"] }, { "enum": ["NaN", "Infinity", "-Infinity"] }],
                });
                (metric.name().to_owned(), value)
            })
            .collect();
        let names: Vec<&str> = probe_measure::ALL_METRICS.iter().map(|metric| metric.name()).collect();
        schemars::json_schema!({
            "description": "Metrics by name; null where undefined or unknown, a word where not finite.",
            "type": "object",
            "properties": properties,
            "required": names,
            "additionalProperties": false,
        })
    }
}

/// Tallies by name.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct CountsByName {
    /// Parts (one step of one rank) compared.
    pub parts: u64,
    /// Ops present on both sides.
    pub ops_paired: u64,
    /// Ops of the baseline alone.
    pub ops_baseline_only: u64,
    /// Ops of the candidate alone.
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
                Verdict::ALL.iter().map(|&verdict| (verdict.name(), counts.verdict(verdict))).collect(),
            ),
            roles: Tally(Role::ALL.iter().map(|&role| (role.name(), counts.role(role))).collect()),
            bytes: counts.bytes,
        }
    }
}

/// Counts by word, in the order of the words.
#[derive(Debug)]
pub struct Tally(pub Vec<(&'static str, u64)>);

impl Serialize for Tally {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Tally {
    fn schema_name() -> Cow<'static, str> {
        "Tally".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Numbers by word; every word is there, also with 0.",
            "type": "object",
            "additionalProperties": { "type": "integer", "minimum": 0 },
        })
    }
}

/// One thing that could not be compared.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Place<'a> {
    /// Where: a file, a part, or a slot.
    pub place: &'a str,
    /// Why, and the repair where there is one.
    pub reason: &'a str,
}

impl<'a> From<&'a Incomplete> for Place<'a> {
    fn from(incomplete: &'a Incomplete) -> Self {
        Self { place: &incomplete.place, reason: &incomplete.reason }
    }
}

/// One of the two runs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Run<'a> {
    /// Path as the user gave it.
    pub path: &'a str,
    /// Format in words.
    pub format: &'a str,
    /// What was recorded of tensors; empty when there is nothing to say.
    pub task: &'a str,
    /// Level as the capture tool names it; empty when there is none.
    pub level: &'a str,
    /// Steps found.
    pub steps: &'a [u64],
    /// Ranks found.
    pub ranks: &'a [u32],
    /// Ops read, all steps and ranks together.
    pub ops: u64,
}

impl<'a> From<&'a RunInfo> for Run<'a> {
    fn from(run: &'a RunInfo) -> Self {
        Self {
            path: &run.path,
            format: &run.format,
            task: &run.task,
            level: &run.level,
            steps: &run.steps,
            ranks: &run.ranks,
            ops: run.ops,
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

#[cfg(feature = "schema")]
fn with_null(list: &[&'static str]) -> serde_json::Value {
    list.iter().map(|word| Some(*word)).chain([None]).collect()
}

#[cfg(feature = "schema")]
fn words(list: &[&'static str]) -> serde_json::Value {
    list.into()
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
