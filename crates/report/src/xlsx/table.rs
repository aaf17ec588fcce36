//! The three tables of the workbook: the style of their cells and how they roll over.

use std::io;

use super::book::Book;
use super::sheet::{Head, Layout, Sheet, Spot};
use super::style::Style;
use crate::columns::{Kind, OpColumn, Side, SlotColumn, UnmatchedColumn};
use crate::rows::{Cell, OpRow};
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

/// A table over one or more sheets with the same columns.
pub(super) struct Table<C> {
    title: &'static str,
    frozen: u16,
    max_rows: u32,
    columns: Vec<C>,
    notice: Option<&'static str>,
    open: Option<Sheet>,
    full: Vec<Sheet>,
    /// Rows on all sheets, without headers.
    rows: u64,
}

impl<C> std::fmt::Debug for Table<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("title", &self.title)
            .field("columns", &self.columns.len())
            .field("full", &self.full.len())
            .finish_non_exhaustive()
    }
}

impl<C: Column> Table<C> {
    /// Creates a table without columns; the first `frozen` ones will stay in view.
    pub(super) const fn new(title: &'static str, frozen: u16, max_rows: u32) -> Self {
        Self {
            title,
            frozen,
            max_rows,
            columns: Vec::new(),
            notice: None,
            open: None,
            full: Vec::new(),
            rows: 0,
        }
    }

    /// Sets the columns and the notice above their names. If either changes, rows continue in a new sheet.
    pub(super) fn shape(
        &mut self,
        columns: Vec<C>,
        notice: Option<&'static str>,
        book: &mut Book,
    ) -> io::Result<()> {
        if self.columns == columns && self.notice == notice && self.open.is_some() {
            return Ok(());
        }
        (self.columns, self.notice) = (columns, notice);
        self.begin(book)
    }

    /// Returns the number of rows on all sheets, without headers.
    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }

    fn begin(&mut self, book: &mut Book) -> io::Result<()> {
        if let Some(full) = self.open.take() {
            self.full.push(full);
        }
        let name = match self.full.len() {
            0 => self.title.to_owned(),
            before => format!("{} {}", self.title, before + 1),
        };
        let labels: Vec<String> = self.columns.iter().map(|column| column.label()).collect();
        let widths =
            self.columns.iter().zip(&labels).map(|(column, label)| wide_enough(label).max(column.width()));
        let layout = Layout {
            name,
            widths: widths.collect(),
            head: Some(Head { labels, frozen: self.frozen, notice: self.notice }),
            tab: None,
        };
        self.open = Some(book.sheet(&layout)?);
        Ok(())
    }

    /// Ensures that another row fits.
    fn room(&mut self, book: &mut Book) -> io::Result<()> {
        let full = self.open.as_ref().is_none_or(|sheet| sheet.row() > self.max_rows);
        if full { self.begin(book) } else { Ok(()) }
    }

    /// Returns the location of the next row.
    pub(super) fn next(&mut self, book: &mut Book) -> io::Result<Spot> {
        self.room(book)?;
        Ok(self.open.as_ref().map_or_else(Spot::default, Sheet::spot))
    }

    /// Adds a row whose cells `put` writes.
    fn row(&mut self, book: &mut Book, mut put: impl FnMut(&mut Sheet, C)) -> io::Result<()> {
        self.room(book)?;
        let Some(sheet) = self.open.as_mut() else { return Ok(()) };
        for &column in &self.columns {
            put(sheet, column);
        }
        self.rows += 1;
        sheet.end_row()
    }

    /// Adds a line below the rows.
    pub(super) fn remark(&mut self, text: &str) -> io::Result<()> {
        self.open.as_mut().map_or(Ok(()), |sheet| sheet.remark(text))
    }

    /// Returns the sheets, in order. A table without rows shows `why`.
    pub(super) fn take_sheets(&mut self, why: &str) -> io::Result<impl Iterator<Item = Sheet> + use<C>> {
        if self.rows == 0 {
            self.remark(why)?;
        }
        Ok(std::mem::take(&mut self.full).into_iter().chain(self.open.take()))
    }
}

/// Returns a width at which no word of a bold name is broken.
fn wide_enough(label: &str) -> u16 {
    let longest = label.split(' ').map(str::len).max().unwrap_or(0);
    u16::try_from(longest + longest / 8 + 1).unwrap_or(u16::MAX)
}

