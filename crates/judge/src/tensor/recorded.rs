//! Two tensors by what was recorded of them: statistics, a sketch, a checksum.

use super::super::Verdict;
use super::super::difference::{Difference, Fact};
use super::super::precision::Precision;
use super::super::rulebook::{RuleBook, RuleKey};
use super::facts::{
    DENORMAL, NEAR_ZERO, ZERO_FLOOR, exact_rule, non_finite, non_finite_counts, numbers, recorded_norm,
    settle, smallest_normal, unequal,
};
use probe_dump::{Counts, DType, Number, TensorRecord};
use probe_measure::{ChecksumMatch, KnownDifference, RecordedComparison};

const REARRANGED: &str = "equal statistics, but elements are rearranged";

/// If the greatest and the least element differ by less than this fraction of the larger, all elements are
/// nearly equal, and rounding may decide which is the greatest.
const SPREAD: f64 = 1.0 / 1024.0;

/// Sets what recorded statistics, sketches and checksums tell.
pub(super) fn by_record(
    fact: &mut Fact,
    r: &RecordedComparison,
    (b, c): (&TensorRecord, &TensorRecord),
    exact_task: bool,
    book: &mut RuleBook,
) {
    let norm = recorded_norm(b);
    fact.norm = norm;
    fact.statistics_only = r.sketch.is_none();
    if fact.statistics_only {
        let [largest, least] = off_at_extremes(r, b);
        fact.likely = largest.max(least).min(1.0);
        fact.extremes = largest.min(least);
    }
    if let Some(words) = unequal_non_finite(r) {
        return non_finite(fact, &words);
    }
    let bits_differ = r.checksum == Some(ChecksumMatch::Different);
    match r.checksum {
        Some(ChecksumMatch::Equal) => {
            settle(fact, Verdict::BitEqual, "");
            fact.exact = true;
            return;
        }
        Some(ChecksumMatch::WeaklyEqual) => {
            settle(fact, Verdict::Close, "equal XOR checksums, which constant or repeated data also produce");
            fact.exact = true;
            return;
        }
        Some(ChecksumMatch::Different) if exact_task => {
            let rule = book.index(RuleKey::Checksum, || "checksums are equal".to_owned());
            // Lower bound that the statistics prove; 0 proves nothing.
            let proved = r.rel_l2_at_least.get().filter(|error| *error > 0.0 && error.is_finite());
            fact.is_measured = true;
            fact.distance = proved.unwrap_or(0.0) * norm;
            return unequal(fact, Difference::Checksum, proved, "checksums differ", rule);
        }
        Some(ChecksumMatch::Different) | None => {}
    }
    let Some(dtype) = fact.dtype.filter(|dtype| Precision::of(*dtype).is_some()) else {
        return exact_record(fact, r, b, bits_differ, book);
    };
    if r.all_same && !bits_differ {
        settle(fact, Verdict::Close, "");
        fact.exact = true;
        return;
    }
    if let Some((in_b, in_c)) = r.sentinels_differ.as_deref() {
        // A sentinel replaces another number, or vice versa.
        let distance =
            r.sketch.as_ref().map_or(0.0, |sketch| sketch.distance).max(norm).max(recorded_norm(c));
        numbers(fact, distance.max(f64::MIN_POSITIVE), norm);
        fact.judgement.reason = format!("elements beyond 2^100: baseline {in_b}, candidate {in_c}").into();
    } else if let Some(reason) = too_small_to_matter(dtype, b, c) {
        settle(fact, Verdict::Close, reason);
    } else {
        by_numbers(fact, r, dtype, (b, c));
    }
}

/// Describes non-finite elements that are not the same on both sides.
fn unequal_non_finite(r: &RecordedComparison) -> Option<String> {
    if let Some((b, c)) = r.counts_differ.as_deref() {
        return Some(format!(
            "non-finite elements: baseline {}, candidate {}",
            count_words(b),
            count_words(c)
        ));
    }
    if r.baseline_non_finite != r.candidate_non_finite {
        let side = if r.candidate_non_finite { "candidate" } else { "baseline" };
        return Some(format!("the statistics show NaN or Inf in the {side} only"));
    }
    let mut extremes = [r.max, r.min].into_iter().filter_map(KnownDifference::get);
    (r.baseline_non_finite && extremes.any(|extreme| extreme.relative.is_infinite()))
        .then(|| "the statistics show NaN or Inf on both sides, of different kind or sign".to_owned())
}

