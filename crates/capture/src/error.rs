//! Errors while recording.

use std::io;
use std::path::{Path, PathBuf};

/// A dump that could not be created or continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file system refused: no space, no permission.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The path is occupied by something that must not be overwritten.
    #[error("{}: {message}", path.display())]
    Occupied {
        /// File or folder.
        path: PathBuf,
        /// Existing content, and the advice.
        message: String,
    },
    /// The library behind the format refused.
    #[error("cannot write {}: {message}", path.display())]
    Format {
        /// File.
        path: PathBuf,
        /// Its reason.
        message: String,
    },
    /// The writer was called out of order, or with inconsistent values.
    #[error("{0}")]
    Usage(String),
    /// The writer stopped earlier.
    #[error("capture stopped: {0}")]
    Stopped(String),
}

impl CaptureError {
    pub(super) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    pub(super) fn format(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Format { path: path.into(), message: reason.to_string() }
    }

    pub(super) fn occupied(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Occupied { path: path.into(), message: message.into() }
    }
}
