//! Ops that read two values whose rows ranks hold in two orders: tokens that were not put back behind their experts.

use std::ops::Range;

use probe_layout::{Holding, Piece, Spread};
use probe_pair::{Paired, PartPair};

use super::pieces::part;
use super::{Layouts, in_words};

impl Layouts {
    /// Says which rows a rank holds of a value that an op at fault reads, if it holds other rows of the value beside it. Each of the two agrees with
    /// the other run, as the order of rows is a rank's own affair.
    pub(super) fn unsorted(&self, pair: &PartPair, order: usize) -> Option<String> {
        let op = pair.ops.get(order).filter(|op| matches!(op.ops, Paired::Both(..)))?;
        let read: Vec<(&str, &Spread)> = op
            .slots
            .iter()
            .filter_map(|slots| {
                let slot = pair.slot(op, slots).0.filter(|slot| !slot.side.is_result())?;
                Some((&*slot.path, &**self.spread.get(&self.place(op, slots)?)?))
            })
            .collect();
        read.iter().enumerate().find_map(|(place, (path, own))| {
            read[..place].iter().find_map(|(before, beside)| {
                let (a, b) = unlike(beside, own)?;
                Some(format!(
                    "the rows of {before} and {path} lie in two orders, and were not sorted back: {} holds {} of one and {} of the other",
                    in_words(&a.ranks),
                    part(&a.cell, &beside.shape),
                    part(&b.cell, &own.shape)
                ))
            })
        })
    }
}

/// Returns the first pieces that hold other rows of two values than one another, but as many; `None` unless all pieces are rows of as many, of which
/// some are scattered, as routing leaves them.
fn unlike<'s>(a: &'s Spread, b: &'s Spread) -> Option<(&'s Piece, &'s Piece)> {
    let pieces = || a.pieces.iter().zip(&b.pieces);
    let alike = a.shape.first() == b.shape.first() && a.pieces.len() == b.pieces.len() && a.pieces.len() > 1;
    let as_many = pieces().all(|(a, b)| {
        let count = |ranges: &[Range<usize>]| ranges.iter().map(ExactSizeIterator::len).sum::<usize>();
        a.ranks == b.ranks && count(rows(a)) == count(rows(b))
    });
    let of_rows =
        [a, b].into_iter().all(|spread| spread.pieces.iter().all(|piece| is_of_rows(piece, spread)));
    let scattered = || pieces().any(|(a, b)| rows(a).len() > 1 && rows(b).len() > 1);
    (alike && as_many && of_rows && scattered()).then(|| pieces().find(|(a, b)| rows(a) != rows(b)))?
}

fn rows(piece: &Piece) -> &[Range<usize>] {
    piece.cell.dimensions().first().map_or(&[], |ranges| &**ranges)
}

/// Returns true for a piece that is whole in all dimensions but the first.
fn is_of_rows(piece: &Piece, spread: &Spread) -> bool {
    let mut inner = piece.cell.dimensions().iter().zip(&spread.shape).skip(1);
    piece.holding == Holding::Part
        && inner.all(|(ranges, &size)| matches!(&**ranges, [one] if *one == (0..size)))
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a piece of one range is one of several")]
mod tests {
    use probe_layout::Cell;

    use super::*;

    fn spread(shape: [usize; 2], pieces: [&[Range<usize>]; 2]) -> Spread {
        let piece = |(rank, ranges): (u32, &[Range<usize>])| Piece {
            ranks: vec![rank],
            cell: Cell::whole(&shape).with(0, ranges.into()),
            holding: Holding::Part,
        };
        Spread { shape: shape.into(), pieces: (0..).zip(pieces).map(piece).collect() }
    }

    #[test]
    fn rows_in_two_orders_are_unlike() {
        let tokens = spread([8, 4], [&[0..2, 4..6], &[2..4, 6..8]]);
        let weights = spread([8, 1], [&[0..1, 3..6], &[1..3, 6..8]]);
        let found = unlike(&tokens, &weights).map(|(a, b)| (rows(a).to_vec(), rows(b).to_vec()));
        assert_eq!(found, Some((vec![0..2, 4..6], vec![0..1, 3..6])));
        assert!(unlike(&tokens, &tokens).is_none());
        // Shards of a batch beside one of rows, another number of rows, and rows of another value.
        for other in [
            spread([8, 1], [&[0..4], &[4..8]]),
            spread([8, 1], [&[0..1, 3..5], &[1..3, 5..8]]),
            spread([9, 1], [&[0..1, 3..6], &[1..3, 6..9]]),
        ] {
            assert!(unlike(&tokens, &other).is_none());
        }
    }
}
