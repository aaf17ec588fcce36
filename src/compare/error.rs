//! Why a comparison could not be made.

use crate::dump::Task;
use crate::read::ReadError;
use crate::report::ReportError;

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
    /// The two sides recorded different things.
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
    /// No op was present on both sides.
    #[error("nothing was compared: {reason}")]
    Nothing {
        /// Why.
        reason: String,
    },
}
