//! The verdict of two tensors by what was recorded of them: checksums, sketches, statistics.
//!
//! An estimate may be off by [`SKETCH_MARGIN`] and says nothing below [`SKETCH_NOISE`]. A tensor is called different only where
//! it would still be with the estimate off by that much; what lies between the bound and there is `close`.

use super::Verdict;
use super::judged::{Difference, JudgedSlot, verdict};
use super::pattern::{bias_text, sparse_estimate, sparse_text, systematic_norm};
use super::rulebook::RuleKey;
use super::tensor::{DENORMAL, NEAR_ZERO, TensorJudge, ZERO_FLOOR, relative, smallest_normal};
use super::tolerance::{DTypeTolerance, GROWTH};
use crate::dump::{Counts, DType, TensorRecord};
use crate::measure::{ChecksumMatch, RecordedComparison, SKETCH_MARGIN, SKETCH_NOISE, SketchEstimate};

impl TensorJudge<'_> {
    /// Differences that no device promises to reproduce, by what the statistics show of the elements.
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

    /// Judges by checksums, sketches and statistics, in this order.
    pub(super) fn by_record(&mut self, r: &RecordedComparison) -> JudgedSlot {
        if let Some((b, c)) = &r.counts_differ {
            let reason =
                format!("non-finite elements: baseline {}, candidate {}", count_words(b), count_words(c));
            return verdict(Verdict::NonFinite, Difference::NonFinite, &reason).error(f64::INFINITY);
        }
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
        let estimate = match r.sketch.map(|sketch| self.by_sketch(sketch, tolerance)) {
            Some(Err(differs)) => return differs,
            Some(Ok(estimate)) => Some(estimate),
            None => None,
        };
        // Statistics see little of the error of what led here, so it explains more than its bound says: what a run in a
        // coarser type can have made of it.
        let blind = r.sketch.is_none() && self.context.led.explained > 0.0;
        let tolerance =
            self.context.coarsest.filter(|_| blind).map_or(tolerance, |coarse| tolerance.coarser(coarse));
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
        let Some(estimate) = estimate else {
            let rule = self.rule_for(error, tolerance.statistic(), tolerance);
            return verdict(Verdict::Close, Difference::None, "").error(error).rule(rule);
        };
        let reason = if estimate.is_unsure {
            "at the bound, within the uncertainty of the estimate"
        } else if differing_bits && r.sketch.is_some_and(|sketch| !sketch.is_resolved()) {
            "the bits differ, by less than a sketch resolves"
        } else {
            ""
        };
        let rule = self.rule_for(estimate.error, tolerance.rel_l2, tolerance);
        verdict(Verdict::Close, Difference::None, reason).error(estimate.error.max(error)).rule(rule)
    }

    /// Judges the error that sketches estimate: `Err` when it is beyond what is allowed, whatever the uncertainty.
    fn by_sketch(
        &mut self,
        sketch: SketchEstimate,
        tolerance: DTypeTolerance,
    ) -> Result<JudgedEstimate, JudgedSlot> {
        let led = self.context.led;
        let norm = self.baseline.statistics.norm.map_or(0.0, f64::abs);
        let error = relative(sketch.distance, norm + led.cancellation / tolerance.rel_l2);
        let allowed = self.allowed(tolerance.rel_l2, tolerance);
        if error > (SKETCH_MARGIN * allowed).max(SKETCH_NOISE) {
            return Err(self.beyond(error, allowed, tolerance, "rel_l2 ≈"));
        }
        if sketch.is_resolved() {
            let dtype = self.dtype();
            let pair = (self.baseline, self.candidate);
            if let Some(reason) = systematic_norm(pair, sketch, tolerance, led.explained) {
                let rule = self.book.index(RuleKey::Bias(dtype), || bias_text(dtype, tolerance));
                return Err(verdict(Verdict::Differs, Difference::Numbers, &reason).error(error).rule(rule));
            }
            if !led.flips
                && error > GROWTH * led.explained
                && let Some(reason) = sparse_estimate(self.baseline.len(), sketch, error, tolerance)
            {
                let rule = self.book.index(RuleKey::Sparse(dtype), || sparse_text(dtype, tolerance));
                return Err(verdict(Verdict::Differs, Difference::Numbers, &reason).error(error).rule(rule));
            }
        }
        Ok(JudgedEstimate { error, is_unsure: error > allowed && sketch.is_resolved() })
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
        if let Some(sketch) = r.sketch.filter(|sketch| sketch.distance > 0.0) {
            // Elements of an exact type that differ do so by 1 at least, so their number is at most the squared distance;
            // where values are large, by about their own magnitude.
            let squared = sketch.distance * sketch.distance;
            let share =
                (squared / self.baseline.len().max(1) as f64).min(sketch.rel_l2 * sketch.rel_l2 / 2.0);
            let reason = format!("elements differ, about 1 in {:.0} by the sketch", 1.0 / share.min(1.0));
            if self.context.led.explained > 0.0 && SKETCH_MARGIN * share <= 1e-3 {
                return verdict(Verdict::Close, Difference::None, &reason).error(share).rule(rule);
            }
            let error = sketch.rel_l2.max(share);
            return verdict(Verdict::Differs, Difference::Numbers, &reason).error(error).rule(rule);
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
}

/// An estimated error that is not beyond what is allowed.
struct JudgedEstimate {
    error: f64,
    /// The bound lies within the uncertainty of the estimate.
    is_unsure: bool,
}

fn count_words(counts: &Counts) -> String {
    let words = [(counts.nan, "NaN"), (counts.positive_infinite, "+Inf"), (counts.negative_infinite, "-Inf")];
    let parts: Vec<String> =
        words.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// The bound that statistics prove, with `floor` added to the norm it is relative to.
fn relative_bound(r: &RecordedComparison, floor: f64, baseline: &TensorRecord) -> f64 {
    let bound = r.rel_l2_at_least.unwrap_or(0.0);
    let norm = baseline.statistics.norm.map_or(0.0, f64::abs);
    if floor > 0.0 && bound.is_finite() && norm > 0.0 { bound * norm / (norm + floor) } else { bound }
}
