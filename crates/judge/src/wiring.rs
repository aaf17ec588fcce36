//! Values that reach an op from elsewhere than in the baseline: the result of another op, or memory that was
//! written to between two ops.

use std::collections::HashMap;

use super::Cause;
use super::candidate::Candidate;
use super::difference::{Difference, Fact};
use super::excess::BEYOND;
use super::expected::GradientErrors;
use super::flow::{Flow, Place};
use super::median::median;
use super::ops::Kind;
use super::setting::Setting;
use probe_dump::{Phase, Slot};

/// Relative rounding of operands to ten bits behind the point, as in TF32: an op that makes the same in another way may be off by that.
const TEN_BITS: f64 = 1.0 / 2048.0;

/// Returns a fault for an input that no recorded op made on both sides, if it comes from elsewhere on the
/// candidate's side, though the baseline's comes from an op that both sides have.
pub(super) fn fault(flow: &Flow<'_>, setting: &Setting, place: Place) -> Option<Candidate> {
    let fact = flow.fact(place);
    let (b, c) = flow.pair.slot_at(place.0, place.1);
    let (b, c) = (b?, c?);
    // Without a measure of the error, what the baseline reads must be equal where it was made.
    let is_hashed = b.value.tensor().is_some_and(|record| record.checksum.is_some());
    let is_measured = match fact.difference {
        Difference::Numbers if fact.is_float => true,
        Difference::Elements | Difference::Checksum if is_hashed => false,
        _ => return None,
    };
    if fact.allowed || fact.unwritten || fact.is_overwritten || fact.len <= 1.0 {
        return None;
    }
    let candidate = makers(flow, 1, place, c)?;
    if is_constant(b) {
        // Many ops make the same constant; none of them made what the candidate reads.
        let &other = candidate.first()?;
        let is_same = flow.values.makers(0, b).any(|maker| candidate.contains(&maker));
        let said =
            format!("reads the result of {}, the baseline a constant", flow.nodes[other.0].op.name.as_str());
        return (!is_same && flow.pair.step == 0)
            .then(|| Candidate { said, ..Candidate::at(place.0, Some(place.1), Cause::Structure) });
    }
    let baseline = makers(flow, 0, place, b)?;
    let &first = baseline.first()?;
    if candidate.iter().any(|maker| baseline.contains(maker)) {
        return None;
    }
    // The error is new if it is beyond that of the value where it was made. Where another op makes the same on the
    // candidate's side, it may be off by as much as what it is made of.
    let made = baseline.iter().map(|&maker| flow.fact(maker).relative()).fold(0.0, f64::max);
    // One that stands behind the reader follows from it.
    let before = candidate.iter().filter(|maker| maker.0 < place.0);
    let given = before.flat_map(|maker| flow.given(maker.0)).map(|given| error(flow.fact(given)));
    let rounding = setting.coarsest.map_or(0.0, |coarse| coarse.unknown);
    let is_old = if is_measured {
        fact.relative() <= BEYOND * given.fold(made, f64::max).hypot(rounding)
    } else {
        !baseline.iter().all(|&maker| flow.fact(maker).exact)
    };
    // On the candidate's own side nothing has drifted: what its op made there, and what is read instead, are two values.
    let precise = rounding.max(TEN_BITS);
    let is_another = is_measured
        && !candidate.is_empty()
        && baseline.iter().all(|&maker| norms_apart(flow, maker, c) > BEYOND * precise);
    if is_old && !is_another {
        return None;
    }
    // Results of one op are told apart.
    let is_same_op = candidate.iter().any(|maker| baseline.iter().any(|other| other.0 == maker.0));
    let name = |maker: Place| match flow.slot(maker).filter(|_| is_same_op) {
        Some(slot) => format!("{} {}", flow.nodes[maker.0].op.name.as_str(), slot.path),
        None => flow.nodes[maker.0].op.name.as_str().to_owned(),
    };
    let gradient = flow.nodes[first.0].op.name.phase() != Phase::Forward;
    if flow.modules_alone && !gradient && candidate.is_empty() {
        let reader = flow.nodes[place.0].op.name.as_str();
        let said = format!(
            "what it made is changed before {reader} reads it, and the baseline's is not: no function between modules was recorded"
        );
        return Some(Candidate { said, ..Candidate::at(first.0, Some(first.1), Cause::Structure) });
    }
    let (cause, said) = if let Some(&other) = candidate.first() {
        let said = format!("reads the result of {}, the baseline that of {}", name(other), name(first));
        (Cause::Structure, said)
    } else {
        let cause = if gradient { Cause::Gradient } else { Cause::Input };
        (cause, format!("was written to after {} made it: no recorded op did", name(first)))
    };
    Some(Candidate { said, ..Candidate::at(place.0, Some(place.1), cause) })
}

/// Returns the error of what an op reads, 1 if that has no number.
fn error(fact: &Fact) -> f64 {
    if fact.is_float && !fact.difference.is_open() { 1.0 } else { fact.relative() }
}

/// Returns how far apart the norms are of what an op made on the candidate's side, and of another value there; 0 if unknown.
fn norms_apart(flow: &Flow<'_>, (op, slot): Place, other: &Slot) -> f64 {
    let norm = |slot: &Slot| slot.value.tensor()?.statistics.norm();
    let made = flow.pair.slot_at(op, slot).1.and_then(norm);
    made.zip(norm(other)).map_or(0.0, |(made, other)| ((made - other) / made.max(other)).abs())
}

