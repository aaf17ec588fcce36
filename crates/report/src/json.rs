//! Writes `report.json`.

use std::io::Write;
use std::path::Path;

use super::ReportWriter;
use super::model::Report;
use probe_compare::PartReport;
use probe_files::{Draft, ReportError};
use probe_judge::Summary;

/// Writer of `report.json`: the answer and the tallies, without rows.
#[derive(Debug)]
pub struct JsonReport {
    draft: Draft,
}

impl JsonReport {
    /// Creates the file that will become `path`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        Ok(Self { draft: Draft::create(path)? })
    }
}

/// Returns the report as stored in the file.
///
/// # Errors
/// None in practice: every value can be written as JSON.
pub fn text(summary: &Summary) -> serde_json::Result<String> {
    // The summary is small: at most one culprit per op, and no rows.
    let mut text = serde_json::to_string_pretty(&Report::from(summary))?;
    text.push('\n');
    Ok(text)
}

impl ReportWriter for JsonReport {
    fn part(&mut self, _: &PartReport<'_>) -> Result<(), ReportError> {
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError> {
        let text = text(summary).map_err(|error| ReportError::format(self.draft.target(), error))?;
        self.draft.file().write_all(text.as_bytes()).map_err(|error| self.draft.refused(error))?;
        Ok(self.draft)
    }
}
