//! Values that are still to be reduced: where they were made, and over which ranks.

use std::collections::BTreeSet;

use probe_dump::{OpName, Phase, Slot, SlotSide};
use probe_judge::{Cause, Finding, ReferenceErrors, Role};
use probe_layout::{Among, Remark};
use probe_measure::ALL_METRICS;
use probe_pair::{OpPair, PartPair, value_key};

use super::{Layouts, in_words};

impl Layouts {
    /// Returns slot and remark of a value of an op that is still partial.
    pub(super) fn partial_of<'p>(
        &'p self,
        pair: &'p PartPair,
        order: usize,
        wanted: impl Fn(SlotSide) -> bool,
    ) -> Option<(&'p Slot, Vec<u32>, Among)> {
        self.partials_of(pair, order).find(|(slot, ..)| wanted(slot.side))
    }

    /// Returns the values of an op that are still partial.
    fn partials_of<'p>(
        &'p self,
        pair: &'p PartPair,
        order: usize,
    ) -> impl Iterator<Item = (&'p Slot, Vec<u32>, Among)> {
        let op = pair.ops.get(order);
        let slots = op.into_iter().flat_map(|op| op.slots.iter().map(move |slots| (op, slots)));
        slots.filter_map(|(op, slots)| {
            let (b, c) = pair.slot(op, slots);
            let slot = if self.of_baseline { b? } else { c? };
            match self.remark(op, slots)? {
                // The term of a mean that each data-parallel rank's loss is stays one.
                Remark::Partial(_, Among::Sum(share)) if *share > 1 && is_scalar(slot) => None,
                Remark::Partial(ranks, among) => Some((slot, ranks.clone(), *among)),
                _ => None,
            }
        })
    }

    /// Returns a finding on the first gradient that an optimizer reads before it is reduced. Its update may be too small to show in the parameter.
    pub(super) fn unreduced_update(&self, pair: &PartPair) -> Option<Finding> {
        let steps =
            (0..pair.ops.len()).filter(|&place| pair.name(&pair.ops[place]).starts_with("Optimizer."));
        let of_gradient = |slot: &Slot| slot.path.starts_with("input.grad.");
        let (order, slot) = steps.into_iter().find_map(|place| {
            let (slot, ..) = self.partials_of(pair, place).find(|(slot, ..)| of_gradient(slot))?;
            Some((place, slot))
        })?;
        let mut finding = finding(pair, order, slot, Cause::Gradient);
        finding.reason = self.unreduced(pair, &mut finding, true)?;
        Some(finding)
    }

    /// Finds the partial value that an op at fault reads, or that is the nearest before it, and moves the finding to the op that made it.
    pub(super) fn unreduced(&self, pair: &PartPair, finding: &mut Finding, is_first: bool) -> Option<String> {
        let phase = OpName::parse(&finding.op).phase();
        let read = self.partial_of(pair, finding.order, |side| !side.is_result());
        let key = read.as_ref().and_then(|(slot, ..)| value_key(slot.value.tensor()?));
        // What follows from another fault may come after a partial value that has nothing to do with it.
        if key.is_none() && !is_first {
            return None;
        }
        let reduced = self.reduced_values(pair);
        let own = |slot: &Slot| slot.value.tensor().and_then(value_key);
        let results = |order: usize| self.partials_of(pair, order).filter(|(slot, ..)| slot.side.is_result());
        let made = (0..=finding.order).rev().find_map(|order| {
            let fits = |slot: &Slot| {
                if key.is_some() {
                    return own(slot) == key;
                }
                own(slot).is_none_or(|own| !reduced.contains(&own))
                    && op_phase(pair, &pair.ops[order]) == phase
            };
            let (slot, ranks, among) = results(order).find(|(slot, ..)| fits(slot))?;
            Some((order, slot, ranks, among))
        });
        let (order, slot, ranks, among) = match (made, read) {
            (Some(made), _) => made,
            (None, Some((slot, ranks, among))) => (finding.order, slot, ranks, among),
            (None, None) => return None,
        };
        // Of the ops that show the same value, the innermost made it.
        let key = own(slot);
        let first = (0..=order).find_map(|place| {
            let (slot, ..) = results(place).find(|(slot, ..)| key.is_some() && own(slot) == key)?;
            Some((place, slot))
        });
        let (order, slot) = first.unwrap_or((order, slot));
        Self::moved(pair, finding, order, &slot.path);
        Some(self.missing(&finding.op, slot, &ranks, among))
    }

    /// Returns the baseline's values that the run on many ranks holds whole somewhere.
    fn reduced_values(&self, pair: &PartPair) -> BTreeSet<u64> {
        let mut whole = BTreeSet::new();
        for op in &pair.ops {
            for slots in op.slots.iter() {
                let partial = matches!(self.remark(op, slots), Some(Remark::Partial(..)));
                if let ((Some(b), Some(_)), false) = (pair.slot(op, slots), partial)
                    && let Some(key) = b.value.tensor().and_then(value_key)
                {
                    whole.insert(key);
                }
            }
        }
        whole
    }

    /// Returns the words for ranks that hold one value instead of different shards.
    pub(super) fn alike(&self, ranks: &[u32]) -> String {
        let over = self.group(ranks);
        format!(
            "{} hold the same value, expected different shards: reduced over {over}, another group",
            in_words(ranks)
        )
    }

    /// Returns the name of the group of these ranks, or their numbers. One rank recorded its groups; those of other ranks are as far apart.
    fn group(&self, ranks: &[u32]) -> String {
        let alike = |members: &[u32]| {
            let mut pairs = members.iter().zip(ranks).map(|(a, b)| a.wrapping_sub(*b));
            let first = pairs.next();
            members.len() == ranks.len() && pairs.all(|by| Some(by) == first)
        };
        let group = self.groups.iter().find(|(_, members)| *members == ranks);
        let group = group.or_else(|| self.groups.iter().find(|(_, members)| alike(members)));
        group.map_or_else(|| in_words(ranks), |(name, _)| name.clone())
    }

    fn missing(&self, op: &str, slot: &Slot, ranks: &[u32], among: Among) -> String {
        let over = self.group(ranks);
        let name = OpName::parse(op);
        let subject = match (name.phase(), name.module_path(), slot.path.strip_prefix("grad.")) {
            (Phase::ParameterGradient, Some(module), Some(parameter)) => {
                format!("gradient of {module}.{parameter}")
            }
            (Phase::Backward | Phase::ParameterGradient, ..) => format!("gradient {}", slot.path),
            _ => slot.path.to_string(),
        };
        let (term, by) = match among {
            Among::Sum(share) if share > 1 => ("its own term of a mean", ""),
            Among::Sum(_) | Among::Replicas => ("a partial sum", ""),
            Among::Max => ("the maximum of its own part", " (of maxima)"),
            Among::Min => ("the minimum of its own part", " (of minima)"),
        };
        let ranks = in_words(ranks);
        format!("{subject}: each of {ranks} holds {term}; the all-reduce{by} over {over} is missing")
    }
}

/// Returns a finding on a value, without a reason.
pub(super) fn finding(pair: &PartPair, order: usize, slot: &Slot, cause: Cause) -> Finding {
    Finding {
        step: pair.step,
        rank: pair.rank,
        order,
        op: pair.name(&pair.ops[order]).to_owned(),
        slot: slot.path.to_string(),
        cause,
        role: Role::Introduces,
        metrics: ALL_METRICS.map(|metric| (metric, None)),
        basis: None,
        reference: ReferenceErrors::default(),
        place: None,
        reason: String::new(),
        followers: 0,
        stack: Vec::new(),
        source: None,
        module: OpName::parse(pair.name(&pair.ops[order])).module_path().map(str::to_owned),
        below: Vec::new(),
        caller: None,
        collectives: 0,
    }
}

fn is_scalar(slot: &Slot) -> bool {
    slot.value.tensor().is_some_and(|record| record.shape.is_empty())
}

pub(super) fn op_phase(pair: &PartPair, op: &OpPair) -> Phase {
    OpName::parse(pair.name(op)).phase()
}
