//! Writes `result.xlsx`, the workbook for people.
//!
//! Rows are made and compressed by several threads as parts arrive. What is compressed goes to temporary files when it is
//! large, so memory use stays flat.
//!
//! Sheets: `run info` (the answer), `summary` (a row per op), `tensors` (a row per slot, with the pieces that ranks hold folded below it), `unmatched`, `replays` if there
//! are any, `legend`. For a large comparison the tables hold a selection. A full sheet continues in `tensors 2`. Columns that the recorded task cannot fill are omitted; a part of another task, which
//! needs more columns, begins a new sheet.

mod book;
pub(super) mod config;
mod content;
mod front;
mod legend;
mod member;
mod package;
mod pairs;
mod replays;
pub(super) mod rollout;
mod rows;
mod selection;
mod sheet;
mod stored;
mod style;
mod table;
mod tables;
mod text;

pub use stored::from_result;

use std::fmt;
use std::io;
use std::path::Path;

use self::content::Content;
use self::rows::Spot;
use self::selection::{Outline, Selection};
use self::sheet::Sheet;
use self::table::Strip;
use self::tables::{Entry, TableOp, Tables};
use super::columns::{OpColumn, SlotColumn, UnmatchedColumn};
use super::number::thousands;
use super::replays::Replay;
use super::rows::{OpRow, op_rows};
use super::{Extent, ReportWriter};
use super::{StoredError, StoredRun};
use probe_compare::PartReport;
use probe_files::{Draft, ReportError};
use probe_judge::Summary;

/// Writer of `result.xlsx`.
pub struct XlsxReport {
    draft: Draft,
    content: Option<Content>,
    tables: Tables,
    ops: Selection,
    values: Selection,
    /// Replays of an earlier comparison.
    replays: Vec<Replay>,
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
        Self::limited(path, extent, sheet::MAX_ROWS, selection::MAX_ROWS)
    }

    /// As [`create`](Self::create), with limits on the rows of a sheet and on those up to which a table holds
    /// everything.
    pub(crate) fn limited(path: &Path, extent: Extent, rows: u32, most: u64) -> Result<Self, ReportError> {
        let draft = Draft::create(path)?;
        let most_unmatched = if extent == Extent::Full { u64::MAX } else { most };
        Ok(Self {
            content: None,
            tables: Tables::new(draft.folder(), rows, most_unmatched),
            ops: Selection::new(extent, most, |_| 1),
            values: Selection::new(extent, most, Outline::rows),
            replays: Vec::new(),
            draft,
        })
    }

    /// Ensures that the open sheets have the columns that `content` needs, and state what they hold.
    fn provide(&mut self, content: Content) -> io::Result<()> {
        let needed = self.content.map_or(content, |present| present.union(content));
        self.content = Some(needed);
        let (ops, values) = (self.ops.notice(), self.values.notice());
        let Tables { folder, summary, values: slots, unmatched, .. } = &mut self.tables;
        summary.shape(content::op_columns(needed), ops, folder)?;
        slots.shape(content::slot_columns(needed), values, folder)?;
        unmatched.shape(UnmatchedColumn::ALL.to_vec(), None, folder)
    }

    fn write_part(&mut self, part: &PartReport<'_>) -> io::Result<()> {
        let outlines: Vec<Outline> = op_rows(part).map(|op| Outline::of(&op)).collect();
        let (ops, values) = (self.ops.of(&outlines, part.parts), self.values.of(&outlines, part.parts));
        self.provide(Content::of(part))?;
        let (step, rank) = (part.pair.step, part.pair.rank);
        self.tables.write(op_rows(part).zip(ops).zip(values).map(|((op, in_summary), in_values)| Entry {
            op,
            in_summary,
            in_values,
            unmatched: table::one_sided_rows(&op),
            fault: op.judged().cause.map(|_| (step, rank, op.order())),
            replay: None,
        }))
    }

    /// Returns every sheet, in order.
    fn sheets(&mut self, summary: &Summary) -> io::Result<Vec<Sheet>> {
        if self.content.is_none() {
            self.provide(Content::EVERYTHING)?;
        }
        let Tables { folder, summary: ops, values, unmatched, unmatched_left_out, faults, replayed, .. } =
            &mut self.tables;
        if *unmatched_left_out > 0 {
            let more = thousands(*unmatched_left_out);
            unmatched.remark(&format!(
                "and {more} more, all in result.parquet, or here with `probe compare --full`"
            ))?;
        }
        let contents = [
            ("summary", self.ops.in_words("ops")),
            ("tensors", self.values.in_words("values")),
            (replays::SHEET, replays::in_words(&self.replays)),
        ];
        let contents: Vec<(&str, String)> =
            contents.into_iter().filter_map(|(sheet, words)| Some((sheet, words?))).collect();
        let is_selection = self.ops.notice().or(self.values.notice()).is_some();
        let mut sheets = vec![front::write(summary, faults, &contents, folder)?];
        let nothing = |otherwise: &str| {
            let words = if is_selection { "no op is at fault, and no value differs" } else { otherwise };
            format!("empty: {words}")
        };
        sheets.extend(ops.take_sheets(&nothing("no op was compared"))?);
        sheets.extend(values.take_sheets(&nothing("the ops hold no values"))?);
        sheets.extend(
            unmatched.take_sheets("empty: every op and every value that was compared has a counterpart")?,
        );
        if !self.replays.is_empty() {
            sheets.push(replays::write(&self.replays, replayed, folder)?);
        }
        sheets.push(legend::write(folder)?);
        Ok(sheets)
    }
}

impl TableOp for OpRow<'_> {
    fn heights(&self) -> Vec<u64> {
        self.slots().map(|slot| table::height(&slot.cell(SlotColumn::Pieces))).collect()
    }

    fn values(&self, strip: &mut Strip<'_, SlotColumn>) {
        for slot in self.slots() {
            strip.slot(|column| slot.cell(column));
        }
    }

    fn summary(&self, strip: &mut Strip<'_, OpColumn>, details: Option<&Spot>) {
        let shown = self.representative();
        strip.op(|column| self.cell(column, shown), details, None);
    }

    fn unmatched(&self, strip: &mut Strip<'_, UnmatchedColumn>, details: impl Fn(usize) -> Option<Spot>) {
        strip.one_sided(self, details);
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
        let Self { mut draft, .. } = *self;
        match book::save(sheets, draft.file()) {
            Ok(()) => Ok(draft),
            Err(error) => Err(draft.refused(error)),
        }
    }
}
