//! Reasons why a gate could not be run, or a baseline could not be made.

use std::path::PathBuf;

use probe_compare::CompareError;
use probe_config_check::ConfigError;
use probe_files::ReportError;
use probe_files::settings::SettingsError;
use probe_read::ReadError;

/// A gate that could not be run at all. The command then ends with exit code 2.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// A file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The policy is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A pack that should describe the environment could not be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Two dumps could not be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// Something could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The policy does not fit the data to be gated.
    #[error("{}: {message}", path.as_deref().map_or_else(|| "the policy".to_owned(), |path| path.display().to_string()))]
    Policy {
        /// File of the policy.
        path: Option<PathBuf>,
        /// The mismatch, and the remedy.
        message: String,
    },
    /// Settings that must be the same differ.
    #[error("not comparable: {0}")]
    NotComparable(String),
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
}
