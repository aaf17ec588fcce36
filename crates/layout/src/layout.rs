//! A layout: which part of a global value each rank holds, and how parts that coincide combine.

use std::ops::Range;

/// How the values of ranks that hold the same part make the global one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// Each is the value.
    Replicas,
    /// Their sum, divided by this number, is: 1 for a sum, their number for a mean, the size of the data-parallel group for a sum over
    /// tensor-parallel ranks and a mean over the others.
    Sum(u32),
    /// The largest of their elements is: the maximum of logits over a vocabulary that is split.
    Max,
    /// The smallest of their elements is.
    Min,
}

/// The part of a global value that one rank holds: for each dimension, the global indices that the local ones stand for, as ranges in
/// local order. One range is a contiguous shard, two are zigzag, many are interleaved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell(Box<[Box<[Range<usize>]>]>);

impl Cell {
    /// Returns the cell that is the whole of a value.
    pub fn whole(shape: &[usize]) -> Self {
        Self(shape.iter().map(|&size| std::iter::once(0..size).collect()).collect())
    }

    /// Returns this cell with other ranges in one dimension.
    #[must_use]
    pub fn with(mut self, dimension: usize, ranges: Box<[Range<usize>]>) -> Self {
        if let Some(place) = self.0.get_mut(dimension) {
            *place = ranges;
        }
        self
    }

    /// Returns the ranges of each dimension.
    pub const fn dimensions(&self) -> &[Box<[Range<usize>]>] {
        &self.0
    }

    /// Returns the local index of a global one in a dimension; `None` if the cell does not hold it.
    pub(crate) fn local(&self, dimension: usize, global: usize) -> Option<usize> {
        let mut before = 0;
        for range in &self.0[dimension] {
            if range.contains(&global) {
                return Some(before + global - range.start);
            }
            before += range.len();
        }
        None
    }

    /// Returns the first global index in each dimension: the order of contiguous cells.
    pub(crate) fn start(&self) -> Vec<usize> {
        self.0.iter().map(|ranges| ranges.first().map_or(0, |range| range.start)).collect()
    }
}

/// The layout of one value over the ranks that recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Sizes of the global value.
    pub shape: Box<[usize]>,
    /// The part that each rank holds.
    pub cells: Box<[Cell]>,
    /// How equal parts combine.
    pub among: Among,
}

impl Layout {
    /// Returns the layout of `count` ranks that all hold everything.
    pub fn same(shape: &[usize], count: usize, among: Among) -> Self {
        Self { shape: shape.into(), cells: vec![Cell::whole(shape); count].into(), among }
    }

    /// Returns true if every rank holds all of the value.
    pub fn is_whole(&self) -> bool {
        let whole = Cell::whole(&self.shape);
        self.cells.iter().all(|cell| *cell == whole)
    }

    /// Returns true if one piece is the value, as it is.
    pub(crate) fn is_one_piece(&self) -> bool {
        let divided = matches!(self.among, Among::Sum(share) if share != 1);
        self.cells.len() == 1 && self.is_whole() && !divided
    }

    /// Returns for each rank the first rank that holds the same part.
    pub(crate) fn partition(&self) -> Vec<usize> {
        let first = |cell: &Cell| self.cells.iter().position(|other| other == cell).unwrap_or(0);
        self.cells.iter().map(first).collect()
    }
}
