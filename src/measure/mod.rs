//! Numbers only: statistics of one tensor, metrics of a pair. No files, no verdicts.
//!
//! [`compare`] reads both tensors once and computes every metric of [`PairMetrics`] on the way; [`summarize`] does the
//! same for one tensor. `docs/metrics.md` has the formulas and the rules for special values.
//!
//! Results are bit-equal for any number of threads and any CPU: element `i` always adds to the same lane of the
//! same block, and lanes, blocks and chunks are put together in one fixed order. Large tensors are spread over the
//! rayon pool of the caller. Memory does not grow with the tensors: what is not contiguous is gathered block by block.

mod arithmetic;
mod blocks;
pub(crate) mod decode;
mod evidence;
mod finish;
mod histogram;
mod kernel;
mod metric;
mod simd;
mod sums;
#[cfg(test)]
mod tests;
mod ulp;

pub use evidence::{ChecksumMatch, Evidence, RecordedComparison, StatisticDifference, compare_recorded};
pub use histogram::{Histogram, histogram};
pub use metric::{ALL_METRICS, Metric, PairMetrics, TensorSummary};

use crate::dump::TensorRef;

/// Measures two tensors against each other, element by element in row-major order.
///
/// `None` when they have different numbers of elements; apart from that, shapes are not looked at. The element
/// types may differ.
pub fn compare(baseline: TensorRef<'_>, candidate: TensorRef<'_>) -> Option<PairMetrics> {
    if baseline.len() != candidate.len() {
        return None;
    }
    let totals = blocks::pair(baseline, candidate);
    let ulp = baseline.dtype() == candidate.dtype() && baseline.dtype().is_float();
    let mut metrics = finish::metrics(baseline.len(), &totals, ulp);
    // Beside a complex tensor a real one is measured as complex; by itself it keeps its sign.
    if baseline.dtype().is_complex() != candidate.dtype().is_complex() {
        metrics.baseline = summarize(baseline);
        metrics.candidate = summarize(candidate);
    }
    Some(metrics)
}

/// Measures one tensor by itself.
pub fn summarize(tensor: TensorRef<'_>) -> TensorSummary {
    finish::summary(tensor.len(), &blocks::side(tensor))
}
