//! Reasons why a comparison could not be made.

use std::path::{Path, PathBuf};

use probe_dump::Task;
use probe_files::ReportError;
use probe_files::settings::SettingsError;
use probe_pair::Mapping;
use probe_read::ReadError;

/// A comparison that could not be made at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A dump could not be opened.
    #[error(transparent)]
    Read(ReadError),
    /// A report could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The two sides recorded different tasks.
    #[error(
        "{place}: the baseline recorded task {baseline}, the candidate task {candidate}; capture both with the same task, or add --any-task to compare what both recorded"
    )]
    Tasks {
        /// Step and rank.
        place: String,
        /// Task of the baseline.
        baseline: Task,
        /// Task of the candidate.
        candidate: Task,
    },
    /// The two sides recorded ops of different kinds.
    #[error(
        "{place}: the baseline recorded level {baseline}, the candidate level {candidate}; capture both at the same level, choose one kind of op with --level, or add --any-level to compare the kinds of op that both recorded"
    )]
    Levels {
        /// Step and rank.
        place: String,
        /// Level of the baseline, as its dump names it.
        baseline: Box<str>,
        /// Level of the candidate, as its dump names it.
        candidate: Box<str>,
    },
    /// A dump cannot show the noise of the baseline.
    #[error("noise {}: {reason}", path.display())]
    Noise {
        /// The dump.
        path: PathBuf,
        /// Reason and remedy.
        reason: String,
    },
    /// A dump cannot serve as reference for the runs compared.
    #[error("reference {}: {reason}", path.display())]
    Reference {
        /// The dump.
        path: PathBuf,
        /// Reason and remedy.
        reason: String,
    },
    /// A layout that was declared, or recorded in words, does not fit what was recorded.
    #[error("{reason}")]
    Layout {
        /// The layout, and what does not fit.
        reason: String,
    },
    /// A noise file cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No op was present on both sides.
    #[error("nothing was compared: {reason}")]
    Nothing {
        /// The reason.
        reason: String,
    },
}

impl CompareError {
    /// Names the file that declares a layout, and what to do about it.
    pub(super) fn of_mapping(self, file: Option<&Path>, mapping: &Mapping) -> Self {
        match (self, file.filter(|_| !mapping.layouts().is_empty())) {
            (Self::Layout { reason }, Some(file)) => {
                let reason = format!("{}: {reason}; correct its lines of `[[layout]]`", file.display());
                Self::Layout { reason }
            }
            (other, _) => other,
        }
    }
}

impl From<ReadError> for CompareError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}
