//! The verdict of one pair of slots.

use super::rulebook::{RuleBook, RuleKey};
use super::tolerance::{DTypeTolerance, GROWTH, Rules};
use super::{SlotJudgement, Verdict, value};
use crate::dump::{DType, RecordedDType, Slot, TensorRecord, Value};
use crate::measure::{ChecksumMatch, Evidence, PairMetrics, RecordedComparison};

/// Error that what led to a slot explains.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Led {
    /// Error of what led to this slot, as far as that is within tolerance itself: of the op's inputs for a result, of
    /// earlier results for an input. Up to [`GROWTH`] times it is explained.
    pub(super) explained: f64,
    /// Euclidean norm that rounding in cancelled sums may reach, whatever the norm of the result. 0 for most slots.
    pub(super) cancellation: f64,
    /// Largest error that `explained` can justify.
    pub(super) limit: f64,
    /// The op chooses between values, and its inputs carry noise: single elements may be off by their whole magnitude.
    pub(super) flips: bool,
}

/// What the judgement of a slot rests on besides its own evidence.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotContext {
    /// What led here.
    pub(super) led: Led,
    /// Bounds of the coarsest float type that takes part in this part of the dump.
    pub(super) coarsest: Option<DTypeTolerance>,
    /// The two runs compute in different float types throughout; judged at the coarser one.
    pub(super) mixed_run: bool,
    /// The dump exists to prove equality of bits (checksum tasks).
    pub(super) exact_task: bool,
    /// The content is left over memory: an output of `empty`, a receive buffer.
    pub(super) uninitialised: bool,
}

/// How well two values, or all inputs or results of an op, agree; from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Agreement {
    /// Equal to the bit, as far as the evidence can tell.
    #[default]
    Exact,
    /// Nothing is known to be wrong.
    Fine,
    /// Something differs.
    Differs,
    /// NaN or Inf on one side only.
    NonFinite,
}

impl Agreement {
    /// True when nothing is known to be wrong.
    pub(super) fn is_fine(self) -> bool {
        self <= Self::Fine
    }
}

/// Why a slot is not fine, as far as causes depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    /// It is fine.
    None,
    /// Numbers of a tensor.
    Numbers,
    /// A scalar argument that someone chose (`eps`), or a string, size, slice.
    Argument,
    /// A float argument that looks computed (`loss.item()`).
    ComputedArgument,
    /// Element type.
    DType,
    /// NaN or Inf.
    NonFinite,
    /// Sizes.
    Shape,
    /// Present on one side only.
    Missing,
    /// `requires_grad`.
    RequiresGrad,
    /// Data that could not be read.
    Unreadable,
}

impl Difference {
    /// True when nothing is known to be wrong. What could not be read is reported as such and accuses no op.
    pub(super) const fn is_fine(self) -> bool {
        matches!(self, Self::None | Self::Unreadable)
    }
}

/// A judged slot with the facts that judging its op needs.
#[derive(Debug)]
pub(super) struct JudgedSlot {
    pub(super) judgement: SlotJudgement,
    pub(super) difference: Difference,
    /// Equal to the last bit, as far as the evidence can tell.
    pub(super) exact: bool,
}

