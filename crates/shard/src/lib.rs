//! One comparison in pieces that any scheduler can run, on any machines that share a file system.
//!
//! ```text
//! plan    lists both dumps once, pairs their parts, and writes RUN/plan.json
//! share   compares shard 3 of 64: RUN/<plan>/64/3/{result.parquet, part.json}
//! merge   folds the shards of the plan into the reports
//! ```
//!
//! A shard has the same bytes no matter which machine produces it or how often. `part.json` is written last, and it alone marks a shard as done.
//! Global decisions, such as the first step that diverges and the length of lists, are made in the merge; a comparison in a single process uses
//! the same fold.

mod choice;
mod merge;
mod plan;
mod share;
mod staged;
mod state;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

pub use choice::{Shard, ShardError};
pub use merge::{Merged, merge};
pub use plan::{Needs, PLAN, Plan, build_id, plan};
pub use share::{ShardOutcome, compare_shard};
pub use staged::{compare_shard_staged, merge_staged, plan_staged};

use probe_compare::CompareError;
use probe_files::settings::SettingsError;
use probe_read::ReadError;

/// Name of the file that marks a shard as done.
const PART: &str = "part.json";

/// Reasons why a comparison cannot be planned, or a plan cannot be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The comparison itself failed.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// The options cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A dump cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Something cannot be copied from or stored in an object store.
    #[error(transparent)]
    Store(#[from] probe_store::StoreError),
    /// The rows of the shards could not be turned into a report.
    #[error(transparent)]
    Stored(#[from] probe_report::StoredError),
    /// The options forbid to compare a part.
    #[error("{0}")]
    Refused(String),
    /// A plan, shard or option that does not fit.
    #[error("{}: {message}", path.display())]
    Misuse {
        /// File or folder.
        path: PathBuf,
        /// The problem and its remedy.
        message: String,
    },
}
