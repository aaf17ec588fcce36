//! The three tables of the workbook: the style of their cells and how they roll over.

use std::io;
use std::path::Path;

use super::replays::Answer;
use super::rows::{Fold, Rows, Spot};
use super::sheet::{Head, Layout, Sheet};
use super::style::Style;
use crate::columns::{Kind, OpColumn, Side, SlotColumn, UnmatchedColumn};
use crate::rows::{Cell, OpRow};
use probe_compare::BETWEEN_PIECES;
use probe_judge::{Role, Verdict};
use probe_pair::Paired;

/// Properties of a column that a table header needs.
pub(super) trait Column: Copy + PartialEq {
    /// Returns the header.
    fn label(self) -> String;
    /// Returns the width in characters.
    fn width(self) -> u16;
    /// Returns the one-line description for the legend.
    fn meaning(self) -> String;
}

impl Column for OpColumn {
    fn label(self) -> String {
        self.label()
    }
    fn width(self) -> u16 {
        self.width()
    }
    fn meaning(self) -> String {
        self.meaning().into()
    }
}

impl Column for SlotColumn {
    fn label(self) -> String {
        self.label()
    }
    fn width(self) -> u16 {
        self.width()
    }
    fn meaning(self) -> String {
        self.meaning()
    }
}

impl Column for UnmatchedColumn {
    fn label(self) -> String {
        self.label().into()
    }
    fn width(self) -> u16 {
        self.width()
    }
    fn meaning(self) -> String {
        self.meaning().into()
    }
}

/// Pieces of a value up to which each has a row of its own.
const MOST_PIECES: usize = 16;

/// Returns the pieces of a value that have rows of their own: what ranks hold alike is said in the row of the value.
fn pieces<'t>(cell: &'t Cell<'_>) -> impl Iterator<Item = &'t str> {
    let text = if let Cell::Text(text) = cell { &**text } else { "" };
    let count = text.split(BETWEEN_PIECES).count();
    text.split(BETWEEN_PIECES).filter(move |_| (2..=MOST_PIECES).contains(&count))
}

/// Returns the number of rows of a value whose pieces a cell names.
pub(super) fn height(cell: &Cell<'_>) -> u64 {
    1 + pieces(cell).count() as u64
}

/// A table over one or more sheets with the same columns.
pub(super) struct Table<C> {
    title: &'static str,
    frozen: u16,
    max_rows: u32,
    columns: Vec<C>,
    notice: Option<&'static str>,
    /// The last one is open.
    sheets: Vec<Sheet>,
    /// Rows on all sheets, without headers.
    rows: u64,
}

impl<C> std::fmt::Debug for Table<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("title", &self.title)
            .field("columns", &self.columns.len())
            .field("sheets", &self.sheets.len())
            .finish_non_exhaustive()
    }
}

impl<C: Column> Table<C> {
    /// Creates a table without columns; the first `frozen` ones will stay in view.
    pub(super) const fn new(title: &'static str, frozen: u16, max_rows: u32) -> Self {
        Self { title, frozen, max_rows, columns: Vec::new(), notice: None, sheets: Vec::new(), rows: 0 }
    }

    /// Sets the columns and the notice above their names. If either changes, rows continue in a new sheet.
    pub(super) fn shape(
        &mut self,
        columns: Vec<C>,
        notice: Option<&'static str>,
        folder: &Path,
    ) -> io::Result<()> {
        if self.columns == columns && self.notice == notice && !self.sheets.is_empty() {
            return Ok(());
        }
        (self.columns, self.notice) = (columns, notice);
        self.begin(folder)
    }

