//! Selects the ops of a large comparison that a table holds.
//!
//! Parts arrive one by one, so the total size is estimated from the first: its rows times the number of parts. If the
//! estimate was too low, the table continues with a selection.

use crate::Extent;
use crate::number::thousands;
use crate::rows::OpRow;

/// Number of rows up to which a table holds everything; also the maximum number of rows of a selection.
pub(super) const MAX_ROWS: u64 = 20_000;

/// Ops shown before and after an op at fault.
const NEIGHBOURS: usize = 10;

/// Notice above the header of a table that holds a selection.
pub(super) const NOTICE: &str = "Large dump: this sheet holds the ops at fault, the 10 ops before and after each, and \
     ops with a value that differs. Everything is in result.parquet, or here with `probe compare --full`.";

/// Facts about an op that decide whether a table includes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outline {
    /// Number of its values.
    pub(super) values: u32,
    pub(super) at_fault: bool,
    /// True if one of its values differs.
    pub(super) differs: bool,
}

impl Outline {
    pub(super) fn of(op: &OpRow<'_>) -> Self {
        Self {
            values: u32::try_from(op.slot_count()).unwrap_or(u32::MAX),
            at_fault: op.judged().cause.is_some(),
            differs: op.judged_slots().iter().any(|slot| !slot.verdict.is_fine()),
        }
    }

    /// Returns its number of rows in a table of values. An op without values still takes one of the budget.
    pub(super) fn rows(self) -> u64 {
        u64::from(self.values).max(1)
    }
}

/// Selects the ops of one table, part by part.
#[derive(Debug)]
pub(super) struct Selection {
    extent: Extent,
    most: u64,
    /// Returns the number of rows that an op takes in the table.
    rows_of: fn(Outline) -> u64,
    parts: usize,
    /// True once the table no longer holds everything.
    selects: bool,
    /// Rows of everything so far, rows shown, and rows that differ but did not fit.
    all: u64,
    shown: u64,
    no_room: u64,
    /// Rows left for ops at fault and their neighbours.
    room_at_fault: u64,
    /// Rows left for other ops that differ.
    room_differing: u64,
}

impl Selection {
    pub(super) const fn new(extent: Extent, most: u64, rows_of: fn(Outline) -> u64) -> Self {
        Self {
            extent,
            most,
            rows_of,
            parts: 0,
            selects: false,
            all: 0,
            shown: 0,
            no_room: 0,
            room_at_fault: most / 2,
            room_differing: most / 2,
        }
    }

    /// Returns, for each of the `ops` of a part, whether it is shown. `parts` is the number of parts of the whole
    /// comparison.
    pub(super) fn of(&mut self, ops: &[Outline], parts: usize) -> Vec<bool> {
        let rows: Vec<u64> = ops.iter().copied().map(self.rows_of).collect();
        let of_part = rows.iter().sum::<u64>();
        let left = parts.saturating_sub(self.parts).max(1) as u64;
        self.selects |= self.extent == Extent::Selection
            && self.all.saturating_add(of_part.saturating_mul(left)) > self.most;
        self.parts += 1;
        self.all += of_part;
        if !self.selects {
            self.shown += of_part;
            return vec![true; ops.len()];
        }
        let mut shown = vec![false; ops.len()];
        let mut take = |place: usize, room: &mut u64| {
            let (Some(shown), Some(&rows)) = (shown.get_mut(place), rows.get(place)) else { return true };
            if *shown || rows > *room {
                return *shown;
            }
            (*shown, *room) = (true, *room - rows);
            self.shown += rows;
            true
        };
        let places = |of: fn(&Outline) -> bool| -> Vec<usize> {
            ops.iter().enumerate().filter(|(_, op)| of(op)).map(|(place, _)| place).collect()
        };
        let at_fault = places(|op| op.at_fault);
        // An op at fault takes precedence over the neighbours of another.
        for &place in &at_fault {
            take(place, &mut self.room_at_fault);
        }
        for &place in &at_fault {
            for near in place.saturating_sub(NEIGHBOURS)..=place.saturating_add(NEIGHBOURS) {
                take(near, &mut self.room_at_fault);
            }
        }
        for place in places(|op| op.differs) {
            if !take(place, &mut self.room_differing) {
                self.no_room += rows[place];
            }
        }
        shown
    }

    /// Returns the notice above the header of the table.
    pub(super) fn notice(&self) -> Option<&'static str> {
        self.selects.then_some(NOTICE)
    }

    /// Describes the content of the table if it is not everything; `noun` names the thing in a row.
    pub(super) fn in_words(&self, noun: &str) -> Option<String> {
        let (shown, all) = (thousands(self.shown), thousands(self.all));
        let rest = match self.no_room {
            0 => String::new(),
            some => format!("; {} more of ops that differ did not fit", thousands(some)),
        };
        self.selects.then(|| {
            format!(
                "{shown} of {all} {noun}: of the ops at fault, of the {NEIGHBOURS} ops before and after each, and of ops with \
                 a value that differs{rest}. Everything is in result.parquet, or here with `probe compare --full`."
            )
        })
    }
}
