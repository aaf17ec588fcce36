//! The three tables of a comparison, filled by ops: threads make the rows of some ops each, which are added in order.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::rows::Spot;
use super::table::{Strip, Table};
use crate::columns::{OpColumn, SlotColumn, UnmatchedColumn};

/// Ops whose rows one thread makes at a time.
const PER_THREAD: usize = 32;
/// Ops whose rows are held at once: some 10 MB of text.
const AT_ONCE: usize = 1024;

/// Step, rank and order of an op.
pub(super) type Place = (u64, u32, usize);

/// An op whose rows are to be written.
pub(super) trait TableOp: Sync {
    /// Returns the number of rows that each of its values takes.
    fn heights(&self) -> Vec<u64>;

    /// Writes a row for each of its values, and those that are folded below it.
    fn values(&self, strip: &mut Strip<'_, SlotColumn>);

    /// Writes its row, which links to `details`.
    fn summary(&self, strip: &mut Strip<'_, OpColumn>, details: Option<&Spot>);

    /// Writes a row for the op if only one side has it, else for its values that only one side has. `details` returns
    /// the location of a value.
    fn unmatched(&self, strip: &mut Strip<'_, UnmatchedColumn>, details: impl Fn(usize) -> Option<Spot>);
}

/// An op and the numbers of its rows.
pub(super) struct Entry<O> {
    pub(super) op: O,
    /// True if it is in the table of ops.
    pub(super) in_summary: bool,
    /// True if its values are in the table of values.
    pub(super) in_values: bool,
    /// Rows in the table of ops that only one side has.
    pub(super) unmatched: u64,
    /// Where it is, if it is at fault.
    pub(super) fault: Option<Place>,
    /// Position of its replay, if there is one.
    pub(super) replay: Option<usize>,
}

/// An op, and where its rows are in the tables: the numbers of rows between their ends and its own.
struct Placed<O> {
    op: O,
    summary: Range<u64>,
    values: Range<u64>,
    /// Rows of each value.
    heights: Vec<u64>,
    unmatched: Range<u64>,
}

/// The tables.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) folder: PathBuf,
    pub(super) summary: Table<OpColumn>,
    pub(super) values: Table<SlotColumn>,
    pub(super) unmatched: Table<UnmatchedColumn>,
    /// Number of such rows at which no further op is added.
    pub(super) most_unmatched: u64,
    /// Rows that were not added for that reason.
    pub(super) unmatched_left_out: u64,
    /// First rows of the ops at fault.
    pub(super) faults: HashMap<Place, Spot>,
    /// First rows of the ops that were replayed.
    pub(super) replayed: HashMap<usize, Spot>,
}

impl Tables {
    /// Creates tables of a workbook in `folder`, with sheets of at most `max_rows`.
    pub(super) fn new(folder: &Path, max_rows: u32, most_unmatched: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            summary: Table::new("summary", 4, max_rows),
            values: Table::new("tensors", 5, max_rows),
            unmatched: Table::new("unmatched", 5, max_rows),
            most_unmatched,
            unmatched_left_out: 0,
            faults: HashMap::new(),
            replayed: HashMap::new(),
        }
    }

    /// Adds the rows of ops.
    pub(super) fn write<O: TableOp>(&mut self, ops: impl Iterator<Item = Entry<O>>) -> io::Result<()> {
        let mut ops = ops.peekable();
        while ops.peek().is_some() {
            let placed = self.placed(ops.by_ref().take(AT_ONCE));
            let made: Vec<_> = placed.par_chunks(PER_THREAD).map(|ops| self.rows_of(ops)).collect();
            for (summary, values, unmatched) in made {
                self.summary.append(summary, &self.folder)?;
                self.values.append(values, &self.folder)?;
                self.unmatched.append(unmatched, &self.folder)?;
            }
        }
        Ok(())
    }

    fn placed<O: TableOp>(&mut self, ops: impl Iterator<Item = Entry<O>>) -> Vec<Placed<O>> {
        let (mut summary, mut values, mut unmatched) = (0, 0, 0);
        let place = |end: &mut u64, rows: u64| {
            *end += rows;
            *end - rows..*end
        };
        ops.map(|entry| {
            let mut lone = entry.unmatched;
            if self.unmatched.rows() + unmatched >= self.most_unmatched {
                self.unmatched_left_out += lone;
                lone = 0;
            }
            let heights = if entry.in_values { entry.op.heights() } else { Vec::new() };
            let placed = Placed {
                op: entry.op,
                summary: place(&mut summary, entry.in_summary.into()),
                values: place(&mut values, heights.iter().sum()),
                heights,
                unmatched: place(&mut unmatched, lone),
            };
            // An op without values has no row in that table.
            let spot = if !placed.values.is_empty() {
                Some(self.values.spot(placed.values.start))
            } else if !placed.summary.is_empty() {
                Some(self.summary.spot(placed.summary.start))
            } else {
                None
            };
            if let (Some(fault), Some(spot)) = (entry.fault, &spot) {
                self.faults.insert(fault, spot.clone());
            }
            if let (Some(replay), Some(spot)) = (entry.replay, spot) {
                self.replayed.insert(replay, spot);
            }
            placed
        })
        .collect()
    }

    fn rows_of<O: TableOp>(&self, ops: &[Placed<O>]) -> (Pieces, Pieces, Pieces) {
        let first = |of: fn(&Placed<O>) -> &Range<u64>| ops.first().map_or(0, |op| of(op).start);
        let mut summary = self.summary.strip(first(|op| &op.summary));
        let mut values = self.values.strip(first(|op| &op.values));
        let mut unmatched = self.unmatched.strip(first(|op| &op.unmatched));
        for placed in ops {
            let in_values = !placed.values.is_empty();
            let above = |place: usize| placed.heights.iter().take(place).sum::<u64>();
            let spot = |place| in_values.then(|| self.values.spot(placed.values.start + above(place)));
            if in_values {
                placed.op.values(&mut values);
                values.fill(placed.values.end);
            }
            if !placed.summary.is_empty() {
                placed.op.summary(&mut summary, spot(0).as_ref());
            }
            if !placed.unmatched.is_empty() {
                placed.op.unmatched(&mut unmatched, spot);
                unmatched.fill(placed.unmatched.end);
            }
        }
        (summary.pieces(), values.pieces(), unmatched.pieces())
    }
}

/// Rows of one table.
type Pieces = Vec<super::rows::Rows>;
