//! Values that are still to be reduced: where they were made, and over which ranks.

use std::collections::BTreeSet;

use probe_dump::{Dump, OpKind, OpName, Phase, Slot, SlotSide};
use probe_judge::{Cause, Finding, ReferenceErrors, Role, SlotJudgement};
use probe_layout::{Among, HeldTerms, Holding, Remark};
use probe_measure::ALL_METRICS;
use probe_pair::{BySlot, OpPair, Paired, PartPair, value_key};

use super::mended::{is_fault, is_update};
use super::{Layouts, Said, groups, in_words};

/// Ranks of groups, by name.
pub(super) type Groups = Vec<(String, Vec<u32>)>;

/// What the ranks of the other run hold terms of, if that is spread too and was made one rank.
#[derive(Debug, Default)]
pub(super) struct Terms {
    held: HeldTerms,
    groups: Groups,
}

impl Terms {
    pub(super) fn of(held: HeldTerms, dump: &Dump) -> Self {
        Self { held, groups: groups(dump) }
    }
}

/// A value that is still to be reduced.
pub(super) struct Partial<'p> {
    /// Of the run that holds the terms.
    slot: &'p Slot,
    /// The same of the other run, which holds their sum.
    other: Option<&'p Slot>,
    ranks: &'p [u32],
    among: Among,
    groups: &'p Groups,
}

impl Partial<'_> {
    pub(super) fn key(&self) -> Option<u64> {
        value_key(self.slot.value.tensor()?)
    }

    /// Returns true if some of these values is the sum, or maximum, as either run holds it.
    fn is_among(&self, values: &BTreeSet<u64>) -> bool {
        let sum = self.other.and_then(|other| value_key(other.value.tensor()?));
        self.key().into_iter().chain(sum).any(|key| values.contains(&key))
    }
}

