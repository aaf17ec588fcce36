//! Values that differ although all that is made of them agrees: buffers that ranks fill in parts, norms of shards, lookups before their mask.

use std::collections::{HashMap, HashSet};

use probe_dump::{DType, OpKind, OpName, Phase, Slot, Value};
use probe_judge::{Finding, PartJudgement, Role, SlotJudgement, Verdict};
use probe_layout::Remark;
use probe_pair::{OpPair, Paired, PartPair, value_key};

use super::partial::op_phase;
use super::roles::set;
use super::strangers::{ROUNDINGS, Roundings, unit};
use super::{Layouts, values};

/// Part of an input's error up to which a result has not got it: what is left of an error of 1 is then below that of any value near its own.
const GONE: f64 = 0.01;

/// Largest ratio of two errors of one value that are as large.
const AS_MUCH: f64 = 2.0;

/// Least error that is no rounding of what cancels in binary32.
const LEAST_NOISE: f64 = 1e-3;

/// Error from which on a value is another one than the other run's, whatever verdict it has: a layout that fits is nearer.
pub(super) const APART: f64 = 0.05;

/// Part of a result's error up to which its inputs have nothing to do with it: it is rounding of terms that cancel.
const OF_READ: f64 = 0.1;

/// Who reads and makes the values of the run on one rank, and where they differ.
pub(super) struct Readers<'l> {
    layouts: &'l Layouts,
    /// What the ops that read a value make of it, and that differs; `None` where that is not known: of an optimizer, as updates hide differences, and
    /// of results that no layout of both runs explains.
    of: HashMap<u64, Vec<Option<Vec<u64>>>>,
    /// Largest errors with which a value was accepted: rounding of what cancels.
    accepted: HashMap<u64, f64>,
    /// Values that modules return, and that agree there.
    returned: HashSet<u64>,
    /// Whole numbers that are made in modules, and that nothing reads or returns.
    idle: HashSet<u64>,
    /// Keys of values, by place, that hold what an earlier one held: positions are made in every layer, and each is read there.
    again: HashMap<(usize, usize), u64>,
    /// Known answers.
    mended: HashMap<u64, bool>,
}

impl<'l> Readers<'l> {
    fn new(layouts: &'l Layouts) -> Self {
        let (of, accepted, mended) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (returned, idle, again) = (HashSet::new(), HashSet::new(), HashMap::new());
        Self { layouts, of, accepted, returned, idle, again, mended }
    }

    /// Returns the readers of a part's values. An op that only the run on one rank calls differs in all that it makes; one whose own input agrees
    /// reads another value, which was reduced before.
    pub(super) fn of(pair: &PartPair, judged: &PartJudgement, layouts: &'l Layouts) -> Self {
        let mut readers = Self { again: layouts.made_again(pair), ..Self::new(layouts) };
        let (mut made_inside, mut of_modules) = (HashSet::new(), HashSet::new());
        let noise = (ROUNDINGS * unit(pair)).clamp(LEAST_NOISE, APART);
        for (place, op) in pair.ops.iter().enumerate() {
            let both = matches!(op.ops, Paired::Both(..));
            let is_forward = op_phase(pair, op) == Phase::Forward && !is_update(pair, op);
            let held = |slot: usize| Some((slot, readers.at(pair, (place, slot))?));
            let slots: Vec<_> = (0..op.slots.len()).filter_map(held).collect();
            let error = |slot: usize| judged.slots.at(place, slot).and_then(|slot| slot.error.get());
            let read: Vec<_> = slots
                .iter()
                .filter(|(slot, (held, _))| {
                    // What no fault leads to is explained by what arrives, and as wrong all the same; gradients may cancel, though.
                    let off = || is_forward && error(*slot).is_some_and(|error| error >= noise);
                    !held.side.is_result() && (!both || differs(judged, place, *slot) || off())
                })
                .collect();
            readers.accept(judged, place, &slots);
            if both && is_forward && OpName::parse(pair.name(op)).kind() == OpKind::Module {
                let agreed = slots.iter().filter(|(slot, (held, _))| {
                    held.side.is_result() && error(*slot).is_some_and(|error| error <= GONE)
                });
                readers.returned.extend(agreed.map(|(_, (_, key))| *key));
            }
            let hides = op.slots.iter().any(|slots| layouts.is_unexplained(pair, op, slots));
            let input = read.iter().filter_map(|(slot, _)| error(*slot)).fold(0.0, f64::max);
            let made: Vec<u64> = slots
                .iter()
                .filter(|(slot, (held, _))| {
                    let lasts = error(*slot).is_some_and(|error| error > GONE * input);
                    held.side.is_result() && (!both || differs(judged, place, *slot) || lasts)
                })
                .map(|(_, (_, key))| *key)
                .collect();
            for (_, (_, key)) in read {
                let is_known = !is_update(pair, op) && !hides;
                let made = is_known.then(|| made.clone());
                readers.of.entry(*key).or_default().push(made);
            }
            for (_, (_, key)) in slots.iter().filter(|(_, (held, _))| !held.side.is_result()) {
                readers.of.entry(*key).or_default();
            }
            let of_call = |held: &Slot| both && is_forward && is_index(held) && is_in_module(pair, op);
            made_inside.extend(slots.iter().filter(|(_, (held, _))| of_call(held)).map(|(_, (_, key))| *key));
            let results = slots.iter().filter(|(_, (held, _))| held.side.is_result());
            let is_module = OpName::parse(pair.name(op)).kind() == OpKind::Module;
            of_modules.extend(results.filter(|_| is_module).map(|(_, (_, key))| *key));
        }
        made_inside.retain(|key| {
            readers.of.get(key).is_none_or(|of| are_copies(*key, of)) && !of_modules.contains(key)
        });
        readers.idle = made_inside;
        readers
    }

