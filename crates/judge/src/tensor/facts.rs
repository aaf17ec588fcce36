//! Facts that are set alike for elements and for what was recorded of them.

use crate::Verdict;
use crate::difference::{Difference, Fact};
use crate::rulebook::{RuleBook, RuleKey};
use probe_dump::{DType, Ordinal, TensorRecord};
use probe_measure::kept_out;

/// Largest magnitude that counts as zero if the whole baseline is zero: the absolute bound of the operator
/// standards for small float32 values.
pub(super) const ZERO_FLOOR: f64 = 1.0 / (1_u64 << 30) as f64;

pub(super) const DENORMAL: &str = "differs in denormal numbers only, which devices may flush to zero";

pub(super) const NEAR_ZERO: &str = "the baseline is all zero, the candidate within 2^-30 of it";

/// Sets a verdict that needs no further judgement.
pub(super) fn settle(fact: &mut Fact, verdict: Verdict, reason: &str) {
    fact.judgement.verdict = verdict;
    fact.judgement.error = 0.0.into();
    fact.judgement.reason = reason.into();
    fact.is_measured = true;
}

pub(super) fn non_finite(fact: &mut Fact, reason: &str) {
    fact.judgement.verdict = Verdict::NonFinite;
    fact.judgement.error = f64::INFINITY.into();
    fact.judgement.reason = reason.into();
    fact.difference = Difference::NonFinite;
}

/// Sets the verdict for differing elements of an exact type, or checksums.
pub(super) fn unequal(
    fact: &mut Fact,
    difference: Difference,
    error: Option<f64>,
    reason: &str,
    rule: Ordinal,
) {
    fact.judgement.verdict = Verdict::Differs;
    fact.judgement.error = error.into();
    fact.judgement.reason = reason.into();
    fact.judgement.rule = Some(rule);
    fact.difference = difference;
}

/// Sets numbers that are off by `distance`; the verdict follows later.
pub(super) fn numbers(fact: &mut Fact, distance: f64, norm: f64) {
    fact.judgement.verdict = Verdict::Close;
    fact.norm = norm;
    fact.distance = distance;
    fact.is_measured = true;
    fact.judgement.error = if distance > 0.0 { distance / norm } else { 0.0 }.into();
    fact.difference = if distance > 0.0 { Difference::Numbers } else { Difference::None };
}

pub(super) fn exact_rule(book: &mut RuleBook) -> Ordinal {
    book.index(RuleKey::Exact, || {
        "integers and bool: equal, unless noise in what they are computed from flips them".to_owned()
    })
}

/// Returns the norm of a tensor as recorded; 0 if unknown. A norm below the largest magnitude underflowed in
/// the dtype that the capture summed in; if it overflowed or was not recorded, the largest magnitude bounds
/// it.
pub(super) fn recorded_norm(record: &TensorRecord) -> f64 {
    let statistics = &record.statistics;
    let largest =
        [statistics.max(), statistics.min()].into_iter().flatten().map(|number| number.as_f64().abs());
    let largest = largest.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if let Some(norm) = statistics.norm().filter(|norm| kept_out(record).is_some() && norm.is_finite()) {
        return norm;
    }
    let bound = largest * (record.len() as f64).sqrt();
    statistics.norm().map(f64::abs).filter(|norm| norm.is_finite()).map_or(bound, |norm| norm.max(largest))
}

/// Returns the smallest normal number of dtypes whose denormals devices flush; 0 for dtypes whose denormals
/// are ordinary values.
pub(super) fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 | DType::C128 => f64::MIN_POSITIVE,
        DType::F32 | DType::Bf16 | DType::C64 => f64::from(f32::MIN_POSITIVE),
        _ => 0.0,
    }
}

pub(super) fn non_finite_counts(nan: u64, up: u64, down: u64) -> String {
    let words = [(nan, "NaN"), (up, "+Inf"), (down, "-Inf")];
    let parts: Vec<String> =
        words.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}