    /// Returns the number of rows on all sheets, without headers.
    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }

    fn head(&self) -> Head {
        let labels = self.columns.iter().map(|column| column.label()).collect();
        Head { labels, frozen: self.frozen, notice: self.notice }
    }

    fn begin(&mut self, folder: &Path) -> io::Result<()> {
        let head = self.head();
        let widths = self.columns.iter().zip(&head.labels);
        let widths = widths.map(|(column, label)| wide_enough(label).max(column.width())).collect();
        let layout = Layout { name: self.name(self.sheets.len()), widths, head: Some(head), tab: None };
        self.sheets.push(Sheet::create(layout, folder)?);
        Ok(())
    }

    /// Returns the name of a sheet, counted from 0.
    fn name(&self, sheet: usize) -> String {
        if sheet == 0 { self.title.to_owned() } else { format!("{} {}", self.title, sheet + 1) }
    }

    /// Returns the sheet and the row, both from 0, of the row that comes `after` others that are not here yet.
    fn place(&self, after: u64) -> (usize, u32) {
        let heads = if self.notice.is_some() { 2 } else { 1 };
        let (open, rows) = match self.sheets.split_last() {
            Some((open, full)) => (full.len(), open.rows()),
            None => (0, heads),
        };
        let room = u64::from(self.max_rows.saturating_sub(rows));
        let (further, row) = match after.checked_sub(room) {
            None => (0, u64::from(rows) + after),
            Some(beyond) => {
                let per_sheet = u64::from(self.max_rows.saturating_sub(heads).max(1));
                (1 + beyond / per_sheet, u64::from(heads) + beyond % per_sheet)
            }
        };
        (open + usize::try_from(further).unwrap_or(usize::MAX), u32::try_from(row).unwrap_or(u32::MAX))
    }

    /// Returns the location of the row that comes `after` others that are not here yet.
    pub(super) fn spot(&self, after: u64) -> Spot {
        let (sheet, row) = self.place(after);
        Spot { sheet: self.name(sheet), row: row + 1 }
    }

    /// Returns rows to be made for the places behind `after` others.
    pub(super) const fn strip(&self, after: u64) -> Strip<'_, C> {
        Strip { table: self, after, pieces: Vec::new() }
    }

    /// Adds rows that a [`Strip`] made.
    pub(super) fn append(&mut self, pieces: Vec<Rows>, folder: &Path) -> io::Result<()> {
        for piece in pieces {
            if self.sheets.last().is_none_or(|open| open.rows() != piece.above) {
                self.begin(folder)?;
            }
            self.rows += u64::from(piece.complete - piece.above);
            self.sheets.last_mut().map_or(Ok(()), |open| open.append(piece))?;
        }
        Ok(())
    }

    /// Adds a line below the rows.
    pub(super) fn remark(&mut self, text: &str) -> io::Result<()> {
        self.sheets.last_mut().map_or(Ok(()), |sheet| sheet.remark(text))
    }

    /// Returns the sheets, in order. A table without rows shows `why`.
    pub(super) fn take_sheets(&mut self, why: &str) -> io::Result<Vec<Sheet>> {
        if self.rows == 0 {
            self.remark(why)?;
        }
        Ok(std::mem::take(&mut self.sheets))
    }
}

/// Rows that are made for the places at the end of a table, before those above them are there.
pub(super) struct Strip<'t, C> {
    table: &'t Table<C>,
    /// Number of rows between the end of the table and the next row.
    after: u64,
    /// Rows of one sheet each.
    pieces: Vec<Rows>,
}

impl<C: Column> Strip<'_, C> {
    /// Adds a row whose cells `put` writes.
    fn row(&mut self, put: impl FnMut(&mut Rows, C)) {
        self.folded(Fold::Nothing, put);
    }

    /// The same for a row that is folded.
    fn folded(&mut self, fold: Fold, mut put: impl FnMut(&mut Rows, C)) {
        let (_, row) = self.table.place(self.after);
        if self.pieces.last().is_none_or(|piece| piece.complete != row) {
            self.pieces.push(Rows::below(row));
        }
        let Some(rows) = self.pieces.last_mut() else { return };
        rows.set_fold(fold);
        for &column in &self.table.columns {
            put(rows, column);
        }
        rows.end_row();
        self.after += 1;
    }

    /// Leaves rows empty up to the one with `after` rows between the end of the table and itself: rows were counted before
    /// they were made, and damaged input may have fewer.
    pub(super) fn fill(&mut self, after: u64) {
        while self.after < after {
            self.row(|_, _| ());
        }
    }

    /// Returns the rows, those of one sheet together.
    pub(super) fn pieces(self) -> Vec<Rows> {
        self.pieces
    }
}

/// Returns a width at which no word of a bold name is broken.
fn wide_enough(label: &str) -> u16 {
    let longest = label.split(' ').map(str::len).max().unwrap_or(0);
    u16::try_from(longest + longest / 8 + 1).unwrap_or(u16::MAX)
}

