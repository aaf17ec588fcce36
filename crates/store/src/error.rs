//! Reasons why something could not be copied from, or put into, a store.

use std::io;
use std::path::PathBuf;

use super::bucket::Fault;

/// A copy that failed; names are URLs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A URL that names no valid place.
    #[error("{}: {message}", name.display())]
    Address {
        /// The URL as typed.
        name: PathBuf,
        /// The problem and its remedy.
        message: String,
    },
    /// The store cannot be reached.
    #[error("{}: {reason}", name.display())]
    Unreachable {
        /// The store.
        name: PathBuf,
        /// Reason and remedy.
        reason: String,
    },
    /// Nothing has this name.
    #[error("{}: no such object, and nothing below it", name.display())]
    Missing {
        /// The object or prefix.
        name: PathBuf,
    },
    /// More bytes than the scratch folder may hold.
    #[error(
        "{}: {bytes} bytes to copy, {left} are left of the {limit} allowed in the scratch folder; choose fewer with --step and --rank, compare in shards, or raise --scratch-bytes",
        name.display()
    )]
    Budget {
        /// The object or prefix.
        name: PathBuf,
        /// Bytes to be copied.
        bytes: u64,
        /// Bytes left in the budget.
        left: u64,
        /// Total budget in bytes.
        limit: u64,
    },
    /// An answer that cannot be correct.
    #[error("{}: {message}", name.display())]
    Unsound {
        /// The object or prefix.
        name: PathBuf,
        /// The problem and its remedy.
        message: String,
    },
    /// The store refused, or failed repeatedly.
    #[error("{}: {reason}", name.display())]
    Refused {
        /// The object or prefix.
        name: PathBuf,
        /// The store's reason.
        reason: String,
    },
    /// The operating system refused a file of the scratch folder.
    #[error("scratch file {}: {reason}; give another folder with --scratch", path.display())]
    Scratch {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        reason: io::Error,
    },
}

impl StoreError {
    pub(super) fn scratch(path: impl Into<PathBuf>, reason: io::Error) -> Self {
        Self::Scratch { path: path.into(), reason }
    }

    pub(super) fn unsound(name: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Unsound { name: name.into(), message: message.into() }
    }

    pub(super) fn of(name: impl Into<PathBuf>, fault: Fault) -> Self {
        match fault {
            Fault::Missing => Self::Missing { name: name.into() },
            Fault::Refused(reason) => Self::Refused { name: name.into(), reason },
            Fault::Passing(reason) => Self::Refused {
                name: name.into(),
                reason: format!("{reason}; tried several times, try again later"),
            },
        }
    }
}
