//! The three tables of the workbook: how their cells look and how they roll over.

use std::io;
use std::path::Path;

use super::Spot;
use super::sheet::{FinishedSheet, Layout, Sheet};
use super::style::Style;
use super::text::SharedStrings;
use crate::pair::Paired;
use crate::report::columns::{Kind, OpColumn, Side, SlotColumn, UnmatchedColumn};
use crate::report::rows::{Cell, OpRow, SlotRow};

/// What the head of a table needs to know of its columns.
pub(super) trait Column: Copy + PartialEq {
    /// Header.
    fn label(self) -> String;
    /// Width in characters.
    fn width(self) -> u16;
    /// One line for the legend.
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
    open: Option<Sheet>,
    full: Vec<FinishedSheet>,
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
    /// A table without columns; the first `frozen` ones will stay in view.
    pub(super) const fn new(title: &'static str, frozen: u16, max_rows: u32) -> Self {
        Self { title, frozen, max_rows, columns: Vec::new(), open: None, full: Vec::new() }
    }

    /// Sets the columns. When they are others than before, rows go on in a new sheet.
    pub(super) fn columns(
        &mut self,
        columns: Vec<C>,
        folder: &Path,
        strings: &mut SharedStrings,
    ) -> io::Result<()> {
        if self.columns == columns && self.open.is_some() {
            return Ok(());
        }
        self.columns = columns;
        self.begin(folder, strings)
    }

    fn begin(&mut self, folder: &Path, strings: &mut SharedStrings) -> io::Result<()> {
        if let Some(full) = self.open.take() {
            self.full.push(full.finish()?);
        }
        let name = match self.full.len() {
            0 => self.title.to_owned(),
            before => format!("{} {}", self.title, before + 1),
        };
        // The label has to fit beside the arrow of the filter.
        let fits =
            |column: &C| u16::try_from(column.label().len() + 4).unwrap_or(u16::MAX).max(column.width());
        let widths = self.columns.iter().map(fits).collect();
        let layout = Layout { name, widths, frozen: self.frozen, ..Layout::default() };
        let mut sheet = Sheet::create(layout, folder)?;
        sheet.begin_row();
        for column in &self.columns {
            sheet.shared(Style::Header, &column.label(), strings);
        }
        sheet.end_row()?;
        self.open = Some(sheet);
        Ok(())
    }

    /// Makes sure that another row fits.
    fn room(&mut self, folder: &Path, strings: &mut SharedStrings) -> io::Result<()> {
        let full = self.open.as_ref().is_none_or(|sheet| sheet.row() > self.max_rows);
        if full { self.begin(folder, strings) } else { Ok(()) }
    }

    /// Where the next row will stand.
    pub(super) fn next(&mut self, folder: &Path, strings: &mut SharedStrings) -> io::Result<Spot> {
        self.room(folder, strings)?;
        let open = self.open.as_ref();
        Ok(open.map_or_else(Spot::default, |sheet| Spot { sheet: sheet.name().into(), row: sheet.row() }))
    }

    /// Adds a row whose cells `put` writes.
    fn row(
        &mut self,
        folder: &Path,
        strings: &mut SharedStrings,
        mut put: impl FnMut(&mut Sheet, C, &mut SharedStrings),
    ) -> io::Result<()> {
        self.room(folder, strings)?;
        let Some(sheet) = self.open.as_mut() else { return Ok(()) };
        sheet.begin_row();
        for &column in &self.columns {
            put(sheet, column, strings);
        }
        sheet.end_row()
    }

    /// The sheets, in order.
    pub(super) fn finish(&mut self) -> io::Result<Vec<FinishedSheet>> {
        if let Some(last) = self.open.take() {
            self.full.push(last.finish()?);
        }
        Ok(std::mem::take(&mut self.full))
    }
}

impl Table<SlotColumn> {
    /// Adds the row of a slot.
    pub(super) fn slot(
        &mut self,
        row: &SlotRow<'_>,
        folder: &Path,
        strings: &mut SharedStrings,
    ) -> io::Result<()> {
        self.row(folder, strings, |sheet, column, strings| {
            let looks = match column {
                SlotColumn::Verdict => Looks::of(Style::verdict(row.judged().verdict)),
                SlotColumn::Role => Looks::of(Style::role(row.op().judged().role)),
                SlotColumn::Metric(_) | SlotColumn::RelativeDifference(_) => Looks::METRIC,
                SlotColumn::Step
                | SlotColumn::Rank
                | SlotColumn::Order
                | SlotColumn::Estimated
                | SlotColumn::Basis
                | SlotColumn::RequiresGrad(_) => Looks::CENTRE,
                SlotColumn::Checksum(_) | SlotColumn::MaxAbsPosition => Looks { once: true, ..Looks::CENTRE },
                SlotColumn::Reason | SlotColumn::Value(_) => Looks::ONCE,
                _ => Looks::PLAIN,
            };
            put(sheet, &row.cell(column), looks, strings);
        })
    }
}