    /// Notes with which errors an op's results were accepted although nothing that it reads is as far off.
    fn accept(&mut self, judged: &PartJudgement, place: usize, slots: &[(usize, (&Slot, u64))]) {
        let error = |slot: usize| judged.slots.at(place, slot).and_then(|slot| slot.error.get());
        let side =
            |results: bool| slots.iter().filter(move |(_, (held, _))| held.side.is_result() == results);
        let read = side(false).filter_map(|(slot, _)| error(*slot)).fold(0.0, f64::max);
        if judged.ops[place].role != Role::Clean
            || slots.iter().any(|(slot, _)| differs(judged, place, *slot))
        {
            return;
        }
        for (slot, (_, key)) in side(true) {
            if let Some(error) = error(*slot).filter(|error| read < OF_READ * error) {
                let most = self.accepted.entry(*key).or_default();
                *most = most.max(error);
            }
        }
    }

    /// Returns the slot of the run on one rank, and the key of its value.
    fn at<'p>(&self, pair: &'p PartPair, (place, slot): (usize, usize)) -> Option<(&'p Slot, u64)> {
        let op = &pair.ops[place];
        let (held, key) = self.layouts.of_one_rank(pair, op, op.slots.get(slot)?)?;
        Some((held, self.again.get(&(place, slot)).copied().unwrap_or(key)))
    }

    /// Returns true if a value is read, and what each of its readers makes of it agrees or is mended itself.
    fn mends(&mut self, key: u64) -> bool {
        // A value that is made of itself is not mended.
        let mut open = vec![(key, false)];
        while let Some((key, seen)) = open.pop() {
            if !seen && self.mended.contains_key(&key) {
                continue;
            }
            let readers = self.of.get(&key);
            // A view holds the same elements: its readers are among those of the value. A copy alone shows nothing of what becomes of it.
            let made: Option<HashSet<u64>> = readers
                .filter(|readers| !are_copies(key, readers))
                .and_then(|all| all.iter().cloned().collect::<Option<Vec<_>>>())
                .map(|made| made.concat().into_iter().filter(|made| *made != key).collect());
            let Some(made) = made else {
                // The ops that read what a module returns may have been left out.
                let is_right = self.returned.contains(&key) || self.idle.contains(&key);
                self.mended.insert(key, readers.is_none_or(|readers| are_copies(key, readers)) && is_right);
                continue;
            };
            if seen {
                let all = made.iter().all(|made| self.mended.get(made).copied().unwrap_or(false));
                self.mended.insert(key, all);
                continue;
            }
            self.mended.insert(key, false);
            open.push((key, true));
            open.extend(
                made.into_iter().filter(|made| !self.mended.contains_key(made)).map(|made| (made, false)),
            );
        }
        self.mended.get(&key).copied().unwrap_or(false)
    }

    /// Calls differences of a part without findings close that are rounding of the terms of sums over ranks, or that follow from findings alone:
    /// those were dropped.
    pub(super) fn settle_rest(pair: &PartPair, judged: &mut PartJudgement, roundings: &Roundings) {
        if !judged.findings.is_empty() {
            return;
        }
        for (place, op) in pair.ops.iter().enumerate() {
            let mut changed = false;
            for slot in 0..op.slots.len() {
                if let Some(found) = judged.slots.at_mut(place, slot).filter(|found| is_fault(found.verdict))
                    && roundings.explain(pair, (place, slot), found)
                {
                    judged.counts.verdicts[found.verdict as usize] -= 1;
                    judged.counts.verdicts[Verdict::Close as usize] += 1;
                    (found.verdict, changed) = (Verdict::Close, true);
                }
            }
            if changed {
                without_fault(judged, (place, op.slots.len()));
            }
        }
    }

    /// Returns the values of findings whose differences are excused, those of the same slots of other calls, and how they were judged; and whole numbers
    /// of a rank's own, which the judge would take for choices that noise has flipped.
    pub(super) fn excused(
        &mut self,
        pair: &PartPair,
        judged: &PartJudgement,
    ) -> Vec<((usize, usize), SlotJudgement)> {
        let kind = |(place, slot): (usize, usize)| {
            let op = &pair.ops[place];
            let slot = op.slots.get(slot).and_then(|slots| pair.slot(op, slots).0);
            let path = slot.map(|slot| slot.path.to_string());
            (OpName::parse(pair.name(op)).stem().to_owned(), path)
        };
        let mut found = Vec::new();
        for finding in judged.findings.iter().filter(|finding| self.is_settled(pair, judged, finding)) {
            let slots = judged.slots.get(finding.order).unwrap_or(&[]).iter().enumerate();
            let differing = slots.filter(|(_, of)| is_fault(of.verdict));
            found.extend(differing.map(|(slot, of)| ((finding.order, slot), of.clone())));
        }
        // Each layer and each expert has such a value of the same function: a round for each of them would be too many.
        let kinds: HashSet<(String, Option<String>)> = found.iter().map(|(at, _)| kind(*at)).collect();
        for (place, op) in pair.ops.iter().enumerate() {
            for slot in 0..op.slots.len() {
                let Some(of) = judged.slots.at(place, slot) else { continue };
                let at = (place, slot);
                let is_own = of.error.get() > Some(0.0)
                    && is_in_module(pair, op)
                    && self.at(pair, at).is_some_and(|(held, _)| is_whole_numbers(held))
                    && !is_choice(pair, at);
                let is_alike = !kinds.is_empty() && is_fault(of.verdict) && kinds.contains(&kind(at));
                if (is_own || is_alike) && self.is_mended_slot(pair, at) {
                    found.push((at, of.clone()));
                }
            }
        }
        found
    }

    /// Drops findings whose differences are excused, and calls these differences close.
    pub(super) fn settle(&mut self, pair: &PartPair, judged: &mut PartJudgement) {
        let findings = std::mem::take(&mut judged.findings);
        judged.findings =
            findings.into_iter().filter(|finding| !self.is_settled(pair, judged, finding)).collect();
        for (place, op) in pair.ops.iter().enumerate() {
            let mut changed = false;
            for slot in 0..op.slots.len() {
                if differs(judged, place, slot)
                    && self.is_excused(pair, judged, (place, slot))
                    && let Some(found) = judged.slots.at_mut(place, slot)
                {
                    judged.counts.verdicts[found.verdict as usize] -= 1;
                    judged.counts.verdicts[Verdict::Close as usize] += 1;
                    (found.verdict, changed) = (Verdict::Close, true);
                }
            }
            if changed {
                without_fault(judged, (place, op.slots.len()));
            }
        }
    }

    fn is_settled(&mut self, pair: &PartPair, judged: &PartJudgement, finding: &Finding) -> bool {
        let Some(op) = pair.ops.get(finding.order) else { return false };
        let slots: Vec<usize> =
            (0..op.slots.len()).filter(|&slot| differs(judged, finding.order, slot)).collect();
        !slots.is_empty()
            && slots.into_iter().all(|slot| self.is_excused(pair, judged, (finding.order, slot)))
    }

    /// Returns true for a value that is mended, or that was accepted elsewhere although it differed as much.
    fn is_excused(&mut self, pair: &PartPair, judged: &PartJudgement, (place, slot): (usize, usize)) -> bool {
        let accepted = || {
            let (_, key) = self.at(pair, (place, slot))?;
            let error = judged.slots.at(place, slot)?.error.get()?;
            Some(error <= AS_MUCH * self.accepted.get(&key)?)
        };
        accepted().unwrap_or(false) || self.is_mended_slot(pair, (place, slot))
    }

    /// Returns true for a value that no layout makes the other run's, or that is partial, and that is mended.
    pub(super) fn is_mended_slot(&mut self, pair: &PartPair, (place, slot): (usize, usize)) -> bool {
        let op = &pair.ops[place];
        let Some(slots) = op.slots.get(slot) else { return false };
        let remark = self.layouts.remark(op, slots);
        let apart = self.layouts.place(op, slots).is_some_and(|place| self.layouts.apart.contains(&place))
            || matches!(remark, Some(Remark::Partial(..) | Remark::Odd(_)))
            || has_other_sizes(pair, op, slots);
        let found = self.at(pair, (place, slot));
        // Ranks that hold parts of a sequence number their tokens, and put them into order, in their own way.
        let Some((held, key)) =
            found.filter(|(held, _)| apart || (is_whole_numbers(held) && is_in_module(pair, op)))
        else {
            return false;
        };
        if self.of.contains_key(&key) || !is_index(held) {
            return self.mends(key);
        }
        // Nobody reads the places of extremes; they are right if the extremes are.
        let beside: Vec<u64> = (0..op.slots.len())
            .filter_map(|slot| self.at(pair, (place, slot)))
            .filter(|(other, _)| other.side.is_result() && !is_index(other))
            .map(|(_, key)| key)
            .collect();
        if beside.is_empty() { self.mends(key) } else { beside.into_iter().all(|key| self.mends(key)) }
    }
}

