//! The tables of a run whose shards were compared earlier: ops at fault with their neighbours, and ops that differ.
//!
//! Rows are read twice: once for the few columns that classify each op, and once for the selected rows. The selected rows are held in memory, so that
//! they can be written in the order of steps and ranks, regardless of the order of the shards.

use std::ops::Range;
use std::path::Path;

use super::XlsxReport;
use super::content::Content;
use super::replays::{Answer, Answers};
use super::rows::Spot;
use super::selection::Outline;
use super::table::{Strip, height};
use super::tables::{Entry, TableOp};
use crate::ReportWriter as _;
use crate::columns::{OpColumn, Side, SlotColumn, UnmatchedColumn};
use crate::model::summary;
use crate::rows::Cell;
use crate::stored::{Columns, StoredError, StoredFile, StoredRow, StoredRows, StoredRun};
use probe_files::Draft;
use probe_judge::Verdict;
use probe_measure::Basis;

/// Rows that are held at once, some 250 MB.
const MAX_HELD: usize = 1 << 18;

/// An op as seen in the first pass.
#[derive(Debug)]
struct Seen {
    outline: Outline,
    /// Number of its rows in the table of unpaired ops and slots.
    lone: u32,
}

/// The ops of a part, whose rows are contiguous in its file.
#[derive(Debug)]
struct Part {
    step: u64,
    rank: u32,
    file: usize,
    first_row: usize,
    ops: Vec<Seen>,
}

/// An op that is shown.
#[derive(Debug)]
struct Shown {
    step: u64,
    rank: u32,
    file: usize,
    rows: Range<usize>,
    in_summary: bool,
    in_tensors: bool,
    in_unmatched: bool,
    /// Number of its rows in the table of unpaired ops and slots.
    lone: u64,
}

/// Makes a workbook of a result, with the replays beside it, to be placed at `target`.
///
/// # Errors
/// [`StoredError`] when the result is damaged or was written by a version that did not store what a workbook needs, or when the
/// workbook cannot be written.
pub fn from_result(file: StoredFile, target: &Path) -> Result<Draft, StoredError> {
    let summary = summary(file.answer()?).map_err(|error| file.damaged(error))?;
    let mut report = XlsxReport::create(target, file.extent())?;
    let replays = file.replays()?;
    report.write_stored(&StoredRun { replays, ..StoredRun::of(vec![file])? })?;
    Ok(Box::new(report).finish(&summary)?)
}

impl XlsxReport {
    /// Writes the selected rows of a run.
    pub(super) fn write_stored(&mut self, run: &StoredRun) -> Result<(), StoredError> {
        self.replays.clone_from(&run.replays);
        let answers = Answers::of(&run.replays);
        let mut parts = parts(run, &answers)?;
        parts.sort_by_key(|part| (part.step, part.rank));
        let shown = self.choose(&parts);
        drop(parts);
        for shown in held_at_once(&shown) {
            self.write_shown(run, shown, &answers)?;
        }
        Ok(())
    }

    fn write_shown(
        &mut self,
        run: &StoredRun,
        shown: &[Shown],
        answers: &Answers<'_>,
    ) -> Result<(), StoredError> {
        let mut chosen: Vec<Option<StoredRows>> = Vec::new();
        for (number, file) in run.files.iter().enumerate() {
            let mut ranges: Vec<Range<usize>> =
                shown.iter().filter(|op| op.file == number).map(|op| op.rows.clone()).collect();
            ranges.sort_by_key(|rows| rows.start);
            chosen.push(file.gather(&ranges)?);
        }
        let all = SlotColumn::with_programs();
        let columns: Vec<Option<Columns<'_>>> = run
            .files
            .iter()
            .zip(&chosen)
            .map(|(file, rows)| rows.as_ref().map(|rows| file.columns(&rows.0, &all)).transpose())
            .collect::<Result<_, _>>()?;
        let places = places(shown, run.files.len());
        let ops = || {
            shown.iter().zip(&places).filter_map(|(op, &start)| {
                let columns = columns.get(op.file)?.as_ref()?;
                let rows = Stored { columns, rows: start..start + op.rows.len(), replay: None };
                let replay = answers.about(op.step, op.rank, &rows.of_op(SlotColumn::Op));
                Some((op, Stored { replay, ..rows }))
            })
        };
        let mut content = ops()
            .flat_map(|(_, op)| op.slots())
            .fold(Content::default(), |found, row| found.union(Content::of_row(|column| row.cell(column))));
        if !answers.is_empty() {
            content = content.union(Content::REPLAYS);
        }
        self.provide(content).map_err(|error| self.draft.refused(error))?;
        let entries = ops().map(|(op, rows)| Entry {
            in_summary: op.in_summary,
            in_values: op.in_tensors,
            unmatched: if op.in_unmatched { op.lone } else { 0 },
            fault: rows.fault(op),
            replay: rows.replay.map(|found| found.replay),
            op: rows,
        });
        self.tables.write(entries).map_err(|error| self.draft.refused(error))?;
        Ok(())
    }

