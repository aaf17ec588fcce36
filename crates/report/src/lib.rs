//! One model, many writers. Writers lay out the data they receive and compute nothing.
//!
//! A writer is created before the work starts, receives one [`PartReport`] after another as the comparison proceeds,
//! and returns its finished file as a [`Draft`]. [`ReportSet`] drives all writers of a comparison; [`text::render`]
//! renders the summary for the terminal.

pub mod baseline;
pub mod columns;
pub mod command;
pub mod compared;
pub mod config;
pub mod culprit;
mod extent;
mod fault;
mod gallery;
pub mod gate;
pub mod history;
pub mod html;
pub mod inspection;
pub mod json;
pub(crate) mod junit;
mod lines;
pub(crate) mod markdown;
pub mod model;
pub mod narrow;
pub mod number;
#[cfg(feature = "schema")]
mod page_types;
mod paint;
pub mod parquet;
pub mod peers;
mod replays;
pub mod rollout;
pub mod rows;
mod set;
mod stored;
mod suspects;
pub mod text;
pub mod visible;
pub mod weights;
pub mod xlsx;

#[cfg(test)]
mod tests;

pub use extent::Extent;
#[cfg(feature = "schema")]
pub use page_types::page_types;
pub use replays::remove as remove_replays;
pub use set::{Format, ReportSet, UnknownFormat};
pub use stored::{StoredError, StoredFile, StoredRun};
pub use suspects::Suspects;

use probe_compare::PartReport;
use probe_files::{Draft, ReportError};
use probe_judge::Summary;

/// Writes one report file.
pub trait ReportWriter: Send {
    /// Adds the rows of one part.
    ///
    /// # Errors
    /// [`ReportError`] when the rows cannot be written; the file then never appears under its final name.
    fn part(&mut self, part: &PartReport<'_>) -> Result<(), ReportError>;

    /// Adds the rows of a run whose shards were compared earlier, in place of its parts. Reports without rows have nothing to add.
    ///
    /// # Errors
    /// [`StoredError`] when the rows cannot be read; otherwise as for [`ReportWriter::part`].
    fn stored(&mut self, _run: &StoredRun, _summary: &Summary) -> Result<(), StoredError> {
        Ok(())
    }

    /// Writes the summary and completes the file. The file appears under its final name after [`Draft::place`], so that
    /// the reports of a comparison appear together or not at all.
    ///
    /// # Errors
    /// As for [`ReportWriter::part`].
    fn finish(self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError>;
}
