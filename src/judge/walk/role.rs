//! Which role an op has in the spread of error, and whether it may be named at fault.

use super::Walk;
use super::inputs::Inputs;
use super::results::Results;
use crate::dump::{Op, OpKind, Phase, SlotSide};
use crate::judge::candidate::Candidate;
use crate::judge::judged::{Agreement, Difference, JudgedSlot};
use crate::judge::tolerance::GROWTH;
use crate::judge::{Cause, Role};
use crate::measure::{Evidence, Metric};

/// From bounds instead of values, an error ratio is only a hint; this much more is needed to call it amplification.
const BOUND_GROWTH: f64 = 32.0;

impl Walk<'_> {
    /// Role and cause of an op, and the slot that shows it.
    pub(super) fn decide(
        &mut self,
        position: usize,
        op: &Op,
        inputs: &Inputs,
        results: &Results,
    ) -> (Role, Option<Cause>, Option<usize>) {
        let given = self.worst(position, &inputs.judged);
        let result = self.worst(position, &results.judged);
        if let Some(slot) = self.argument(inputs) {
            let shown = result.map_or(slot, |(slot, _)| slot);
            return self.accuse(position, shown, Cause::Argument, Role::Introduces);
        }
        if let Some((slot, difference)) = given
            && !self.diverged
        {
            // Nothing before differs, so this came from outside the recorded ops.
            self.diverged = true;
            let cause = match (op.name.phase(), difference) {
                (Phase::Backward | Phase::ParameterGradient, Difference::NonFinite) => Cause::NonFinite,
                (Phase::Backward | Phase::ParameterGradient, _) => Cause::Gradient,
                _ => Cause::Input,
            };
            // What an op made that the other side does not have is told with that op.
            if !self.is_of_unpaired(position, slot) {
                let arrived = self.side(position, slot) == SlotSide::Input;
                self.candidates.push(Candidate {
                    op: position,
                    slot: Some(slot),
                    cause,
                    arrived,
                    seen: None,
                });
            }
        }
        for (index, slot) in &inputs.judged {
            if !slot.difference.is_fine() {
                match self.side(position, *index) {
                    SlotSide::Parameter => self.tally.foreign_parameters += 1,
                    _ => self.tally.foreign_inputs += 1,
                }
            }
        }
        let Some((slot, difference)) = result else {
            let role = if inputs.agreement.is_fine() { Role::Clean } else { Role::Recovers };
            return (role, None, given.map(|(slot, _)| slot));
        };
        let sharp = self.evidence_of(position, slot).is_some_and(Evidence::is_sharp);
        // Statistics see only part of a difference: once the runs differ, inputs that agree in them prove nothing
        // unless they agree to the last digit.
        let agree =
            inputs.agreement.is_fine() && (sharp || !self.diverged || inputs.agreement == Agreement::Exact);
        let born = difference == Difference::NonFinite && inputs.agreement != Agreement::NonFinite;
        if (agree || born) && (inputs.known || !self.diverged) {
            return self.accuse(position, slot, cause_of(op, difference), Role::Introduces);
        }
        let factor = if sharp { GROWTH } else { BOUND_GROWTH };
        let amplified = match (inputs.error, results.error) {
            (Some(input), Some(output)) => {
                difference == Difference::Numbers
                    && input > 0.0
                    && input.is_finite()
                    && output > factor * input.max(self.carried)
            }
            _ => false,
        };
        if amplified {
            return self.accuse(position, slot, cause_of(op, difference), Role::Amplifies);
        }
        (Role::Propagates, None, Some(slot))
    }

    fn accuse(
        &mut self,
        position: usize,
        slot: usize,
        cause: Cause,
        role: Role,
    ) -> (Role, Option<Cause>, Option<usize>) {
        self.candidates.push(Candidate { op: position, slot: Some(slot), cause, arrived: false, seen: None });
        (role, Some(cause), Some(slot))
    }

    /// The first argument that someone chose differently, where the tensors that go with it agree. A computed value counts
    /// as chosen as long as nothing before it could have made it differ.
    fn argument(&self, inputs: &Inputs) -> Option<usize> {
        let chosen = |difference| match difference {
            Difference::Argument => true,
            Difference::ComputedArgument => !self.diverged,
            _ => false,
        };
        let others_agree =
            inputs.judged.iter().all(|(_, slot)| slot.difference.is_fine() || chosen(slot.difference));
        let (slot, _) = inputs.judged.iter().find(|(_, slot)| chosen(slot.difference))?;
        others_agree.then_some(*slot)
    }

    fn side(&self, position: usize, slot: usize) -> SlotSide {
        let op_pair = &self.pair.ops[position];
        let (b, c) = self.pair.slot(op_pair, op_pair.slots[slot]);
        b.or(c).map_or(SlotSide::Input, |slot| slot.side)
    }

    /// The slot that differs most: non-finite before numbers before the rest, then by error. What could not be read is
    /// reported as such and says nothing about the op.
    fn worst(&self, position: usize, judged: &[(usize, JudgedSlot)]) -> Option<(usize, Difference)> {
        let severity = |index: usize, difference: Difference| {
            let kind = match difference {
                Difference::NonFinite => 4,
                Difference::Numbers => 3,
                Difference::Shape | Difference::DType | Difference::Missing => 2,
                _ => 1,
            };
            let error = self.evidence_of(position, index).and_then(|evidence| evidence.metric(Metric::RelL2));
            (kind, error.unwrap_or(0.0))
        };
        judged
            .iter()
            .filter(|(_, slot)| !slot.difference.is_fine())
            .map(|(index, slot)| (*index, slot.difference))
            .reduce(|best, next| {
                let (a, b) = (severity(best.0, best.1), severity(next.0, next.1));
                if b.0 > a.0 || (b.0 == a.0 && b.1 > a.1) { next } else { best }
            })
    }
}

/// The kind of fault that a difference in a result means.
fn cause_of(op: &Op, difference: Difference) -> Cause {
    let gradient = matches!(op.name.phase(), Phase::Backward | Phase::ParameterGradient)
        || (op.name.kind() == OpKind::Saved && op.name.stem().ends_with("_grad"));
    match difference {
        Difference::NonFinite => Cause::NonFinite,
        Difference::DType => Cause::DType,
        Difference::Shape | Difference::Missing => Cause::Structure,
        Difference::RequiresGrad => Cause::Argument,
        // The tensors of a checkpoint are weights: nothing computed them here.
        _ if op.name.kind() == OpKind::Tensor => Cause::Input,
        _ if gradient => Cause::Gradient,
        _ => Cause::Numerics,
    }
}