/// Judges one pair of slots.
pub(super) fn judge_slot(
    op: &str,
    pair: (Option<&Slot>, Option<&Slot>),
    evidence: &Evidence,
    context: SlotContext,
    rules: &Rules,
    book: &mut RuleBook,
) -> JudgedSlot {
    let (b, c) = match pair {
        (Some(b), Some(c)) => (b, c),
        (Some(only), None) => return one_sided(only, "baseline"),
        (None, Some(only)) => return one_sided(only, "candidate"),
        (None, None) => return verdict(Verdict::Unknown, Difference::None, ""),
    };
    let dtype = b.value.tensor().and_then(|record| record.dtype.known());
    let rule = rules.find(op, &b.path, dtype);
    if let Some((index, rule)) = rule
        && rule.ignores()
    {
        let mut judged = verdict(Verdict::Unknown, Difference::None, "not judged: excluded by a user rule");
        judged.judgement.rule = Some(book.index(RuleKey::User(index), || rule.to_string()));
        return judged;
    }
    match (&b.value, &c.value) {
        (Value::Tensor(x), Value::Tensor(y)) => {
            let mut judge = TensorJudge { baseline: x, candidate: y, context, book };
            let judged = judge.judge(evidence);
            match rule {
                Some((index, rule)) => judge.override_by(judged, index, rule, evidence),
                None => judged,
            }
        }
        (Value::Scalar(x), Value::Scalar(y)) => {
            value::judge_scalars(x, y, context.led.explained, context.mixed_run)
        }
        (Value::None, Value::None) => verdict(Verdict::BitEqual, Difference::None, "").exact(),
        (Value::Unsupported, _) | (_, Value::Unsupported) => {
            verdict(Verdict::Unknown, Difference::None, "the capture could not record this value")
        }
        (x, y) => {
            let reason = format!("{} in the baseline, {} in the candidate", kind_of(x), kind_of(y));
            let difference = if matches!((x, y), (Value::Tensor(_), _) | (_, Value::Tensor(_))) {
                Difference::Missing
            } else {
                Difference::Argument
            };
            verdict(
                if difference == Difference::Missing { Verdict::Missing } else { Verdict::Differs },
                difference,
                &reason,
            )
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Tensor(_) => "a tensor",
        Value::Scalar(_) => "a scalar",
        Value::None => "None",
        Value::Unsupported => "an unrecorded value",
    }
}

fn one_sided(slot: &Slot, side: &str) -> JudgedSlot {
    match &slot.value {
        // A default passed explicitly on one side, or the name of a device: says nothing about numbers.
        Value::None | Value::Unsupported => verdict(
            Verdict::Unknown,
            Difference::None,
            &format!("{} in the {side}, absent on the other side", kind_of(&slot.value)),
        ),
        Value::Scalar(crate::dump::Scalar::Device(device)) => {
            verdict(Verdict::Unknown, Difference::None, &format!("device {device}, given in the {side} only"))
        }
        _ => verdict(Verdict::Missing, Difference::Missing, &format!("recorded in the {side} only")),
    }
}

/// A judgement without error or rule.
pub(super) fn verdict(verdict: Verdict, difference: Difference, reason: &str) -> JudgedSlot {
    JudgedSlot {
        judgement: SlotJudgement { verdict, error: None, rule: None, reason: reason.into() },
        difference,
        exact: false,
    }
}

impl JudgedSlot {
    /// How well the two values agree.
    pub(super) const fn agreement(&self) -> Agreement {
        match self.difference {
            Difference::NonFinite => Agreement::NonFinite,
            difference if !difference.is_fine() => Agreement::Differs,
            _ if self.exact => Agreement::Exact,
            _ => Agreement::Fine,
        }
    }

    pub(super) fn exact(mut self) -> Self {
        self.exact = true;
        self.judgement.error = Some(0.0);
        self
    }

    pub(super) fn error(mut self, error: f64) -> Self {
        self.judgement.error = Some(error);
        self
    }

    fn rule(mut self, rule: u32) -> Self {
        self.judgement.rule = Some(rule);
        self
    }
}

struct TensorJudge<'a> {
    baseline: &'a TensorRecord,
    candidate: &'a TensorRecord,
    context: SlotContext,
    book: &'a mut RuleBook,
}

