//! What an op was given: its own input slots, and what stands for inputs that were not recorded with it.

use super::{Walk, larger};
use crate::dump::{Op, OpKind, Phase, SlotSide, Task, Value};
use crate::judge::Verdict;
use crate::judge::judged::{Agreement, Difference, JudgedSlot, Led};
use crate::measure::{ChecksumMatch, Evidence};
use crate::pair::Paired;

const DRIFTED: &str = "has drifted since the step before: noise that the optimizer magnifies";

/// What an op was given, judged.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// Position in [`OpPair::slots`](crate::pair::OpPair::slots) and judgement.
    pub(super) judged: Vec<(usize, JudgedSlot)>,
    /// How well they agree, the worst of them.
    pub(super) agreement: Agreement,
    /// Largest error among those that are fine.
    pub(super) explained: f64,
    /// Largest error of tensors that are rounding and nothing else; 0 when there are none.
    pub(super) noise: f64,
    /// Largest error of tensors that have drifted since the step before; 0 when there are none.
    pub(super) drift: f64,
    /// Largest error of all; `None` when no tensor was comparable.
    pub(super) error: Option<f64>,
    /// Some tensor was comparable, here or at an op that led here.
    pub(super) known: bool,
    /// Largest norm of a baseline tensor.
    pub(super) norm: f64,
    /// Largest norm of a difference that is fine.
    pub(super) distance: f64,
}

