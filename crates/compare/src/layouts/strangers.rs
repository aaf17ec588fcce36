//! Calls of one run alone, which split, join or scale what ranks exchange.

use probe_dump::{DType, OpKind, Phase, Slot};
use probe_judge::{Cause, Finding, OpJudgement, SlotJudgement, Verdict};
use probe_layout::Remark;
use probe_pair::{BySlot, OpPair, Paired, PartPair};

use super::mended::is_fault;
use super::{Layouts, values};

/// Roundings that a sum over ranks and what is made of it may differ by: 2.9 were seen in sound pairs in bfloat16, 3.6 where one rank's results
/// were off by 2 %.
const ROUNDINGS: f64 = 3.0;

/// The same for gradients of parameters, which are sums over all tokens, and what optimizers make of them: 17 were seen, in squares of gradients.
const ROUNDINGS_OF_GRADIENTS: f64 = 18.0;

/// Returns true for a call of one run alone after which nothing differs: it splits, joins or scales what ranks exchange.
pub(super) fn is_of_layout(pair: &PartPair, finding: &Finding, judged: &[OpJudgement]) -> bool {
    let alone = pair.ops.get(finding.order).is_some_and(|op| !matches!(op.ops, Paired::Both(..)));
    let follows = |op: &&OpJudgement| op.follows.is_some_and(|at| at.place() == finding.order);
    let differs =
        |op: &OpJudgement| matches!(op.verdict, Verdict::Differs | Verdict::NonFinite | Verdict::Shape);
    alone && finding.cause == Cause::Structure && !judged.iter().filter(follows).any(differs)
}

impl Layouts {
    /// Moves findings on calls of one run alone to the first op behind them that differs by more than rounding, and that is not partial if there
    /// is another; without one, there is no fault.
    pub(super) fn behind_strangers(
        &self,
        pair: &PartPair,
        findings: &mut Vec<Finding>,
        slots: &BySlot<SlotJudgement>,
    ) {
        let unit = unit(pair);
        let is_alone = |place: usize| !matches!(pair.ops[place].ops, Paired::Both(..));
        let first = |from: usize, partial: bool| {
            (from..pair.ops.len()).filter(|&place| !is_alone(place)).find_map(|place| {
                let op = &pair.ops[place];
                let differs = |(at, slots_of): (usize, Paired)| {
                    let judged = slots.at(place, at).filter(|slot| is_fault(slot.verdict))?;
                    let skipped = is_rounding(pair, op, slots_of, (judged, unit))
                        || (!partial && matches!(self.remark(op, slots_of), Some(Remark::Partial(..))));
                    pair.slot(op, slots_of).0.filter(|_| !skipped).map(|slot| (place, slot))
                };
                op.slots.iter().enumerate().find_map(differs)
            })
        };
        findings.retain_mut(|finding| {
            let from = finding.order;
            if finding.cause != Cause::Structure || from >= pair.ops.len() || !is_alone(from) {
                return true;
            }
            let Some((place, slot)) = first(from, false).or_else(|| first(from, true)) else { return false };
            finding.cause = if slot.side.is_result() { Cause::Numerics } else { Cause::Input };
            Self::moved(pair, finding, place, &slot.path);
            finding.reason.clear();
            true
        });
        findings.sort_by_key(|finding| finding.order);
        findings.dedup_by(|next, first| next.order == first.order);
    }
}

/// Returns the rounding unit of the shortest float type that the part's values have: longer ones are made of these.
pub(super) fn unit(pair: &PartPair) -> f64 {
    let slots = pair.baseline.ops.iter().flat_map(|op| &op.slots);
    let floats = slots.filter_map(|slot| slot.value.tensor()?.dtype.known()).filter(|dtype| dtype.is_float());
    let bits = floats.filter_map(DType::mantissa_bits).filter(|bits| *bits > 3).min().unwrap_or(52);
    0.5_f64.powi(i32::try_from(bits).unwrap_or(0) + 1)
}

/// Returns true for an error of some roundings: sums of terms that each rank has rounded.
pub(super) fn is_rounding(
    pair: &PartPair,
    op: &OpPair,
    slots: Paired,
    (judged, unit): (&SlotJudgement, f64),
) -> bool {
    let (Some(b), Some(c)) = pair.slot(op, slots) else { return false };
    let error = judged.error.get().or_else(|| values::distance(pair, b, c));
    let most = if is_of_parameter(pair, op, b) { ROUNDINGS_OF_GRADIENTS } else { ROUNDINGS };
    judged.verdict == Verdict::Differs && error.is_some_and(|error| error <= most * unit)
}

/// Returns true for the gradient of a parameter, and for what is made of it outside of all modules.
fn is_of_parameter(pair: &PartPair, op: &OpPair, slot: &Slot) -> bool {
    let Some(op) = pair.op(op).0 else { return false };
    match op.name.phase() {
        Phase::ParameterGradient => true,
        Phase::Backward => {
            slot.side.is_result() && op.name.kind() == OpKind::Api && &*slot.path != "output.0"
        }
        _ => {
            op.parent
                .as_deref()
                .map_or(op.name.kind() == OpKind::Api, |parent| parent.starts_with("Optimizer."))
                || op.name.as_str().starts_with("Optimizer.")
        }
    }
}
