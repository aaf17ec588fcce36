//! Copies strided elements into row-major order, a few cache lines at a time.
//!
//! If neighbours in memory are not neighbours in row-major order (a transposed matrix), tiles are copied so that every
//! cache line is read once: several positions along the dimension that is dense in memory, times all positions of the
//! dimensions after it.

use std::ops::Range;

use super::TensorRef;
use super::tensor::MAX_DIMS;

mod transpose;
use transpose::{prefetch, transpose};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Positions of the inner dimensions in one tile.
const ACROSS: usize = 32;

/// Positions of the dense dimension in one tile: several lines, so that a tile that begins inside a line wastes
/// little, and so that a page is not visited for a single line.
const ROWS: usize = 64;

/// Sizes of [`TensorRef::window`] in bytes: the first if that covers [`ROWS`] or more, else up to the
/// second.
const WINDOW: [usize; 2] = [1 << 17, 1 << 20];

/// Shape and strides without sizes of 1; adjacent dimensions are merged if one stride serves both.
#[derive(Debug)]
struct Layout {
    dims: usize,
    shape: [usize; MAX_DIMS],
    strides: [usize; MAX_DIMS],
}

/// A dimension that is dense in memory although it is not the last one.
#[derive(Debug, Clone, Copy)]
struct Dense {
    axis: usize,
    /// Number of elements in all dimensions after it.
    span: usize,
}

impl Layout {
    fn of(tensor: &TensorRef<'_>) -> Self {
        let mut layout = Self { dims: 0, shape: [1; MAX_DIMS], strides: [1; MAX_DIMS] };
        for (&size, &stride) in tensor.shape().iter().zip(tensor.strides()) {
            if size == 1 {
                continue;
            }
            let last = layout.dims.wrapping_sub(1);
            // Sizes were checked when the tensor was created, except for empty tensors.
            if layout.dims > 0 && stride.checked_mul(size) == Some(layout.strides[last]) {
                layout.shape[last] *= size;
                layout.strides[last] = stride;
            } else {
                layout.shape[layout.dims] = size;
                layout.strides[layout.dims] = stride;
                layout.dims += 1;
            }
        }
        layout
    }

    /// Returns the dimension to tile along, if elements of `size` bytes benefit from it.
    fn dense(&self, size: usize) -> Option<Dense> {
        let last = self.dims.checked_sub(1)?;
        let candidates = (0..last).filter(|&axis| self.strides[axis] > 0);
        let axis = candidates.min_by_key(|&axis| self.strides[axis])?;
        let gains = self.strides[axis] * size < LINE && self.strides[last] > self.strides[axis];
        gains.then(|| Dense { axis, span: self.shape[axis + 1..self.dims].iter().product() })
    }

    /// Returns the storage position of element `index` (row-major order), relative to the first.
    fn position(&self, mut index: usize) -> usize {
        let mut at = 0;
        for axis in (0..self.dims).rev() {
            at += index % self.shape[axis] * self.strides[axis];
            index /= self.shape[axis];
        }
        at
    }
}