impl Table<OpColumn> {
    /// Adds the row of an op, which leads to `details`.
    pub(super) fn op(
        &mut self,
        row: &OpRow<'_>,
        details: Option<&Spot>,
        folder: &Path,
        strings: &mut SharedStrings,
    ) -> io::Result<()> {
        let shown = row.representative();
        let judged = row.judged();
        let linked = match (details, judged.cause) {
            (None, _) => Looks::PLAIN,
            (Some(_), None) => Looks::of(Style::Link),
            (Some(_), Some(_)) => Looks::of(Style::LinkAtFault),
        };
        self.row(folder, strings, |sheet, column, strings| {
            let looks = match column {
                OpColumn::Op => linked,
                OpColumn::Verdict => Looks::of(Style::verdict(judged.verdict)),
                OpColumn::Role => Looks::of(Style::role(judged.role)),
                OpColumn::Metric(_) | OpColumn::InputError | OpColumn::OutputError => Looks::METRIC,
                OpColumn::Reason => Looks::ONCE,
                OpColumn::Step
                | OpColumn::Rank
                | OpColumn::Order
                | OpColumn::Slots
                | OpColumn::Estimated
                | OpColumn::Basis => Looks::CENTRE,
                _ => Looks::PLAIN,
            };
            put(sheet, &row.cell(column, shown), looks, strings);
            if let (OpColumn::Op, Some(spot)) = (column, details) {
                sheet.link(&spot.sheet, spot.row);
            }
        })
    }
}

impl Table<UnmatchedColumn> {
    /// Adds rows for the op if one side lacks it, else for its slots that one side lacks.
    pub(super) fn one_sided(
        &mut self,
        op: &OpRow<'_>,
        details: &Spot,
        folder: &Path,
        strings: &mut SharedStrings,
    ) -> io::Result<()> {
        if let Some(side) = only(op.paired()) {
            return self.row(folder, strings, |sheet, column, strings| {
                let cell = match column {
                    UnmatchedColumn::Step => op.cell(OpColumn::Step, None),
                    UnmatchedColumn::Rank => op.cell(OpColumn::Rank, None),
                    UnmatchedColumn::Order => op.cell(OpColumn::Order, None),
                    UnmatchedColumn::Op => op.cell(OpColumn::Op, None),
                    UnmatchedColumn::Side => Cell::Text(side.name().into()),
                    UnmatchedColumn::Slots => op.cell(OpColumn::Slots, None),
                    UnmatchedColumn::Reason => op.cell(OpColumn::Reason, None),
                    UnmatchedColumn::Slot | UnmatchedColumn::DType | UnmatchedColumn::Shape => Cell::Empty,
                };
                unmatched(sheet, column, &cell, (op.slot_count() > 0).then_some(details), strings);
            });
        }
        for (offset, slot) in (0_u32..).zip(op.slots()) {
            let Some(side) = only(slot.paired()) else { continue };
            let details = Spot { row: details.row.saturating_add(offset), ..details.clone() };
            self.row(folder, strings, |sheet, column, strings| {
                let cell = match column {
                    UnmatchedColumn::Step => slot.cell(SlotColumn::Step),
                    UnmatchedColumn::Rank => slot.cell(SlotColumn::Rank),
                    UnmatchedColumn::Order => slot.cell(SlotColumn::Order),
                    UnmatchedColumn::Op => slot.cell(SlotColumn::Op),
                    UnmatchedColumn::Slot => slot.cell(SlotColumn::Slot),
                    UnmatchedColumn::Side => Cell::Text(side.name().into()),
                    UnmatchedColumn::Slots => Cell::Empty,
                    UnmatchedColumn::DType => slot.cell(SlotColumn::DType(side)),
                    UnmatchedColumn::Shape => slot.cell(SlotColumn::Shape(side)),
                    UnmatchedColumn::Reason => slot.cell(SlotColumn::Reason),
                };
                unmatched(sheet, column, &cell, Some(&details), strings);
            })?;
        }
        Ok(())
    }
}

fn unmatched(
    sheet: &mut Sheet,
    column: UnmatchedColumn,
    cell: &Cell<'_>,
    details: Option<&Spot>,
    strings: &mut SharedStrings,
) {
    match (column, details) {
        (UnmatchedColumn::Op, Some(spot)) => {
            put(sheet, cell, Looks::of(Style::Link), strings);
            sheet.link(&spot.sheet, spot.row);
        }
        (UnmatchedColumn::Reason, _) => put(sheet, cell, Looks::ONCE, strings),
        _ if column.kind() == Kind::Count => put(sheet, cell, Looks::CENTRE, strings),
        _ => put(sheet, cell, Looks::PLAIN, strings),
    }
}

const fn only(paired: Paired) -> Option<Side> {
    match paired {
        Paired::Both(..) => None,
        Paired::BaselineOnly(_) => Some(Side::Baseline),
        Paired::CandidateOnly(_) => Some(Side::Candidate),
    }
}

/// How the cells of a column are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks {
    style: Style,
    /// Numbers are metrics, not values of tensors.
    metric: bool,
    /// Texts hardly occur twice.
    once: bool,
}

impl Looks {
    pub(super) const PLAIN: Self = Self::of(Style::Plain);
    const CENTRE: Self = Self::of(Style::Centre);
    pub(super) const METRIC: Self = Self { metric: true, ..Self::PLAIN };
    pub(super) const ONCE: Self = Self { once: true, ..Self::PLAIN };

    pub(super) const fn of(style: Style) -> Self {
        Self { style, metric: false, once: false }
    }
}

/// Writes the next cell.
pub(super) fn put(sheet: &mut Sheet, cell: &Cell<'_>, looks: Looks, strings: &mut SharedStrings) {
    match cell {
        Cell::Empty => sheet.skip(),
        Cell::Count(value) => sheet.count(looks.style, *value),
        Cell::Real(value) => {
            sheet.real(if looks.metric { Style::metric(*value) } else { Style::number(*value) }, *value);
        }
        Cell::Flag(value) => sheet.shared(looks.style, if *value { "yes" } else { "no" }, strings),
        Cell::Text(text) if looks.once => sheet.inline(looks.style, text),
        Cell::Text(text) => sheet.shared(looks.style, text, strings),
    }
}
