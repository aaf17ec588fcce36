//! Numbers only: statistics of one tensor, metrics of a pair. No files, no verdicts.
//!
//! [`compare`] reads both tensors once and computes every metric of [`PairMetrics`] on the way; [`summarize`] does the
//! same for one tensor. `docs/metrics.md` has the formulas and the rules for special values.
//!
//! Results are bit-equal for any number of threads and any CPU: element `i` always adds to the same lane of
//! the same block, and lanes, blocks and chunks are combined in one fixed order. Large tensors are spread over
//! the caller's rayon pool, or at capture over a [`Crew`]. Memory does not grow with the tensors:
//! non-contiguous tensors are gathered block by block.

mod arithmetic;
pub mod background;
mod blocks;
mod crew;
pub mod decode;
mod digest;
mod elements;
mod estimate;
mod evidence;
mod extent;
mod finish;
#[cfg(test)]
mod golden;
mod hashes;
mod histogram;
mod kept;
mod kernel;
mod look;
mod metric;
mod observe;
mod overlap;
mod places;
mod recorded;
mod segment;
mod sentinel;
mod simd;
mod sketch;
mod spread;
mod sums;
mod task;
#[cfg(test)]
mod tests;
mod ulp;

pub use crew::Crew;
pub use decode::{numbers, widened};
pub use digest::{Digest, DigestContent, PIECE, PieceError, TensorDigest, digest, hash_bytes};
pub use estimate::{SKETCH_MARGIN, SKETCH_NOISE, SketchEstimate};
pub use evidence::{Basis, Evidence, Unreadable};
pub use hashes::{hash, round};
pub use histogram::{Histogram, histogram};
pub use kept::KeptMetrics;
pub use look::{ErrorBins, ErrorMap, Look, MAP_SIZE, ValueBins, look, look_at_sketches};
pub use metric::{ALL_METRICS, Metric, PairMetrics, TensorSummary};
pub use observe::{observe, observe_with};
pub use overlap::Overlap;
pub use recorded::{
    ChecksumMatch, KnownDifference, RecordedComparison, StatisticDifference, compare_recorded,
};
pub use sentinel::{SENTINEL, kept_out};
pub use sketch::sketch_distance;
pub use spread::spread;

use probe_dump::TensorRef;

use blocks::Threads;
use extent::{PairExtent, SideExtent};
use simd::Body;
use sums::SideSums;

/// Measures two tensors against each other, element by element in row-major order.
///
/// `None` if the numbers of elements differ; apart from that, shapes are ignored. The dtypes may differ.
pub fn compare(baseline: TensorRef<'_>, candidate: TensorRef<'_>) -> Option<PairMetrics> {
    compare_on(Body::detected(), baseline, candidate)
}

/// [`compare`] on a given body.
fn compare_on(body: Body, baseline: TensorRef<'_>, candidate: TensorRef<'_>) -> Option<PairMetrics> {
    if baseline.len() != candidate.len() {
        return None;
    }
    let totals = blocks::pair(body, baseline, candidate);
    let ulp = baseline.dtype() == candidate.dtype() && baseline.dtype().is_float();
    let mixed = baseline.dtype().is_complex() != candidate.dtype().is_complex();
    let summaries = [(baseline, &totals.baseline), (candidate, &totals.candidate)].map(|(tensor, sums)| {
        // Next to a complex tensor a real one is measured as complex; by itself it keeps its sign.
        if mixed { summarize_on(body, tensor) } else { summary(tensor, sums) }
    });
    let extent = PairExtent::of(baseline, candidate, &totals);
    let mut metrics = finish::metrics(summaries, &totals, &extent, ulp);
    metrics.overlap = (metrics.different > 0).then(|| overlap::overlap(baseline, candidate)).flatten();
    Some(metrics)
}

/// Measures one tensor by itself.
pub fn summarize(tensor: TensorRef<'_>) -> TensorSummary {
    summarize_on(Body::detected(), tensor)
}

/// [`summarize`] on a given body.
fn summarize_on(body: Body, tensor: TensorRef<'_>) -> TensorSummary {
    summary(tensor, &blocks::side(body, tensor))
}

fn summary(tensor: TensorRef<'_>, sums: &SideSums) -> TensorSummary {
    finish::summary(tensor.len(), sums, SideExtent::of(tensor, sums, 0, Threads::Pool), 0)
}
