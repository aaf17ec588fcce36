//! Settings files that a user writes for a comparison: tolerances, mappings, noise, expectations. Text, read
//! whole.

use std::fs;
use std::path::{Path, PathBuf};

use super::Copies;

/// A settings file that cannot be used.
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
    /// The file does not have the expected format.
    #[error("{}: {message}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Place, reason and repair.
        message: String,
    },
}

impl SettingsError {
    /// Replaces the path in the error by the file's name, if a copy of it was read.
    #[must_use]
    pub fn called(self, copies: &Copies) -> Self {
        match self {
            Self::Io { path, source } => Self::Io { path: copies.name(&path), source },
            Self::Format { path, message } => Self::Format { path: copies.name(&path), message },
        }
    }
}

/// Parses the text of a file with `parse`.
///
/// # Errors
/// [`SettingsError`] that names the file, with the system's reason or that of `parse`.
pub fn load<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, SettingsError> {
    let text = fs::read_to_string(path).map_err(|source| SettingsError::Io { path: path.into(), source })?;
    parse(&text).map_err(|message| SettingsError::Format { path: path.into(), message })
}