impl TensorJudge<'_> {
    fn judge(&mut self, evidence: &Evidence) -> JudgedSlot {
        let (b, c) = (self.baseline, self.candidate);
        if self.context.uninitialised {
            return verdict(Verdict::Unknown, Difference::None, "uninitialised memory, not judged");
        }
        if let Evidence::Unreadable { baseline, candidate } = evidence {
            let reasons: Vec<&str> =
                [baseline, candidate].into_iter().flatten().map(|reason| &**reason).collect();
            return verdict(Verdict::Unreadable, Difference::Unreadable, &reasons.join("; "));
        }
        if squeezed(&b.shape) != squeezed(&c.shape) {
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
    fn dtype(&self) -> Option<DType> {
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

    fn tolerance(&self) -> Option<DTypeTolerance> {
        let own = DTypeTolerance::of(self.dtype()?)?;
        Some(match self.context.coarsest {
            // In a run of mixed precision float32 results carry the rounding of the coarser inputs.
            Some(coarse) if self.context.mixed_run && coarse.rel_l2 > own.rel_l2 => coarse,
            _ => own,
        })
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

    /// The same by statistics.
    fn recorded_too_small_to_matter(&self) -> Option<&'static str> {
        let smallest = smallest_normal(self.dtype()?);
        let largest = |record: &TensorRecord| {
            let (max, min) = (record.statistics.max?.as_f64().abs(), record.statistics.min?.as_f64().abs());
            (max.is_finite() && min.is_finite()).then_some(max.max(min))
        };
        let (b, c) = (largest(self.baseline)?, largest(self.candidate)?);
        if b.max(c) < smallest {
            return Some(DENORMAL);
        }
        (b <= 0.0 && c <= ZERO_FLOOR).then_some(NEAR_ZERO)
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

    fn by_record(&mut self, r: &RecordedComparison) -> JudgedSlot {
        if r.baseline_non_finite != r.candidate_non_finite {
            let side = if r.candidate_non_finite { "candidate" } else { "baseline" };
            let reason = format!("the statistics show NaN or Inf in the {side} only");
            return verdict(Verdict::NonFinite, Difference::NonFinite, &reason).error(f64::INFINITY);
        }
        if r.baseline_non_finite && [r.max, r.min].into_iter().flatten().any(|s| s.relative.is_infinite()) {
            let reason = "the statistics show NaN or Inf on both sides, of another kind or sign";
            return verdict(Verdict::NonFinite, Difference::NonFinite, reason).error(f64::INFINITY);
        }
        match r.checksum {
            Some(ChecksumMatch::Equal) => return verdict(Verdict::BitEqual, Difference::None, "").exact(),
            Some(ChecksumMatch::WeaklyEqual) => {
                let reason = "equal XOR checksums, which constant or repeated data also give";
                return verdict(Verdict::Close, Difference::None, reason).exact();
            }
            Some(ChecksumMatch::Different) if self.context.exact_task => {
                let rule = self.book.index(RuleKey::Checksum, || "checksums are equal".to_owned());
                let mut judged =
                    verdict(Verdict::Differs, Difference::Numbers, "checksums differ").rule(rule);
                // What the statistics prove beside it; 0 proves nothing.
                judged.judgement.error = r.rel_l2_at_least.filter(|error| *error > 0.0 && error.is_finite());
                return judged;
            }
            Some(ChecksumMatch::Different) | None => {}
        }
        let differing_bits = r.checksum == Some(ChecksumMatch::Different);
        let Some(tolerance) = self.tolerance() else {
            return self.exact_record(r, differing_bits);
        };
        if r.all_same && !differing_bits {
            let judged = verdict(Verdict::Close, Difference::None, "").error(0.0);
            return JudgedSlot { exact: true, ..judged };
        }
        if let Some(reason) = self.recorded_too_small_to_matter() {
            return verdict(Verdict::Close, Difference::None, reason).error(0.0);
        }
        let error = relative_bound(r, self.context.led.cancellation / tolerance.statistic(), self.baseline);
        let allowed = self.allowed(tolerance.statistic(), tolerance);
        let worst = [r.max, r.min, r.mean, r.norm].into_iter().flatten().map(|s| s.relative);
        let extreme = [r.max, r.min].into_iter().flatten().map(|s| s.relative).fold(0.0, f64::max);
        let cancelled = self.context.led.cancellation > 0.0;
        let judged_error = if cancelled { error } else { worst.fold(error, f64::max) };
        if judged_error > allowed {
            let what = if error > allowed {
                "rel_l2 at least"
            } else if extreme > allowed {
                "max or min off by"
            } else {
                "mean or norm off by"
            };
            return self.beyond(judged_error, allowed, tolerance, what);
        }
        let rule = self.rule_for(error, tolerance.statistic(), tolerance);
        verdict(Verdict::Close, Difference::None, "").error(error).rule(rule)
    }

    fn exact_record(&mut self, r: &RecordedComparison, differing_bits: bool) -> JudgedSlot {
        let rule = self.book.index(RuleKey::Exact, || {
            "integers and bool: equal, or at most 1 in 1000 flipped where inputs carry rounding noise"
                .to_owned()
        });
        if r.all_same && !differing_bits {
            let judged = verdict(Verdict::Close, Difference::None, "").error(0.0).rule(rule);
            return JudgedSlot { exact: true, ..judged };
        }
        let present = [r.max, r.min, r.mean, r.norm].into_iter().flatten();
        let error = present.map(|s| s.relative).fold(0.0, f64::max);
        if self.context.led.explained > 0.0 && self.dtype() != Some(DType::Bool) && error <= 1e-3 {
            return verdict(Verdict::Close, Difference::None, "statistics of integers differ a little")
                .error(error)
                .rule(rule);
        }
        let reason = if differing_bits && r.all_same {
            "checksums differ"
        } else {
            "statistics of an exact type differ"
        };
        verdict(Verdict::Differs, Difference::Numbers, reason).error(error).rule(rule)
    }

    /// `base`, or what the context explains, whichever is larger, up to the limit of accumulated rounding.
    fn allowed(&self, base: f64, tolerance: DTypeTolerance) -> f64 {
        base.max((GROWTH * self.context.led.explained).min(self.context.led.limit.max(tolerance.accumulated)))
    }

    fn beyond(&mut self, error: f64, allowed: f64, tolerance: DTypeTolerance, what: &str) -> JudgedSlot {
        let rule = self.rule_for(allowed, tolerance.rel_l2, tolerance);
        let reason = if error.is_infinite() {
            "the baseline is all zero, the candidate is not".to_owned()
        } else {
            format!("{what} {error:.1e} > {allowed:.1e}")
        };
        verdict(Verdict::Differs, Difference::Numbers, &reason).error(error).rule(rule)
    }

    fn rule_for(&mut self, error: f64, base: f64, tolerance: DTypeTolerance) -> u32 {
        let dtype = self.dtype();
        if error > base {
            return self.book.index(RuleKey::Growth(dtype), || {
                format!(
                    "{}: within {GROWTH} times the error of what led here (accumulated rounding, at most {:.1e}; more where a choice between near-equal values flips)",
                    name(dtype),
                    tolerance.accumulated
                )
            });
        }
        self.book.index(RuleKey::Default(dtype), || {
            format!(
                "{} default: rel_l2 <= {:.1e}, largest error <= {:.1e} of the largest magnitude, statistics <= {:.1e}",
                name(dtype),
                tolerance.rel_l2,
                tolerance.max_err(),
                tolerance.statistic()
            )
        })
    }

    /// Replaces the numerical part of a judgement by a user rule, where its metrics are known.
    fn override_by(
        &mut self,
        judged: JudgedSlot,
        index: usize,
        rule: &super::tolerance::Rule,
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
const ZERO_FLOOR: f64 = 1.0 / (1_u64 << 30) as f64;

const DENORMAL: &str = "differs in denormal numbers only, which devices may flush to zero";
const NEAR_ZERO: &str = "the baseline is all zero, the candidate within 2^-30 of it";

/// Smallest normal number of types whose denormals devices flush; 0 for types whose denormals are ordinary values.
fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 | DType::C128 => f64::MIN_POSITIVE,
        DType::F32 | DType::Bf16 | DType::C64 => f64::from(f32::MIN_POSITIVE),
        _ => 0.0,
    }
}

fn name(dtype: Option<DType>) -> &'static str {
    dtype.map_or("other types", DType::name)
}

fn prepend(reason: &mut Box<str>, text: &str) {
    *reason = if reason.is_empty() { text.into() } else { format!("{text}; {reason}").into() };
}

/// Sizes without those of 1, which change no element's place.
fn squeezed(shape: &[u64]) -> Vec<u64> {
    shape.iter().copied().filter(|&size| size != 1).collect()
}

fn relative(distance: f64, norm: f64) -> f64 {
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

/// The bound that statistics prove, with `floor` added to the norm it is relative to.
fn relative_bound(r: &RecordedComparison, floor: f64, baseline: &TensorRecord) -> f64 {
    let bound = r.rel_l2_at_least.unwrap_or(0.0);
    let norm = baseline.statistics.norm.map_or(0.0, f64::abs);
    if floor > 0.0 && bound.is_finite() && norm > 0.0 { bound * norm / (norm + floor) } else { bound }
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
        "non-finite at {} places where the other side is not, or of another kind: baseline {}, candidate {}",
        m.non_finite_mismatch,
        words(&m.baseline),
        words(&m.candidate)
    )
}

/// A scale error common to all elements, which rounding does not make. The slope of candidate over baseline is
/// `cosine |c| / |b|`; for errors without direction it deviates from 1 by about `rel_l2 / sqrt(n)`.
fn systematic(m: &PairMetrics, error: f64, tolerance: DTypeTolerance, explained: f64) -> Option<String> {
    let (cosine, count) = (m.cosine?, m.both_finite as f64);
    if m.baseline.norm <= 0.0 || m.baseline.non_finite() > 0 || m.candidate.non_finite() > 0 {
        return None;
    }
    let deviation = cosine * m.candidate.norm / m.baseline.norm - 1.0;
    let noise = 6.0 * error / count.sqrt();
    let bound = tolerance.slope().max(noise).max(explained);
    (deviation.abs() > bound && count >= 64.0)
        .then(|| format!("all elements are scaled by {:.6}: rounding has no direction", 1.0 + deviation))
}

fn bias_text(dtype: Option<DType>, tolerance: DTypeTolerance) -> String {
    format!("{} default: common scale error <= {:.1e}", name(dtype), tolerance.slope())
}

/// A few elements far off among many that are equal to the bit: damage, not rounding.
fn sparse(m: &PairMetrics, error: f64, tolerance: DTypeTolerance) -> Option<String> {
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

fn sparse_text(dtype: Option<DType>, tolerance: DTypeTolerance) -> String {
    format!(
        "{} default: where at most 1 % of the elements differ, their error <= {:.1e} of the typical magnitude",
        name(dtype),
        tolerance.accumulated
    )
}
