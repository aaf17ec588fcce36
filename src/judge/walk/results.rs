//! What an op made of its inputs, and how much error of it the inputs explain.

use super::inputs::Inputs;
use super::{FirstInexact, Walk, larger};
use crate::dump::{Op, OpKind, Phase};
use crate::judge::Verdict;
use crate::judge::judged::{Agreement, JudgedSlot, Led};
use crate::judge::tolerance::GROWTH;

/// Rounding error of a sum relative to the norm of what is summed, in units of 2^-24: accumulation is done in float32
/// at least, in some order that the two sides do not share. Measured: up to 7 for gradients that cancel.
const SUM_ROUNDING: f64 = 16.0 / 16_777_216.0;

/// Ops whose result jumps where two values are nearly equal or one is nearly 0: rounding flips a choice, and the flipped
/// elements are off by their whole magnitude.
const CHOOSING: [&str; 24] = [
    "relu",
    "pool",
    "max",
    "min",
    "topk",
    "sort",
    "median",
    "mode",
    "clamp",
    "clip",
    "where",
    "abs",
    "sign",
    "round",
    "floor",
    "ceil",
    "hard",
    "threshold",
    "prelu",
    "shrink",
    "quantile",
    "unique",
    "nearest",
    "searchsorted",
];

/// What an op produced, judged.
#[derive(Debug)]
pub(super) struct Results {
    /// Position in [`OpPair::slots`](crate::pair::OpPair::slots) and judgement.
    pub(super) judged: Vec<(usize, JudgedSlot)>,
    /// How well they agree, the worst of them.
    pub(super) agreement: Agreement,
    /// Largest error; `None` when nothing was comparable.
    pub(super) error: Option<f64>,
}

impl Walk<'_> {
    /// Judges the results of an op in the light of its inputs.
    pub(super) fn judge_results(&mut self, position: usize, op: &Op, inputs: &Inputs) -> Results {
        let op_pair = &self.pair.ops[position];
        let mut results = Results { judged: Vec::new(), agreement: Agreement::Exact, error: None };
        let is_result = |index: &usize| {
            let (b, c) = self.pair.slot(op_pair, op_pair.slots[*index]);
            b.or(c).is_some_and(|slot| slot.side.is_result())
        };
        let slots: Vec<usize> = (0..op_pair.slots.len()).filter(is_result).collect();
        let scale = slots.iter().map(|&slot| self.norm(position, slot)).fold(inputs.norm, f64::max);
        for slot in slots {
            let norm = self.norm(position, slot);
            let cancellation = self.cancellation(op, norm, scale, inputs);
            let led = Led { cancellation, ..self.explained(position, op, slot, inputs) };
            let judged = self.judge_slot(position, slot, led);
            let fine = judged.difference.is_fine();
            if judged.judgement.verdict != Verdict::Unknown {
                results.agreement = results.agreement.max(judged.agreement());
            }
            if let Some(error) = judged.judgement.error {
                results.error = larger(results.error, Some(error));
                if fine && error > 0.0 {
                    self.accepted.add(self.norms(position, slot), error);
                }
                if fine && (cancellation > 0.0 || inputs.noise > 0.0) && error > 0.0 {
                    // Its relative error says nothing; whoever reads it next must know.
                    let raw = self.raw_error(position, slot).max(error).max(inputs.noise);
                    self.noise.insert(norm.to_bits(), raw);
                } else if fine {
                    self.carried = self.carried.max(error);
                    if error > self.limit {
                        self.limit = 2.0 * error;
                        self.flipped = true;
                    }
                }
            }
            results.judged.push((slot, judged));
        }
        results
    }

    /// Error of the inputs that explains error of a result, and up to where.
    fn explained(&self, position: usize, op: &Op, slot: usize, inputs: &Inputs) -> Led {
        // The tensors of a checkpoint do not follow from one another: a neighbour explains nothing.
        if op.name.kind() == OpKind::Tensor {
            return Led::default();
        }
        if inputs.noise > 0.0 {
            let given = inputs.noise.max(inputs.explained);
            let explained = (given * self.magnification(position, op, slot)).min(1.0).max(given);
            return Led { explained, limit: f64::INFINITY, flips: explained > given, ..Led::default() };
        }
        let explained = if inputs.known { inputs.explained } else { self.carried };
        if explained > 0.0 && CHOOSING.iter().any(|word| op.name.api().contains(word)) {
            // A share of about `explained` of the elements flips, which is its root in l2.
            let flipped = explained.sqrt() / 2.0;
            let limit = self.limit.max(flipped * GROWTH).min(1.0);
            return Led { explained: flipped.max(explained), limit, flips: true, ..Led::default() };
        }
        let limit = self.limit.max(GROWTH * inputs.drift);
        let magnified = explained * self.magnification(position, op, slot);
        if explained > 0.0 && magnified > explained {
            // Noise in the smallest divisors may fill whole elements of the quotient.
            let explained = magnified.min(1.0);
            let limit = limit.max((explained * GROWTH).min(1.0));
            return Led { explained, limit, flips: true, ..Led::default() };
        }
        Led { explained, limit, ..Led::default() }
    }

    fn raw_error(&self, position: usize, slot: usize) -> f64 {
        let error = self
            .evidence_of(position, slot)
            .and_then(|evidence| evidence.metric(crate::measure::Metric::RelL2));
        error.filter(|error| error.is_finite()).unwrap_or(0.0)
    }

    /// Norm that rounding may reach in a result that is nearly cancelled: a sum whose value is far below its terms.
    /// Gradients of a bias in front of a normalisation are zero in exact arithmetic, and pure noise in any other.
    fn cancellation(&self, op: &Op, norm: f64, scale: f64, inputs: &Inputs) -> f64 {
        let summing = matches!(op.name.phase(), Phase::Backward | Phase::ParameterGradient)
            || matches!(op.name.api().trim_matches('_'), "add" | "sub" | "radd" | "rsub" | "iadd" | "isub");
        let Some(coarse) = self.setting.coarsest.filter(|_| summing) else { return 0.0 };
        let tiny = norm < coarse.rel_l2 * scale;
        if tiny { 2.0 * inputs.distance + SUM_ROUNDING * scale } else { 0.0 }
    }

    /// Remembers the first op that is not equal to the bit.
    pub(super) fn note_exactness(&mut self, position: usize, inputs: &Inputs, results: &Results) {
        if self.first_inexact.is_some() {
            return;
        }
        if results.agreement == Agreement::Exact && inputs.agreement == Agreement::Exact {
            self.exact_ops += 1;
        } else {
            let origin = (inputs.agreement == Agreement::Exact).then_some(position);
            self.first_inexact = Some(FirstInexact { origin, exact_before: self.exact_ops });
        }
    }
}
