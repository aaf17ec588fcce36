//! One comparison in pieces that any scheduler can run, on any machines that see the same files.
//!
//! ```text
//! plan    lists both dumps once, pairs their parts, and writes RUN/plan.json
//! share   compares shard 3 of 64: RUN/<plan>/64/3/{result.parquet, part.json}
//! merge   folds the shards of the plan into the reports
//! ```
//!
//! A shard is the same bytes whoever makes it, and however often. `part.json` is written last: it alone says that a shard is done. What is global,
//! as the first step that diverges and the length of lists, is decided in the merge; the path of one process uses the same fold.

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

use probe_compare::{AskedError, CompareError};
use probe_read::ReadError;

/// Name of what says that a shard is done.
const PART: &str = "part.json";

/// Why a comparison cannot be planned, or a plan not be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The comparison itself failed.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// The options cannot be used.
    #[error(transparent)]
    Asked(#[from] AskedError),
    /// A dump cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What lies in a store cannot be copied, or be put there.
    #[error(transparent)]
    Store(#[from] probe_store::StoreError),
    /// The rows of the shards lead to no report.
    #[error(transparent)]
    Stored(#[from] probe_report::StoredError),
    /// The options forbid to compare a part.
    #[error("{0}")]
    Refused(String),
    /// A plan, a shard or an option that is not what is wanted.
    #[error("{}: {message}", path.display())]
    Misuse {
        /// File or folder.
        path: PathBuf,
        /// What is wrong, and the repair.
        message: String,
    },
}