    /// Selects ops, part by part.
    fn choose(&mut self, parts: &[Part]) -> Vec<Shown> {
        let mut shown = Vec::new();
        let mut unmatched = 0;
        for part in parts {
            let outlines: Vec<Outline> = part.ops.iter().map(|op| op.outline).collect();
            let in_summary = self.ops.of(&outlines, parts.len());
            let in_tensors = self.values.of(&outlines, parts.len());
            let mut row = part.first_row;
            for ((op, in_summary), in_tensors) in part.ops.iter().zip(in_summary).zip(in_tensors) {
                let rows = row..row + op.outline.values as usize;
                row = rows.end;
                let lone = u64::from(op.lone);
                let in_unmatched = lone > 0 && unmatched < self.tables.most_unmatched;
                if in_unmatched {
                    unmatched += lone;
                } else {
                    self.tables.unmatched_left_out += lone;
                }
                if in_summary || in_tensors || in_unmatched {
                    let Part { step, rank, file, .. } = *part;
                    let op = Shown { step, rank, file, rows, in_summary, in_tensors, in_unmatched, lone };
                    shown.push(op);
                }
            }
        }
        shown
    }
}

/// Divides ops into runs whose rows are held at once; at least one, which may be empty.
fn held_at_once(shown: &[Shown]) -> Vec<&[Shown]> {
    let mut held = Vec::new();
    let (mut first, mut rows) = (0, 0);
    for (place, op) in shown.iter().enumerate() {
        if rows + op.rows.len() > MAX_HELD && place > first {
            held.push(&shown[first..place]);
            (first, rows) = (place, 0);
        }
        rows += op.rows.len();
    }
    held.push(&shown[first..]);
    held
}

/// Returns the first row of each op among the selected rows of its file, which are in file order.
fn places(shown: &[Shown], files: usize) -> Vec<usize> {
    let mut starts: Vec<usize> = vec![0; files];
    let mut in_files: Vec<(usize, usize)> =
        shown.iter().enumerate().map(|(index, op)| (op.rows.start, index)).collect();
    in_files.sort_unstable();
    let mut places = vec![0; shown.len()];
    for (_, index) in in_files {
        let start = &mut starts[shown[index].file];
        places[index] = *start;
        *start += shown[index].rows.len();
    }
    places
}

/// Returns the side that has a value the other lacks.
fn lone(row: &StoredRow<'_>) -> Option<Side> {
    if !is_missing(row) {
        return None;
    }
    Side::ALL.into_iter().find(|side| row.cell(SlotColumn::DType(*side)) != Cell::Empty)
}

fn is_missing(row: &StoredRow<'_>) -> bool {
    matches!(row.cell(SlotColumn::Verdict), Cell::Text(word) if word == Verdict::Missing.name())
}

fn verdict(row: &StoredRow<'_>) -> Option<Verdict> {
    let Cell::Text(word) = row.cell(SlotColumn::Verdict) else { return None };
    Verdict::ALL.into_iter().find(|known| known.name() == word)
}

/// Classifies each op of each part.
fn parts(run: &StoredRun, answers: &Answers<'_>) -> Result<Vec<Part>, StoredError> {
    let columns = [
        SlotColumn::Step,
        SlotColumn::Rank,
        SlotColumn::Order,
        SlotColumn::Cause,
        SlotColumn::Verdict,
        SlotColumn::Recorded,
        SlotColumn::Op,
    ];
    // Names are read where one is looked for.
    let columns = &columns[..columns.len() - usize::from(answers.is_empty())];
    let mut parts: Vec<Part> = Vec::new();
    for (number, file) in run.files.iter().enumerate() {
        let mut last = None;
        let mut at = 0;
        file.read(columns, None, &mut |row| {
            let place = row.part().zip(row.order());
            let ((step, rank), order) =
                place.ok_or_else(|| file.damaged("a row without step, rank or order"))?;
            if parts.last().is_none_or(|part| (part.file, part.step, part.rank) != (number, step, rank)) {
                parts.push(Part { step, rank, file: number, first_row: at, ops: Vec::new() });
                last = None;
            }
            at += 1;
            let Some(part) = parts.last_mut() else { return Ok(()) };
            let on_both = matches!(row.cell(SlotColumn::Recorded), Cell::Text(word) if word == "both");
            if last != Some(order) {
                last = Some(order);
                let is_replayed = answers.about(step, rank, &row.cell(SlotColumn::Op)).is_some();
                let at_fault = is_replayed || row.cell(SlotColumn::Cause) != Cell::Empty;
                let outline = Outline { values: 0, at_fault, differs: false };
                part.ops.push(Seen { outline, lone: u32::from(!on_both) });
            }
            if let Some(op) = part.ops.last_mut() {
                op.outline.values += 1;
                op.outline.differs |= verdict(&row).is_some_and(|verdict| !verdict.is_fine());
                op.lone += u32::from(on_both && is_missing(&row));
            }
            Ok(())
        })?;
    }
    Ok(parts)
}

