//! Reports of a gate: text, JSON, HTML page, `JUnit`, SARIF, Markdown, GitLab code quality, events. All are laid out from one outcome; none
//! computes anything.

mod code_quality;
mod events;
mod html;
mod junit;
mod markdown;
pub mod model;
mod place;
mod sarif;
mod text;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use probe_files::{Draft, ReportError};
use probe_gate::GateOutcome;
use probe_gate::past::Past;

#[cfg(feature = "schema")]
pub(super) use html::GatePage;
pub(super) use junit::{test as test_of, unread};
pub use markdown::page;
pub use text::{GateTextOptions, answer, render};

/// A report file of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GateFormat {
    /// The answer as plain text.
    Text,
    /// The answer for programs.
    Json,
    /// A page for people.
    Html,
    /// Cases, for CI.
    Junit,
    /// Ops at fault, for code scanning.
    Sarif,
    /// A page for the summary of a CI job.
    Markdown,
    /// Culprits as GitLab shows them in merge requests.
    CodeQuality,
    /// One line per finding.
    Events,
}

impl GateFormat {
    /// Every format.
    pub const ALL: [Self; 8] = [
        Self::Text,
        Self::Json,
        Self::Html,
        Self::Junit,
        Self::Sarif,
        Self::Markdown,
        Self::CodeQuality,
        Self::Events,
    ];

    /// Returns the word used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Html => "html",
            Self::Junit => "junit",
            Self::Sarif => "sarif",
            Self::Markdown => "markdown",
            Self::CodeQuality => "code-quality",
            Self::Events => "events",
        }
    }

    /// Returns the name of the file in the output folder.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Text => "gate.txt",
            Self::Json => "gate.json",
            Self::Html => "gate.html",
            Self::Junit => "junit.xml",
            Self::Sarif => "gate.sarif",
            Self::Markdown => "gate.md",
            Self::CodeQuality => "gl-code-quality-report.json",
            Self::Events => "events.jsonl",
        }
    }

    /// Returns the content of the file. `past` holds the earlier gates and this one if a history is kept; the HTML page
    /// shows it.
    ///
    /// # Errors
    /// The error message of the library that writes the format.
    pub fn content(
        self,
        outcome: &GateOutcome,
        root: Option<&Path>,
        past: Option<&Past>,
    ) -> Result<Vec<u8>, String> {
        match self {
            Self::Text => Ok(render(outcome, &GateTextOptions::complete()).into_bytes()),
            Self::Json => model::json(outcome).map_err(|error| error.to_string()),
            Self::Html => html::document(outcome, past).map_err(|error| error.to_string()),
            Self::Junit => junit::document(outcome),
            Self::Sarif => sarif::document(outcome, root).map_err(|error| error.to_string()),
            Self::Markdown => Ok(page(outcome).into_bytes()),
            Self::CodeQuality => code_quality::document(outcome, root).map_err(|error| error.to_string()),
            Self::Events => events::document(outcome).map_err(|error| error.to_string()),
        }
    }
}

impl fmt::Display for GateFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for GateFormat {
    type Err = UnknownGateFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| UnknownGateFormat(text.into()))
    }
}

/// A word that is not the name of a report format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown report format `{0}`; choose from text, json, html, junit, sarif, markdown, code-quality, events"
)]
pub struct UnknownGateFormat(pub String);

/// The report files of one gate: created before the work starts, put in place together at the end.
#[derive(Debug)]
pub struct GateReports {
    drafts: Vec<(GateFormat, Draft)>,
    root: Option<PathBuf>,
}

impl GateReports {
    /// Creates `folder` and a file for each of `formats`; duplicate formats are ignored. Paths are made relative to `root`, the folder of
    /// the sources.
    ///
    /// # Errors
    /// [`ReportError`] when the folder or a file in it cannot be created.
    pub fn create(folder: &Path, formats: &[GateFormat], root: Option<PathBuf>) -> Result<Self, ReportError> {
        std::fs::create_dir_all(folder).map_err(|error| ReportError::io(folder, error))?;
        let mut wanted = formats.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let draft = |format: GateFormat| Ok((format, Draft::create(&folder.join(format.file_name()))?));
        Ok(Self { drafts: wanted.into_iter().map(draft).collect::<Result<_, ReportError>>()?, root })
    }

    /// Writes every report, then puts all of them in place. Returns their paths in the order of [`GateFormat::ALL`]. For `past`,
    /// see [`GateFormat::content`].
    ///
    /// # Errors
    /// The first [`ReportError`]; no report is put in place when one cannot be written.
    pub fn finish(self, outcome: &GateOutcome, past: Option<&Past>) -> Result<Vec<PathBuf>, ReportError> {
        let mut drafts = self.drafts;
        for (format, draft) in &mut drafts {
            let bytes = format
                .content(outcome, self.root.as_deref(), past)
                .map_err(|error| ReportError::format(draft.target(), error))?;
            draft.file().write_all(&bytes).map_err(|error| draft.refused(error))?;
        }
        drafts.into_iter().map(|(_, draft)| draft.place()).collect()
    }
}
