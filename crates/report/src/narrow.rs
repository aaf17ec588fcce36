//! What `probe narrow` found, for programs.

use serde::Serialize;

use super::model::{Report, Tool};
use probe_judge::Summary;

/// Version of the document. Raised when a field changes its meaning or goes away; not for new ones.
pub const SCHEMA_VERSION: u32 = 1;

/// The way to the op, and the comparison at its end.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "what probe narrow prints", deny_unknown_fields))]
pub struct NarrowReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// What wrote it.
    pub tool: Tool,
    /// Every comparison on the way, in order.
    pub stages: Vec<StageEntry<'a>>,
    /// The finest comparison that found a fault, as `report.json` has it; the first where none did.
    pub result: Report<'a>,
}

/// One comparison on the way.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct StageEntry<'a> {
    /// What was recorded: `modules`, `ops` or `tensors`.
    pub recorded: &'static str,
    /// The steps.
    pub steps: &'a str,
    /// Path of the module that was looked into; null for everything.
    pub module: Option<&'a str>,
    /// The baseline's dump.
    pub baseline: String,
    /// The candidate's dump.
    pub candidate: String,
    /// What was found, in one line.
    pub answer: String,
}

impl<'a> NarrowReport<'a> {
    /// The report of these stages.
    pub fn of(stages: Vec<StageEntry<'a>>, answer: &'a Summary) -> Self {
        Self { schema_version: SCHEMA_VERSION, tool: Tool::THIS, stages, result: answer.into() }
    }

    /// As it is printed.
    ///
    /// # Errors
    /// None in practice: every value has a form in JSON.
    pub fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// The JSON Schema of what `probe narrow` prints, as it is committed.
#[cfg(feature = "schema")]
pub fn narrow_schema() -> String {
    let schema = schemars::schema_for!(NarrowReport<'static>);
    // A schema is plain data; only its own text can come out.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
