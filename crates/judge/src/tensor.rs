//! Facts about two tensors: from their elements, else from their recorded statistics.

use std::hash::{BuildHasher, Hasher};

use super::Verdict;
use super::difference::{Difference, Fact, Identity};
use super::precision::Precision;
use super::rulebook::{RuleBook, RuleKey};
use super::slot::SlotView;
use super::tolerance::Rule;
use super::unmeasured;
use probe_dump::{Checksum, Counts, DType, Number, Ordinal, RecordedDType, Remark, SlotSide, TensorRecord};
use probe_measure::{
    ChecksumMatch, Evidence, KnownDifference, Metric, PairMetrics, RecordedComparison, SENTINEL, kept_out,
};

/// Norm from which on a tensor must contain sentinels, even if its extremes were not recorded.
const SENTINEL_NORM: f64 = 1.298_074_214_633_706_8e33; // 2^110

/// Largest magnitude that counts as zero if the whole baseline is zero: the absolute bound of the operator
/// standards for small float32 values.
const ZERO_FLOOR: f64 = 1.0 / (1_u64 << 30) as f64;

const DENORMAL: &str = "differs in denormal numbers only, which devices may flush to zero";
const REARRANGED: &str = "equal statistics, but elements are rearranged";

/// If the greatest and the least element differ by less than this fraction of the larger, all elements are
/// nearly equal, and rounding may decide which is the greatest.
const SPREAD: f64 = 1.0 / 1024.0;

const NEAR_ZERO: &str = "the baseline is all zero, the candidate within 2^-30 of it";

/// Compares two tensors by the available evidence.
pub(super) fn compare(
    side: SlotSide,
    (b, c): (&TensorRecord, &TensorRecord),
    view: &SlotView<'_>,
    book: &mut RuleBook,
) -> Fact {
    let mut fact = if view.uninitialised {
        Fact::certain(Verdict::Unknown, Difference::None, "uninitialised memory, not judged")
    } else if let Evidence::Unreadable(why) = view.evidence {
        let reasons: Vec<&str> =
            [&why.baseline, &why.candidate].into_iter().flatten().map(|reason| &**reason).collect();
        Fact::certain(Verdict::Unreadable, Difference::Unreadable, &reasons.join("; "))
    } else if b.squeezed_shape() != c.squeezed_shape() {
        let reason = format!("shape {:?} against {:?}", b.shape, c.shape);
        Fact::certain(Verdict::Shape, Difference::Shape, &reason)
    } else {
        let mut fact = Fact::certain(Verdict::Unknown, Difference::None, "");
        fact.dtype = coarser(b, c);
        match view.evidence {
            Evidence::Data(kept) => by_elements(&mut fact, &kept.metrics(), book),
            Evidence::Recorded(recorded) => {
                by_record(&mut fact, recorded, (b, c), view.setting.exact_task, book);
            }
            _ if b.is_empty() && c.is_empty() => {
                settle(&mut fact, Verdict::BitEqual, "no elements");
                fact.exact = true;
            }
            _ => match unmeasured::reason((b, c)) {
                Some(reason) => {
                    fact.difference = Difference::Unreadable;
                    fact.judgement.reason = reason.into();
                }
                None => {
                    fact.judgement.reason = "no statistics, checksum or data that both sides recorded".into();
                }
            },
        }
        around_numbers(&mut fact, (b, c), view.setting.mixed.is_some());
        fact
    };
    fact.is_tensor = true;
    fact.is_overwritten = view.uninitialised && !side.is_result();
    fact.len = b.len() as f64;
    fact.norms = (recorded_norm(b), recorded_norm(c));
    if let Some(metrics) = view.evidence.measured() {
        fact.norms = (metrics.baseline.norm, metrics.candidate.norm);
    }
    fact.is_float = fact.dtype.and_then(Precision::of).is_some() && fact.len > 0.0;
    let (of_baseline, of_candidate) = largest((b, c), view.evidence);
    fact.largest = of_baseline;
    if matches!(view.evidence, Evidence::Recorded(_)) && kept_out(b).and(kept_out(c)).is_some() {
        // The norm excludes sentinels.
        fact.largest = of_baseline.min(fact.norm);
    } else {
        // Sentinels are equal on both sides; a result that overflows on one side is not one.
        let alike = of_baseline.to_bits() == of_candidate.to_bits();
        fact.swamped = fact.is_float && alike && (fact.largest > SENTINEL || fact.norm > SENTINEL_NORM);
    }
    fact.identity = identity((b, c), fact.norms);
    fact
}

