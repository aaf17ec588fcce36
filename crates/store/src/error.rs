//! Why something could not be copied from a store, or be put there.

use std::io;
use std::path::PathBuf;

use super::bucket::Fault;

/// A copy that was not made; names are URLs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A URL that names no place.
    #[error("{}: {message}", name.display())]
    Address {
        /// What was typed.
        name: PathBuf,
        /// What is wrong, and the repair.
        message: String,
    },
    /// No such store can be reached.
    #[error("{}: {reason}", name.display())]
    Unreachable {
        /// The store.
        name: PathBuf,
        /// Why, and the repair.
        reason: String,
    },
    /// Nothing is called so.
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
        /// What is to be copied.
        bytes: u64,
        /// What may still be.
        left: u64,
        /// What may be in all.
        limit: u64,
    },
    /// An answer that cannot be right.
    #[error("{}: {message}", name.display())]
    Unsound {
        /// The object or prefix.
        name: PathBuf,
        /// What is wrong, and the repair.
        message: String,
    },
    /// The store refused, or failed again and again.
    #[error("{}: {reason}", name.display())]
    Refused {
        /// The object or prefix.
        name: PathBuf,
        /// The store's reason.
        reason: String,
    },
    /// The system refused a file of the scratch folder.
    #[error("scratch file {}: {reason}; give another folder with --scratch", path.display())]
    Scratch {
        /// The file or folder.
        path: PathBuf,
        /// The system's.
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