impl<'a> TensorRef<'a> {
    /// Returns the bytes of all elements in memory order, if they are stored without gaps or repetition; for
    /// computations that do not depend on order.
    pub fn dense_bytes(&self) -> Option<&'a [u8]> {
        if self.is_empty() {
            return Some(&[]);
        }
        let layout = Layout::of(self);
        let mut axes: [usize; MAX_DIMS] = std::array::from_fn(|axis| axis);
        let axes = &mut axes[..layout.dims];
        axes.sort_unstable_by_key(|&axis| layout.strides[axis]);
        let mut expected = 1;
        for &mut axis in axes {
            if layout.strides[axis] != expected {
                return None;
            }
            expected *= layout.shape[axis];
        }
        let size = self.dtype().size();
        self.storage().get(self.offset() * size..(self.offset() + self.len()) * size)
    }

    /// Returns a range of elements that contains `range`, ends at or before `end` unless `range` does not, and is
    /// cheaper to gather at once than in pieces.
    pub fn window(&self, range: Range<usize>, end: usize) -> Range<usize> {
        let size = self.dtype().size();
        if self.far(&range).is_some() {
            return range.start..range.end.max(end.min(range.start + WINDOW[1] / size));
        }
        let Some(dense) = Layout::of(self).dense(size) else {
            return range;
        };
        let row = dense.span.max(1) * size;
        let rows = (WINDOW[0] / row / ROWS * ROWS).max(ROWS.min(WINDOW[1] / row));
        if rows < 2 {
            return range;
        }
        let start = range.start / dense.span * dense.span;
        start..range.end.max(end.min(start + rows * dense.span))
    }

    /// Returns the number of elements that are adjacent in row-major order but far apart in memory: a range that begins or
    /// ends inside such a group costs as much to gather as one that contains all of it.
    pub fn gather_span(&self) -> usize {
        Layout::of(self).dense(self.dtype().size()).map_or(1, |dense| dense.span.max(1))
    }

    /// Returns the smallest range worth gathering by itself, in elements, for a tensor with this
    /// [`gather_span`](Self::gather_span).
    pub const fn worth_gathering(span: usize) -> usize {
        if span > 1 { span.saturating_mul(ROWS) } else { 1 }
    }

    /// Copies elements `range` (row-major order) into `out`, which must hold exactly that many elements' bytes.
    ///
    /// # Panics
    /// If `out` has another length or the range exceeds the tensor; both are caller errors.
    pub fn gather(&self, range: Range<usize>, out: &mut [u8]) {
        let size = self.dtype().size();
        assert!(range.end <= self.len() && range.start <= range.end, "range beyond the tensor");
        assert_eq!(out.len(), range.len() * size, "output of another size");
        if range.is_empty() {
            return;
        }
        if let Some((source, at)) = self.far(&range) {
            return source.read(at, out);
        }
        let layout = Layout::of(self);
        match size {
            1 => layout.gather::<1>(self, range, out),
            2 => layout.gather::<2>(self, range, out),
            4 => layout.gather::<4>(self, range, out),
            8 => layout.gather::<8>(self, range, out),
            _ => layout.gather::<16>(self, range, out),
        }
    }
}

impl Layout {
    /// Like [`TensorRef::gather`], for elements of `N` bytes.
    #[inline(never)]
    fn gather<const N: usize>(&self, tensor: &TensorRef<'_>, range: Range<usize>, out: &mut [u8]) {
        let elements = &tensor.storage().as_chunks::<N>().0[tensor.offset()..];
        let mut out = out.as_chunks_mut::<N>().0;
        let Some(dense) = self.dense(N).filter(|dense| range.len() >= 2 * dense.span) else {
            self.rows(elements, range, out);
            return;
        };
        let mut start = range.start;
        let mut columns = [[[0; N]; ROWS]; ACROSS];
        while start < range.end {
            let whole = (range.end - start) / dense.span;
            let (part, rest);
            if !start.is_multiple_of(dense.span) || whole < 2 {
                let next = (start / dense.span + 1) * dense.span;
                let end = if whole < 2 { range.end } else { next };
                (part, rest) = out.split_at_mut(end - start);
                self.rows(elements, start..end, part);
                start = end;
            } else {
                let size = self.shape[dense.axis];
                let rows = whole.min(size - start / dense.span % size).min(ROWS);
                (part, rest) = out.split_at_mut(rows * dense.span);
                self.tile(&elements[self.position(start)..], dense, &mut columns, part);
                start += rows * dense.span;
            }
            out = rest;
        }
    }