impl Walk<'_> {
    /// Judges what an op was given; only the first time it is asked for.
    pub(super) fn judge_inputs(&mut self, position: usize) {
        if self.inputs[position].is_some() {
            return;
        }
        let op_pair = &self.pair.ops[position];
        let mut inputs = Inputs::default();
        for (index, &slots) in op_pair.slots.iter().enumerate() {
            let (b, c) = self.pair.slot(op_pair, slots);
            let Some(any) = b.or(c).filter(|slot| !slot.side.is_result()) else { continue };
            let is_tensor = matches!(any.value, Value::Tensor(_));
            let both = if is_tensor { self.norms(position, index) } else { (0.0, 0.0) };
            let norm = both.0;
            let noise = self.noise.get(&norm.to_bits()).copied().filter(|_| norm > 0.0);
            let drift = self.drift.error(norm);
            let accepted = self.accepted.error(both).or_else(|| self.before.error(both));
            // Statistics that were fine as a result's are fine as an input's; an estimate may be of other elements.
            let sharp = self.evidence_of(position, index).is_some_and(Evidence::is_sharp);
            let led_by = |error: f64| if sharp { error.max(self.carried) } else { f64::INFINITY };
            let known = noise.or(drift).or(accepted.map(led_by));
            let (explained, limit) = known.map_or((self.carried, self.limit), |error| (error, f64::INFINITY));
            let flips = drift.is_some() || accepted.is_some();
            let led = Led { explained, limit, flips, ..Led::default() };
            let mut judged = self.judge_slot(position, index, led);
            let fine = judged.difference.is_fine();
            if let Some(error) = drift.filter(|_| fine && !judged.exact) {
                inputs.drift = inputs.drift.max(error);
                // Its noise sits in single elements, and so does what comes of it.
                self.flipped = true;
                judged.judgement.reason = DRIFTED.into();
            }
            if is_tensor || !fine {
                inputs.agreement = inputs.agreement.max(judged.agreement());
            }
            match judged.judgement.error {
                Some(error) if is_tensor => {
                    inputs.known = true;
                    inputs.error = larger(inputs.error, Some(error));
                    inputs.norm = inputs.norm.max(norm);
                    if fine && noise.is_some() {
                        inputs.noise = inputs.noise.max(error);
                    } else if fine {
                        inputs.explained = inputs.explained.max(error);
                        inputs.distance = inputs.distance.max(error * norm);
                    }
                }
                _ => inputs.known |= is_tensor && judged.judgement.verdict != Verdict::Unknown,
            }
            if any.side == SlotSide::Parameter
                && !judged.exact
                && let Some(op) = self.op(position)
            {
                let error = judged.judgement.error.unwrap_or(0.0);
                self.inner_weights.add(&self.nesting, op, (judged.agreement(), error));
            }
            inputs.judged.push((index, judged));
        }
        self.inputs[position] = Some(inputs);
    }

    /// Counts in what else an op depends on: a module on the weights inside it, a backward op on what its forward saw, a
    /// parameter gradient on the gradient that reached its module.
    pub(super) fn add_what_led_here(&mut self, op: &Op, inputs: &mut Inputs) {
        if op.name.kind() == OpKind::Module
            && op.name.phase() == Phase::Forward
            && let Some((agreement, error)) = self.inner_weights.inside(op)
        {
            inputs.agreement = inputs.agreement.max(agreement);
            inputs.error = larger(inputs.error, Some(error));
            if agreement.is_fine() {
                inputs.explained = inputs.explained.max(error);
            }
        }
        if matches!(op.name.phase(), Phase::Backward | Phase::ParameterGradient)
            && let Some(forward) = self.partner(op, Phase::Forward).and_then(|position| self.done[position])
        {
            inputs.known = true;
            inputs.agreement = inputs.agreement.max(forward.inputs).max(forward.results);
            inputs.explained = inputs.explained.max(forward.explained);
            inputs.error = larger(inputs.error, Some(forward.error));
        }
        if op.name.phase() == Phase::ParameterGradient
            && let Some(position) = self.partner(op, Phase::Backward)
        {
            self.add_backward(position, inputs);
        }
    }

    /// Position of the same call in another phase, if both sides have it.
    fn partner(&self, op: &Op, phase: Phase) -> Option<usize> {
        let position = *self.by_name.get(op.name.in_phase(phase)?.as_str())?;
        matches!(self.pair.ops[position].ops, Paired::Both(..)).then_some(position)
    }

    fn add_backward(&mut self, position: usize, inputs: &mut Inputs) {
        if let Some(backward) = self.done[position] {
            inputs.known = true;
            inputs.agreement = inputs.agreement.max(backward.inputs);
            inputs.explained = inputs.explained.max(backward.explained);
            inputs.error = larger(inputs.error, Some(backward.error));
            inputs.norm = inputs.norm.max(backward.norm);
            inputs.distance = inputs.distance.max(backward.distance);
            return;
        }
        // The entry comes later: gradients of parameters are ready before the module's own.
        self.judge_inputs(position);
        if let Some(backward) = &self.inputs[position] {
            inputs.known |= backward.known;
            inputs.agreement = inputs.agreement.max(backward.agreement);
            inputs.explained = inputs.explained.max(backward.explained);
            inputs.noise = inputs.noise.max(backward.noise);
            inputs.error = larger(inputs.error, backward.error);
            inputs.norm = inputs.norm.max(backward.norm);
            inputs.distance = inputs.distance.max(backward.distance);
        }
    }

    /// An input whose checksum alone differs, at an op whose results are all equal, was hashed after something had written
    /// to it: the older tool does so now and then for in-place ops.
    pub(super) fn forgive_late_checksums(&mut self, position: usize, inputs: &mut Inputs) {
        // Hashes of probe's own dumps are taken together with the statistics.
        if [&self.pair.baseline, &self.pair.candidate].iter().any(|side| side.task == Task::Hash) {
            return;
        }
        let late = |evidence: Option<&Evidence>| {
            matches!(evidence, Some(Evidence::Recorded(recorded))
                if recorded.checksum == Some(ChecksumMatch::Different)
                    && recorded.rel_l2_at_least.is_some_and(|error| error <= 0.0))
        };
        let forgivable = |inputs: &Inputs| {
            inputs.judged.iter().all(|(index, slot)| {
                slot.difference.is_fine()
                    || (slot.difference == Difference::Numbers && late(self.evidence_of(position, *index)))
            })
        };
        if inputs.judged.iter().all(|(_, slot)| slot.difference.is_fine()) || !forgivable(inputs) {
            return;
        }
        for (_, slot) in &mut inputs.judged {
            if slot.difference == Difference::Numbers {
                slot.difference = Difference::None;
                slot.judgement.verdict = Verdict::Close;
                slot.judgement.reason =
                    "the hash differs, its statistics and all results of the op agree: taken late".into();
                self.tally.late_checksums += 1;
            }
        }
        inputs.agreement = Agreement::Fine;
    }
}