impl Layouts {
    /// Returns the slot of the run on one rank, and the key of its value.
    pub(super) fn of_one_rank<'p>(
        &self,
        pair: &'p PartPair,
        op: &OpPair,
        slots: Paired,
    ) -> Option<(&'p Slot, u64)> {
        let (b, c) = pair.slot(op, slots);
        let slot = if self.of_baseline { c? } else { b? };
        Some((slot, value_key(slot.value.tensor()?)?))
    }

    /// Returns true for a tensor that ranks make and that the other run, whose ranks were made one, has no layout for.
    fn is_unexplained(&self, pair: &PartPair, op: &OpPair, slots: Paired) -> bool {
        let (Some(b), Some(c)) = pair.slot(op, slots) else { return false };
        let (one, many) = if self.of_baseline { (c, b) } else { (b, c) };
        many.side.is_result() && many.value.tensor().is_some() && matches!(one.value, Value::Unsupported)
    }
}

/// Returns true if all that read a value make the same of it.
fn are_copies(key: u64, readers: &[Option<Vec<u64>>]) -> bool {
    let is_copy = |made: &Option<Vec<u64>>| made.as_ref().is_some_and(|made| made.contains(&key));
    !readers.is_empty() && readers.iter().all(is_copy)
}

/// Returns true for an optimizer's step, and for what is called in it.
pub(super) fn is_update(pair: &PartPair, op: &OpPair) -> bool {
    pair.op(op).0.is_some_and(|op| {
        let of = |name: &str| name.starts_with("Optimizer.");
        of(op.name.as_str()) || op.parent.as_deref().is_some_and(of)
    })
}

