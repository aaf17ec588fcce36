//! The ways in which the dimensions of a value are cut into shards of one size.

use std::ops::Range;

use super::layout::{Cell, Layout};

/// Most cells that are told apart by content.
pub(crate) const MOST_CELLS: usize = 256;

/// Most blocks of an outer dimension that was joined with the one that is cut.
const MOST_BLOCKS: usize = 4096;

/// How one dimension is cut. The others that are cut have contiguous shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) dimension: usize,
    /// Size of an outer dimension that was joined with the one that is cut (`flatten(0, 1)` of batch and sequence); 1 if there is none. As many as
    /// a shard has elements means that ranks take turns.
    pub(crate) blocks: usize,
    /// Of `n` ranks, rank `i` holds the chunks `i` and `2n - 1 - i`.
    pub(crate) zigzag: bool,
}

/// Returns the ways to cut the dimensions `splits`, the usual ones first.
pub(crate) fn cuts(local: &[usize], splits: &[usize]) -> Vec<Cut> {
    let plain = |&dimension: &usize| Cut { dimension, blocks: 1, zigzag: false };
    let mut found: Vec<Cut> = splits.first().map(plain).into_iter().collect();
    found.extend(splits.iter().map(|&dimension| Cut { dimension, blocks: 1, zigzag: true }));
    for &dimension in splits {
        let divisors =
            (2..=local[dimension].min(MOST_BLOCKS)).filter(|blocks| local[dimension].is_multiple_of(*blocks));
        found.extend(
            divisors.flat_map(|blocks| [false, true].map(|zigzag| Cut { dimension, blocks, zigzag })),
        );
    }
    found
}

/// Returns the cells into which pieces of the shape `local` split the whole, in row-major order; the last may reach beyond it (padding).
pub(crate) fn tiles(shape: &[usize], local: &[usize], splits: &[usize], cut: Cut) -> Option<Vec<Cell>> {
    let mut cells = vec![Cell::whole(shape)];
    for &dimension in splits {
        let count = shape[dimension].div_ceil(local[dimension]);
        if cells.len().checked_mul(count)? > MOST_CELLS {
            return None;
        }
        let of = if dimension == cut.dimension { cut } else { Cut { dimension, blocks: 1, zigzag: false } };
        let ranges: Vec<Box<[Range<usize>]>> = (0..count)
            .map(|index| ranges(shape[dimension], local[dimension], index, of))
            .collect::<Option<_>>()?;
        cells = cells
            .iter()
            .flat_map(|cell| {
                ranges.iter().map(|ranges| cell.clone().with(dimension, ranges.clone())).collect::<Vec<_>>()
            })
            .collect();
    }
    Some(cells)
}

/// Returns the global indices of one shard.
fn ranges(whole: usize, local: usize, index: usize, cut: Cut) -> Option<Box<[Range<usize>]>> {
    if local == 0 {
        return None;
    }
    let count = whole.div_ceil(local);
    if cut.blocks == 1 && !cut.zigzag {
        return Some(std::iter::once(index * local..(index + 1) * local).collect());
    }
    let size = local / cut.blocks;
    if size * cut.blocks != local || count * local != whole || (cut.zigzag && !size.is_multiple_of(2)) {
        return None;
    }
    let block = |number: usize| {
        let at = number * size * count;
        let (half, other) = (size / 2, 2 * count - 1 - index);
        let (part, further) = if cut.zigzag { (half, Some(other)) } else { (size, None) };
        let range = move |index: usize| at + index * part..at + (index + 1) * part;
        std::iter::once(index).chain(further).map(range)
    };
    Some((0..cut.blocks).flat_map(block).collect())
}

/// Returns true if the shards are zigzag: the last rank holds neighbouring chunks.
pub(crate) fn is_zigzag(layout: &Layout) -> bool {
    let adjacent = |ranges: &[Range<usize>]| ranges.windows(2).any(|pair| pair[0].end == pair[1].start);
    layout.cells.iter().any(|cell| cell.dimensions().iter().any(|ranges| adjacent(ranges)))
}

/// Returns the cells of a layout of shards cut in the other of both ways, contiguous or zigzag.
pub(crate) fn other_way(layout: &Layout) -> Option<Box<[Cell]>> {
    let zigzag = is_zigzag(layout);
    let sizes = |cell: &Cell| -> Vec<usize> {
        cell.dimensions().iter().map(|ranges| ranges.iter().map(ExactSizeIterator::len).sum()).collect()
    };
    let local = sizes(layout.cells.first()?);
    let splits: Vec<usize> =
        (0..local.len()).filter(|&dimension| local[dimension] != layout.shape[dimension]).collect();
    let all = cuts(&local, &splits);
    let made = |cut: &Cut| tiles(&layout.shape, &local, &splits, *cut);
    let own = all.iter().find(|cut| {
        let of = made(cut);
        cut.zigzag == zigzag
            && layout.cells.iter().all(|cell| of.as_ref().is_some_and(|of| of.contains(cell)))
    })?;
    let (from, to) = (made(own)?, made(&Cut { zigzag: !zigzag, ..*own })?);
    layout.cells.iter().map(|cell| Some(to[from.iter().position(|own| own == cell)?].clone())).collect()
}

/// Returns dimensions, each with the order of its indices in a value that was gathered from zigzag shards in the order of the ranks.
pub(crate) fn gathered_zigzag(shape: &[usize], ranks: usize) -> Vec<(usize, Box<[Range<usize>]>)> {
    let groups = (2..=ranks).filter(|count| ranks.is_multiple_of(*count));
    let one = |count: usize| {
        (0..shape.len()).filter_map(move |dimension| {
            let size = shape[dimension];
            let cut = Cut { dimension, blocks: 1, zigzag: true };
            let held = (0..count).map(|index| ranges(size, size / count, index, cut));
            let ranges = held.collect::<Option<Vec<_>>>().filter(|_| size >= 2 * count)?;
            Some((dimension, ranges.concat().into()))
        })
    };
    groups.flat_map(one).collect()
}
