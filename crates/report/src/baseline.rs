//! Machine-readable output of the `probe baseline` commands.
//!
//! Names and meanings are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::model::Tool;
use probe_dump::Exact;
use probe_gate::State;
use probe_gate::baseline::{Baseline, Comparison, Moved, Provenance};
use probe_gate::calibrate::{Spread, ValueSpread};
use probe_gate::environment::fingerprint;

/// Version of these documents. Raised when a field changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// Output of `probe baseline` with `--format json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "output of probe baseline"))]
#[serde(untagged)]
pub enum BaselineReport<'a> {
    /// Output of `save`, `import` and `update`.
    Written(WrittenReport<'a>),
    /// Output of `show`.
    Shown(ShownReport<'a>),
    /// Output of `diff`.
    Differs(DiffReport<'a>),
    /// Output of `calibrate`.
    Calibrated(CalibrationReport<'a>),
}

macro_rules! printed {
    ($($name:ident),+) => {$(
        impl $name<'_> {
            /// Returns the document as printed.
            ///
            /// # Errors
            /// None in practice: every value can be written as JSON.
            pub fn text(&self) -> serde_json::Result<String> {
                serde_json::to_string_pretty(self).map(|text| text + "\n")
            }
        }
    )+};
}

printed!(WrittenReport, ShownReport, DiffReport, CalibrationReport);

/// A baseline that was written.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct WrittenReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The file.
    pub written: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Scalars in it.
    pub scalars: u64,
    /// Points of scalars in it.
    pub points: u64,
    /// Values of modules in it.
    pub values: u64,
    /// File with the sketches of every op, beside the baseline; null if there is none.
    pub sketches: Option<&'a str>,
    /// Changes made by an update, largest first; null for a new baseline.
    pub moved: Option<DiffReport<'a>>,
    /// Statements about what was read.
    pub notes: &'a [String],
}

impl<'a> WrittenReport<'a> {
    /// Describes a baseline that was written to `path`.
    pub fn of(
        path: &Path,
        baseline: &'a Baseline,
        moved: Option<&'a Comparison>,
        notes: &'a [String],
    ) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            written: path.display().to_string(),
            bytes: baseline.to_text().len() as u64,
            scalars: baseline.scalars.len() as u64,
            points: baseline.scalars.values().map(|series| series.len() as u64).sum(),
            values: baseline.parts.iter().map(|part| part.values.len() as u64).sum(),
            sketches: baseline.sketches.as_deref(),
            moved: moved.map(DiffReport::of),
            notes,
        }
    }
}

/// Summary of a baseline; the numbers themselves are in the file.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ShownReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The file.
    pub baseline: String,
    /// Scalars by name.
    pub scalars: BTreeMap<&'a str, ScalarEntry>,
    /// Values of modules by step and rank.
    pub parts: Vec<PartEntry>,
    /// File with the sketches of every op; null if there is none.
    pub sketches: Option<&'a str>,
    /// True if that file exists beside the baseline.
    pub sketches_found: bool,
    /// The set-up of the run.
    pub environment: &'a BTreeMap<String, String>,
    /// 16 digits that identify the set-up; empty if none was recorded.
    pub fingerprint: String,
    /// Who recorded and changed it and why, the oldest entry first.
    pub provenance: &'a [Provenance],
}

/// A scalar of a baseline.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ScalarEntry {
    /// Steps that it has.
    pub steps: u64,
    /// The first of them, and the value there.
    pub first: (u64, Exact),
    /// The last of them, and the value there.
    pub last: (u64, Exact),
}

/// Values of one step of one rank.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct PartEntry {
    /// The step.
    pub step: u64,
    /// The rank.
    pub rank: u32,
    /// Values of modules.
    pub values: u64,
}

impl<'a> ShownReport<'a> {
    /// Describes the baseline at `path`; `sketches_found` is true if its sketch file exists.
    pub fn of(path: &Path, baseline: &'a Baseline, sketches_found: bool) -> Self {
        let scalars = baseline.scalars.iter().filter_map(|(name, series)| {
            let (first, last) = (series.first_key_value()?, series.last_key_value()?);
            let at = |(step, value): (&u64, &f64)| (*step, Exact(*value));
            Some((&**name, ScalarEntry { steps: series.len() as u64, first: at(first), last: at(last) }))
        });
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            baseline: path.display().to_string(),
            scalars: scalars.collect(),
            parts: baseline
                .parts
                .iter()
                .map(|part| PartEntry { step: part.step, rank: part.rank, values: part.values.len() as u64 })
                .collect(),
            sketches: baseline.sketches.as_deref(),
            sketches_found,
            environment: &baseline.environment,
            fingerprint: fingerprint(&baseline.environment),
            provenance: &baseline.provenance,
        }
    }
}

