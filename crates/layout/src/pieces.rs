//! A global value as a view over the pieces that ranks hold: what is asked of it is gathered when it is read.

use std::ops::Range;
use std::sync::Arc;

use probe_dump::{Bytes, DType, LayoutError, TensorData};
use probe_measure::{numbers, round};

use super::layout::{Among, Cell, Layout};

/// Bytes up to which a value is gathered at once: many readers of small tensors expect them in memory.
const SMALL: usize = 1 << 20;

/// The pieces of one value, and the cell of each.
struct Pieces {
    dtype: DType,
    shape: Box<[usize]>,
    held: Vec<(TensorData, Cell)>,
    among: Among,
}

/// Returns the global value of `pieces`, one for each cell of `layout`; of replicas, the first counts.
///
/// # Errors
/// [`LayoutError`] when the sizes overflow.
pub(crate) fn view(layout: &Layout, pieces: Vec<TensorData>) -> Result<TensorData, LayoutError> {
    let dtype = pieces.first().map_or(DType::F32, TensorData::dtype);
    let count = probe_dump::element_count(&layout.shape)
        .and_then(|count| count.checked_mul(dtype.size()))
        .ok_or_else(|| LayoutError::Overflow(layout.shape.to_vec()))?;
    let cells = layout.cells.iter().cloned();
    let pieces = Pieces {
        dtype,
        shape: layout.shape.clone(),
        held: pieces.into_iter().zip(cells).collect(),
        among: layout.among,
    };
    let fault = pieces.fault();
    if count <= SMALL && fault.is_none() {
        let mut bytes = vec![0; count];
        pieces.read(0, &mut bytes);
        return TensorData::contiguous(Arc::new(bytes), 0..count, dtype, layout.shape.clone());
    }
    TensorData::contiguous(Arc::new(pieces), 0..count, dtype, layout.shape.clone())
}

impl Bytes for Pieces {
    fn size(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        let size = self.dtype.size();
        let row = self.shape.last().copied().unwrap_or(1).max(1);
        let (mut element, mut done) = (at / size, 0);
        while done < out.len() {
            let column = element % row;
            let count = (row - column).min((out.len() - done) / size);
            if count == 0 {
                break;
            }
            self.row(element / row, column, &mut out[done..done + count * size]);
            element += count;
            done += count * size;
        }
    }

    fn fault(&self) -> Option<String> {
        self.held.iter().find_map(|(piece, _)| piece.fault())
    }
}

impl Pieces {
    /// Fills `out` with the elements of row `row` from `column` on.
    fn row(&self, row: usize, column: usize, out: &mut [u8]) {
        let size = self.dtype.size();
        let mut sums = match self.among {
            Among::Replicas => None,
            Among::Sum(_) if self.dtype.is_float() => Some(Sums::Floats(vec![0.0; out.len() / size])),
            Among::Sum(_) => Some(Sums::Integers(vec![0; out.len() / size])),
            Among::Max => Some(Sums::Extremes(vec![f64::NEG_INFINITY; out.len() / size], f64::max)),
            Among::Min => Some(Sums::Extremes(vec![f64::INFINITY; out.len() / size], f64::min)),
        };
        // Later pieces are written first, so that of replicas the first remains.
        for (piece, cell) in self.held.iter().rev() {
            let Some(local_row) = self.local_row(cell, row) else { continue };
            self.spans(piece, cell, (local_row, column), out, sums.as_mut());
        }
        if let Some(sums) = sums {
            let share = if let Among::Sum(share) = self.among { share } else { 1 };
            sums.write(self.dtype, share, out);
        }
    }

    /// Copies the elements that a piece has of `out`, which begins at a global column, or adds them to `sums`.
    fn spans(
        &self,
        piece: &TensorData,
        cell: &Cell,
        (row, column): (usize, usize),
        out: &mut [u8],
        mut sums: Option<&mut Sums>,
    ) {
        let size = self.dtype.size();
        let end = column + out.len() / size;
        let scalar: Box<[Range<usize>]> = std::iter::once(0..1).collect();
        let ranges = cell.dimensions().last().unwrap_or(&scalar);
        let width: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        let (view, mut before) = (piece.view(), 0);
        for range in ranges {
            let (from, to) = (range.start.max(column), range.end.min(end));
            if from < to {
                let local = row * width + before + from - range.start;
                let mut bytes = vec![0; (to - from) * size];
                view.gather(local..local + to - from, &mut bytes);
                match &mut sums {
                    None => out[(from - column) * size..(to - column) * size].copy_from_slice(&bytes),
                    Some(sums) => sums.add(self.dtype, from - column, &bytes),
                }
            }
            before += range.len();
        }
    }

    /// Returns the row of a piece that is the global row `row`, counted over all dimensions but the last.
    fn local_row(&self, cell: &Cell, row: usize) -> Option<usize> {
        let (mut rest, mut local, mut stride) = (row, 0, 1);
        for dimension in (0..self.shape.len().saturating_sub(1)).rev() {
            let index = rest % self.shape[dimension];
            rest /= self.shape[dimension];
            local += cell.local(dimension, index)? * stride;
            stride *= cell.dimensions()[dimension].iter().map(ExactSizeIterator::len).sum::<usize>();
        }
        Some(local)
    }
}

/// Sums of elements, or their extremes.
enum Sums {
    Floats(Vec<f64>),
    /// The larger or the smaller of two elements counts; a NaN does if there is one.
    Extremes(Vec<f64>, fn(f64, f64) -> f64),
    /// Exact, as numbers of the elements' width add up.
    Integers(Vec<u64>),
}

impl Sums {
    /// Adds elements to the sums from a place on.
    fn add(&mut self, dtype: DType, at: usize, bytes: &[u8]) {
        match self {
            Self::Floats(sums) => {
                sums[at..].iter_mut().zip(numbers(dtype, bytes)).for_each(|(sum, value)| *sum += value);
            }
            Self::Extremes(found, pick) => {
                for (found, value) in found[at..].iter_mut().zip(numbers(dtype, bytes)) {
                    let nan = found.is_nan() || value.is_nan();
                    *found = if nan { f64::NAN } else { pick(*found, value) };
                }
            }
            Self::Integers(sums) => {
                for (sum, element) in sums[at..].iter_mut().zip(bytes.chunks_exact(dtype.size())) {
                    let mut wide = [0; 8];
                    wide[..element.len()].copy_from_slice(element);
                    *sum = sum.wrapping_add(u64::from_le_bytes(wide));
                }
            }
        }
    }

    /// Writes the sums, floats divided by `share`; of whole numbers there are no means.
    fn write(&self, dtype: DType, share: u32, out: &mut [u8]) {
        match self {
            Self::Floats(sums) | Self::Extremes(sums, _) => {
                let bytes: Vec<u8> =
                    sums.iter().flat_map(|sum| (sum / f64::from(share)).to_le_bytes()).collect();
                let mut rounded = Vec::new();
                match dtype {
                    DType::F64 => rounded = bytes,
                    to => round(DType::F64, &bytes, to, &mut rounded),
                }
                out.copy_from_slice(&rounded);
            }
            Self::Integers(sums) => {
                for (out, sum) in out.chunks_exact_mut(dtype.size()).zip(sums) {
                    out.copy_from_slice(&sum.to_le_bytes()[..dtype.size()]);
                }
            }
        }
    }
}
