//! Output of `probe inspect`: text for people, JSON for programs.

pub mod model;
mod text;

pub use text::render;

use probe_compare::inspect::Inspection;

/// Returns the inspection as JSON, ending in a line break.
///
/// # Errors
/// None in practice: every value can be written as JSON.
pub fn json(inspection: &Inspection) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&model::Report::from(inspection))?;
    text.push('\n');
    Ok(text)
}