/// Differences between two baselines or runs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct DiffReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// Points and values that are equal.
    pub equal: u64,
    /// Points and values that differ or are on one side only.
    pub different: u64,
    /// Scalars and values that moved, one entry each, largest change first.
    pub moved: Vec<MovedEntry<'a>>,
    /// Settings of the environment that differ.
    pub environment: Vec<SettingEntry<'a>>,
}

/// One scalar or value that has moved.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MovedEntry<'a> {
    /// Largest change relative to the old value; infinite if the value is new, gone or not finite.
    pub change: Exact,
    /// The value that changed, and the place of its largest change.
    #[serde(flatten)]
    pub moved: &'a Moved,
}

/// One setting that differs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct SettingEntry<'a> {
    /// Its name.
    pub name: &'a str,
    /// The old value; null if it was not recorded.
    pub old: Option<&'a str>,
    /// The new value; null if it was not recorded.
    pub new: Option<&'a str>,
}

impl<'a> DiffReport<'a> {
    /// Describes a comparison.
    pub fn of(found: &'a Comparison) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            equal: found.equal as u64,
            different: found.different as u64,
            moved: found
                .moved
                .iter()
                .map(|(change, moved)| MovedEntry { change: Exact(*change), moved })
                .collect(),
            environment: found
                .environment
                .iter()
                .map(|(name, old, new)| SettingEntry { name, old: old.as_deref(), new: new.as_deref() })
                .collect(),
        }
    }
}

/// Bounds that were found from runs, and whether they tell sound runs from others.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct CalibrationReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The policy that was written.
    pub policy: String,
    /// Bounds of scalars.
    pub scalars: Vec<ScalarBound<'a>>,
    /// Bounds of values, by kind of call.
    pub values: Vec<ValueBound<'a>>,
    /// Trials of the policy.
    pub trials: Vec<TrialEntry>,
    /// True if every trial had the expected result.
    pub sound: bool,
}

/// The bound of a scalar.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ScalarBound<'a> {
    /// Its name.
    pub name: &'a str,
    /// Runs that it rests on.
    pub runs: u64,
    /// Steps that all of them have.
    pub steps: u64,
    /// Largest relative difference of two runs; null where all are equal to the bit.
    pub spread: Option<f64>,
    /// Largest relative difference that is allowed; 0 where values have to be equal.
    pub rtol: f64,
    /// Largest mean of the signed relative differences that is allowed.
    pub bias: f64,
}

/// The bound of a kind of call.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ValueBound<'a> {
    /// The pattern that is for them.
    pub pattern: &'a str,
    /// Runs that it rests on.
    pub runs: u64,
    /// Values of this kind in a run.
    pub values: u64,
    /// Largest relative l2 error between two runs; null where all are equal to the bit.
    pub spread: Option<f64>,
    /// The value that differs most; empty if none differs.
    pub largest: &'a str,
    /// Largest relative l2 error that is allowed; 0 where values have to be equal.
    pub rel_l2: f64,
}

/// Result of the policy for one run.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct TrialEntry {
    /// The run, or the change to the first run, that was gated.
    pub what: String,
    /// The state of the gate.
    pub state: &'static str,
    /// True if it is the expected state.
    pub sound: bool,
}

impl TrialEntry {
    /// Describes a trial that should have ended with `expected`.
    pub fn of(what: String, state: State, expected: State) -> Self {
        Self { what, state: state.name(), sound: state == expected }
    }
}

impl<'a> CalibrationReport<'a> {
    /// Describes the bounds that were written to `policy`.
    pub fn of(
        policy: &Path,
        scalars: &'a [Spread],
        values: &'a [ValueSpread],
        trials: Vec<TrialEntry>,
    ) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            policy: policy.display().to_string(),
            scalars: scalars
                .iter()
                .map(|spread| ScalarBound {
                    name: &spread.name,
                    runs: spread.runs as u64,
                    steps: spread.steps as u64,
                    spread: spread.relative,
                    rtol: spread.bound(),
                    bias: spread.bias_bound(),
                })
                .collect(),
            values: values
                .iter()
                .map(|spread| ValueBound {
                    pattern: &spread.pattern,
                    runs: spread.runs as u64,
                    values: spread.values as u64,
                    spread: spread.relative,
                    largest: &spread.largest,
                    rel_l2: spread.bound(),
                })
                .collect(),
            sound: trials.iter().all(|trial| trial.sound),
            trials,
        }
    }
}

/// Returns the committed JSON Schema of the output of the `probe baseline` commands.
#[cfg(feature = "schema")]
pub fn baseline_report_schema() -> String {
    let schema = schemars::schema_for!(BaselineReport<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