impl Strip<'_, SlotColumn> {
    /// Adds the row of a slot, and folded below it a row for each piece that ranks hold. These bear the names of op and slot, so that a filter
    /// keeps them together.
    pub(super) fn slot<'a>(&mut self, cell: impl Fn(SlotColumn) -> Cell<'a>) {
        let held = cell(SlotColumn::Pieces);
        let fold = if height(&held) > 1 { Fold::Above } else { Fold::Nothing };
        self.value(fold, &cell);
        for piece in pieces(&held) {
            self.folded(Fold::Below, |rows, column| match column {
                SlotColumn::Step | SlotColumn::Rank | SlotColumn::Order => {
                    put(rows, &cell(column), Style::Centre);
                }
                SlotColumn::Op | SlotColumn::Slot => put(rows, &cell(column), Style::Muted),
                SlotColumn::Pieces => rows.text(Style::Indented, piece),
                _ => rows.skip(),
            });
        }
    }

    fn value<'a>(&mut self, fold: Fold, cell: impl Fn(SlotColumn) -> Cell<'a>) {
        self.folded(fold, |rows, column| {
            let cell = cell(column);
            let style = match column {
                SlotColumn::Verdict => verdict_style(&cell),
                SlotColumn::Role => role_style(&cell),
                SlotColumn::Metric(_) | SlotColumn::RelativeDifference(_) => {
                    return put_metric(rows, &cell);
                }
                SlotColumn::Step
                | SlotColumn::Rank
                | SlotColumn::Order
                | SlotColumn::Estimated
                | SlotColumn::Basis
                | SlotColumn::RequiresGrad(_)
                | SlotColumn::Checksum(_)
                | SlotColumn::MaxAbsPosition => Style::Centre,
                _ => Style::Plain,
            };
            put(rows, &cell, style);
        });
    }
}

/// Returns the style of a verdict's word.
fn verdict_style(cell: &Cell<'_>) -> Style {
    let known =
        Verdict::ALL.into_iter().find(|known| matches!(cell, Cell::Text(word) if word == known.name()));
    known.map_or(Style::Plain, Style::verdict)
}

/// Returns the style of a role's word.
fn role_style(cell: &Cell<'_>) -> Style {
    let known = Role::ALL.into_iter().find(|known| matches!(cell, Cell::Text(word) if word == known.name()));
    known.map_or(Style::Plain, Style::role)
}

impl Strip<'_, OpColumn> {
    /// Adds the row of an op, which links to `details`, and to its `replay` if there is one.
    pub(super) fn op<'a>(
        &mut self,
        cell: impl Fn(OpColumn) -> Cell<'a>,
        details: Option<&Spot>,
        replay: Option<&Answer<'_>>,
    ) {
        let link = if cell(OpColumn::Cause) == Cell::Empty { Style::Link } else { Style::LinkAtFault };
        self.row(|rows, column| {
            let cell = cell(column);
            let style = match column {
                OpColumn::Op => {
                    let Cell::Text(name) = &cell else { return put(rows, &cell, Style::Plain) };
                    return put_link(rows, name, link, details);
                }
                OpColumn::Metric(_) | OpColumn::InputError | OpColumn::OutputError => {
                    return put_metric(rows, &cell);
                }
                OpColumn::Replay => {
                    let Some(found) = replay else { return rows.skip() };
                    return found.put(rows);
                }
                OpColumn::Verdict => verdict_style(&cell),
                OpColumn::Role => role_style(&cell),
                OpColumn::Source => Style::Indented,
                OpColumn::Step
                | OpColumn::Rank
                | OpColumn::Order
                | OpColumn::Slots
                | OpColumn::Estimated
                | OpColumn::Basis => Style::Centre,
                _ => Style::Plain,
            };
            put(rows, &cell, style);
        });
    }
}