/// Returns the largest and the least element.
pub(super) fn extremes(slot: &Slot) -> Option<[f64; 2]> {
    let statistics = &slot.value.tensor()?.statistics;
    Some([statistics.max()?.as_f64(), statistics.min()?.as_f64()])
}

/// Returns true if all elements are known to be equal.
fn is_constant(slot: &Slot) -> bool {
    extremes(slot).is_some_and(|[max, min]| max <= min)
}

/// Returns the places where a value was made on one side before it is read, by ops that both sides have. `None`
/// if an op of that side alone made it, or if it is a constant, which many ops make.
fn makers(flow: &Flow<'_>, side: usize, place: Place, slot: &Slot) -> Option<Vec<Place>> {
    extremes(slot).filter(|[max, min]| max > min)?;
    // A later op that makes the same value may have been recorded behind its reader, as modules are; ops of the dispatcher
    // are recorded in order.
    let may_have = |maker: &Place| {
        let [own, reader] = [maker.0, place.0].map(|op| &flow.nodes[op]);
        maker.0 < place.0 || (maker.0 > place.0 && !(own.is_dispatcher() && reader.is_dispatcher()))
    };
    let makers: Vec<Place> = flow.values.makers(side, slot).filter(may_have).collect();
    makers.iter().all(|maker| flow.nodes[maker.0].is_paired).then_some(makers)
}

/// Returns a fault for a gradient that reaches an optimizer further off than the backward pass left it: it was
/// clipped, scaled, summed up or reduced in another way by what was not recorded.
pub(super) fn changed_gradient(
    flow: &Flow<'_>,
    setting: &Setting,
    gradients: &GradientErrors,
    position: usize,
) -> Option<Candidate> {
    let node = &flow.nodes[position];
    if node.traits.kind != Kind::Optimizer || gradients.is_empty() {
        return None;
    }
    let usual = median(&mut gradients.values().copied().collect::<Vec<f64>>());
    let rounding = setting.coarsest.map_or(0.0, |coarse| coarse.unknown);
    let made = |slot: usize| {
        let path = flow.slot((position, slot))?.path.strip_prefix("input.grad.")?;
        let (module, name) = path.rsplit_once('.')?;
        gradients.get(&(Box::from(module), Box::from(name))).copied()
    };
    let arrived: Vec<(usize, f64)> = node.given().filter_map(|slot| Some((slot, made(slot)?))).collect();
    // Clipping scales all gradients by the norm of all, which is off by no more than they are together.
    let norm = |slot: usize| flow.fact((position, slot)).norm;
    let of_all = arrived.iter().map(|&(slot, _)| norm(slot)).fold(0.0, f64::hypot);
    let off = arrived.iter().map(|&(slot, made)| made * norm(slot)).fold(0.0, f64::hypot);
    let common = if of_all > 0.0 { off / of_all } else { 0.0 };
    let &(slot, _) = arrived.iter().find(|&&(slot, made)| {
        let fact = flow.fact((position, slot));
        let differs = fact.difference == Difference::Numbers && fact.is_float && !fact.allowed;
        differs && fact.relative() > BEYOND * made.hypot(usual).hypot(rounding).hypot(common)
    })?;
    let said = "differs between the backward pass, which agrees, and the step of the optimizer".to_owned();
    Some(Candidate { said, ..Candidate::at(position, Some(slot), Cause::Gradient) })
}

/// Returns a fault for a parameter that a coarser type keeps where it was: its gradient is no zero, and the
/// baseline's changed. Steps below half a unit in the last place are lost.
pub(super) fn lost_update(flow: &Flow<'_>, position: usize) -> Option<Candidate> {
    let node = &flow.nodes[position];
    if node.traits.kind != Kind::Optimizer {
        return None;
    }
    let by_path: HashMap<&str, usize> =
        node.given().filter_map(|slot| Some((&*flow.slot((position, slot))?.path, slot))).collect();
    let slot = node.results().find(|&slot| {
        let path = flow.slot((position, slot)).and_then(|slot| slot.path.strip_prefix("output.parameter."));
        let given = |kind: &str| path.and_then(|path| by_path.get(&*format!("{kind}.{path}")).copied());
        let (Some(before), Some(gradient)) = (given("parameter"), given("input.grad")) else { return false };
        let hashes = |slot: usize| {
            let (b, c) = flow.pair.slot_at(position, slot);
            Some([b?.value.tensor()?.checksum.as_ref()?, c?.value.tensor()?.checksum.as_ref()?])
        };
        let (Some(then), Some(now)) = (hashes(before), hashes(slot)) else { return false };
        let norms = flow.fact((position, gradient)).norms;
        is_coarser(flow, (position, slot))
            && then[1] == now[1]
            && then[0] != now[0]
            && norms.0.min(norms.1) > 0.0
    })?;
    let said =
        "none of its elements changed, as its type cannot hold steps so small; the baseline's did".to_owned();
    Some(Candidate { said, ..Candidate::at(position, Some(slot), Cause::Optimizer) })
}

/// Returns true if the candidate keeps a value in a coarser float type.
fn is_coarser(flow: &Flow<'_>, (op, slot): Place) -> bool {
    let (b, c) = flow.pair.slot_at(op, slot);
    let bits = |slot: Option<&Slot>| slot?.value.tensor()?.dtype.known()?.mantissa_bits();
    matches!((bits(b), bits(c)), (Some(b), Some(c)) if c < b)
}