/// Sets a verdict that needs no further judgement.
fn settle(fact: &mut Fact, verdict: Verdict, reason: &str) {
    fact.judgement.verdict = verdict;
    fact.judgement.error = 0.0.into();
    fact.judgement.reason = reason.into();
    fact.is_measured = true;
}

fn non_finite(fact: &mut Fact, reason: &str) {
    fact.judgement.verdict = Verdict::NonFinite;
    fact.judgement.error = f64::INFINITY.into();
    fact.judgement.reason = reason.into();
    fact.difference = Difference::NonFinite;
}

/// Sets the verdict for differing elements of an exact type, or checksums.
fn unequal(fact: &mut Fact, difference: Difference, error: Option<f64>, reason: &str, rule: Ordinal) {
    fact.judgement.verdict = Verdict::Differs;
    fact.judgement.error = error.into();
    fact.judgement.reason = reason.into();
    fact.judgement.rule = Some(rule);
    fact.difference = difference;
}

/// Sets numbers that are off by `distance`; the verdict follows later.
fn numbers(fact: &mut Fact, distance: f64, norm: f64) {
    fact.judgement.verdict = Verdict::Close;
    fact.norm = norm;
    fact.distance = distance;
    fact.is_measured = true;
    fact.judgement.error = if distance > 0.0 { distance / norm } else { 0.0 }.into();
    fact.difference = if distance > 0.0 { Difference::Numbers } else { Difference::None };
}

fn exact_rule(book: &mut RuleBook) -> Ordinal {
    book.index(RuleKey::Exact, || {
        "integers and bool: equal, unless noise in what they are computed from flips them".to_owned()
    })
}

fn by_elements(fact: &mut Fact, m: &PairMetrics, book: &mut RuleBook) {
    let alike = if m.baseline.non_finite() > 0 {
        "NaN or Inf at the same places on both sides; the rest was compared"
    } else {
        ""
    };
    let Some(dtype) = fact.dtype.filter(|dtype| Precision::of(*dtype).is_some()) else {
        let rule = exact_rule(book);
        if m.non_finite_mismatch > 0 {
            return non_finite(fact, &non_finite_words(m));
        }
        if m.bit_equal || m.different == 0 {
            settle(fact, Verdict::BitEqual, alike);
            fact.exact = true;
            fact.judgement.rule = Some(rule).filter(|_| !m.bit_equal);
            return;
        }
        let count = m.baseline.count.max(1);
        let share = m.different as f64 / count as f64;
        let rows = match m.overlap {
            Some(found) if found.apart == 0 => {
                "; each row holds the same numbers in a different order".to_owned()
            }
            Some(found) => format!(
                "; {} of {} rows hold different numbers ({:.1} % of all are the same)",
                found.apart,
                found.rows,
                100.0 * found.shared as f64 / count as f64
            ),
            None => String::new(),
        };
        let reason = format!("{} of {count} elements differ{rows}", m.different);
        fact.is_measured = true;
        fact.flipped = share;
        return unequal(
            fact,
            Difference::Elements,
            Some(m.rel_l2.unwrap_or(share).max(share)),
            &reason,
            rule,
        );
    };
    fact.norm = joint_norm(m);
    if m.bit_equal {
        settle(fact, Verdict::BitEqual, alike);
        fact.exact = true;
        return;
    }
    if m.non_finite_mismatch > 0 {
        return non_finite(fact, &non_finite_words(m));
    }
    let off = m.max_abs_err.unwrap_or(0.0);
    if off > 0.0 && off < smallest_normal(dtype) {
        return settle(fact, Verdict::Close, DENORMAL);
    }
    if off > 0.0 && fact.norm <= 0.0 && off <= ZERO_FLOOR {
        return settle(fact, Verdict::Close, NEAR_ZERO);
    }
    let norm = fact.norm;
    numbers(fact, m.euclidean.unwrap_or(0.0), norm);
    fact.judgement.reason = alike.into();
    // Equal values with different bits (signed zeros) count as equal from here on.
    fact.exact = m.different == 0;
}

