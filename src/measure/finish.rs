//! From sums to the numbers that are reported.

use super::metric::{PairMetrics, TensorSummary};
use super::sums::{SideSums, Totals};

/// The summary of a tensor of `count` elements.
pub(crate) fn summary(count: usize, sums: &SideSums) -> TensorSummary {
    let finite = count as u64 - sums.non_finite();
    let known = |value: f64| (finite > 0).then_some(value);
    TensorSummary {
        count: count as u64,
        min: known(sums.min),
        max: known(sums.max),
        mean: known(sums.sum / finite as f64),
        norm: sums.squares.sqrt(),
        zeros: sums.zeros,
        nan: sums.nan,
        pos_inf: sums.pos_inf,
        neg_inf: sums.neg_inf,
    }
}

/// The metrics of a pair of `count` elements.
pub(crate) fn metrics(count: usize, totals: &Totals, ulp: bool) -> PairMetrics {
    let pair = &totals.pair;
    let finite = pair.finite;
    let known = |value: f64| (finite > 0).then_some(value);
    let share = |elements: u64| known(elements as f64 / finite as f64);
    let baseline = pair.baseline_squares.sqrt();
    let candidate = pair.candidate_squares.sqrt();
    let distance = pair.distance_squares.sqrt();
    PairMetrics {
        baseline: summary(count, &totals.baseline),
        candidate: summary(count, &totals.candidate),
        both_finite: finite,
        bit_equal: totals.identical,
        different: pair.different,
        non_finite_mismatch: pair.mismatch,
        zero_baseline: pair.zero_baseline,
        cosine: if finite == 0 { None } else { cosine(pair.dot, baseline, candidate, totals.identical) },
        max_abs_err: totals.record.map(|record| record.error.rounded),
        max_abs_index: totals.record.map(|record| record.index),
        max_abs_values: totals.record.map(|record| record.values),
        mean_abs_err: known(pair.abs / finite as f64),
        max_rel_err: known(pair.max_rel),
        mean_rel_err: known(pair.rel / finite as f64),
        rmse: known((pair.distance_squares / finite as f64).sqrt()),
        euclidean: known(distance),
        rel_l2: known(if is_zero(distance) { 0.0 } else { distance / baseline }),
        within_1e3: share(pair.within_1e3),
        within_5e3: share(pair.within_5e3),
        max_ulp: (ulp && finite > 0).then_some(totals.max_ulp),
    }
}

fn cosine(dot: f64, baseline: f64, candidate: f64, identical: bool) -> Option<f64> {
    match (is_zero(baseline), is_zero(candidate)) {
        (true, true) => Some(1.0),
        (true, false) | (false, true) => None,
        // Exactly 1, which the quotient of rounded sums need not give.
        (false, false) if identical => Some(1.0),
        (false, false) => Some((dot / baseline / candidate).clamp(-1.0, 1.0)),
    }
}

fn is_zero(norm: f64) -> bool {
    norm == 0.0
}
