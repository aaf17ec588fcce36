//! Errors too small for a bound on their size, whose pattern gives them away: rounding is spread over all elements and has
//! no direction.

use super::rulebook::dtype_name;
use super::tolerance::DTypeTolerance;
use crate::dump::{DType, TensorRecord};
use crate::measure::{PairMetrics, SketchEstimate};

/// Factor between the error of what an op was given and the scale error that may come of it: a product takes the errors of
/// both its factors, and in a norm that few elements make they do not average out.
const PRODUCT: f64 = 2.0;

/// A scale error common to all elements, which rounding does not make. The slope of candidate over baseline is
/// `cosine |c| / |b|`; for errors without direction it deviates from 1 by about `rel_l2 / sqrt(n)`.
pub(super) fn systematic(
    m: &PairMetrics,
    error: f64,
    tolerance: DTypeTolerance,
    explained: f64,
) -> Option<String> {
    let (cosine, count) = (m.cosine?, m.both_finite as f64);
    if m.baseline.norm <= 0.0 || m.baseline.non_finite() > 0 || m.candidate.non_finite() > 0 {
        return None;
    }
    let deviation = cosine * m.candidate.norm / m.baseline.norm - 1.0;
    let noise = 6.0 * error / count.sqrt();
    let bound = tolerance.slope().max(noise).max(PRODUCT * explained);
    (deviation.abs() > bound && count >= 64.0)
        .then(|| format!("all elements are scaled by {:.6}: rounding has no direction", 1.0 + deviation))
}

/// The same from recorded norms, which are exact, and an estimated distance, whose square may be off by half.
pub(super) fn systematic_norm(
    (baseline, candidate): (&TensorRecord, &TensorRecord),
    sketch: SketchEstimate,
    tolerance: DTypeTolerance,
    explained: f64,
) -> Option<String> {
    let (b, c) = (baseline.statistics.norm?.abs(), candidate.statistics.norm?.abs());
    let counts = (baseline.counts?, candidate.counts?);
    let non_finite =
        [counts.0, counts.1].map(|counts| counts.nan + counts.positive_infinite + counts.negative_infinite);
    let count = baseline.len() as f64;
    if b <= 0.0 || non_finite != [0, 0] || count < 64.0 {
        return None;
    }
    let (ratio, error) = (c / b, sketch.rel_l2);
    let deviation = (ratio * ratio - 1.0 - error * error) / 2.0;
    let noise = 6.0 * error / count.sqrt() + error * error / 4.0;
    let bound = tolerance.slope().max(noise).max(PRODUCT * explained);
    (deviation.abs() > bound)
        .then(|| format!("all elements are scaled by {:.6}: rounding has no direction", 1.0 + deviation))
}

pub(super) fn bias_text(dtype: Option<DType>, tolerance: DTypeTolerance) -> String {
    format!("{} default: common scale error <= {:.1e}", dtype_name(dtype), tolerance.slope())
}

/// A few elements far off among many that are equal to the bit: damage, not rounding.
pub(super) fn sparse(m: &PairMetrics, error: f64, tolerance: DTypeTolerance) -> Option<String> {
    let (count, different) = (m.both_finite as f64, m.different as f64);
    if different < 1.0 || different > 0.01 * count {
        return None;
    }
    let local = error * (count / different).sqrt();
    (local > tolerance.accumulated).then(|| {
        format!(
            "{} of {} elements are off by {local:.1e} of the typical magnitude, all others are equal",
            m.different, m.both_finite
        )
    })
}

/// The same from sketches, by the lanes that no difference fell into.
pub(super) fn sparse_estimate(
    elements: u64,
    sketch: SketchEstimate,
    error: f64,
    tolerance: DTypeTolerance,
) -> Option<String> {
    let (count, different) = (elements as f64, sketch.few_differing()?);
    if different > 0.01 * count {
        return None;
    }
    let local = error * (count / different).sqrt();
    // Both the number and the distance are estimates.
    (local > 2.0 * tolerance.accumulated).then(|| {
        format!(
            "about {different:.0} of {elements} elements are off by {local:.1e} of the typical magnitude, all others are equal"
        )
    })
}

pub(super) fn sparse_text(dtype: Option<DType>, tolerance: DTypeTolerance) -> String {
    format!(
        "{} default: where at most 1 % of the elements differ, their error <= {:.1e} of the typical magnitude",
        dtype_name(dtype),
        tolerance.accumulated
    )
}
