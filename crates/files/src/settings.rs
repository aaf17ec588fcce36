//! Files that a user writes to set a comparison up: tolerances, mappings, noise, expectations. Text, read whole.

use std::fs;
use std::path::{Path, PathBuf};

use super::Copies;

/// A file of settings that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not of the form that is wanted.
    #[error("{}: {message}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Place, reason and repair.
        message: String,
    },
}

impl SettingsError {
    /// The error with the name of the file, where a copy of it was read.
    #[must_use]
    pub fn called(self, copies: &Copies) -> Self {
        match self {
            Self::Io { path, source } => Self::Io { path: copies.name(&path), source },
            Self::Format { path, message } => Self::Format { path: copies.name(&path), message },
        }
    }
}

/// What `parse` makes of the text of a file.
///
/// # Errors
/// [`SettingsError`] that names the file, with the system's reason or that of `parse`.
pub fn load<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, SettingsError> {
    let text = fs::read_to_string(path).map_err(|source| SettingsError::Io { path: path.into(), source })?;
    parse(&text).map_err(|message| SettingsError::Format { path: path.into(), message })
}