/// The rows of an op.
struct Stored<'a> {
    columns: &'a Columns<'a>,
    rows: Range<usize>,
    replay: Option<&'a Answer<'a>>,
}

impl<'a> Stored<'a> {
    fn slots(&self) -> impl Iterator<Item = StoredRow<'a>> + use<'a> {
        let columns = self.columns;
        self.rows.clone().map(move |row| StoredRow { columns, row })
    }

    /// Returns a cell that is the same in all its rows.
    fn of_op(&self, column: SlotColumn) -> Cell<'a> {
        StoredRow { columns: self.columns, row: self.rows.start }.cell(column)
    }

    /// Returns where the op is, if it is at fault.
    fn fault(&self, op: &Shown) -> Option<(u64, u32, usize)> {
        let (Cell::Count(order), Cell::Text(_)) =
            (self.of_op(SlotColumn::Order), self.of_op(SlotColumn::Cause))
        else {
            return None;
        };
        Some((op.step, op.rank, usize::try_from(order).ok()?))
    }

    /// Returns the content of a cell in the table of ops.
    fn cell(&self, column: OpColumn) -> Cell<'a> {
        let decides = || self.slots().find(|row| row.cell(SlotColumn::Decides) == Cell::Flag(true));
        let of_slot = |column| decides().map_or(Cell::Empty, |row| row.cell(column));
        match column {
            OpColumn::Step => self.of_op(SlotColumn::Step),
            OpColumn::Rank => self.of_op(SlotColumn::Rank),
            OpColumn::Order => self.of_op(SlotColumn::Order),
            OpColumn::Op => self.of_op(SlotColumn::Op),
            OpColumn::Phase => self.of_op(SlotColumn::Phase),
            OpColumn::Module => self.of_op(SlotColumn::Module),
            OpColumn::Role => self.of_op(SlotColumn::Role),
            OpColumn::Cause => self.of_op(SlotColumn::Cause),
            OpColumn::Source => self.of_op(SlotColumn::Source),
            OpColumn::Reason => self.of_op(SlotColumn::OpReason),
            OpColumn::InputError => self.of_op(SlotColumn::InputError),
            OpColumn::OutputError => self.of_op(SlotColumn::OutputError),
            OpColumn::Verdict => self
                .slots()
                .filter_map(|row| verdict(&row))
                .max()
                .map_or(Cell::Empty, |verdict| Cell::Text(verdict.name().into())),
            OpColumn::Slot => of_slot(SlotColumn::Slot),
            OpColumn::Metric(metric) => of_slot(SlotColumn::Metric(metric)),
            // The table of ops leaves this empty if data was compared.
            OpColumn::Estimated => match of_slot(SlotColumn::Basis) {
                Cell::Text(basis) if basis == Basis::Data.name() => Cell::Empty,
                _ => of_slot(SlotColumn::Estimated),
            },
            OpColumn::Basis => of_slot(SlotColumn::Basis),
            OpColumn::Slots => Cell::Count(self.rows.len() as u64),
            // It is a link and written as one.
            OpColumn::Replay => Cell::Empty,
        }
    }
}

impl TableOp for Stored<'_> {
    fn heights(&self) -> Vec<u64> {
        self.slots().map(|row| height(&row.cell(SlotColumn::Pieces))).collect()
    }

    fn values(&self, strip: &mut Strip<'_, SlotColumn>) {
        for row in self.slots() {
            strip.slot(|column| row.cell(column));
        }
    }

    fn summary(&self, strip: &mut Strip<'_, OpColumn>, details: Option<&Spot>) {
        strip.op(|column| self.cell(column), details, self.replay);
    }

    fn unmatched(&self, strip: &mut Strip<'_, UnmatchedColumn>, details: impl Fn(usize) -> Option<Spot>) {
        let side = match self.of_op(SlotColumn::Recorded) {
            Cell::Text(word) => Side::ALL.into_iter().find(|side| word == side.name()),
            _ => None,
        };
        if let Some(side) = side {
            return strip.lone_op(side, |column| self.cell(column), details(0).as_ref());
        }
        for (place, row) in self.slots().enumerate() {
            if let Some(side) = lone(&row) {
                strip.lone_slot(side, |column| row.cell(column), details(place).as_ref());
            }
        }
    }
}
