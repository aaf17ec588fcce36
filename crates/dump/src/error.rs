//! Errors while reading. Four kinds: the system refused, the bytes are invalid, a limit would be exceeded, or the
//! path is not what was asked for.

use std::io;
use std::path::{Path, PathBuf};

/// A file or folder that could not be read, with the place and, if there is one, the repair.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The bytes do not follow the format.
    #[error("{}: {message}", path.display())]
    Format {
        /// File.
        path: PathBuf,
        /// The problem, its place, and what was expected.
        message: String,
    },
    /// Reading on would exceed a limit that protects against damaged or hostile files.
    #[error("{}: {}", path.display(), self.reason())]
    Limit {
        /// File.
        path: PathBuf,
        /// The limited quantity.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The limit, from `read::limits`.
        limit: u64,
    },
    /// The path exists but is not what was expected there.
    #[error("{}: {message}", path.display())]
    Usage {
        /// File or folder.
        path: PathBuf,
        /// The expectation.
        message: String,
    },
}

impl ReadError {
    /// Creates an error for `path` that the system refused.
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// Creates an error for `path` that violates its format.
    pub fn format(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Format { path: path.into(), message: message.into() }
    }

    /// Creates an error for `path` that is not what was expected.
    pub fn usage(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Usage { path: path.into(), message: message.into() }
    }

    /// Replaces the path by `path`, the original of a copy that was read.
    #[must_use]
    pub fn about(self, path: PathBuf) -> Self {
        match self {
            Self::Io { source, .. } => Self::Io { path, source },
            Self::Format { message, .. } => Self::Format { path, message },
            Self::Limit { what, found, limit, .. } => Self::Limit { path, what, found, limit },
            Self::Usage { message, .. } => Self::Usage { path, message },
        }
    }

    /// Returns the problem, without the path.
    pub fn reason(&self) -> String {
        match self {
            Self::Io { source, .. } => source.to_string(),
            Self::Format { message, .. } | Self::Usage { message, .. } => message.clone(),
            Self::Limit { what, found, limit, .. } => {
                format!("{what} is {found}, more than the limit of {limit}")
            }
        }
    }

    /// Returns the file or folder concerned.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::Format { path, .. }
            | Self::Limit { path, .. }
            | Self::Usage { path, .. } => path,
        }
    }
}
