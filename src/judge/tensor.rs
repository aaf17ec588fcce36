//! The verdict of two tensors, by their elements; [`record`](super::record) has that by what was recorded of them.

use super::Verdict;
use super::judged::{Difference, JudgedSlot, SlotContext, verdict};
use super::pattern::{bias_text, sparse, sparse_text, systematic};
use super::rulebook::{RuleBook, RuleKey, dtype_name};
use super::tolerance::{DTypeTolerance, GROWTH, Rule};
use crate::dump::{DType, RecordedDType, TensorRecord};
use crate::measure::{Evidence, PairMetrics};

/// A pair of tensors and what it is judged under.
pub(super) struct TensorJudge<'a> {
    pub(super) baseline: &'a TensorRecord,
    pub(super) candidate: &'a TensorRecord,
    pub(super) context: SlotContext,
    pub(super) book: &'a mut RuleBook,
}

impl TensorJudge<'_> {
    /// Judges by whatever evidence there is.
    pub(super) fn judge(&mut self, evidence: &Evidence) -> JudgedSlot {
        let (b, c) = (self.baseline, self.candidate);
        if self.context.uninitialised {
            return verdict(Verdict::Unknown, Difference::None, "uninitialised memory, not judged");
        }
        if let Evidence::Unreadable { baseline, candidate } = evidence {
            let reasons: Vec<&str> =
                [baseline, candidate].into_iter().flatten().map(|reason| &**reason).collect();
            return verdict(Verdict::Unreadable, Difference::Unreadable, &reasons.join("; "));
        }
        if b.squeezed_shape() != c.squeezed_shape() {
            let reason = format!("shape {:?} against {:?}", b.shape, c.shape);
            return verdict(Verdict::Shape, Difference::Shape, &reason);
        }
        let judged = match evidence {
            Evidence::Data(metrics) => self.by_data(metrics),
            Evidence::Recorded(recorded) => self.by_record(recorded),
            Evidence::Unreadable { .. } | Evidence::Nothing if b.is_empty() && c.is_empty() => {
                verdict(Verdict::BitEqual, Difference::None, "no elements").exact()
            }
            Evidence::Unreadable { .. } | Evidence::Nothing => verdict(
                Verdict::Unknown,
                Difference::None,
                "no statistics, checksum or data that both sides recorded",
            ),
        };
        self.with_record(judged)
    }

    /// Lets what surrounds the numbers speak: element type, shape in other spelling, `requires_grad`.
    fn with_record(&self, mut judged: JudgedSlot) -> JudgedSlot {
        let (b, c) = (self.baseline, self.candidate);
        let fine = judged.judgement.verdict.is_fine();
        if b.dtype != c.dtype {
            judged.exact = false;
            let reason = format!("{} against {}", b.dtype, c.dtype);
            if fine {
                judged.judgement.verdict = Verdict::DType;
                judged.difference = if self.context.mixed_run { Difference::None } else { Difference::DType };
            }
            prepend(&mut judged.judgement.reason, &reason);
        } else if b.shape != c.shape {
            prepend(
                &mut judged.judgement.reason,
                &format!("shape {:?} against {:?}, same elements", b.shape, c.shape),
            );
        }
        if let (Some(x), Some(y)) = (b.requires_grad, c.requires_grad)
            && x != y
        {
            prepend(&mut judged.judgement.reason, &format!("requires_grad {x} against {y}"));
            if fine {
                judged.judgement.verdict = Verdict::Differs;
                judged.difference = Difference::RequiresGrad;
            }
        }
        judged
    }

    /// The type at whose precision this pair is judged: the coarser of the two.
    pub(super) fn dtype(&self) -> Option<DType> {
        let coarser = |a: DType, b: DType| match (a.mantissa_bits(), b.mantissa_bits()) {
            (Some(x), Some(y)) => {
                if x <= y {
                    a
                } else {
                    b
                }
            }
            (Some(_), None) => a,
            _ => b,
        };
        match (&self.baseline.dtype, &self.candidate.dtype) {
            (RecordedDType::Known(a), RecordedDType::Known(b)) => Some(coarser(*a, *b)),
            _ => None,
        }
    }

    pub(super) fn tolerance(&self) -> Option<DTypeTolerance> {
        let own = DTypeTolerance::of(self.dtype()?)?;
        // In a pair of mixed precision float32 results carry the rounding of the coarser inputs.
        let mixed = self.context.coarsest.filter(|_| self.context.mixed_run);
        Some(mixed.into_iter().chain(self.context.inside).fold(own, DTypeTolerance::coarser))
    }

    fn by_data(&mut self, m: &PairMetrics) -> JudgedSlot {
        if m.bit_equal {
            return verdict(Verdict::BitEqual, Difference::None, both_non_finite(m)).exact();
        }
        if m.non_finite_mismatch > 0 {
            return verdict(Verdict::NonFinite, Difference::NonFinite, &non_finite_words(m))
                .error(f64::INFINITY);
        }
        let Some(tolerance) = self.tolerance() else {
            return self.exact_type(m);
        };
        let norm = joint_norm(m);
        let distance = m.euclidean.unwrap_or(0.0);
        let error = relative(distance, norm + self.context.led.cancellation / tolerance.rel_l2);
        if let Some(reason) = self.too_small_to_matter(m, norm) {
            return verdict(Verdict::Close, Difference::None, reason).error(0.0);
        }
        let allowed = self.allowed(tolerance.rel_l2, tolerance);
        if error > allowed {
            return self.beyond(error, allowed, tolerance, "rel_l2");
        }
        let largest = m.baseline.max.unwrap_or(0.0).abs().max(m.baseline.min.unwrap_or(0.0).abs());
        let allowed_max = self.allowed(tolerance.max_err(), tolerance);
        let max_abs = m.max_abs_err.unwrap_or(0.0);
        let max_error = relative((max_abs - self.context.led.cancellation).max(0.0), largest);
        if max_error > allowed_max && !self.context.led.flips {
            return self.beyond(
                error.max(max_error),
                allowed_max,
                tolerance,
                "largest error / largest magnitude",
            );
        }
        if let Some(reason) = systematic(m, error, tolerance, self.context.led.explained) {
            let dtype = self.dtype();
            let rule = self.book.index(RuleKey::Bias(dtype), || bias_text(dtype, tolerance));
            return verdict(Verdict::Differs, Difference::Numbers, &reason).error(error).rule(rule);
        }
        if !self.context.led.flips
            && error > GROWTH * self.context.led.explained
            && let Some(reason) = sparse(m, error, tolerance)
        {
            let dtype = self.dtype();
            let rule = self.book.index(RuleKey::Sparse(dtype), || sparse_text(dtype, tolerance));
            return verdict(Verdict::Differs, Difference::Numbers, &reason).error(error).rule(rule);
        }
        let rule = self.rule_for(error, tolerance.rel_l2, tolerance);
        let mut judged =
            verdict(Verdict::Close, Difference::None, both_non_finite(m)).error(error).rule(rule);
        // Same values in other bits (signs of zero, another type): equal for what follows.
        judged.exact = m.different == 0 && self.baseline.dtype == self.candidate.dtype;
        judged
    }

    /// Differences that no device promises to reproduce, whatever their relative size.
    fn too_small_to_matter(&self, m: &PairMetrics, norm: f64) -> Option<&'static str> {
        let dtype = self.dtype()?;
        let largest = m.max_abs_err.filter(|largest| *largest > 0.0)?;
        if largest < smallest_normal(dtype) {
            return Some(DENORMAL);
        }
        (norm <= 0.0 && largest <= ZERO_FLOOR).then_some(NEAR_ZERO)
    }

    /// Integers and bool must be equal; a few flips are forgiven where the inputs already carry rounding noise.
    fn exact_type(&mut self, m: &PairMetrics) -> JudgedSlot {
        let rule = self.book.index(RuleKey::Exact, || {
            "integers and bool: equal, or at most 1 in 1000 flipped where inputs carry rounding noise"
                .to_owned()
        });
        if m.different == 0 {
            return verdict(Verdict::BitEqual, Difference::None, "").exact().rule(rule);
        }
        let count = m.baseline.count.max(1);
        let share = m.different as f64 / count as f64;
        let reason = format!("{} of {count} elements differ", m.different);
        let error = m.rel_l2.unwrap_or(share).max(share);
        if self.context.led.explained > 0.0 && share <= 1e-3 {
            return verdict(Verdict::Close, Difference::None, &reason).error(share).rule(rule);
        }
        verdict(Verdict::Differs, Difference::Numbers, &reason).error(error).rule(rule)
    }

    /// `base`, or what the context explains, whichever is larger, up to the limit of accumulated rounding.
    pub(super) fn allowed(&self, base: f64, tolerance: DTypeTolerance) -> f64 {
        base.max((GROWTH * self.context.led.explained).min(self.context.led.limit.max(tolerance.accumulated)))
    }

    pub(super) fn beyond(
        &mut self,
        error: f64,
        allowed: f64,
        tolerance: DTypeTolerance,
        what: &str,
    ) -> JudgedSlot {
        let rule = self.rule_for(allowed, tolerance.rel_l2, tolerance);
        let reason = if error.is_infinite() {
            "the baseline is all zero, the candidate is not".to_owned()
        } else {
            format!("{what} {error:.1e} > {allowed:.1e}")
        };
        verdict(Verdict::Differs, Difference::Numbers, &reason).error(error).rule(rule)
    }

    pub(super) fn rule_for(&mut self, error: f64, base: f64, tolerance: DTypeTolerance) -> u32 {
        let dtype = self.dtype();
        if error > base {
            return self.book.index(RuleKey::Growth(dtype), || {
                format!(
                    "{}: within {GROWTH} times the error of what led here (accumulated rounding, at most {:.1e}; more where a choice between near-equal values flips)",
                    dtype_name(dtype),
                    tolerance.accumulated
                )
            });
        }
        self.book.index(RuleKey::Default(dtype), || {
            format!(
                "{} default: rel_l2 <= {:.1e}, largest error <= {:.1e} of the largest magnitude, statistics <= {:.1e}",
                dtype_name(dtype),
                tolerance.rel_l2,
                tolerance.max_err(),
                tolerance.statistic()
            )
        })
    }

    /// Replaces the numerical part of a judgement by a user rule, where its metrics are known.
    pub(super) fn override_by(
        &mut self,
        judged: JudgedSlot,
        index: usize,
        rule: &Rule,
        evidence: &Evidence,
    ) -> JudgedSlot {
        let numerical = matches!(judged.difference, Difference::None | Difference::Numbers)
            && judged.judgement.verdict != Verdict::Unknown;
        let Some(outcome) = rule.check(|metric| evidence.metric(metric)).filter(|_| numerical) else {
            return judged;
        };
        let id = self.book.index(RuleKey::User(index), || rule.to_string());
        let error = judged.judgement.error;
        let mut judged = match outcome {
            Ok(()) if judged.judgement.verdict == Verdict::Differs => {
                verdict(Verdict::Close, Difference::None, "")
            }
            Ok(()) => judged,
            Err(broken) => verdict(Verdict::Differs, Difference::Numbers, &broken),
        };
        judged.judgement.error = error;
        judged.rule(id)
    }
}

