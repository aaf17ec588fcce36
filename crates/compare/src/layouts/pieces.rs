//! Words for the pieces of a value that ranks hold: a report folds them below the global value.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use probe_judge::PartJudgement;
use probe_layout::{Among, Cell, Holding, Piece, Spread, part_error};
use probe_pair::{Paired, PartPair};

use super::mended::is_fault;
use super::{Layouts, in_words};
use crate::collect::load;

/// Texts by the places of op and slot in the pair.
pub type Pieces = HashMap<(usize, usize), Box<str>>;

/// Stands between pieces; reports split texts at it.
pub const BETWEEN_PIECES: &str = "; ";

/// Ranges of one dimension that are written out.
const WRITTEN: usize = 4;

/// Values of a part whose shards are measured one by one: each is read again.
const MOST_MEASURED: usize = 256;

impl Layouts {
    /// Returns what the ranks hold of each value, and how far each shard of a value at fault is off.
    pub(crate) fn pieces(&self, pair: &PartPair, judged: &PartJudgement) -> Pieces {
        let mut texts = Pieces::new();
        let mut measured = 0;
        for (order, op) in pair.ops.iter().enumerate() {
            for (at, slots) in op.slots.iter().enumerate() {
                let Some(spread) = self.place(op, slots).and_then(|place| self.spread.get(&place)) else {
                    continue;
                };
                let differs = judged.slots.at(order, at).is_some_and(|slot| is_fault(slot.verdict));
                let part = |piece: &Piece| piece.holding == Holding::Part;
                let shards = spread.pieces.len() > 1 && spread.pieces.iter().all(part);
                let errors = if differs && shards && measured < MOST_MEASURED {
                    measured += 1;
                    errors(pair, (order, slots), &spread.pieces)
                } else {
                    None
                };
                texts.insert((order, at), told(spread, errors.as_deref()).into());
            }
        }
        texts
    }
}

/// Returns the relative error of each shard; `None` without data.
fn errors(pair: &PartPair, (order, slots): (usize, Paired), pieces: &[Piece]) -> Option<Vec<f64>> {
    let (b, c) = pair.slot(&pair.ops[order], slots);
    let (b, c) = (b?.value.tensor()?, c?.value.tensor()?);
    let x = load((b, &*pair.baseline.store), b.data.as_ref()?).ok()?;
    let y = load((c, &*pair.candidate.store), c.data.as_ref()?).ok()?;
    Some(pieces.iter().map(|piece| part_error(x.view(), y.view(), &piece.cell)).collect())
}

/// Formats pieces, one behind the other.
fn told(spread: &Spread, errors: Option<&[f64]>) -> String {
    let whole = Cell::whole(&spread.shape);
    let mut text = String::new();
    for (place, piece) in spread.pieces.iter().enumerate() {
        let is_whole = piece.cell == whole;
        let held = match piece.holding {
            Holding::Part if !is_whole => "",
            Holding::Part if piece.ranks.len() > 1 => "replicas",
            Holding::Part => "the whole value",
            Holding::Odd => "a replica that differs",
            Holding::Term(Among::Max) => "the maximum of its own part",
            Holding::Term(Among::Min) => "the minimum of its own part",
            Holding::Term(_) => "a term of the sum",
            Holding::Unexplained => "a value that no layout explains",
        };
        let ranks = in_words(&piece.ranks);
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{ranks}: {held}", if place == 0 { "" } else { BETWEEN_PIECES });
        if !is_whole {
            let _ = write!(
                text,
                "{}{}",
                if held.is_empty() { "" } else { ", " },
                part(&piece.cell, &spread.shape)
            );
        }
        if let Some(error) = errors.and_then(|errors| errors.get(place)) {
            let _ = if *error == 0.0 {
                write!(text, ", equal")
            } else {
                write!(text, ", relative error {error:.1e}")
            };
        }
    }
    text
}

/// Formats a part of a value as a slice: `[0:4+12:16, :]`.
pub(super) fn part(cell: &Cell, shape: &[usize]) -> String {
    let one = |ranges: &[Range<usize>], size: usize| {
        if ranges.len() == 1 && ranges[0] == (0..size) {
            return ":".to_owned();
        }
        let cut: Vec<Range<usize>> = ranges.iter().map(|range| range.start..range.end.min(size)).collect();
        slice(&cut)
    };
    let parts = cell.dimensions().iter().zip(shape).map(|(ranges, &size)| one(ranges, size));
    format!("[{}]", parts.collect::<Vec<_>>().join(", "))
}

/// Formats ranges of a dimension: `0:4+12:16`.
pub(super) fn slice(ranges: &[Range<usize>]) -> String {
    let shown = ranges.iter().take(WRITTEN).map(|range| format!("{}:{}", range.start, range.end));
    let more = if ranges.len() > WRITTEN { format!("+... ({} ranges)", ranges.len()) } else { String::new() };
    format!("{}{more}", shown.collect::<Vec<_>>().join("+"))
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a cell of one range is one of several")]
mod tests {
    use super::*;

    fn piece(ranks: &[u32], cell: Cell, holding: Holding) -> Piece {
        Piece { ranks: ranks.into(), cell, holding }
    }

    #[test]
    fn pieces_stand_with_the_part_that_each_rank_holds() {
        let shape: [usize; 2] = [16, 6];
        let rows = |ranges: &[Range<usize>]| Cell::whole(&shape).with(0, ranges.into());
        let told = |pieces: Vec<Piece>, errors: Option<&[f64]>| {
            super::told(&Spread { shape: shape.into(), pieces }, errors)
        };
        let part = |ranks: &[u32], ranges: &[Range<usize>]| piece(ranks, rows(ranges), Holding::Part);
        let zigzag = vec![part(&[0, 1], &[0..4, 12..16]), part(&[2, 3], &[4..8, 8..12])];
        let errors = Some(&[0.0, 0.02][..]);
        assert_eq!(
            told(zigzag, errors),
            "ranks 0-1: [0:4+12:16, :], equal; ranks 2-3: [4:8+8:12, :], relative error 2.0e-2"
        );
        let whole = |ranks: &[u32], holding| piece(ranks, Cell::whole(&shape), holding);
        let replicas = vec![whole(&[0, 2], Holding::Part), whole(&[1], Holding::Odd)];
        assert_eq!(told(replicas, None), "ranks 0, 2: replicas; rank 1: a replica that differs");
        assert_eq!(told(vec![whole(&[3], Holding::Part)], None), "rank 3: the whole value");
        let turns: Vec<Range<usize>> = (0..16).step_by(2).map(|row| row..row + 1).collect();
        assert_eq!(told(vec![part(&[0], &turns)], None), "rank 0: [0:1+2:3+4:5+6:7+... (8 ranges), :]");
        let padded = vec![piece(&[1], rows(&[12..20]), Holding::Term(Among::Sum(1)))];
        assert_eq!(told(padded, None), "rank 1: a term of the sum, [12:16, :]");
    }
}
