//! Position of an error in a tensor: for each dimension, the shortest range of indices that holds nearly all
//! of it.
//!
//! A second pass over a pair that is known to differ, on one thread: sums have one order.

use std::ops::Range;

use probe_dump::TensorRef;

use super::elements::for_each_pair;

/// Fraction of the squared error, or of the misplaced NaN and infinities, that a range holds.
const NEARLY_ALL: f64 = 0.99;

/// Number of ranges distinguished per dimension; longer dimensions group their indices.
const BINS: usize = 4096;

/// Returns the ranges of indices that hold 99 % of the error, one for each dimension of the baseline: of the
/// positions where only one side is NaN or infinite if there are any, else of the squared error (of the
/// moduli, for complex). `None` if nothing differs, or if the numbers of elements do.
pub fn spread(baseline: TensorRef<'_>, candidate: TensorRef<'_>) -> Option<Vec<Range<usize>>> {
    if baseline.len() != candidate.len() || baseline.is_empty() {
        return None;
    }
    let (mut errors, mut misplaced) = (Margins::of(baseline.shape()), Margins::of(baseline.shape()));
    for_each_pair(baseline, candidate, |b, c| {
        let both = b.is_finite() && c.is_finite();
        // Halves, because the difference of two finite numbers may exceed the largest number.
        let half = if both { c / 2.0 - b / 2.0 } else { 0.0 };
        errors.add(half * half);
        misplaced
            .add(f64::from(u8::from(!both && b.to_bits() != c.to_bits() && !(b.is_nan() && c.is_nan()))));
    });
    misplaced.ranges().or_else(|| errors.ranges())
}

/// Sums over all but one dimension, for each dimension.
struct Margins {
    axes: Vec<Axis>,
    /// Sum over the last dimension so far.
    row: f64,
}

struct Axis {
    size: usize,
    /// Number of indices that share a sum.
    width: usize,
    at: usize,
    sums: Vec<f64>,
}

impl Margins {
    fn of(shape: &[usize]) -> Self {
        let axis = |&size: &usize| {
            let width = size.div_ceil(BINS);
            Axis { size, width, at: 0, sums: vec![0.0; size.div_ceil(width)] }
        };
        Self { axes: shape.iter().map(axis).collect(), row: 0.0 }
    }

    /// Adds the next element in row-major order.
    fn add(&mut self, weight: f64) {
        let Some((last, outer)) = self.axes.split_last_mut() else {
            self.row += weight;
            return;
        };
        last.sums[last.at / last.width] += weight;
        self.row += weight;
        last.at += 1;
        if last.at < last.size {
            return;
        }
        last.at = 0;
        for axis in &mut *outer {
            axis.sums[axis.at / axis.width] += self.row;
        }
        self.row = 0.0;
        for axis in outer.iter_mut().rev() {
            axis.at += 1;
            if axis.at < axis.size {
                return;
            }
            axis.at = 0;
        }
    }

    /// Returns the shortest range of each dimension; `None` if the total is zero or overflows.
    fn ranges(&self) -> Option<Vec<Range<usize>>> {
        let total: f64 = self.axes.first().map_or(self.row, |axis| axis.sums.iter().sum());
        let any = total > 0.0 && total.is_finite();
        any.then(|| self.axes.iter().map(Axis::range).collect())
    }
}

impl Axis {
    fn range(&self) -> Range<usize> {
        let wanted = NEARLY_ALL * self.sums.iter().sum::<f64>();
        let (mut best, mut start, mut held) = (0..self.sums.len(), 0, 0.0);
        for end in 0..self.sums.len() {
            held += self.sums[end];
            while start < end && held - self.sums[start] >= wanted {
                held -= self.sums[start];
                start += 1;
            }
            if held >= wanted && end + 1 - start < best.len() {
                best = start..end + 1;
            }
        }
        best.start * self.width..(best.end * self.width).min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_dump::DType;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn found(shape: &[usize], change: impl Fn(usize) -> Option<f32>) -> Option<Vec<Range<usize>>> {
        let count = shape.iter().product();
        let b: Vec<f32> = (0..count).map(|index| index as f32 * 0.25 + 1.0).collect();
        let c: Vec<f32> =
            b.iter().enumerate().map(|(index, &b)| change(index).unwrap_or(b * 1.000_000_1)).collect();
        let (b, c) = (bytes(&b), bytes(&c));
        let strides = probe_dump::contiguous_strides(shape);
        let view = |storage| TensorRef::strided(storage, DType::F32, shape, &strides, 0).unwrap();
        spread(view(&b), view(&c))
    }

    #[test]
    fn a_row_a_column_and_an_element_are_found_among_rounding() {
        let shape = [4, 6, 10];
        let at = |index: usize| [index / 60, index / 10 % 6, index % 10];
        assert_eq!(found(&shape, |index| (at(index)[0] == 2).then_some(-9.0)), Some(vec![2..3, 0..6, 0..10]));
        assert_eq!(found(&shape, |index| (at(index)[2] > 7).then_some(-9.0)), Some(vec![0..4, 0..6, 8..10]));
        assert_eq!(
            found(&shape, |index| (at(index) == [3, 1, 7]).then_some(-9.0)),
            Some(vec![3..4, 1..2, 7..8])
        );
        assert_eq!(found(&[], |_| Some(7.0)), Some(vec![]));
    }

    #[test]
    fn misplaced_nan_come_before_errors() {
        let change = |index: usize| if index == 13 { Some(f32::NAN) } else { Some(-1000.0) };
        assert_eq!(found(&[4, 6], change), Some(vec![2..3, 1..2]));
        assert_eq!(found(&[0, 6], change), None);
    }

    #[test]
    fn long_dimensions_are_told_to_within_a_bin() {
        let range = found(&[3 * BINS + 5], |index| (index == 9000).then_some(-1e9)).unwrap();
        assert!(range[0].contains(&9000) && range[0].len() <= 4, "{range:?}");
    }
}
