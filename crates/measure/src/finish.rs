//! Converts sums to the reported numbers.

use super::extent::{PairExtent, Scaled, SideExtent};
use super::metric::{PairMetrics, TensorSummary};
use super::sums::{SideSums, Totals};

/// Returns the summary of a tensor of `count` elements, `left_out` of which are excluded from `extent`.
pub(crate) fn summary(count: usize, sums: &SideSums, extent: SideExtent, left_out: u64) -> TensorSummary {
    let finite = count as u64 - sums.non_finite();
    let known = |value: f64| (finite > 0).then_some(value);
    let summed = finite - left_out;
    TensorSummary {
        count: count as u64,
        min: known(sums.min),
        max: known(sums.max),
        mean: (summed > 0).then(|| extent.sum.over(Scaled::from(summed as f64)).value()),
        norm: extent.squares.sqrt().value(),
        zeros: sums.zeros,
        nan: sums.nan,
        pos_inf: sums.pos_inf,
        neg_inf: sums.neg_inf,
    }
}

/// Returns the metrics of a pair; `ulp` if its type has units in the last place.
pub(crate) fn metrics(
    [baseline, candidate]: [TensorSummary; 2],
    totals: &Totals,
    extent: &PairExtent,
    ulp: bool,
) -> PairMetrics {
    let pair = &totals.pair;
    let finite = pair.finite;
    let known = |value: f64| (finite > 0).then_some(value);
    let share = |elements: u64| known(elements as f64 / finite as f64);
    let elements = Scaled::from(finite as f64);
    let distance = extent.distance_squares.sqrt();
    PairMetrics {
        baseline,
        candidate,
        both_finite: finite,
        bit_equal: totals.identical,
        different: pair.different,
        non_finite_mismatch: pair.mismatch,
        zero_baseline: pair.zero_baseline,
        cosine: if finite == 0 { None } else { cosine(extent, totals.identical) },
        max_abs_err: totals.record.map(|record| record.error.rounded),
        max_abs_index: totals.record.map(|record| record.index),
        max_abs_values: totals.record.map(|record| record.values),
        mean_abs_err: known(extent.abs.over(elements).value()),
        max_rel_err: known(pair.max_rel),
        mean_rel_err: known(pair.rel / finite as f64),
        rmse: known(extent.distance_squares.over(elements).sqrt().value()),
        euclidean: known(distance.value()),
        rel_l2: known(if distance.is_zero() {
            0.0
        } else {
            distance.over(extent.baseline_squares.sqrt()).value()
        }),
        within_1e3: share(pair.within_1e3),
        within_5e3: share(pair.within_5e3),
        max_ulp: (ulp && finite > 0).then_some(totals.max_ulp),
        overlap: None,
    }
}

fn cosine(extent: &PairExtent, identical: bool) -> Option<f64> {
    let (baseline, candidate) = (extent.baseline_squares.sqrt(), extent.candidate_squares.sqrt());
    match (baseline.is_zero(), candidate.is_zero()) {
        (true, true) => Some(1.0),
        (true, false) | (false, true) => None,
        // Exactly 1, which the quotient of rounded sums may not give.
        (false, false) if identical => Some(1.0),
        (false, false) => Some(extent.dot.over(baseline.times(candidate)).value().clamp(-1.0, 1.0)),
    }
}
