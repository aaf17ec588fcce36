//! Facts about two tensors: from their elements, else from their recorded statistics.

mod facts;
mod recorded;

use std::hash::{BuildHasher, Hasher};

use super::Verdict;
use super::difference::{Difference, Fact, Identity};
use super::precision::Precision;
use super::rulebook::RuleBook;
use super::setting::Setting;
use super::slot_view::SlotView;
use super::unmeasured;
use facts::{
    DENORMAL, NEAR_ZERO, ZERO_FLOOR, exact_rule, non_finite, non_finite_counts, numbers, recorded_norm,
    settle, smallest_normal, unequal,
};
use probe_dump::{Checksum, DType, Number, RecordedDType, Remark, SlotSide, TensorRecord};
use probe_measure::{Evidence, Metric, PairMetrics, SENTINEL, kept_out};
use recorded::by_record;

/// Norm from which on a tensor must contain sentinels, even if its extremes were not recorded.
const SENTINEL_NORM: f64 = 1.298_074_214_633_706_8e33; // 2^110

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
        around_numbers(&mut fact, (b, c), view.setting);
        fact
    };
    fact.is_tensor = true;
    fact.is_overwritten = view.uninitialised && !side.is_result();
    fact.len = b.len() as f64;
    fact.norms = (recorded_norm(b), recorded_norm(c));
    fact.lacks_norm = [b, c].iter().any(|record| record.statistics.norm().is_none());
    if let Some(metrics) = view.evidence.measured() {
        fact.norms = (metrics.baseline.norm, metrics.candidate.norm);
        fact.lacks_norm = false;
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
        // What divides it makes normal numbers of it.
        fact.likely = m.rel_l2.unwrap_or(0.0).min(1.0);
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

/// Relative error from which two values are not the same one with noise.
const ANOTHER: f64 = 0.1;

/// Considers everything besides the numbers: dtype, equivalent shapes, `requires_grad`.
fn around_numbers(fact: &mut Fact, (b, c): (&TensorRecord, &TensorRecord), setting: &Setting) {
    let is_open = fact.difference.is_open() && fact.judgement.verdict.is_fine();
    if b.dtype != c.dtype {
        fact.exact = false;
        if is_open {
            fact.judgement.verdict = Verdict::DType;
            let indices = |record: &TensorRecord| record.dtype.known().is_some_and(DType::is_integer);
            let is_expected = setting.two_frameworks && indices(b) && indices(c);
            if setting.mixed.is_none() && !is_expected {
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
        // One that is plainly another value is judged as that.
        if is_open && fact.relative() <= ANOTHER {
            fact.judgement.verdict = Verdict::Differs;
            fact.difference = Difference::RequiresGrad;
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
