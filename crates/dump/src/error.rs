//! Why something could not be read. Four kinds: the system refused, the bytes are wrong, a limit would be passed,
//! or the path is not what was asked for.

use std::io;
use std::path::{Path, PathBuf};

/// A file or folder that could not be read, with the place and, where there is one, the repair.
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
        /// What is wrong, where, and what was expected.
        message: String,
    },
    /// Reading on would pass a limit that protects against damaged or hostile files.
    #[error("{}: {}", path.display(), self.reason())]
    Limit {
        /// File.
        path: PathBuf,
        /// What is too large.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The limit, from `read::limits`.
        limit: u64,
    },
    /// The path exists but is not what was expected there.
    #[error("{}: {message}", path.display())]
    Usage {
        /// File or folder.
        path: PathBuf,
        /// What was expected.
        message: String,
    },
}

impl ReadError {
    /// The system refused `path`.
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// `path` breaks its format.
    pub fn format(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Format { path: path.into(), message: message.into() }
    }

    /// `path` is not what was expected.
    pub fn usage(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Usage { path: path.into(), message: message.into() }
    }

    /// The same, of the file or folder `path`: what was read was a copy of it.
    #[must_use]
    pub fn about(self, path: PathBuf) -> Self {
        match self {
            Self::Io { source, .. } => Self::Io { path, source },
            Self::Format { message, .. } => Self::Format { path, message },
            Self::Limit { what, found, limit, .. } => Self::Limit { path, what, found, limit },
            Self::Usage { message, .. } => Self::Usage { path, message },
        }
    }

    /// What is wrong, without the path.
    pub fn reason(&self) -> String {
        match self {
            Self::Io { source, .. } => source.to_string(),
            Self::Format { message, .. } | Self::Usage { message, .. } => message.clone(),
            Self::Limit { what, found, limit, .. } => {
                format!("{what} is {found}, more than the limit of {limit}")
            }
        }
    }

    /// The file or folder concerned.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::Format { path, .. }
            | Self::Limit { path, .. }
            | Self::Usage { path, .. } => path,
        }
    }
}