    /// Copies row by row along the last dimension.
    fn rows<const N: usize>(&self, elements: &[[u8; N]], range: Range<usize>, out: &mut [[u8; N]]) {
        let (size, stride) =
            self.dims.checked_sub(1).map_or((1, 1), |last| (self.shape[last], self.strides[last]));
        let mut walk = Walk::over_rows(self, range.start / size);
        let (mut column, mut out) = (range.start % size, out);
        while !out.is_empty() {
            let run = (size - column).min(out.len());
            let (row, rest) = out.split_at_mut(run);
            let from = &elements[walk.next() + column * stride..];
            match stride {
                0 => row.fill(from[0]),
                1 => copy(&from[..run], row),
                _ => row.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, &from)| *to = from),
            }
            (column, out) = (0, rest);
        }
    }

    /// Copies whole spans of neighbours along the dense dimension, the first of which begins with `elements`.
    /// `columns` is scratch space for a few columns of the tile, so that whole lines are read and whole lines are
    /// written.
    fn tile<const N: usize>(
        &self,
        elements: &[[u8; N]],
        dense: Dense,
        columns: &mut [[[u8; N]; ROWS]; ACROSS],
        out: &mut [[u8; N]],
    ) {
        let (rows, stride) = (out.len() / dense.span, self.strides[dense.axis]);
        let mut walk = Walk::over(self, dense.axis + 1);
        let mut ahead = [0; ACROSS];
        let first = ACROSS.min(dense.span);
        ahead[..first].fill_with(|| walk.next());
        for start in (0..dense.span).step_by(ACROSS) {
            let (across, positions) = (ACROSS.min(dense.span - start), ahead);
            let ahead = &mut ahead[..ACROSS.min(dense.span - start - across)];
            ahead.fill_with(|| walk.next());
            for (column, &position) in columns.iter_mut().zip(&positions[..across]) {
                let from = &elements[position..];
                if stride > 1 {
                    let from = from.iter().step_by(stride);
                    column[..rows].iter_mut().zip(from).for_each(|(to, &from)| *to = from);
                } else if let (ROWS, Some(from)) = (rows, from.first_chunk()) {
                    // A constant size is several times as fast.
                    *column = *from;
                } else {
                    column[..rows].copy_from_slice(&from[..rows]);
                }
            }
            transpose(columns, rows, across, &mut out[start..], dense.span, |written| {
                if stride > 1 {
                    return;
                }
                // Columns lie pages apart, where the CPU does not prefetch by itself. A few at a time, so that none waits.
                for &position in &ahead[ahead.len() * written.start / rows..ahead.len() * written.end / rows]
                {
                    prefetch(elements[position..position + rows].as_flattened(), LINE);
                }
            });
        }
    }
}

/// Copies a row. Attention heads and the like have short rows, for which calling a copy function takes longer than the copy.
fn copy<const N: usize>(from: &[[u8; N]], to: &mut [[u8; N]]) {
    const SHORT: usize = 512;
    if size_of_val(from) > SHORT || !size_of_val(from).is_multiple_of(32) {
        return to.copy_from_slice(from);
    }
    let (from, _) = from.as_flattened().as_chunks::<32>();
    let (to, _) = to.as_flattened_mut().as_chunks_mut::<32>();
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

/// Iterator over element positions, in row-major order of some dimensions.
#[derive(Debug)]
struct Walk<'a> {
    layout: &'a Layout,
    axes: Range<usize>,
    index: [usize; MAX_DIMS],
    position: usize,
}

impl<'a> Walk<'a> {
    /// Walks the dimensions from `first` on.
    const fn over(layout: &'a Layout, first: usize) -> Self {
        Self { layout, axes: first..layout.dims, index: [0; MAX_DIMS], position: 0 }
    }

    /// Walks all dimensions but the last, from row `row` on.
    fn over_rows(layout: &'a Layout, mut row: usize) -> Self {
        let mut walk =
            Self { layout, axes: 0..layout.dims.saturating_sub(1), index: [0; MAX_DIMS], position: 0 };
        for axis in walk.axes.clone().rev() {
            walk.index[axis] = row % layout.shape[axis];
            walk.position += walk.index[axis] * layout.strides[axis];
            row /= layout.shape[axis];
        }
        walk
    }

    fn next(&mut self) -> usize {
        let position = self.position;
        for axis in self.axes.clone().rev() {
            self.index[axis] += 1;
            self.position += self.layout.strides[axis];
            if self.index[axis] < self.layout.shape[axis] {
                break;
            }
            self.position -= self.layout.shape[axis] * self.layout.strides[axis];
            self.index[axis] = 0;
        }
        position
    }
}

#[cfg(test)]
mod tests;
