//! What `probe inspect` shows: as text for people, as JSON for programs.

pub mod model;
mod text;

pub use text::render;

use probe_compare::inspect::Inspection;

/// The inspection as JSON, ending in a line break.
///
/// # Errors
/// None in practice: every value has a form in JSON.
pub fn json(inspection: &Inspection) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&model::Report::from(inspection))?;
    text.push('\n');
    Ok(text)
}