/// Largest magnitude that passes for zero where the whole baseline is zero: the absolute bound of the operator standards
/// for small float32 values.
pub(super) const ZERO_FLOOR: f64 = 1.0 / (1_u64 << 30) as f64;

pub(super) const DENORMAL: &str = "differs in denormal numbers only, which devices may flush to zero";
pub(super) const NEAR_ZERO: &str = "the baseline is all zero, the candidate within 2^-30 of it";

/// Smallest normal number of types whose denormals devices flush; 0 for types whose denormals are ordinary values.
pub(super) fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 | DType::C128 => f64::MIN_POSITIVE,
        DType::F32 | DType::Bf16 | DType::C64 => f64::from(f32::MIN_POSITIVE),
        _ => 0.0,
    }
}

fn prepend(reason: &mut Box<str>, text: &str) {
    *reason = if reason.is_empty() { text.into() } else { format!("{text}; {reason}").into() };
}

pub(super) fn relative(distance: f64, norm: f64) -> f64 {
    if distance > 0.0 { distance / norm } else { 0.0 }
}

/// Norm of the baseline over the positions that the distance runs over.
fn joint_norm(m: &PairMetrics) -> f64 {
    match (m.euclidean, m.rel_l2) {
        (Some(distance), Some(relative)) if relative > 0.0 && relative.is_finite() => distance / relative,
        (_, Some(relative)) if relative.is_infinite() => 0.0,
        _ => m.baseline.norm,
    }
}

fn both_non_finite(m: &PairMetrics) -> &'static str {
    if m.baseline.non_finite() > 0 {
        "NaN or Inf at the same places on both sides; the rest was compared"
    } else {
        ""
    }
}

fn non_finite_words(m: &PairMetrics) -> String {
    let words = |side: &crate::measure::TensorSummary| {
        let mut parts = Vec::new();
        for (count, word) in [(side.nan, "NaN"), (side.pos_inf, "+Inf"), (side.neg_inf, "-Inf")] {
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    };
    format!(
        "non-finite at {} place{} where the other side is not, or of another kind: baseline {}, candidate {}",
        m.non_finite_mismatch,
        if m.non_finite_mismatch == 1 { "" } else { "s" },
        words(&m.baseline),
        words(&m.candidate)
    )
}
