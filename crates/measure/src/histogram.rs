//! Distribution of the elements of one tensor.

use std::ops::Range;

use probe_dump::TensorRef;

use super::blocks::{Blocks, Threads, blocks_of, for_chunks};
use super::elements::Values;
use super::metric::TensorSummary;

/// Counts of a tensor's finite elements (moduli for complex) in equal bins from the smallest to the largest.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Summary of the tensor: range, mean, and the non-finite elements that no bin holds.
    pub summary: TensorSummary,
    /// Elements in each bin. Bin `i` of `n` holds values from `min + i * width` up to, but excluding,
    /// `min + (i + 1) * width`, where `width` is `(max - min) / n`; the last bin includes the maximum. If all
    /// elements are equal, the first bin holds them.
    pub counts: Vec<u64>,
}

/// Counts the elements of `tensor` in `bins` bins; zero bins give no counts.
pub fn histogram(tensor: TensorRef<'_>, bins: usize) -> Histogram {
    let summary = super::summarize(tensor);
    let mut counts = vec![0; bins];
    if let (Some(min), Some(max), true) = (summary.min, summary.max, bins > 0) {
        let scale = Scale::new(min, max, bins);
        let chunk = |range: Range<usize>| {
            let mut counts = vec![0_u64; bins];
            let (mut blocks, mut values) = (Blocks::of(tensor, range.end), Values::default());
            for block in blocks_of(range) {
                for &value in values.of(tensor, blocks.bytes(block)) {
                    if value.is_finite() {
                        counts[scale.bin(value)] += 1;
                    }
                }
            }
            counts
        };
        for_chunks(Threads::Pool, tensor.len(), chunk, |_, next: Vec<u64>| {
            counts.iter_mut().zip(next).for_each(|(count, next)| *count += next);
        });
    }
    Histogram { summary, counts }
}

/// Maps a value to its bin. Halves everything first, so that the width of the range cannot overflow.
struct Scale {
    half_min: f64,
    half_width: f64,
    bins: usize,
}

impl Scale {
    fn new(min: f64, max: f64, bins: usize) -> Self {
        Self { half_min: min / 2.0, half_width: max / 2.0 - min / 2.0, bins }
    }

    fn bin(&self, value: f64) -> usize {
        let share = (value / 2.0 - self.half_min) / self.half_width;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates; NaN, from a range of width 0, becomes bin 0"
        )]
        let bin = (share * self.bins as f64) as usize;
        bin.min(self.bins - 1)
    }
}
