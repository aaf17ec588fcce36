//! Errors while writing a report.

use std::io;
use std::path::{Path, PathBuf};

/// A report that could not be created or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The file system refused.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The library behind the format refused.
    #[error("cannot write {}: {message}", path.display())]
    Format {
        /// File.
        path: PathBuf,
        /// Its reason.
        message: String,
    },
}

impl ReportError {
    /// The file system refused `path`.
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// The format library refused.
    pub fn format(path: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
        Self::Format { path: path.as_ref().to_path_buf(), message: reason.to_string() }
    }
}