/// Returns true for a tensor that the two runs have in other sizes.
fn has_other_sizes(pair: &PartPair, op: &OpPair, slots: Paired) -> bool {
    let (b, c) = pair.slot(op, slots);
    let shape = |slot: Option<&Slot>| Some(slot?.value.tensor()?.shape.clone());
    matches!((shape(b), shape(c)), (Some(b), Some(c)) if b != c)
}

/// Returns true for a call of a function in a module.
fn is_in_module(pair: &PartPair, op: &OpPair) -> bool {
    let (b, c) = pair.op(op);
    b.or(c).is_some_and(|op| op.name.kind() == OpKind::Api && op.parent.is_some())
}

fn is_index(slot: &Slot) -> bool {
    slot.side.is_result() && is_whole_numbers(slot)
}

fn is_whole_numbers(slot: &Slot) -> bool {
    let dtype = slot.value.tensor().and_then(|record| record.dtype.known());
    dtype.is_some_and(DType::is_integer)
}

pub(super) const fn is_fault(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Differs | Verdict::NonFinite | Verdict::Shape)
}

/// Makes an op clean of which no slot differs any more.
fn without_fault(judged: &mut PartJudgement, (place, slots): (usize, usize)) {
    if (0..slots).any(|slot| differs(judged, place, slot)) {
        return;
    }
    set(judged, place, Role::Clean);
    let of = &mut judged.ops[place];
    (of.cause, of.verdict) = (None, Verdict::Close);
}

fn differs(judged: &PartJudgement, op: usize, slot: usize) -> bool {
    judged.slots.at(op, slot).is_some_and(|slot| is_fault(slot.verdict))
}

/// Returns true for whole numbers of which few elements differ: choices, of which the judge knows what they make.
fn is_choice(pair: &PartPair, (place, slot): (usize, usize)) -> bool {
    let op = &pair.ops[place];
    let sides = op.slots.get(slot).map(|slots| pair.slot(op, slots));
    matches!(sides, Some((Some(b), Some(c))) if values::are_mostly_equal(pair, b, c))
}

#[cfg(test)]
pub(super) mod tests;
