//! A closer look at a pair of tensors that differ, for people: the position of the error in the tensor, and
//! the distributions of values and errors. Runs on one thread, so sums have one order.

use probe_dump::{Sketch, TensorRef};

use super::elements::for_each_pair;
use super::metric::PairMetrics;
use super::sketch_distance;

/// Maximum number of rows and columns of an [`ErrorMap`].
pub const MAP_SIZE: usize = 64;

/// Number of bins for values.
const VALUE_BINS: usize = 48;

/// Number of bins for errors per power of ten, and the first power.
const PER_DECADE: i32 = 2;
const FIRST_DECADE: i32 = -10;

/// Number of bins for errors, the last of which includes larger ones.
const ERROR_BINS: usize = 26;

/// Result of a closer look at a pair of tensors.
#[derive(Debug, Clone, PartialEq)]
pub enum Look {
    /// The elements were compared.
    Elements {
        /// Position of the error.
        map: ErrorMap,
        /// Distribution of both sides' values.
        values: ValueBins,
        /// Distribution of the errors.
        errors: ErrorBins,
    },
    /// Sketches were compared: the magnitude of the difference in each lane. Each lane holds every n-th
    /// element, n being the number of lanes.
    Lanes(Vec<f64>),
}

/// Error over the tensor, folded to two dimensions: the last one, and all others in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorMap {
    /// Indices along all but the last dimension, 1 or more.
    pub height: usize,
    /// Indices along the last dimension, 1 or more.
    pub width: usize,
    /// Rows of cells, at most [`MAP_SIZE`]. Row `r` of `n` holds the indices from `r * height / n` on, up to
    /// the next row.
    pub rows: usize,
    /// Columns of cells, likewise.
    pub columns: usize,
    /// Root mean squared error of each cell in the tensor's own unit, row by row; NaN if only one side is NaN
    /// or infinite.
    pub cells: Vec<f64>,
}

/// Finite elements of both sides in equal bins from the smallest to the largest.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueBins {
    /// Smallest value of either side.
    pub min: f64,
    /// Largest value of either side.
    pub max: f64,
    /// Elements of the baseline in each bin.
    pub baseline: Vec<u64>,
    /// Elements of the candidate in each bin.
    pub candidate: Vec<u64>,
}

/// Elements by the magnitude of their error relative to the root mean square of the baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorBins {
    /// Elements without error.
    pub equal: u64,
    /// Elements that are NaN or infinite on one side only, or of another kind.
    pub non_finite: u64,
    /// Half-decades from 1e-10 on: bin `i` holds errors from `10^(i/2 - 10)` up to the next bin; the first and
    /// the last include everything beyond.
    pub counts: Vec<u64>,
}

/// Takes a closer look at `baseline` and `candidate`, whose metrics are `metrics`. `None` if the numbers of
/// elements differ, or if there are none.
pub fn look(baseline: TensorRef<'_>, candidate: TensorRef<'_>, metrics: &PairMetrics) -> Option<Look> {
    if baseline.len() != candidate.len() || baseline.is_empty() {
        return None;
    }
    let width = baseline.shape().last().copied().unwrap_or(1);
    let height = baseline.len() / width;
    let (rows, columns) = (height.min(MAP_SIZE), width.min(MAP_SIZE));
    let mut squares = vec![0.0; rows * columns];
    let mut counts = vec![0_u64; rows * columns];
    let extremes = |of: fn(f64, f64) -> f64, sides: [Option<f64>; 2]| sides.into_iter().flatten().reduce(of);
    let min = extremes(f64::min, [metrics.baseline.min, metrics.candidate.min]).unwrap_or(0.0);
    let max = extremes(f64::max, [metrics.baseline.max, metrics.candidate.max]).unwrap_or(0.0);
    let mut values = ValueBins { min, max, baseline: vec![0; VALUE_BINS], candidate: vec![0; VALUE_BINS] };
    let mut errors = ErrorBins { equal: 0, non_finite: 0, counts: vec![0; ERROR_BINS] };
    let scale = metrics.baseline.norm / (metrics.baseline.count.max(1) as f64).sqrt();
    // Halves, because the range of two finite numbers may exceed the largest number.
    let half_range = max / 2.0 - min / 2.0;
    let bin = |value: f64| whole((value / 2.0 - min / 2.0) / half_range * VALUE_BINS as f64, VALUE_BINS);
    let (mut row, mut column) = (0, 0);
    for_each_pair(baseline, candidate, |b, c| {
        let cell = row * rows / height * columns + column * columns / width;
        counts[cell] += 1;
        for (value, bins) in [(b, &mut values.baseline), (c, &mut values.candidate)] {
            if value.is_finite() {
                bins[bin(value)] += 1;
            }
        }
        if b.is_finite() && c.is_finite() {
            let error = (c - b).abs();
            squares[cell] += error * error;
            if error > 0.0 {
                errors.counts[error_bin(error / scale)] += 1;
            } else {
                errors.equal += 1;
            }
        } else if b.to_bits() == c.to_bits() || (b.is_nan() && c.is_nan()) {
            errors.equal += 1;
        } else {
            errors.non_finite += 1;
            squares[cell] = f64::NAN;
        }
        column += 1;
        if column == width {
            (row, column) = (row + 1, 0);
        }
    });
    let cells = squares.iter().zip(&counts).map(|(square, &count)| (square / count.max(1) as f64).sqrt());
    let map = ErrorMap { height, width, rows, columns, cells: cells.collect() };
    Some(Look::Elements { map, values, errors })
}

