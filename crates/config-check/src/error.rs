//! Errors that prevent two packs from being checked.

use std::path::PathBuf;

use probe_files::Copies;
use probe_files::settings::SettingsError;
use probe_read::ReadError;

/// A configuration check that could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A pack could not be opened.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file is a zip but not a pack.
    #[error(
        "{}: is not a configuration pack: {found}; write one with probe.config_check.pack, or give a pack of msprobe",
        path.display()
    )]
    NoPack {
        /// The file.
        path: PathBuf,
        /// Description of its actual content.
        found: String,
    },
    /// The pack was written by a later version.
    #[error("{}: has pack format {found}, this build reads {known}; use a newer probe", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Format version of the file.
        found: u32,
        /// Latest format version this build reads.
        known: u32,
    },
    /// The user's expectations cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Both packs were read but have nothing in common.
    #[error(
        "nothing was compared: {} holds {baseline_parts}, {} holds {candidate_parts}; pack the same parts on both sides",
        baseline.display(), candidate.display()
    )]
    Nothing {
        /// Pack of the baseline.
        baseline: PathBuf,
        /// Parts it holds.
        baseline_parts: String,
        /// Pack of the candidate.
        candidate: PathBuf,
        /// Parts it holds.
        candidate_parts: String,
    },
}

impl ConfigError {
    /// Replaces the path in the error by the name of the expectations file, if a copy of it was
    /// read.
    pub(crate) fn called(self, copies: &Copies) -> Self {
        match self {
            Self::Settings(error) => Self::Settings(error.called(copies)),
            other => other,
        }
    }
}