fn by_record(
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
    if let Some((b, c)) = r.counts_differ.as_deref() {
        let words = format!("non-finite elements: baseline {}, candidate {}", count_words(b), count_words(c));
        return non_finite(fact, &words);
    }
    if r.baseline_non_finite != r.candidate_non_finite {
        let side = if r.candidate_non_finite { "candidate" } else { "baseline" };
        return non_finite(fact, &format!("the statistics show NaN or Inf in the {side} only"));
    }
    if r.baseline_non_finite
        && [r.max, r.min].into_iter().filter_map(KnownDifference::get).any(|s| s.relative.is_infinite())
    {
        return non_finite(fact, "the statistics show NaN or Inf on both sides, of different kind or sign");
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
        return;
    }
    if let Some(reason) = too_small_to_matter(dtype, b, c) {
        return settle(fact, Verdict::Close, reason);
    }
    let bound = r.rel_l2_at_least.get().filter(|bound| !bound.is_nan()).unwrap_or(0.0);
    let (distance, reason) = match &r.sketch {
        Some(sketch) if sketch.is_resolved() => (sketch.distance.max(proved(bound, norm)), ""),
        Some(sketch) => (
            // A distance below the sketches' storage rounding is an artefact of the sketches.
            sketch.distance.max(proved(bound, norm)),
            if bits_differ { "the bits differ, but by less than a sketch resolves" } else { "" },
        ),
        None => (proved(bound, norm), ""),
    };
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
    fact.judgement.reason = reason.into();
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

/// Considers everything besides the numbers: dtype, equivalent shapes, `requires_grad`.
fn around_numbers(fact: &mut Fact, (b, c): (&TensorRecord, &TensorRecord), mixed_run: bool) {
    let is_open = fact.difference.is_open() && fact.judgement.verdict.is_fine();
    if b.dtype != c.dtype {
        fact.exact = false;
        if is_open {
            fact.judgement.verdict = Verdict::DType;
            if !mixed_run {
                fact.difference = Difference::DType;
            }
        }
        prepend(&mut fact.judgement.reason, &format!("{} against {}", b.dtype, c.dtype));
    } else if b.shape != c.shape {
        let text = format!("shape {:?} against {:?}, same elements", b.shape, c.shape);
        prepend(&mut fact.judgement.reason, &text);
    }
    if let (Some(x), Some(y)) = (b.requires_grad, c.requires_grad)
        && x != y
    {
        prepend(&mut fact.judgement.reason, &format!("requires_grad {x} against {y}"));
        if is_open {
            fact.judgement.verdict = Verdict::Differs;
            fact.difference = Difference::RequiresGrad;
        }
    }
}

/// Replaces the numeric verdict by that of a user rule, if its metrics are known.
pub(super) fn apply_rule(
    fact: &mut Fact,
    index: usize,
    rule: &Rule,
    evidence: &Evidence,
    book: &mut RuleBook,
) {
    let numerical = matches!(fact.difference, Difference::None | Difference::Numbers | Difference::Elements)
        && fact.judgement.verdict != Verdict::Unknown;
    let unequal = rule.is_exact() && !fact.exact && fact.judgement.verdict != Verdict::BitEqual;
    let outcome = if unequal {
        Some(Err("not bit-equal".to_owned()))
    } else {
        rule.check(|metric| evidence.metric(metric)).or_else(|| rule.is_exact().then_some(Ok(())))
    };
    let Some(outcome) = outcome.filter(|_| numerical) else { return };
    fact.judgement.rule = Some(book.index(RuleKey::User(index), || rule.to_string()));
    match outcome {
        Ok(()) => {
            fact.allowed = true;
            if fact.difference == Difference::Elements {
                fact.difference = Difference::None;
                fact.judgement.verdict = Verdict::Close;
            }
        }
        Err(broken) => {
            fact.difference = Difference::Bound;
            fact.judgement.verdict = Verdict::Differs;
            fact.judgement.reason = broken.into();
        }
    }
}

/// Returns the dtype at whose precision a pair is judged: the coarser of the two.
fn coarser(baseline: &TensorRecord, candidate: &TensorRecord) -> Option<DType> {
    let (RecordedDType::Known(own), RecordedDType::Known(other)) = (&baseline.dtype, &candidate.dtype) else {
        return None;
    };
    // Types without a mantissa are exact.
    let bits = |dtype: &DType| dtype.mantissa_bits().unwrap_or(u32::MAX);
    Some(if bits(other) <= bits(own) { *other } else { *own })
}

/// Returns the norm of a tensor as recorded; 0 if unknown. A norm below the largest magnitude underflowed in
/// the dtype that the capture summed in; if it overflowed or was not recorded, the largest magnitude bounds
/// it.
fn recorded_norm(record: &TensorRecord) -> f64 {
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

/// Returns the largest finite magnitudes of both sides; 0 if unknown.
fn largest((b, c): (&TensorRecord, &TensorRecord), evidence: &Evidence) -> (f64, f64) {
    let of = |extremes: [Option<f64>; 2]| {
        extremes.into_iter().flatten().map(f64::abs).filter(|value| value.is_finite()).fold(0.0, f64::max)
    };
    let recorded = |record: &TensorRecord| {
        of([record.statistics.max(), record.statistics.min()].map(|value| value.map(Number::as_f64)))
    };
    match evidence {
        Evidence::Data(kept) => {
            let m = kept.metrics();
            (of([m.baseline.max, m.baseline.min]), of([m.candidate.max, m.candidate.min]))
        }
        _ => (recorded(b), recorded(c)),
    }
}

/// Identifies the pair by hash, else by statistics and number of elements. `None` without either, and for
/// scalars and exact types without a hash, because many of these are equal by chance.
fn identity((b, c): (&TensorRecord, &TensorRecord), norms: (f64, f64)) -> Option<Identity> {
    let of = |record: &TensorRecord, norm: f64| match record.checksum {
        Some(Checksum::Xxh3(hash)) => Some(FIXED.hash_one(hash.bits())),
        Some(Checksum::Crc32(sum)) => Some(FIXED.hash_one((sum, record.len()))),
        _ if norm > 0.0 => {
            let statistics = &record.statistics;
            let bits = |number: Option<Number>| number.map_or(0, |number| number.as_f64().to_bits());
            let mut hasher = FIXED.build_hasher();
            for part in [
                record.len(),
                norm.to_bits(),
                bits(statistics.max()),
                bits(statistics.min()),
                statistics.mean().map_or(0, f64::to_bits),
            ] {
                hasher.write_u64(part);
            }
            Some(hasher.finish())
        }
        _ => None,
    };
    Some(Identity::new(of(b, norms.0)?, of(c, norms.1)?))
}

/// Hasher that is the same in every process.
static FIXED: std::hash::BuildHasherDefault<std::collections::hash_map::DefaultHasher> =
    std::hash::BuildHasherDefault::new();

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

/// Returns the smallest normal number of dtypes whose denormals devices flush; 0 for dtypes whose denormals
/// are ordinary values.
fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 | DType::C128 => f64::MIN_POSITIVE,
        DType::F32 | DType::Bf16 | DType::C64 => f64::from(f32::MIN_POSITIVE),
        _ => 0.0,
    }
}