impl Strip<'_, UnmatchedColumn> {
    /// Adds rows for the op if only one side has it, else for its slots that only one side has. `details` returns the
    /// location of a slot of the op.
    pub(super) fn one_sided(&mut self, op: &OpRow<'_>, details: impl Fn(usize) -> Option<Spot>) {
        if let Some(side) = only(op.paired()) {
            return self.lone_op(side, |column| op.cell(column, None), details(0).as_ref());
        }
        for (place, slot) in op.slots().enumerate() {
            if let Some(side) = only(slot.paired()) {
                self.lone_slot(side, |column| slot.cell(column), details(place).as_ref());
            }
        }
    }

    /// Adds the row of an op that only `side` has.
    pub(super) fn lone_op<'a>(
        &mut self,
        side: Side,
        cell: impl Fn(OpColumn) -> Cell<'a>,
        details: Option<&Spot>,
    ) {
        self.row(|rows, column| {
            let cell = match column {
                UnmatchedColumn::Step => cell(OpColumn::Step),
                UnmatchedColumn::Rank => cell(OpColumn::Rank),
                UnmatchedColumn::Order => cell(OpColumn::Order),
                UnmatchedColumn::Op => cell(OpColumn::Op),
                UnmatchedColumn::Side => Cell::Text(side.name().into()),
                UnmatchedColumn::Slots => cell(OpColumn::Slots),
                UnmatchedColumn::Reason => cell(OpColumn::Reason),
                UnmatchedColumn::Slot | UnmatchedColumn::DType | UnmatchedColumn::Shape => Cell::Empty,
            };
            unmatched(rows, column, &cell, details);
        });
    }

    /// Adds the row of a slot that only `side` has.
    pub(super) fn lone_slot<'a>(
        &mut self,
        side: Side,
        cell: impl Fn(SlotColumn) -> Cell<'a>,
        details: Option<&Spot>,
    ) {
        self.row(|rows, column| {
            let cell = match column {
                UnmatchedColumn::Step => cell(SlotColumn::Step),
                UnmatchedColumn::Rank => cell(SlotColumn::Rank),
                UnmatchedColumn::Order => cell(SlotColumn::Order),
                UnmatchedColumn::Op => cell(SlotColumn::Op),
                UnmatchedColumn::Slot => cell(SlotColumn::Slot),
                UnmatchedColumn::Side => Cell::Text(side.name().into()),
                UnmatchedColumn::Slots => Cell::Empty,
                UnmatchedColumn::DType => cell(SlotColumn::DType(side)),
                UnmatchedColumn::Shape => cell(SlotColumn::Shape(side)),
                UnmatchedColumn::Reason => cell(SlotColumn::Reason),
            };
            unmatched(rows, column, &cell, details);
        });
    }
}

fn unmatched(rows: &mut Rows, column: UnmatchedColumn, cell: &Cell<'_>, details: Option<&Spot>) {
    match (column, cell) {
        (UnmatchedColumn::Op, Cell::Text(name)) => put_link(rows, name, Style::Link, details),
        _ if column.kind() == Kind::Count => put(rows, cell, Style::Centre),
        _ => put(rows, cell, Style::Plain),
    }
}

/// Returns the number of rows that [`Strip::one_sided`] adds for the op.
pub(super) fn one_sided_rows(op: &OpRow<'_>) -> u64 {
    if only(op.paired()).is_some() {
        1
    } else {
        op.paired_slots().filter(|&paired| only(paired).is_some()).count() as u64
    }
}

const fn only(paired: Paired) -> Option<Side> {
    match paired {
        Paired::Both(..) => None,
        Paired::BaselineOnly(_) => Some(Side::Baseline),
        Paired::CandidateOnly(_) => Some(Side::Candidate),
    }
}

/// Writes the next cell. Numbers are values of tensors or counts.
pub(super) fn put(rows: &mut Rows, cell: &Cell<'_>, style: Style) {
    match cell {
        Cell::Empty => rows.skip(),
        Cell::Count(value) => rows.count(style, *value),
        Cell::Real(value) => rows.real(Style::number(*value), *value),
        Cell::Flag(value) => rows.text(style, if *value { "yes" } else { "no" }),
        Cell::Text(text) => rows.text(style, text),
    }
}

/// Writes the next cell, whose number is a metric or an error.
pub(super) fn put_metric(rows: &mut Rows, cell: &Cell<'_>) {
    match cell {
        Cell::Real(value) => rows.real(Style::metric(*value), *value),
        other => put(rows, other, Style::Plain),
    }
}

/// Writes `text` as the next cell, linked to the row `to` if there is one.
pub(super) fn put_link(rows: &mut Rows, text: &str, style: Style, to: Option<&Spot>) {
    match to {
        Some(to) => rows.link(style, text, to),
        None => rows.text(Style::Plain, text),
    }
}
