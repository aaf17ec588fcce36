//! Writes `result.xlsx`, the workbook for people.
//!
//! Rows are written to a temporary file as parts arrive and are packed at the end, so memory use stays flat.
//!
//! Sheets: `run info` (the answer), `summary` (a row per op), `tensors` (a row per slot), `unmatched`, `legend`. For a large comparison the tables
//! hold a selection. A full sheet continues in `tensors 2`. Columns that the recorded task cannot fill are omitted; a part of another task, which
//! needs more columns, begins a new sheet.

mod book;
pub(super) mod config;
mod content;
mod front;
mod guard;
mod legend;
pub(super) mod rollout;
mod selection;
mod sheet;
mod stored;
mod style;
mod table;
mod text;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;

use self::book::Book;
use self::content::Content;
use self::selection::{Outline, Selection};
use self::sheet::{Sheet, Spot};
use self::table::Table;
use super::columns::{OpColumn, SlotColumn, UnmatchedColumn};
use super::number::thousands;
use super::rows::op_rows;
use super::{Extent, ReportWriter};
use super::{StoredError, StoredRun};
use probe_compare::PartReport;
use probe_files::{Draft, ReportError};
use probe_judge::Summary;

/// Writer of `result.xlsx`.
pub struct XlsxReport {
    draft: Draft,
    book: Book,
    content: Option<Content>,
    summary: Table<OpColumn>,
    tensors: Table<SlotColumn>,
    unmatched: Table<UnmatchedColumn>,
    ops: Selection,
    values: Selection,
    /// Maximum number of unpaired rows, and the number of rows left out.
    most_unmatched: u64,
    unmatched_left_out: u64,
    /// First rows of the ops at fault, by step, rank and order.
    faults: HashMap<(u64, u32, usize), Spot>,
}

impl fmt::Debug for XlsxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XlsxReport").field("draft", &self.draft).finish_non_exhaustive()
    }
}

impl XlsxReport {
    /// Creates the file that will become `path`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written.
    pub fn create(path: &Path, extent: Extent) -> Result<Self, ReportError> {
        let draft = Draft::create(path)?;
        let book = Book::create(draft.folder()).map_err(|error| draft.refused(error))?;
        Ok(Self {
            draft,
            book,
            content: None,
            summary: Table::new("summary", 4, sheet::MAX_ROWS),
            tensors: Table::new("tensors", 5, sheet::MAX_ROWS),
            unmatched: Table::new("unmatched", 5, sheet::MAX_ROWS),
            ops: Selection::new(extent, selection::MAX_ROWS, |_| 1),
            values: Selection::new(extent, selection::MAX_ROWS, Outline::rows),
            most_unmatched: if extent == Extent::Full { u64::MAX } else { selection::MAX_ROWS },
            unmatched_left_out: 0,
            faults: HashMap::new(),
        })
    }

    /// Lowers the number of rows per sheet, to test rolling over.
    #[cfg(test)]
    pub(crate) fn with_max_rows(mut self, rows: u32) -> Self {
        self.summary = Table::new("summary", 4, rows);
        self.tensors = Table::new("tensors", 5, rows);
        self
    }

    /// Lowers the number of rows up to which a table holds everything.
    #[cfg(test)]
    pub(crate) fn with_selection_from(mut self, extent: Extent, rows: u64) -> Self {
        self.ops = Selection::new(extent, rows, |_| 1);
        self.values = Selection::new(extent, rows, Outline::rows);
        self.most_unmatched = if extent == Extent::Full { u64::MAX } else { rows };
        self
    }

    /// Ensures that the open sheets have the columns that `content` needs, and state what they hold.
    fn provide(&mut self, content: Content) -> io::Result<()> {
        let needed = self.content.map_or(content, |present| present.union(content));
        self.content = Some(needed);
        let (ops, values) = (self.ops.notice(), self.values.notice());
        self.summary.shape(content::op_columns(needed), ops, &mut self.book)?;
        self.tensors.shape(content::slot_columns(needed), values, &mut self.book)?;
        self.unmatched.shape(UnmatchedColumn::ALL.to_vec(), None, &mut self.book)
    }

    fn write_part(&mut self, part: &PartReport<'_>) -> io::Result<()> {
        let outlines: Vec<Outline> = op_rows(part).map(|op| Outline::of(&op)).collect();
        let (ops, values) = (self.ops.of(&outlines, part.parts), self.values.of(&outlines, part.parts));
        self.provide(Content::of(part))?;
        let book = &mut self.book;
        for ((op, in_summary), in_tensors) in op_rows(part).zip(ops).zip(values) {
            let at = if in_summary { Some(self.summary.next(book)?) } else { None };
            let spot = if in_tensors && op.slot_count() > 0 { Some(self.tensors.next(book)?) } else { None };
            if in_tensors {
                for slot in op.slots() {
                    self.tensors.slot(|column| slot.cell(column), book)?;
                }
            }
            if in_summary {
                let shown = op.representative();
                self.summary.op(|column| op.cell(column, shown), spot.as_ref(), book)?;
            }
            if self.unmatched.rows() < self.most_unmatched {
                self.unmatched.one_sided(&op, spot.as_ref(), book)?;
            } else {
                self.unmatched_left_out += table::one_sided_rows(&op);
            }
            if op.judged().cause.is_some() {
                // An op without values has no row in that table.
                let spot = spot.or(at);
                spot.map(|spot| self.faults.insert((part.pair.step, part.pair.rank, op.order()), spot));
            }
        }
        Ok(())
    }

    /// Returns every sheet, in order.
    fn sheets(&mut self, summary: &Summary) -> io::Result<Vec<Sheet>> {
        if self.content.is_none() {
            self.provide(Content::EVERYTHING)?;
        }
        if self.unmatched_left_out > 0 {
            let more = thousands(self.unmatched_left_out);
            self.unmatched.remark(&format!(
                "and {more} more, all in result.parquet, or here with `probe compare --full`"
            ))?;
        }
        let selections: Vec<(&str, String)> =
            [("summary", self.ops.in_words("ops")), ("tensors", self.values.in_words("values"))]
                .into_iter()
                .filter_map(|(sheet, words)| Some((sheet, words?)))
                .collect();
        let mut sheets = vec![front::write(summary, &self.faults, &selections, &mut self.book)?];
        let nothing = |selects: bool, otherwise: &str| {
            let words = if selects { "no op is at fault, and no value differs" } else { otherwise };
            format!("empty: {words}")
        };
        let why = nothing(!selections.is_empty(), "no op was compared");
        sheets.extend(self.summary.take_sheets(&why)?);
        let why = nothing(!selections.is_empty(), "the ops hold no values");
        sheets.extend(self.tensors.take_sheets(&why)?);
        sheets.extend(
            self.unmatched
                .take_sheets("empty: every op and every value that was compared has a counterpart")?,
        );
        sheets.push(legend::write(&mut self.book)?);
        Ok(sheets)
    }
}

impl ReportWriter for XlsxReport {
    fn part(&mut self, part: &PartReport<'_>) -> Result<(), ReportError> {
        self.write_part(part).map_err(|error| self.draft.refused(error))
    }

    fn stored(&mut self, run: &StoredRun, _summary: &Summary) -> Result<(), StoredError> {
        self.write_stored(run)
    }

    fn finish(mut self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError> {
        let sheets = self.sheets(summary).map_err(|error| self.draft.refused(error))?;
        let Self { mut draft, book, .. } = *self;
        match book.save(sheets, draft.file()) {
            Ok(()) => Ok(draft),
            Err(error) => Err(draft.refused(error)),
        }
    }
}