impl Layouts {
    /// Returns a value of an op that is still partial.
    pub(super) fn partial_of<'p>(
        &'p self,
        pair: &'p PartPair,
        order: usize,
        wanted: impl Fn(SlotSide) -> bool,
    ) -> Option<Partial<'p>> {
        self.partials_of(pair, order).find(|partial| wanted(partial.slot.side))
    }

    /// Returns the values of an op that are still partial.
    fn partials_of<'p>(&'p self, pair: &'p PartPair, order: usize) -> impl Iterator<Item = Partial<'p>> {
        let op = pair.ops.get(order);
        let slots = op.into_iter().flat_map(|op| op.slots.iter().map(move |slots| (op, slots)));
        slots.filter_map(|(op, slots)| {
            let (b, c) = pair.slot(op, slots);
            let (slot, other) = if self.of_baseline { (b?, c) } else { (c?, b) };
            match self.remark(op, slots) {
                // The term of a mean that each data-parallel rank's loss is stays one.
                Some(Remark::Partial(_, Among::Sum(share))) if *share > 1 && is_scalar(slot) => None,
                Some(Remark::Partial(ranks, among)) => {
                    Some(Partial { slot, other, ranks, among: *among, groups: &self.groups })
                }
                _ => self.term_of(pair, op, slots),
            }
        })
    }

    /// Returns what a module returns of which the ranks of the run that was made one hold terms: it should be whole. What is called in a module may
    /// be reduced later.
    fn term_of<'p>(&'p self, pair: &'p PartPair, op: &OpPair, slots: Paired) -> Option<Partial<'p>> {
        let (b, c) = pair.op(op);
        let name = &if self.of_baseline { c? } else { b? }.name;
        let returned = name.kind() == OpKind::Module && name.phase() == Phase::Forward;
        self.held_terms(pair, op, slots).filter(|partial| returned && partial.slot.side.is_result())
    }

    /// Returns a value of which the ranks of the run that was made one hold terms.
    fn held_terms<'p>(&'p self, pair: &'p PartPair, op: &OpPair, slots: Paired) -> Option<Partial<'p>> {
        let ((b, c), (of_b, of_c)) = (pair.slot(op, slots), pair.op(op));
        let (slot, op, other) = if self.of_baseline { (c?, of_c?, b) } else { (b?, of_b?, c) };
        let (ranks, among) = self.terms.held.get(&(op.name.as_str().into(), slot.path.as_ref().into()))?;
        Some(Partial { slot, other, ranks, among: *among, groups: &self.terms.groups })
    }

    /// Returns a finding on the first gradient that an optimizer reads before it is reduced. Its update may be too small to show in the parameter.
    pub(super) fn unreduced_update(
        &self,
        pair: &PartPair,
        judged: &BySlot<SlotJudgement>,
    ) -> Option<Finding> {
        let steps =
            (0..pair.ops.len()).filter(|&place| pair.name(&pair.ops[place]).starts_with("Optimizer."));
        let of_gradient = |slot: &Slot| slot.path.starts_with("input.grad.");
        let (order, slot) = steps.into_iter().find_map(|place| {
            let found = self.partials_of(pair, place).find(|partial| of_gradient(partial.slot))?;
            Some((place, found.slot))
        })?;
        let mut finding = finding(pair, order, slot, Cause::Layout);
        finding.reason = self.unreduced(pair, (&mut finding, true), judged)?.into_words();
        Some(finding)
    }

    /// Finds the partial value that an op at fault reads, or that is the nearest before it, and moves the finding to the op that made it.
    pub(super) fn unreduced(
        &self,
        pair: &PartPair,
        (finding, is_first): (&mut Finding, bool),
        judged: &BySlot<SlotJudgement>,
    ) -> Option<Said> {
        let phase = OpName::parse(&finding.op).phase();
        let read = self.partial_of(pair, finding.order, |side| !side.is_result());
        let key = read.as_ref().and_then(Partial::key);
        // What follows from another fault may come after a partial value that has nothing to do with it.
        if key.is_none() && !is_first {
            return None;
        }
        let results =
            |order: usize| self.partials_of(pair, order).filter(|partial| partial.slot.side.is_result());
        let made = |reduced: &dyn Fn(&Partial<'_>) -> bool| {
            (0..=finding.order).rev().find_map(|order| {
                let fits = |partial: &Partial<'_>| {
                    if key.is_some() {
                        return partial.key() == key;
                    }
                    !reduced(partial) && op_phase(pair, &pair.ops[order]) == phase
                };
                Some((order, results(order).find(fits)?))
            })
        };
        // In coarse types a reader of what was not reduced may seem to hold it whole: the baseline's values are surer.
        let [of_both, of_baseline] = self.reduced_values(pair, judged);
        let made = made(&|partial| partial.is_among(&of_both))
            .or_else(|| made(&|partial| partial.key().is_some_and(|own| of_baseline.contains(&own))));
        let (order, partial) = made.or_else(|| Some((finding.order, read?)))?;
        // Of the ops that show the same value, the innermost made it.
        let key = partial.key();
        let first = (0..=order).find_map(|place| {
            let found = results(place).find(|found| key.is_some() && found.key() == key)?;
            Some((place, found.slot))
        });
        let (order, slot) = first.unwrap_or((order, partial.slot));
        let told = self.accumulated(pair, order).or_else(|| self.read_by_optimizer(pair, order, key));
        let (order, slot) = told.unwrap_or((order, slot));
        Self::moved(pair, finding, order, &slot.path);
        let differs = self.are_wrong_terms(pair, (order, &slot.path), judged);
        Some(missing(&finding.op, slot, &partial, differs))
    }

    /// Returns true if a value was made of the ranks' terms, and differs all the same.
    fn are_wrong_terms(
        &self,
        pair: &PartPair,
        (order, path): (usize, &str),
        judged: &BySlot<SlotJudgement>,
    ) -> bool {
        let op = &pair.ops[order];
        op.slots.iter().enumerate().any(|(at, slots)| {
            let (b, c) = pair.slot(op, slots);
            let is_own = b.or(c).is_some_and(|held| &*held.path == path);
            let spread = self.place(op, slots).filter(|_| is_own).and_then(|place| self.spread.get(&place));
            spread.is_some_and(|of| of.pieces.iter().all(|piece| matches!(piece.holding, Holding::Term(_))))
                && judged.at(order, at).is_some_and(|slot| is_fault(slot.verdict))
        })
    }

    /// Returns the gradient of a parameter that an op of the backward pass adds to those of other micro-batches, if all that it reads is partial: the
    /// parameter tells more than the sum.
    fn accumulated<'p>(&'p self, pair: &'p PartPair, order: usize) -> Option<(usize, &'p Slot)> {
        let is_addition = op_phase(pair, &pair.ops[order]) == Phase::Backward
            && OpName::parse(pair.name(&pair.ops[order])).kind() == OpKind::Api;
        let tensors = pair.ops[order].slots.iter().filter_map(|slots| pair.slot(&pair.ops[order], slots).0);
        let count = tensors.filter(|slot| !slot.side.is_result() && slot.value.tensor().is_some()).count();
        let read: Vec<Partial<'_>> =
            self.partials_of(pair, order).filter(|partial| !partial.slot.side.is_result()).collect();
        if !is_addition || read.is_empty() || read.len() != count {
            return None;
        }
        let keys: Vec<u64> = read.iter().filter_map(Partial::key).collect();
        let of_parameter = |place: &usize| op_phase(pair, &pair.ops[*place]) == Phase::ParameterGradient;
        (0..order).filter(of_parameter).find_map(|place| {
            let found = self
                .partials_of(pair, place)
                .find(|found| found.key().is_some_and(|key| keys.contains(&key)));
            Some((place, found?.slot))
        })
    }

    /// Returns the gradient that an optimizer reads, by the name of its parameter, of a call in its step that reads it.
    fn read_by_optimizer<'p>(
        &'p self,
        pair: &'p PartPair,
        order: usize,
        key: Option<u64>,
    ) -> Option<(usize, &'p Slot)> {
        let step = |place: &usize| pair.name(&pair.ops[*place]).starts_with("Optimizer.");
        if key.is_none() || step(&order) || !is_update(pair, &pair.ops[order]) {
            return None;
        }
        (0..pair.ops.len()).filter(step).find_map(|place| {
            let read =
                |partial: &Partial<'_>| partial.slot.path.starts_with("input.grad.") && partial.key() == key;
            Some((place, self.partials_of(pair, place).find(read)?.slot))
        })
    }

    /// Returns the values that either run holds whole somewhere, where they do not differ, and those that the baseline does: terms of these are added
    /// up behind them. So are the gradients of each micro-batch if an optimizer reads the right one of their parameter.
    fn reduced_values(&self, pair: &PartPair, judged: &BySlot<SlotJudgement>) -> [BTreeSet<u64>; 2] {
        let [mut whole, mut of_baseline] = [const { BTreeSet::new() }; 2];
        let mut read: BTreeSet<String> = BTreeSet::new();
        let mut gradients: Vec<(String, u64)> = Vec::new();
        for (place, op) in pair.ops.iter().enumerate() {
            for (at, slots) in op.slots.iter().enumerate() {
                let differs = judged.at(place, at).is_some_and(|slot| is_fault(slot.verdict));
                let partial = differs
                    || matches!(self.remark(op, slots), Some(Remark::Partial(..)))
                    || self.held_terms(pair, op, slots).is_some();
                let (Some(b), Some(c)) = pair.slot(op, slots) else { continue };
                let key = |slot: &Slot| slot.value.tensor().and_then(value_key);
                if !partial {
                    of_baseline.extend(key(b));
                    whole.extend([key(b), key(c)].into_iter().flatten());
                    read.extend(b.path.strip_prefix("input.grad.").map(str::to_owned));
                }
                let name = OpName::parse(pair.name(op));
                let of = name.module_path().filter(|_| name.phase() == Phase::ParameterGradient);
                let named =
                    of.zip(b.path.strip_prefix("grad.")).map(|(module, own)| format!("{module}.{own}"));
                gradients.extend(
                    [key(b), key(c)].into_iter().flatten().filter_map(|key| Some((named.clone()?, key))),
                );
            }
        }
        for (_, key) in gradients.into_iter().filter(|(name, _)| read.contains(name)) {
            whole.insert(key);
            of_baseline.insert(key);
        }
        [whole, of_baseline]
    }

    /// Returns the words for ranks that hold one value instead of different shards.
    pub(super) fn alike(&self, ranks: &[u32]) -> String {
        let over = group(&self.groups, ranks);
        format!(
            "{} hold the same value, expected different shards: reduced over {over}, another group",
            in_words(ranks)
        )
    }
}