/// Sets the distance of two float tensors, by the sketches, or the bound that the statistics prove.
fn by_numbers(fact: &mut Fact, r: &RecordedComparison, dtype: DType, (b, c): (&TensorRecord, &TensorRecord)) {
    let norm = fact.norm;
    let bits_differ = r.checksum == Some(ChecksumMatch::Different);
    let bound = r.rel_l2_at_least.get().filter(|bound| !bound.is_nan()).unwrap_or(0.0);
    let distance = r.sketch.as_ref().map_or(0.0, |sketch| sketch.distance).max(proved(bound, norm));
    if r.sketch.is_none() && bound.is_infinite() {
        // The baseline is zero and the candidate is not: the distance is the candidate's own norm.
        return numbers(fact, recorded_norm(c).max(f64::MIN_POSITIVE), norm);
    }
    if fact.statistics_only && r.rearranged {
        fact.rearranged = is_spread(b);
        numbers(fact, distance.max(step(dtype, b)), norm);
        fact.judgement.reason = REARRANGED.into();
        return;
    }
    numbers(fact, distance, norm);
    fact.noise = b.sum_error.unwrap_or_default() + c.sum_error.unwrap_or_default();
    if bits_differ && r.sketch.as_ref().is_some_and(|sketch| !sketch.is_resolved()) {
        // A distance below the rounding with which sketches are stored is made by that.
        fact.judgement.reason = "the bits differ, but by less than a sketch resolves".into();
    }
}

/// Returns true if the greatest and the least element are far from equal.
fn is_spread(record: &TensorRecord) -> bool {
    let extremes = [record.statistics.max(), record.statistics.min()].map(|value| value.map(Number::as_f64));
    matches!(extremes, [Some(max), Some(min)] if max - min > SPREAD * max.abs().max(min.abs()))
}

/// Returns the smallest possible difference of an element from the smaller of both extremes in magnitude, if
/// not equal: half a unit in the last place of a number in the middle of its binade, the step down to the next
/// one for a power of two.
fn step(dtype: DType, record: &TensorRecord) -> f64 {
    let extremes = [record.statistics.max(), record.statistics.min()].into_iter().flatten();
    let least = extremes.map(|value| value.as_f64().abs()).fold(f64::INFINITY, f64::min);
    let bits = dtype.mantissa_bits().and_then(|bits| i32::try_from(bits).ok()).unwrap_or(0);
    (least * 2_f64.powi(-bits - 1)).max(f64::MIN_POSITIVE)
}

/// Returns the relative errors of the largest and the least element, each one sample of the error of all
/// elements. An element below the root mean square is compared with that. 0 if unknown.
fn off_at_extremes(r: &RecordedComparison, b: &TensorRecord) -> [f64; 2] {
    let typical = recorded_norm(b) / (b.len().max(1) as f64).sqrt();
    [(r.max, b.statistics.max()), (r.min, b.statistics.min())].map(|(difference, value)| {
        let size = value.map(|value| value.as_f64().abs().max(typical));
        let error = difference.get().zip(size).map(|(difference, size)| difference.difference.abs() / size);
        error.filter(|error| error.is_finite()).unwrap_or(0.0)
    })
}

/// Returns the distance that a relative bound proves.
fn proved(bound: f64, norm: f64) -> f64 {
    if bound.is_finite() { bound * norm } else { 0.0 }
}

fn exact_record(
    fact: &mut Fact,
    r: &RecordedComparison,
    b: &TensorRecord,
    bits_differ: bool,
    book: &mut RuleBook,
) {
    let rule = exact_rule(book);
    fact.is_measured = true;
    if r.same_integers && !bits_differ {
        settle(fact, Verdict::Close, if r.moved { REARRANGED } else { "" });
        fact.exact = !r.moved;
        fact.judgement.rule = Some(rule);
        return;
    }
    if let Some(sketch) = r.sketch.as_ref().filter(|sketch| sketch.distance > 0.0) {
        // Differing elements of an exact type differ by at least 1, so their number is at most the squared
        // distance; large values differ by about their own magnitude.
        let squared = sketch.distance * sketch.distance;
        let share = (squared / b.len().max(1) as f64).min(sketch.rel_l2 * sketch.rel_l2 / 2.0);
        let reason = format!("elements differ, about 1 in {:.0} by the sketch", 1.0 / share.min(1.0));
        fact.flipped = share.min(1.0);
        return unequal(fact, Difference::Elements, Some(sketch.rel_l2.max(share)), &reason, rule);
    }
    let present = [r.max, r.min, r.mean, r.norm].into_iter().filter_map(KnownDifference::get);
    let error = present.map(|s| s.relative).fold(0.0, f64::max);
    fact.flipped = 1.0;
    let reason =
        if bits_differ && r.all_same { "checksums differ" } else { "statistics of an exact type differ" };
    unequal(fact, Difference::Elements, Some(error), reason, rule);
}

/// Detects differences that no device guarantees to reproduce, from the statistics of the elements.
fn too_small_to_matter(dtype: DType, b: &TensorRecord, c: &TensorRecord) -> Option<&'static str> {
    let largest = |record: &TensorRecord| {
        let (max, min) = (record.statistics.max()?.as_f64().abs(), record.statistics.min()?.as_f64().abs());
        (max.is_finite() && min.is_finite()).then_some(max.max(min))
    };
    let (b, c) = (largest(b)?, largest(c)?);
    if b.max(c) < smallest_normal(dtype) {
        return Some(DENORMAL);
    }
    (b <= 0.0 && c <= ZERO_FLOOR).then_some(NEAR_ZERO)
}

fn count_words(counts: &Counts) -> String {
    non_finite_counts(counts.nan, counts.positive_infinite, counts.negative_infinite)
}