/// Returns the lanes in which two sketches differ. `None` if they cannot be compared.
pub fn look_at_sketches(baseline: &Sketch, candidate: &Sketch) -> Option<Look> {
    let distance = sketch_distance(baseline, candidate);
    let lanes = baseline.lanes.iter().zip(candidate.lanes.iter()).take(baseline.version.lanes());
    let differences = lanes.map(|(&b, &c)| (f64::from(c) - f64::from(b)).abs());
    (distance > 0.0).then(|| Look::Lanes(differences.collect()))
}

fn error_bin(relative: f64) -> usize {
    whole(f64::from(PER_DECADE) * (relative.log10() - f64::from(FIRST_DECADE)), ERROR_BINS)
}

/// Returns the bin of `position` among `bins`; positions beyond them go to the first and the last, NaN to the
/// first.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(position: f64, bins: usize) -> usize {
    (position as usize).min(bins - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_dump::{DType, contiguous_strides};

    fn looked(shape: &[usize], b: &[f32], c: &[f32]) -> Look {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let (b, c) = (bytes(b), bytes(c));
        let strides = contiguous_strides(shape);
        let view = |storage| TensorRef::strided(storage, DType::F32, shape, &strides, 0).unwrap();
        let metrics = super::super::compare(view(&b), view(&c)).unwrap();
        look(view(&b), view(&c), &metrics).unwrap()
    }

    #[test]
    fn a_wrong_row_stands_out_and_every_element_is_counted() {
        let shape = [3, 100, 130];
        let count: usize = shape.iter().product();
        let b: Vec<f32> = (0..count).map(|index| (index as f32 * 0.37).sin()).collect();
        let mut c = b.clone();
        for value in &mut c[150 * 130..151 * 130] {
            *value += 0.5;
        }
        c[0] = f32::NAN;
        let Look::Elements { map, values, errors } = looked(&shape, &b, &c) else { panic!() };
        assert_eq!((map.height, map.width, map.rows, map.columns), (300, 130, 64, 64));
        assert!(map.cells[0].is_nan());
        let row = 150 * 64 / 300;
        for (at, &cell) in map.cells.iter().enumerate().skip(1) {
            assert_eq!(cell > 0.1, at / 64 == row, "cell {at}: {cell}");
        }
        assert_eq!(values.baseline.iter().sum::<u64>(), count as u64);
        assert_eq!(values.candidate.iter().sum::<u64>(), count as u64 - 1);
        assert_eq!((errors.non_finite, errors.counts.iter().sum::<u64>()), (1, 130));
        // 0.5 of a root mean square of 0.71: between 10^-0.5 and 1.
        assert_eq!(errors.counts[19], 130);
        assert_eq!(errors.equal, (count - 131) as u64);
    }

    #[test]
    fn scalars_constants_and_the_largest_numbers_have_bins() {
        let Look::Elements { map, values, .. } = looked(&[], &[1.5], &[1.5]) else { panic!() };
        assert_eq!((map.cells, values.baseline[0]), (vec![0.0], 1));
        let ends = [f32::MAX, -f32::MAX];
        let Look::Elements { values, errors, .. } = looked(&[2], &ends, &[0.0, 0.0]) else { panic!() };
        assert_eq!((values.baseline[0], values.baseline[VALUE_BINS - 1]), (1, 1));
        assert_eq!(errors.counts.iter().sum::<u64>(), 2);
    }
}
