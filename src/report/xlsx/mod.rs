//! Writes `result.xlsx`, the workbook for people.
//!
//! Rows are written and compressed as the parts come, so that little is left to do at the end; memory stays flat.
//! The format is written here rather than by a library: a worksheet is a flat list of cells, and writing it straight
//! into the compressor takes less than half the time of the fastest library that was tried.
//!
//! Sheets: `run info` (the answer), `summary` (a row per op), `tensors` (a row per slot), `unmatched`, `legend`.
//! A sheet that is full goes on in `tensors 2`. Columns that the recorded task cannot fill are left out; a part of
//! another task, which needs more columns, begins a new sheet.

mod book;
pub(super) mod config;
mod content;
mod front;
mod legend;
mod sheet;
mod style;
mod table;
mod text;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use self::content::Content;
use self::table::Table;
use self::text::SharedStrings;
use super::columns::{OpColumn, SlotColumn, UnmatchedColumn};
use super::rows::op_rows;
use super::{Draft, PartReport, ReportError, ReportWriter};
use crate::judge::Summary;

/// Where the first row of something stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Spot {
    sheet: String,
    row: u32,
}

/// Writer of `result.xlsx`.
#[derive(Debug)]
pub struct XlsxReport {
    draft: Draft,
    folder: PathBuf,
    strings: SharedStrings,
    content: Option<Content>,
    summary: Table<OpColumn>,
    tensors: Table<SlotColumn>,
    unmatched: Table<UnmatchedColumn>,
    /// First rows of the ops at fault, by step, rank and order.
    faults: HashMap<(u64, u32, usize), Spot>,
}

impl XlsxReport {
    /// Creates the file that will become `path`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        let draft = Draft::create(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Self {
            draft,
            folder: folder.to_path_buf(),
            strings: SharedStrings::default(),
            content: None,
            summary: Table::new("summary", 4, sheet::MAX_ROWS),
            tensors: Table::new("tensors", 5, sheet::MAX_ROWS),
            unmatched: Table::new("unmatched", 5, sheet::MAX_ROWS),
            faults: HashMap::new(),
        })
    }

    /// Lowers the number of rows of a sheet, so that rolling over can be tested.
    #[cfg(test)]
    pub(crate) fn with_max_rows(mut self, rows: u32) -> Self {
        self.summary = Table::new("summary", 4, rows);
        self.tensors = Table::new("tensors", 5, rows);
        self
    }

    /// Makes sure that the open sheets have the columns that `content` needs.
    fn provide(&mut self, content: Content) -> io::Result<()> {
        let needed = self.content.map_or(content, |present| present.union(content));
        if self.content != Some(needed) {
            self.content = Some(needed);
            let (folder, strings) = (&self.folder, &mut self.strings);
            self.summary.columns(content::op_columns(needed), folder, strings)?;
            self.tensors.columns(content::slot_columns(needed), folder, strings)?;
            self.unmatched.columns(UnmatchedColumn::ALL.to_vec(), folder, strings)?;
        }
        Ok(())
    }

    fn write_part(&mut self, part: &PartReport<'_>) -> io::Result<()> {
        self.provide(Content::of(part))?;
        let folder = &self.folder;
        for op in op_rows(part) {
            let slots = op.slot_count();
            let spot = self.tensors.next(folder, &mut self.strings)?;
            for slot in op.slots() {
                self.tensors.slot(&slot, folder, &mut self.strings)?;
            }
            self.summary.op(&op, (slots > 0).then_some(&spot), folder, &mut self.strings)?;
            self.unmatched.one_sided(&op, &spot, folder, &mut self.strings)?;
            if op.judged().cause.is_some() {
                self.faults.insert((part.pair.step, part.pair.rank, op.order()), spot);
            }
        }
        Ok(())
    }

    fn write_book(&mut self, summary: &Summary) -> io::Result<()> {
        if self.content.is_none() {
            self.provide(Content::EVERYTHING)?;
        }
        let mut sheets = vec![front::write(summary, &self.faults, &self.folder, &mut self.strings)?];
        for table in [self.summary.finish()?, self.tensors.finish()?, self.unmatched.finish()?] {
            sheets.extend(table);
        }
        sheets.push(legend::write(&self.folder, &mut self.strings)?);
        book::write(self.draft.file(), sheets, &self.strings)
    }
}

impl ReportWriter for XlsxReport {
    fn part(&mut self, part: &PartReport<'_>) -> Result<(), ReportError> {
        self.write_part(part).map_err(|error| self.draft.refused(error))
    }

    fn finish(mut self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError> {
        self.write_book(summary).map_err(|error| self.draft.refused(error))?;
        Ok(self.draft)
    }
}
