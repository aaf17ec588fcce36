//! The sheet `replays`: calls that were run again after the comparison, each result of each side against float64.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::rows::{Rows, Spot};
use super::sheet::{Head, Layout, Sheet};
use super::style::Style;
use super::table::put_link;
use crate::number::thousands;
use crate::replays::{Number, Replay};
use crate::rows::Cell;

/// Name of the sheet.
pub(super) const SHEET: &str = "replays";
/// Columns, with their widths.
const COLUMNS: [(&str, u16); 14] = [
    ("step", 7),
    ("rank", 7),
    ("op", 48),
    ("wrong", 11),
    ("output", 12),
    ("of", 24),
    ("RMSE", 12),
    ("max rel", 12),
    ("max ULP", 16),
    ("beyond", 10),
    ("l2", 12),
    ("standard", 60),
    ("answer", 90),
    ("equal to", 60),
];
/// Columns that stay in view.
const FROZEN: u16 = 3;

/// Answer of the replay of one op, and its first row on the sheet.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    /// Position of the replay.
    pub(super) replay: usize,
    text: &'a str,
    is_wrong: bool,
    spot: Spot,
}

impl Answer<'_> {
    /// Writes the next cell.
    pub(super) fn put(&self, rows: &mut Rows) {
        rows.link(if self.is_wrong { Style::LinkAtFault } else { Style::Link }, self.text, &self.spot);
    }
}

/// Answers by step, rank and op.
#[derive(Debug, Default)]
pub(super) struct Answers<'a>(HashMap<(u64, u32), HashMap<&'a str, Answer<'a>>>);

impl<'a> Answers<'a> {
    pub(super) fn of(replays: &'a [Replay]) -> Self {
        let mut answers = Self::default();
        // The first row holds the names of the columns.
        let mut row = 2;
        for (place, replay) in replays.iter().enumerate() {
            let spot = Spot { sheet: SHEET.into(), row };
            row += rows_of(replay);
            let is_wrong = replay.guilty.is_some();
            let found = Answer { replay: place, text: &replay.answer, is_wrong, spot };
            answers.0.entry((replay.step, replay.rank)).or_default().insert(&replay.op, found);
        }
        answers
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the answer about the op that a cell names.
    pub(super) fn about(&self, step: u64, rank: u32, op: &Cell<'_>) -> Option<&Answer<'a>> {
        let Cell::Text(name) = op else { return None };
        self.0.get(&(step, rank))?.get(&**name)
    }
}

fn rows_of(replay: &Replay) -> u32 {
    let rows: usize = replay.results.iter().map(|result| result.rows.len()).sum();
    u32::try_from(rows).unwrap_or(u32::MAX).max(1)
}

/// Describes the sheet; `None` if there are no replays.
pub(super) fn in_words(replays: &[Replay]) -> Option<String> {
    let count = thousands(replays.len() as u64);
    let ops = if replays.len() == 1 { "op was" } else { "ops were" };
    (!replays.is_empty())
        .then(|| format!("{count} {ops} replayed since: each result of each side against float64"))
}

/// Writes the sheet. `spots` holds the rows of the ops in the tables, by the positions of their replays.
pub(super) fn write(replays: &[Replay], spots: &HashMap<usize, Spot>, folder: &Path) -> io::Result<Sheet> {
    let head =
        Head { labels: COLUMNS.map(|(label, _)| label.to_owned()).into(), frozen: FROZEN, notice: None };
    let widths = COLUMNS.map(|(_, width)| width).into();
    let layout = Layout { name: SHEET.into(), widths, head: Some(head), tab: None };
    let mut sheet = Sheet::create(layout, folder)?;
    let mut rows = sheet.below();
    for (place, replay) in replays.iter().enumerate() {
        put_replay(&mut rows, replay, spots.get(&place));
    }
    sheet.append(rows)?;
    Ok(sheet)
}

fn put_replay(rows: &mut Rows, replay: &Replay, spot: Option<&Spot>) {
    let begin = |rows: &mut Rows| {
        rows.count(Style::Centre, replay.step);
        rows.count(Style::Centre, replay.rank.into());
        put_link(
            rows,
            &replay.op,
            if replay.guilty.is_some() { Style::LinkAtFault } else { Style::Link },
            spot,
        );
        rows.text(Style::Plain, replay.guilty.as_deref().unwrap_or("nobody"));
    };
    let end = |rows: &mut Rows, standard: &str| {
        rows.text(Style::Indented, standard);
        rows.text(Style::Plain, &replay.answer);
        rows.text(Style::Plain, replay.equal_to.as_deref().unwrap_or_default());
        rows.end_row();
    };
    if replay.results.iter().all(|result| result.rows.is_empty()) {
        begin(rows);
        (0..7).for_each(|_| rows.skip());
        return end(rows, "");
    }
    for result in &replay.results {
        for distances in &result.rows {
            begin(rows);
            rows.text(Style::Plain, &format!("output.{}", result.output));
            rows.text(Style::Plain, &distances.of);
            for number in [
                &distances.rmse,
                &distances.largest_relative,
                &distances.largest_ulp,
                &distances.beyond,
                &distances.l2,
            ] {
                match number {
                    Number::Finite(value) => rows.real(Style::metric(*value), *value),
                    Number::Word(word) => rows.text(Style::NonFinite, word),
                }
            }
            end(rows, &result.standard);
        }
    }
}
