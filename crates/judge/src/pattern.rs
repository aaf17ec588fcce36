//! Errors below the floor that their pattern gives away: rounding is spread over all elements and has no
//! direction. Examined only if everything that led to a result is equal to the bit.

use super::difference::Fact;
use super::ops::Kind;
use super::tolerance::DTypeTolerance;
use probe_dump::DType;
use probe_measure::{PairMetrics, SketchEstimate};

/// Fewest elements that allow a statement about all of them.
const MANY: f64 = 64.0;

/// Largest fraction of differing elements that rules out rounding.
const FEW: f64 = 0.01;

/// Directions that stand for each element as large as the largest: with four, 64 normal elements count as many.
const EACH: f64 = 4.0;

/// Returns the directions that the rounding of a value's large elements has, from its norm and extremes. The slope is a mean
/// in which each element counts by its square, so it is off by at most `largest / norm` of the relative error: the
/// rounding of one element that outweighs all others has a direction.
pub(super) fn large_directions(norm: f64, extremes: Option<(f64, f64)>) -> f64 {
    let largest = extremes.map_or(0.0, |(least, greatest)| least.abs().max(greatest.abs()));
    if largest > 0.0 { EACH * (norm / largest).powi(2) } else { f64::INFINITY }
}

/// Detects a scale error common to all elements, or a few elements far off among many that are equal to the
/// bit. `least` is the deviation of the scale from 1 that the precision of the op allows.
pub(super) fn of_elements(m: &PairMetrics, dtype: DType, least: f64, directions: f64) -> Option<String> {
    let (tolerance, error) = (DTypeTolerance::of(dtype)?, m.rel_l2?);
    let count = m.both_finite as f64;
    let finite = m.baseline.non_finite() == 0 && m.candidate.non_finite() == 0;
    // The slope of candidate over baseline is `cosine |c| / |b|`; for errors without direction it deviates from 1 by about
    // `rel_l2 / sqrt(n)`, with n directions.
    let slope = m
        .cosine
        .filter(|_| finite && m.baseline.norm > 0.0)
        .map(|cosine| cosine * m.candidate.norm / m.baseline.norm);
    let noise = 6.0 * error / directions.min(count).sqrt();
    let scaled =
        slope.filter(|slope| count >= MANY && (slope - 1.0).abs() > tolerance.slope().max(noise).max(least));
    scaled.map(scaled_text).or_else(|| sparse(m.different as f64, count, error, tolerance.accumulated))
}

/// Returns true if rounding cannot explain why elements are rearranged, of which only statistics are known.
/// Copies keep every bit. Sums and products of elements round alike on every device (IEEE 754); sums of
/// products do not, but then in all elements, so that their norm would differ. Saturating functions are
/// different (softmax, sigmoid, ReLU): of many elements that are equal up to rounding, any may be the first to
/// reach 1 or 0.
pub(super) fn is_misplaced(fact: &Fact, dtype: DType, kind: Kind) -> bool {
    let is_precise = matches!(dtype, DType::F32 | DType::F64);
    let keeps = match kind {
        Kind::Copy => true,
        Kind::Add | Kind::Multiply | Kind::Product => is_precise,
        _ => false,
    };
    fact.rearranged && keeps && fact.len >= MANY
}

/// Like `of_elements`, from exact norms and an estimated distance, whose square may be off by half.
pub(super) fn of_sketch(
    fact: &Fact,
    sketch: &SketchEstimate,
    dtype: DType,
    least: f64,
    directions: f64,
) -> Option<String> {
    let tolerance = DTypeTolerance::of(dtype)?;
    let ((b, c), error) = (fact.norms, sketch.rel_l2);
    let ratio = c / b;
    let deviation = (ratio * ratio - 1.0 - error * error) / 2.0;
    let noise = 6.0 * error / directions.sqrt() + error * error / 4.0;
    let scaled = b > 0.0 && fact.len >= MANY && deviation.abs() > tolerance.slope().max(noise).max(least);
    // Both the number of elements and the distance are estimates.
    let few = || sparse(sketch.few_differing()?, fact.len, error, 2.0 * tolerance.accumulated);
    scaled.then(|| scaled_text(1.0 + deviation)).or_else(few)
}

fn scaled_text(slope: f64) -> String {
    format!("all elements are scaled by {slope:.6}: rounding has no direction")
}

/// Describes few elements that carry the whole error, each off by more than rounding may grow to.
fn sparse(different: f64, count: f64, error: f64, largest: f64) -> Option<String> {
    let local = error * (count / different).sqrt();
    let few = (1.0..=FEW * count).contains(&different) && local > largest;
    few.then(|| {
        format!(
            "{different:.0} of {count:.0} elements are off by {local:.1e} of the typical magnitude, all others are equal"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::large_directions;

    /// Errors that all point one way are at most as large as the error: beyond it, six deviations never stand out.
    fn stands_out(norm: f64, extremes: (f64, f64)) -> bool {
        6.0 / large_directions(norm, Some(extremes)).sqrt() < 1.0
    }

    #[test]
    fn one_large_element_says_nothing_of_all() {
        // The largest of 64 normal elements is 2.4 deviations off.
        assert!(stands_out(8.0, (-2.4, 2.3)));
        assert!(!stands_out(1.0, (-0.9, 0.3)));
        assert!(!stands_out(2.0, (0.0, 1.0)), "four alike, and nothing besides");
        assert!(large_directions(1.0, None).is_infinite());
    }
}
