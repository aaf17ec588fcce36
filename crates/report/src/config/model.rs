//! Contents of `config.json` as plain structs, separate from the code that writes it.
//!
//! Names and meanings are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

use std::borrow::Cow;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::model::{Place, Tool};
use crate::visible::visible;
use probe_config_check::{CheckVerdict, Outcome, PackInfo, PartOutcome, Row, Unreadable};

/// Version of `config.json`. Raised when a field changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole check.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "probe configuration check", deny_unknown_fields))]
pub struct ConfigReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote the file.
    pub tool: Tool,
    /// The verdict on the pair; decides the exit code.
    pub verdict: VerdictWord,
    /// The answer in one line.
    pub answer: String,
    /// True if `unknown` counts as a difference.
    pub strict: bool,
    /// The parts by name; every part is there.
    pub parts: Parts<'a>,
    /// Everything that could not be read.
    pub incomplete: Vec<Place<'a>>,
    /// The trusted run.
    pub baseline: Pack<'a>,
    /// The run under test.
    pub candidate: Pack<'a>,
    /// Wall time of the check, in seconds.
    pub seconds: f64,
}

/// Verdict on two set-ups.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VerdictWord {
    /// Nothing differs that can change numerics. Exit code 0.
    Match,
    /// Something does. Exit code 1.
    Diff,
    /// Something could not be read. Exit code 3.
    Incomplete,
}

/// Verdict of a part or a row, from harmless to worst.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RowWord {
    /// Equal, or equal after normalisation.
    Match,
    /// Differs as expected, according to the table of expectations.
    Expected,
    /// Differs, without known effect on numerics.
    Note,
    /// Recorded on one side only, not recorded at all, or the check failed.
    Unknown,
    /// Differs and can change numerics.
    Diff,
}

impl From<probe_config_check::Verdict> for RowWord {
    fn from(verdict: probe_config_check::Verdict) -> Self {
        use probe_config_check::Verdict;
        match verdict {
            Verdict::Match => Self::Match,
            Verdict::Expected => Self::Expected,
            Verdict::Note => Self::Note,
            Verdict::Unknown => Self::Unknown,
            Verdict::Diff => Self::Diff,
        }
    }
}

/// The parts by name, in order.
#[derive(Debug)]
pub struct Parts<'a>(pub &'a [PartOutcome]);

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for part in self.0 {
            map.serialize_entry(part.part.name(), &PartReport::from(part))?;
        }
        map.end()
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Parts<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Parts".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let part = generator.subschema_for::<PartReport<'static>>();
        let names = probe_config_check::Part::ALL.map(probe_config_check::Part::name);
        let properties: serde_json::Map<String, serde_json::Value> =
            names.iter().map(|name| ((*name).to_owned(), part.clone().to_value())).collect();
        schemars::json_schema!({
            "description": "The parts by name; every part is there.",
            "type": "object",
            "properties": properties,
            "required": names,
            "additionalProperties": false,
        })
    }
}

/// A part.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct PartReport<'a> {
    /// The worst verdict of its rows.
    pub verdict: RowWord,
    /// Everything that was checked.
    pub rows: Vec<RowReport<'a>>,
}

/// One item that was checked.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct RowReport<'a> {
    /// Name of a variable, package or tensor.
    pub key: Cow<'a, str>,
    /// The step it belongs to; null if none.
    pub step: Option<u64>,
    /// The ranks it was found on; empty if it belongs to none, or if there is only one.
    pub ranks: &'a [u32],
    /// The baseline's value; null if it was not recorded.
    pub baseline: Option<Cow<'a, str>>,
    /// The candidate's value; null if it was not recorded.
    pub candidate: Option<Cow<'a, str>>,
    /// The verdict.
    pub verdict: RowWord,
    /// Reason for the verdict, and its effect on numerics; may be empty for a match.
    pub reason: Cow<'a, str>,
    /// Suggested action; empty if none is needed.
    pub action: Cow<'a, str>,
}

impl<'a> From<&'a Row> for RowReport<'a> {
    fn from(row: &'a Row) -> Self {
        Self {
            key: visible(&row.key),
            step: row.step,
            ranks: &row.ranks,
            baseline: row.baseline.as_deref().map(visible),
            candidate: row.candidate.as_deref().map(visible),
            verdict: row.verdict.into(),
            reason: visible(&row.reason),
            action: visible(&row.action),
        }
    }
}

impl<'a> From<&'a PartOutcome> for PartReport<'a> {
    fn from(part: &'a PartOutcome) -> Self {
        Self { verdict: part.verdict.into(), rows: part.rows.iter().map(Into::into).collect() }
    }
}

impl<'a> From<&'a Unreadable> for Place<'a> {
    fn from(unreadable: &'a Unreadable) -> Self {
        Self { place: visible(&unreadable.place), reason: visible(&unreadable.reason) }
    }
}

/// One of the two packs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Pack<'a> {
    /// Path as the user gave it.
    pub path: Cow<'a, str>,
    /// Tool that wrote it, in words.
    pub format: &'static str,
    /// Kind of device; null if unknown.
    pub device: Option<&'static str>,
    /// Steps in it.
    pub steps: &'a [u64],
    /// Ranks in it.
    pub ranks: &'a [u32],
}

impl<'a> From<&'a PackInfo> for Pack<'a> {
    fn from(pack: &'a PackInfo) -> Self {
        Self {
            path: visible(&pack.path),
            format: pack.origin.name(),
            device: pack.device.map(probe_config_check::pack::DeviceKind::name),
            steps: &pack.steps,
            ranks: &pack.ranks,
        }
    }
}

impl<'a> From<&'a Outcome> for ConfigReport<'a> {
    fn from(outcome: &'a Outcome) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            verdict: match outcome.verdict {
                CheckVerdict::Match => VerdictWord::Match,
                CheckVerdict::Diff => VerdictWord::Diff,
                CheckVerdict::Incomplete => VerdictWord::Incomplete,
            },
            answer: super::answer(outcome),
            strict: outcome.strict,
            parts: Parts(&outcome.parts),
            incomplete: outcome.incomplete.iter().map(Into::into).collect(),
            baseline: (&outcome.baseline).into(),
            candidate: (&outcome.candidate).into(),
            seconds: outcome.seconds,
        }
    }
}

/// Returns the text of `config.json`.
///
/// # Errors
/// None in practice: every value can be written as JSON.
pub fn json(outcome: &Outcome) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec_pretty(&ConfigReport::from(outcome))?;
    text.push(b'\n');
    Ok(text)
}

/// Returns the committed JSON Schema of `config.json`.
#[cfg(feature = "schema")]
pub fn config_schema() -> String {
    let schema = schemars::schema_for!(ConfigReport<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