fn prepend(reason: &mut Remark, text: &str) {
    *reason = if reason.is_empty() { text.into() } else { format!("{text}; {reason}").into() };
}

/// Returns the baseline's norm over the positions that the distance covers.
fn joint_norm(m: &PairMetrics) -> f64 {
    match (Metric::Euclidean.of(m), m.rel_l2) {
        (Some(distance), Some(relative)) if relative > 0.0 && relative.is_finite() => distance / relative,
        (_, Some(relative)) if relative.is_infinite() => 0.0,
        _ => m.baseline.norm,
    }
}

fn count_words(counts: &Counts) -> String {
    non_finite_counts(counts.nan, counts.positive_infinite, counts.negative_infinite)
}

fn non_finite_counts(nan: u64, up: u64, down: u64) -> String {
    let words = [(nan, "NaN"), (up, "+Inf"), (down, "-Inf")];
    let parts: Vec<String> =
        words.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

fn non_finite_words(m: &PairMetrics) -> String {
    let words = |side: &probe_measure::TensorSummary| non_finite_counts(side.nan, side.pos_inf, side.neg_inf);
    format!(
        "non-finite at {} place{} where the other side is not, or of a different kind: baseline {}, candidate {}",
        m.non_finite_mismatch,
        if m.non_finite_mismatch == 1 { "" } else { "s" },
        words(&m.baseline),
        words(&m.candidate)
    )
}
