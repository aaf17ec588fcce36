//! Reports of a comparison of a rollout with its trainer: text, a page, JSON, a workbook with a row a sample, a table with a row a token,
//! scalars by step.

mod html;
mod model;
mod text;

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use probe_files::{Draft, ReportError};
use probe_rollout::RolloutOutcome;
use probe_rollout::table::Table;

#[cfg(feature = "schema")]
pub(crate) use html::RolloutPage;
#[cfg(feature = "schema")]
pub use model::rollout_schema;
pub use model::{RolloutReport, json};
pub use text::{RolloutTextOptions, answer, render};

/// A report file of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RolloutFormat {
    /// The summary as plain text.
    Text,
    /// A page with the causes and the tokens of the first step that has one.
    Html,
    /// A workbook with a row a sample, for people.
    Xlsx,
    /// A table with a row a token, for programs.
    Parquet,
    /// The answer, for programs.
    Json,
    /// A line a step, as `probe gate` reads scalars.
    Scalars,
}

impl RolloutFormat {
    /// Every format.
    pub const ALL: [Self; 6] = [Self::Text, Self::Html, Self::Xlsx, Self::Parquet, Self::Json, Self::Scalars];

    /// Returns the word used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Html => "html",
            Self::Xlsx => "xlsx",
            Self::Parquet => "parquet",
            Self::Json => "json",
            Self::Scalars => "scalars",
        }
    }

    /// Returns the name of the file in the output folder.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Text => "rollout.txt",
            Self::Html => "rollout.html",
            Self::Xlsx => "samples.xlsx",
            Self::Parquet => "tokens.parquet",
            Self::Json => "rollout.json",
            Self::Scalars => "scalars.jsonl",
        }
    }

    fn write(self, draft: &mut Draft, outcome: &RolloutOutcome) -> Result<(), ReportError> {
        let refused = |draft: &Draft, error: serde_json::Error| ReportError::format(draft.target(), error);
        let bytes = match self {
            Self::Text => render(outcome, &RolloutTextOptions::default()).into_bytes(),
            Self::Html => html::document(outcome).map_err(|error| draft.refused(error))?,
            Self::Json => json(outcome).map_err(|error| refused(draft, error))?.into_bytes(),
            Self::Scalars => model::scalars(outcome).map_err(|error| refused(draft, error))?.into_bytes(),
            Self::Xlsx => {
                return super::xlsx::rollout::write(draft, outcome).map_err(|error| draft.refused(error));
            }
            Self::Parquet => return probe_rollout::write::tokens(draft, &outcome.table),
        };
        draft.file().write_all(&bytes).map_err(|error| draft.refused(error))
    }
}

impl fmt::Display for RolloutFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The report files of one comparison: created before the work starts, put in place together at the end.
#[derive(Debug)]
pub struct RolloutReports {
    drafts: Vec<(RolloutFormat, Draft)>,
    /// True once the table of tokens is written.
    has_tokens: bool,
}

impl RolloutReports {
    /// Creates `folder` and a file for each of `formats`; duplicate formats are ignored.
    ///
    /// # Errors
    /// [`ReportError`] when the folder or a file in it cannot be created.
    pub fn create(folder: &Path, formats: &[RolloutFormat]) -> Result<Self, ReportError> {
        std::fs::create_dir_all(folder).map_err(|error| ReportError::io(folder, error))?;
        let mut wanted = formats.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let draft = |format: RolloutFormat| Ok((format, Draft::create(&folder.join(format.file_name()))?));
        Ok(Self { drafts: wanted.into_iter().map(draft).collect::<Result<_, _>>()?, has_tokens: false })
    }

    /// Writes the table of tokens, if it is wanted. It may be written before the answer is known; [`finish`](Self::finish) does
    /// it otherwise.
    ///
    /// # Errors
    /// [`ReportError`] when it cannot be written.
    pub fn tokens(&mut self, table: &Table) -> Result<(), ReportError> {
        for (_, draft) in self.drafts.iter_mut().filter(|(format, _)| *format == RolloutFormat::Parquet) {
            probe_rollout::write::tokens(draft, table)?;
        }
        self.has_tokens = true;
        Ok(())
    }

    /// Writes every report, then puts all of them in place. Returns their paths in the order of [`RolloutFormat::ALL`].
    ///
    /// # Errors
    /// The first [`ReportError`]; no report is put in place when one cannot be written.
    pub fn finish(mut self, outcome: &RolloutOutcome) -> Result<Vec<PathBuf>, ReportError> {
        let is_written = |format: RolloutFormat| self.has_tokens && format == RolloutFormat::Parquet;
        self.drafts
            .par_iter_mut()
            .with_max_len(1)
            .filter(|(format, _)| !is_written(*format))
            .try_for_each(|(format, draft)| format.write(draft, outcome))?;
        self.drafts.into_iter().map(|(_, draft)| draft.place()).collect()
    }
}