impl Table<SlotColumn> {
    /// Adds the row of a slot.
    pub(super) fn slot<'a>(
        &mut self,
        cell: impl Fn(SlotColumn) -> Cell<'a>,
        book: &mut Book,
    ) -> io::Result<()> {
        self.row(book, |sheet, column| {
            let cell = cell(column);
            let style = match column {
                SlotColumn::Verdict => verdict_style(&cell),
                SlotColumn::Role => role_style(&cell),
                SlotColumn::Metric(_) | SlotColumn::RelativeDifference(_) => {
                    return put_metric(sheet, &cell);
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
            put(sheet, &cell, style);
        })
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

impl Table<OpColumn> {
    /// Adds the row of an op, which links to `details`.
    pub(super) fn op<'a>(
        &mut self,
        cell: impl Fn(OpColumn) -> Cell<'a>,
        details: Option<&Spot>,
        book: &mut Book,
    ) -> io::Result<()> {
        let link = if cell(OpColumn::Cause) == Cell::Empty { Style::Link } else { Style::LinkAtFault };
        self.row(book, |sheet, column| {
            let cell = cell(column);
            let style = match column {
                OpColumn::Op => {
                    let Cell::Text(name) = &cell else { return put(sheet, &cell, Style::Plain) };
                    return put_link(sheet, name, link, details);
                }
                OpColumn::Metric(_) | OpColumn::InputError | OpColumn::OutputError => {
                    return put_metric(sheet, &cell);
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
            put(sheet, &cell, style);
        })
    }
}

impl Table<UnmatchedColumn> {
    /// Adds rows for the op if only one side has it, else for its slots that only one side has.
    pub(super) fn one_sided(
        &mut self,
        op: &OpRow<'_>,
        details: Option<&Spot>,
        book: &mut Book,
    ) -> io::Result<()> {
        if let Some(side) = only(op.paired()) {
            return self.lone_op(side, |column| op.cell(column, None), details, book);
        }
        for (offset, slot) in (0_u32..).zip(op.slots()) {
            let Some(side) = only(slot.paired()) else { continue };
            self.lone_slot(side, |column| slot.cell(column), below(details, offset).as_ref(), book)?;
        }
        Ok(())
    }

    /// Adds the row of an op that only `side` has.
    pub(super) fn lone_op<'a>(
        &mut self,
        side: Side,
        cell: impl Fn(OpColumn) -> Cell<'a>,
        details: Option<&Spot>,
        book: &mut Book,
    ) -> io::Result<()> {
        self.row(book, |sheet, column| {
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
            unmatched(sheet, column, &cell, details);
        })
    }

    /// Adds the row of a slot that only `side` has.
    pub(super) fn lone_slot<'a>(
        &mut self,
        side: Side,
        cell: impl Fn(SlotColumn) -> Cell<'a>,
        details: Option<&Spot>,
        book: &mut Book,
    ) -> io::Result<()> {
        self.row(book, |sheet, column| {
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
            unmatched(sheet, column, &cell, details);
        })
    }
}

/// Returns the row this many rows below the first row of an op.
pub(super) fn below(first: Option<&Spot>, offset: u32) -> Option<Spot> {
    first.map(|first| Spot { row: first.row.saturating_add(offset), sheet: first.sheet.clone() })
}

fn unmatched(sheet: &mut Sheet, column: UnmatchedColumn, cell: &Cell<'_>, details: Option<&Spot>) {
    match (column, cell) {
        (UnmatchedColumn::Op, Cell::Text(name)) => put_link(sheet, name, Style::Link, details),
        _ if column.kind() == Kind::Count => put(sheet, cell, Style::Centre),
        _ => put(sheet, cell, Style::Plain),
    }
}

/// Returns the number of rows that [`Table::one_sided`] adds for the op.
pub(super) fn one_sided_rows(op: &OpRow<'_>) -> u64 {
    if only(op.paired()).is_some() {
        1
    } else {
        op.slots().filter(|slot| only(slot.paired()).is_some()).count() as u64
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
pub(super) fn put(sheet: &mut Sheet, cell: &Cell<'_>, style: Style) {
    match cell {
        Cell::Empty => sheet.skip(),
        Cell::Count(value) => sheet.count(style, *value),
        Cell::Real(value) => sheet.real(Style::number(*value), *value),
        Cell::Flag(value) => sheet.text(style, if *value { "yes" } else { "no" }),
        Cell::Text(text) => sheet.text(style, text),
    }
}

/// Writes the next cell, whose number is a metric or an error.
pub(super) fn put_metric(sheet: &mut Sheet, cell: &Cell<'_>) {
    match cell {
        Cell::Real(value) => sheet.real(Style::metric(*value), *value),
        other => put(sheet, other, Style::Plain),
    }
}

/// Writes `text` as the next cell, linked to the row `to` if there is one.
pub(super) fn put_link(sheet: &mut Sheet, text: &str, style: Style, to: Option<&Spot>) {
    match to {
        Some(to) => sheet.link(style, text, to),
        None => sheet.text(Style::Plain, text),
    }
}