/// Returns the name of the group of these ranks, or their numbers. One rank recorded its groups; those of other ranks are as far apart. Of several
/// groups of the same ranks, an axis has the shortest name: products of axes (`TENSOR_AND_CONTEXT_PARALLEL_GROUP`) are the axis if the others have one rank.
pub(super) fn group(groups: &Groups, ranks: &[u32]) -> String {
    let alike = |members: &[u32]| {
        let mut pairs = members.iter().zip(ranks).map(|(a, b)| a.wrapping_sub(*b));
        let first = pairs.next();
        members.len() == ranks.len() && pairs.all(|by| Some(by) == first)
    };
    let shortest = |fits: &dyn Fn(&[u32]) -> bool| {
        groups.iter().filter(|(_, members)| fits(members)).min_by_key(|(name, _)| name.len())
    };
    let found = shortest(&|members| members == ranks).or_else(|| shortest(&alike));
    found.map_or_else(|| in_words(ranks), |(name, _)| name.clone())
}

/// Returns the words for a value that is still to be reduced. If what the ranks hold makes another value than it should, that is what is wrong: nothing
/// tells which term, for the other run has none of them.
fn missing(op: &str, slot: &Slot, partial: &Partial<'_>, differs: bool) -> Said {
    let over = group(partial.groups, partial.ranks);
    let name = OpName::parse(op);
    let subject = match (name.phase(), name.module_path(), slot.path.strip_prefix("grad.")) {
        (Phase::ParameterGradient, Some(module), Some(parameter)) => {
            format!("gradient of {module}.{parameter}")
        }
        (Phase::Backward | Phase::ParameterGradient, ..) => format!("gradient {}", slot.path),
        _ => slot.path.to_string(),
    };
    // Means are those of a batch; tensor-parallel ranks add up, and in a data-parallel run that holds the mean already.
    let adds_up = ["tp", "TENSOR_MODEL_PARALLEL_GROUP"].contains(&over.as_str());
    let (term, by) = match partial.among {
        Among::Sum(share) if share > 1 && !adds_up => ("its own term of a mean", ""),
        Among::Sum(_) | Among::Replicas => ("a partial sum", ""),
        Among::Max => ("the maximum of its own part", " (of maxima)"),
        Among::Min => ("the minimum of its own part", " (of minima)"),
    };
    let ranks = in_words(partial.ranks);
    if differs && name.phase() == Phase::Forward {
        return Said::OfRank(format!(
            "{subject}: the terms of {ranks} do not make the other run's value: at least one is wrong"
        ));
    }
    Said::Layout(format!(
        "{subject}: each of {ranks} holds {term}; the all-reduce{by} over {over} is missing"
    ))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use probe_dump::{Checksum, DType, Op, RecordedDType, TensorRecord, Value};
    use probe_judge::Verdict;
    use probe_pair::SlotPairs;

    use super::super::strangers::tests::part;
    use super::*;

    #[test]
    fn of_groups_of_the_same_ranks_the_axis_is_named() {
        let groups: Groups = [
            ("MODEL_PARALLEL_GROUP", 0..2),
            ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", 0..2),
            ("tp", 0..2),
            ("dp", 0..4),
        ]
        .map(|(name, ranks)| (name.to_owned(), ranks.collect()))
        .into();
        assert_eq!([[0, 1], [2, 3]].map(|ranks| group(&groups, &ranks)), ["tp", "tp"]);
        assert_eq!(group(&groups, &[0, 1, 2, 3]), "dp");
        assert_eq!(group(&groups, &[0, 2, 4]), in_words(&[0, 2, 4]));
    }
    #[test]
    fn terms_that_are_added_up_behind_them_lack_no_reduction() {
        let value = |number: u64| {
            let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), [4].into());
            record.checksum = Some(Checksum::of_hash(number.into()));
            Value::Tensor(Arc::new(record))
        };
        let op = |name: &str, side: SlotSide, number: u64| {
            let path = if side.is_result() { "output.0" } else { "input.0" };
            Op { slots: vec![Slot::new(path, side, value(number))], ..Op::new(OpName::parse(name)) }
        };
        let named = |reduced: u64, with_max: bool| {
            let mut pair = part("Tensor.sub.0.forward", [1.0, 2.0]);
            for (rank, by) in [(&mut pair.baseline, 0), (&mut pair.candidate, 10)] {
                rank.ops = vec![
                    op("Tensor.max.0.forward", SlotSide::Output, by + 1),
                    op("Tensor.masked_fill.0.forward", SlotSide::Output, by + 2),
                    op("Tensor.sub.0.forward", SlotSide::Input, if by == 0 { 2 } else { reduced }),
                ];
            }
            let paired = |place| OpPair { ops: Paired::Both(place, place), slots: SlotPairs::in_order(1) };
            pair.ops = (0..3).map(paired).collect();
            let partial = |among| Remark::Partial(vec![0, 1], among);
            let of_max = with_max.then(|| ((0, 0), partial(Among::Max)));
            let remarks = of_max.into_iter().chain([((1, 0), partial(Among::Sum(1)))]).collect();
            let layouts = Layouts { ranks: vec![0, 1], remarks, ..Layouts::default() };
            let slot = pair.candidate.ops[2].slots[0].clone();
            let mut finding = finding(&pair, 2, &slot, Cause::Numerics);
            let judged = |verdict| SlotJudgement {
                verdict,
                error: None.into(),
                rule: None,
                reason: "".into(),
                follows: false,
            };
            // Nothing else than the sum agrees with the baseline's value.
            let read = if reduced == 12 { Verdict::Close } else { Verdict::Differs };
            let close = || vec![judged(Verdict::Close)];
            let slots = [close(), close(), vec![judged(read)]].into_iter().collect();
            let said = layouts.unreduced(&pair, (&mut finding, true), &slots).unwrap();
            (finding.op, said.into_words())
        };
        let (op, said) = named(12, true);
        assert_eq!(op, "Tensor.max.0.forward", "{said}");
        assert!(said.contains("holds the maximum of its own part"), "{said}");
        assert_eq!(named(13, true).0, "Tensor.masked_fill.0.forward", "another value than the sum is read");
        assert_eq!(named(12, false).0, "Tensor.masked_fill.0.forward", "nothing else was to be reduced");
    }

    #[test]
    fn gradients_of_micro_batches_lack_no_reduction_if_the_optimizer_reads_the_right_ones() {
        let value = |number: u64| {
            let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), [4].into());
            record.checksum = Some(Checksum::of_hash(number.into()));
            Value::Tensor(Arc::new(record))
        };
        let op = |name: &str, path: &str, side: SlotSide, number: u64| Op {
            slots: vec![Slot::new(path, side, value(number))],
            ..Op::new(OpName::parse(name))
        };
        let named = |read: Verdict| {
            let mut pair = part("Tensor.mul.0.backward", [1.0, 2.0]);
            for (rank, by) in [(&mut pair.baseline, 0), (&mut pair.candidate, 10)] {
                rank.ops = vec![
                    op("Functional.layer_norm.0.backward", "output.weight", SlotSide::Output, by + 1),
                    op("Module.norm.LayerNorm.parameters_grad.0", "grad.weight", SlotSide::Output, by + 1),
                    op("Tensor.mul.0.backward", "output.0", SlotSide::Output, by + 2),
                    op("Optimizer.SGD.step.0", "input.grad.norm.weight", SlotSide::Input, by + 3),
                ];
            }
            let paired = |place| OpPair { ops: Paired::Both(place, place), slots: SlotPairs::in_order(1) };
            pair.ops = (0..4).map(paired).collect();
            let partial = |place| ((place, 0), Remark::Partial(vec![0, 1], Among::Sum(2)));
            let remarks = [0, 1].map(partial).into_iter().collect();
            let layouts = Layouts { ranks: vec![0, 1], remarks, ..Layouts::default() };
            let mut finding = finding(&pair, 2, &pair.candidate.ops[2].slots[0], Cause::Gradient);
            let judged = |verdict| SlotJudgement {
                verdict,
                error: None.into(),
                rule: None,
                reason: "".into(),
                follows: false,
            };
            let slots =
                [Verdict::Close, Verdict::Close, Verdict::Differs, read].map(|verdict| vec![judged(verdict)]);
            layouts.unreduced(&pair, (&mut finding, true), &slots.into_iter().collect()).map(|_| finding.op)
        };
        assert_eq!(named(Verdict::Close), None);
        assert_eq!(named(Verdict::Differs).as_deref(), Some("Functional.layer_norm.0.backward"));
    }
}
