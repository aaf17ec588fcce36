//! Findings of `probe narrow`, for programs.

use serde::Serialize;

use super::model::{Report, Tool};
use probe_judge::Summary;

/// Version of the document. Raised when a field changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The comparisons that lead to the op, and the last of them in full.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "output of probe narrow", deny_unknown_fields))]
pub struct NarrowReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// Every comparison, in order.
    pub stages: Vec<StageEntry<'a>>,
    /// The finest comparison that found a fault, as in `report.json`; the first one if none did.
    pub result: Report<'a>,
}

/// One comparison.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct StageEntry<'a> {
    /// Data recorded: `modules`, `ops` or `tensors`.
    pub recorded: &'static str,
    /// The steps.
    pub steps: &'a str,
    /// Path of the module whose ops were recorded; null for everything.
    pub module: Option<&'a str>,
    /// The baseline's dump.
    pub baseline: String,
    /// The candidate's dump.
    pub candidate: String,
    /// The answer in one line.
    pub answer: String,
}

impl<'a> NarrowReport<'a> {
    /// Creates the report of these stages.
    pub fn of(stages: Vec<StageEntry<'a>>, answer: &'a Summary) -> Self {
        Self { schema_version: SCHEMA_VERSION, tool: Tool::THIS, stages, result: answer.into() }
    }

    /// Returns the document as printed.
    ///
    /// # Errors
    /// None in practice: every value can be written as JSON.
    pub fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// Returns the committed JSON Schema of the output of `probe narrow`.
#[cfg(feature = "schema")]
pub fn narrow_schema() -> String {
    let schema = schemars::schema_for!(NarrowReport<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
