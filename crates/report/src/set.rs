//! The reports of one comparison, written together: all are created before the work starts, and at the end either all
//! are put in place or none is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rayon::prelude::*;

use super::ReportWriter;
use super::compared::{JunitReport, MarkdownReport};
use super::extent::Extent;
use super::json::JsonReport;
use super::replays;
use super::suspects::Suspects;
use super::text::TextReport;
use super::{StoredError, StoredRun};
use probe_compare::PartReport;
use probe_files::{Draft, ReportError};
use probe_judge::Summary;

/// A report file that can be requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// The summary as plain text.
    Text,
    /// A workbook for people.
    Xlsx,
    /// Every slot with exact values, for programs.
    Parquet,
    /// The answer and the tallies, for programs.
    Json,
    /// A page for people.
    Html,
    /// A case for each module call and op at fault, for CI.
    Junit,
    /// A page for the summary of a CI job.
    Markdown,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 7] =
        [Self::Text, Self::Xlsx, Self::Parquet, Self::Json, Self::Html, Self::Junit, Self::Markdown];

    /// The default formats.
    pub const USUAL: [Self; 5] = [Self::Text, Self::Xlsx, Self::Parquet, Self::Json, Self::Html];

    /// Returns the word used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Xlsx => "xlsx",
            Self::Parquet => "parquet",
            Self::Json => "json",
            Self::Html => "html",
            Self::Junit => "junit",
            Self::Markdown => "markdown",
        }
    }

    /// Returns the name of the file in the output folder.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Text => "report.txt",
            Self::Xlsx => "result.xlsx",
            Self::Parquet => "result.parquet",
            Self::Json => "report.json",
            Self::Html => "result.html",
            Self::Junit => "report.junit.xml",
            Self::Markdown => "report.md",
        }
    }

    fn create(self, folder: &Path, extent: Extent) -> Result<Box<dyn ReportWriter>, ReportError> {
        let path = folder.join(self.file_name());
        Ok(match self {
            Self::Text => Box::new(TextReport::create(&path)?),
            Self::Json => Box::new(JsonReport::create(&path)?),
            Self::Junit => Box::new(JunitReport::create(&path)?),
            Self::Markdown => Box::new(MarkdownReport::create(&path)?),
            Self::Xlsx => Box::new(super::xlsx::XlsxReport::create(&path, extent)?),
            Self::Parquet => Box::new(super::parquet::ParquetReport::create(&path)?.beside(extent)),
            Self::Html => Box::new(super::html::HtmlReport::create(&path)?),
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| UnknownFormat(text.into()))
    }
}

/// A word that is not the name of a report format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown report format `{0}`; choose from text, xlsx, parquet, json, html, junit, markdown")]
pub struct UnknownFormat(pub String);

/// The writers of one comparison.
pub struct ReportSet {
    folder: PathBuf,
    writers: Vec<Box<dyn ReportWriter>>,
    /// The ops to record again, if they are listed.
    suspects: Option<Suspects>,
}

impl fmt::Debug for ReportSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportSet")
            .field("writers", &self.writers.len())
            .field("suspects", &self.suspects)
            .finish_non_exhaustive()
    }
}

impl ReportSet {
    /// Creates `folder` and a writer for each of `formats`; duplicate formats are ignored.
    ///
    /// # Errors
    /// [`ReportError`] when the folder or a file in it cannot be created.
    pub fn create(folder: &Path, formats: &[Format], extent: Extent) -> Result<Self, ReportError> {
        std::fs::create_dir_all(folder).map_err(|error| ReportError::io(folder, error))?;
        let mut wanted = formats.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let create = |format: Format| format.create(folder, extent);
        let writers = wanted.into_iter().map(create).collect::<Result<_, _>>()?;
        Ok(Self { folder: folder.into(), writers, suspects: None })
    }

    /// Adds the list of the ops at fault, with which `probe capture` records them again, to the reports. It appears only if there are any, and
    /// begins with those that shards have `found`.
    #[must_use]
    pub fn with_suspects(mut self, found: Suspects) -> Self {
        self.suspects = Some(found);
        self
    }

    /// Adds the rows of one part to every report. Writers run in parallel.
    ///
    /// # Errors
    /// The first [`ReportError`] of any writer.
    pub fn part(&mut self, part: &PartReport<'_>) -> Result<(), ReportError> {
        if let Some(suspects) = &mut self.suspects {
            suspects.part(part);
        }
        self.writers.par_iter_mut().with_max_len(1).try_for_each(|writer| writer.part(part))
    }

    /// As [`finish`](Self::finish), for a run whose shards wrote their rows to `rows`. Replays of the run stay, and are shown.
    ///
    /// # Errors
    /// [`StoredError`] as for [`finish`](Self::finish), and when the rows cannot be read.
    pub fn finish_stored(mut self, rows: &[PathBuf], summary: &Summary) -> Result<Vec<PathBuf>, StoredError> {
        let run = StoredRun::open(rows)?.with_replays(&self.folder)?;
        for writer in &mut self.writers {
            writer.stored(&run, summary)?;
        }
        Ok(placed(self.drafts(summary)?)?)
    }

    /// As [`finish`](Self::finish), for reports that hold rows but nothing of the summary.
    ///
    /// # Errors
    /// As for [`finish`](Self::finish).
    pub fn finish_rows(self) -> Result<Vec<PathBuf>, ReportError> {
        self.finish(&Summary::empty())
    }

    /// Completes every report, then puts all of them in place. Replays of an earlier comparison are removed. Returns the paths of the reports in the
    /// order of [`Format::ALL`].
    ///
    /// # Errors
    /// The first [`ReportError`] of any writer; no report is put in place when one cannot be completed.
    pub fn finish(self, summary: &Summary) -> Result<Vec<PathBuf>, ReportError> {
        let folder = self.folder.clone();
        let drafts = self.drafts(summary)?;
        replays::remove(&folder)?;
        placed(drafts)
    }

    /// Completes every report.
    fn drafts(self, summary: &Summary) -> Result<Vec<Draft>, ReportError> {
        let writers = self.writers.into_par_iter().with_max_len(1);
        let drafts = writers.map(|writer| writer.finish(summary)).collect::<Result<Vec<Draft>, _>>()?;
        let suspects = self.suspects.map(|suspects| suspects.draft(&self.folder, summary)).transpose()?;
        Ok(drafts.into_iter().chain(suspects.flatten()).collect())
    }
}

/// Puts all reports in place.
fn placed(drafts: Vec<Draft>) -> Result<Vec<PathBuf>, ReportError> {
    drafts.into_iter().map(Draft::place).collect()
}
