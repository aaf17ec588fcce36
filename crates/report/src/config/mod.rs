//! Reports of a configuration check: text, workbook, JSON, HTML page, `JUnit`, Markdown.

mod junit;
mod markdown;
pub mod model;
mod text;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use probe_config_check::Outcome;
use probe_files::{Draft, ReportError};

pub use text::{ConfigTextOptions, answer, render};

/// A report file of a configuration check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConfigFormat {
    /// The summary as plain text.
    Text,
    /// A workbook for people.
    Xlsx,
    /// Everything, for programs.
    Json,
    /// One test case per part, for CI.
    Junit,
    /// A page for people.
    Html,
    /// A page for the summary of a CI job.
    Markdown,
}

impl ConfigFormat {
    /// Every format.
    pub const ALL: [Self; 6] = [Self::Text, Self::Xlsx, Self::Json, Self::Html, Self::Junit, Self::Markdown];

    /// Returns the word used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Xlsx => "xlsx",
            Self::Json => "json",
            Self::Junit => "junit",
            Self::Html => "html",
            Self::Markdown => "markdown",
        }
    }

    /// Returns the name of the file in the output folder.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Text => "config.txt",
            Self::Xlsx => "result.xlsx",
            Self::Json => "config.json",
            Self::Junit => "config.junit.xml",
            Self::Html => "config.html",
            Self::Markdown => "config.md",
        }
    }

    fn write(self, draft: &mut Draft, outcome: &Outcome) -> Result<(), ReportError> {
        let bytes = match self {
            Self::Text => render(outcome, &ConfigTextOptions::complete()).into_bytes(),
            Self::Json => model::json(outcome).map_err(|error| ReportError::format(draft.target(), error))?,
            Self::Junit => {
                junit::document(outcome).map_err(|error| ReportError::format(draft.target(), error))?
            }
            Self::Markdown => markdown::page(outcome).into_bytes(),
            Self::Xlsx => {
                return super::xlsx::config::write(draft, outcome).map_err(|error| draft.refused(error));
            }
            Self::Html => super::html::document("config", &model::ConfigReport::from(outcome))
                .map_err(|error| ReportError::format(draft.target(), error))?,
        };
        draft.file().write_all(&bytes).map_err(|error| draft.refused(error))
    }
}

impl fmt::Display for ConfigFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ConfigFormat {
    type Err = UnknownConfigFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| UnknownConfigFormat(text.into()))
    }
}

/// A word that is not the name of a report format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown report format `{0}`; choose from text, xlsx, json, html, junit, markdown")]
pub struct UnknownConfigFormat(pub String);

/// The report files of one check: created before the work starts, put in place together at the end.
#[derive(Debug)]
pub struct ConfigReports {
    drafts: Vec<(ConfigFormat, Draft)>,
}

impl ConfigReports {
    /// Creates `folder` and a file for each of `formats`; duplicate formats are ignored.
    ///
    /// # Errors
    /// [`ReportError`] when the folder or a file in it cannot be created.
    pub fn create(folder: &Path, formats: &[ConfigFormat]) -> Result<Self, ReportError> {
        std::fs::create_dir_all(folder).map_err(|error| ReportError::io(folder, error))?;
        let mut wanted = formats.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let draft = |format: ConfigFormat| {
            let path = folder.join(format.file_name());
            Ok((format, Draft::create(&path)?))
        };
        Ok(Self { drafts: wanted.into_iter().map(draft).collect::<Result<_, _>>()? })
    }

    /// Writes every report, then puts all of them in place. Returns their paths in the order of [`ConfigFormat::ALL`].
    ///
    /// # Errors
    /// The first [`ReportError`]; no report is put in place when one cannot be written.
    pub fn finish(self, outcome: &Outcome) -> Result<Vec<PathBuf>, ReportError> {
        let mut drafts = self.drafts;
        for (format, draft) in &mut drafts {
            format.write(draft, outcome)?;
        }
        drafts.into_iter().map(|(_, draft)| draft.place()).collect()
    }
}
