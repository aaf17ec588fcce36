//! The check that closes an answer: where no op was named, the loss and the gradients may differ by no more than
//! what was judged adds up to, and a verdict that is no agreement has a place.
//!
//! The other checks hold each op against its own inputs, so an error that nothing made (memory that nobody wrote,
//! a value that was taken for a drifted weight) explains everything behind it. Here the errors that the ops may
//! make by themselves are carried from the first op to the last instead, by the same rules, and the errors of
//! the values are held against what arrives.

use super::candidate::{Beyond, Candidate};
use super::difference::{ByIdentity, Difference, Fact};
use super::ends::{ADDED_UP, gradients, is_end};
use super::expected::ExpectedErrors;
use super::flow::{Flow, Place};
use super::hard_faults::numeric;
use super::median::median;
use super::transfer::{self, InputError};
use super::update;
use super::value::{Excess, ExpectedError, ValueKind};
use super::{Cause, SlotJudgement, Verdict};
use probe_dump::Phase;
use probe_pair::BySlot;

/// Errors below this are no loss that went another way.
const MATTERS: f64 = 0.05;

/// The same for half of the gradients against half of what they are made of: the 3 bits that an op may be off by, and one for
/// those of a function that several places share.
const OF_HALF: f64 = 16.0;

/// Fewest values of which a half is told.
const FEWEST: usize = 4;

/// Norm of a gradient, relative to the largest, from which on it is more than what cancels leaves in coarse types.
const LEAST: f64 = 0.01;

/// Reason for what the closing check names.
const NOT_ADDING_UP: &str = "the errors of all ops before it do not add up to this";

/// Reasons for what shows that the runs were not the same when they began.
const NOTHING_IN_COMMON: &str = "the steps before this one have moved the weights of the two runs as if they had nothing in common: what differs was there from the start, and is seen in a recording from step 0";
const NO_STEPS: &str = "it is further apart than the steps before this one have moved it: not loaded, or from another checkpoint";

/// Returns the first value whose verdict is no agreement, as a candidate.
pub(super) fn unnamed(flow: &Flow<'_>, slots: &BySlot<SlotJudgement>) -> Option<Candidate> {
    let wrong =
        |slot: &SlotJudgement| matches!(slot.verdict, Verdict::Differs | Verdict::NonFinite | Verdict::Shape);
    let mut places = slots.iter().enumerate().filter(|&(op, _)| flow.nodes[op].is_paired);
    let (op, slot) = places.find_map(|(op, slots)| Some((op, slots.iter().position(wrong)?)))?;
    let said = match flow.fact((op, slot)).difference {
        Difference::Limit => "as its inputs explain".to_owned(),
        _ => String::new(),
    };
    Some(Candidate { said, ..Candidate::at(op, Some(slot), numeric(&flow.nodes[op])) })
}

/// Returns the first value that is further off than all that was judged before it adds up to, if the loss or a
/// gradient is.
pub(super) fn unexplained(
    flow: &Flow<'_>,
    expected: &ExpectedErrors,
    excess: &[Excess],
) -> Option<Candidate> {
    let judged = || expected.values.iter().zip(excess).filter(|(value, _)| is_judged(value));
    let unled = unled_gradients(flow, expected);
    if unled.is_empty() && !judged().any(|(value, _)| value.error > MATTERS && is_end(flow, value.place)) {
        return None;
    }
    // An arrival that was judged, and is not at fault, has the error that it may have.
    let arrivals = expected.values.iter().filter(|value| value.family.role == ValueKind::Arrival);
    let arrivals = arrivals.map(|value| flow.fact(value.place));
    let made = arrivals.filter_map(|fact| Some((fact.identity?, fact.relative()))).collect();
    let mut budget = Budget { flow, made, inside: vec![0.0; flow.nodes.len()], largest: 0.0 };
    let mut first: Option<(&ExpectedError, f64)> = None;
    let mut is_open = false;
    for (value, excess) in judged() {
        let may = budget.add(value, excess);
        // A remainder of a sum that cancels may be off by many times itself.
        let error = value.error.min(1.0);
        if error <= ADDED_UP * may || error <= MATTERS {
            continue;
        }
        first = first.or(Some((value, may)));
        is_open |= is_end(flow, value.place);
    }
    let Some((value, may)) = first.filter(|_| is_open) else {
        return beyond_all(flow, &unled, budget.largest).or_else(|| beyond_half(flow, &unled));
    };
    let (op, slot) = value.place;
    let cause = if flow.nodes[op].is_backward() { Cause::Gradient } else { Cause::Numerics };
    Some(Candidate {
        said: NOT_ADDING_UP.to_owned(),
        beyond: Some(Beyond { error: value.error, expected: may }),
        ..Candidate::at(op, Some(slot), cause)
    })
}

/// Returns where the runs have gone their own ways before the recording begins. No rounding does that: whatever differs was there from
/// the start. The first op of the forward pass that one side alone has says more of it than the first weight that is read.
pub(super) fn gone_apart(
    flow: &Flow<'_>,
    expected: &ExpectedErrors,
    other_call: Option<usize>,
) -> Option<Candidate> {
    let apart = update::gone_apart(flow);
    if let Some(op) = other_call.filter(|_| apart.all) {
        return Some(Candidate {
            said: NOTHING_IN_COMMON.to_owned(),
            ..Candidate::at(op, None, Cause::Structure)
        });
    }
    let is_apart =
        |place: Place| flow.fact(place).identity.is_some_and(|identity| apart.matrices.contains(&identity));
    let &(op, slot) = expected.arrivals.iter().find(|&&place| is_apart(place))?;
    let said = if apart.all { NOTHING_IN_COMMON } else { NO_STEPS };
    Some(Candidate { said: said.to_owned(), arrived: true, ..Candidate::at(op, Some(slot), Cause::Input) })
}

/// Returns the results of parameter gradients with a known error, or a least one.
fn parameter_gradients<'f>(flow: &'f Flow<'_>) -> impl Iterator<Item = (Place, &'f Fact)> {
    gradients(flow)
        .map(|place| (place, flow.fact(place)))
        .filter(|(_, fact)| fact.is_float && fact.is_measured && !fact.swamped && !fact.allowed)
}

/// Returns the parameter gradients that differ and that nothing recorded leads to.
fn unled_gradients(flow: &Flow<'_>, expected: &ExpectedErrors) -> Vec<Place> {
    let differs = |fact: &Fact| fact.difference == Difference::Numbers && fact.relative() > MATTERS;
    let differing = parameter_gradients(flow).filter(|(_, fact)| differs(fact));
    let mut places: Vec<Place> = differing.map(|(place, _)| place).collect();
    if !places.is_empty() {
        let results = expected.results();
        places.retain(|&place| results.index(place).is_none());
    }
    places
}

/// Returns the first of these gradients that is further off than the largest error before it explains. A gradient
/// that cancels is as far off as others of its step, so the size of the largest one counts. Statistics tell too little of
/// what is before it.
fn beyond_all(flow: &Flow<'_>, unled: &[Place], largest: f64) -> Option<Candidate> {
    let size = parameter_gradients(flow).map(|(_, fact)| fact.norm).fold(0.0, f64::max);
    let may = ADDED_UP * largest * size;
    let is_beyond = |fact: &Fact| !fact.statistics_only && fact.distance > may;
    let &(op, slot) = unled.iter().find(|&&place| is_beyond(flow.fact(place)))?;
    Some(Candidate {
        said: NOT_ADDING_UP.to_owned(),
        beyond: Some(Beyond { error: flow.fact((op, slot)).relative(), expected: largest }),
        ..Candidate::at(op, Some(slot), Cause::Gradient)
    })
}

/// Returns the first of these gradients if half of all are further off than half of what the backward pass recorded
/// explains. They are sums of what it makes: a gradient that is dropped or added twice in between shows there alone.
fn beyond_half(flow: &Flow<'_>, unled: &[Place]) -> Option<Candidate> {
    let size = parameter_gradients(flow).map(|(_, fact)| fact.norm).fold(0.0, f64::max);
    // One that is zero in exact arithmetic is nothing but noise, and the long sums for a vector cancel most of what they add.
    let tells = |place: Place, fact: &Fact| fact.norm > LEAST * size && flow.shape(place).len() > 1;
    let ends = parameter_gradients(flow).filter(|&(place, fact)| tells(place, fact));
    let mut ends: Vec<f64> = ends.map(|(_, fact)| fact.relative()).collect();
    let nodes = flow.nodes.iter().enumerate().filter(|(_, node)| node.is_paired);
    let backward = nodes.filter(|(_, node)| node.op.name.phase() == Phase::Backward);
    let results = backward.flat_map(|(op, node)| node.results().map(move |slot| flow.fact((op, slot))));
    // Extremes show more of an error than a norm does.
    let largest = |fact: &Fact| fact.relative().max(fact.likely);
    let mut made: Vec<f64> = results.filter(|fact| fact.is_float && fact.is_measured).map(largest).collect();
    let told = made.len().min(ends.len()) >= FEWEST;
    let may = OF_HALF * median(&mut made);
    let &(op, slot) =
        unled.iter().find(|&&place| tells(place, flow.fact(place)) && flow.fact(place).relative() > may)?;
    (told && median(&mut ends) > may.max(MATTERS)).then(|| Candidate {
        said: NOT_ADDING_UP.to_owned(),
        beyond: Some(Beyond { error: flow.fact((op, slot)).relative(), expected: may }),
        ..Candidate::at(op, Some(slot), Cause::Gradient)
    })
}

fn is_judged(value: &ExpectedError) -> bool {
    value.family.role == ValueKind::Result && !value.statistics_only
}

/// Errors that values may have by what the ops before them may make.
struct Budget<'f, 'a> {
    flow: &'f Flow<'a>,
    made: ByIdentity<f64>,
    /// Largest inside each module call.
    inside: Vec<f64>,
    largest: f64,
}

impl Budget<'_, '_> {
    /// Adds the result of an op; returns the error that it may have, relative to its scale.
    fn add(&mut self, value: &ExpectedError, excess: &Excess) -> f64 {
        let (flow, place) = (self.flow, value.place);
        let fact = flow.fact(place);
        let scale = if value.error > 0.0 { fact.distance / value.error } else { fact.norm };
        let scale = scale.max(f64::MIN_POSITIVE);
        let (given, saved) = (flow.given(place.0), flow.saved(place.0));
        let errors = |places: &[Place], of: &dyn Fn(Place) -> InputError| -> Vec<(Place, InputError)> {
            places.iter().map(|&place| (place, of(place))).collect()
        };
        let may = |place| self.of_input(place);
        let carried = transfer::explained(flow, place, scale, &errors(&given, &may), &errors(&saved, &may));
        // What explains besides the inputs' errors: choices that flipped, gradients that were not recorded.
        let seen = |place| seen(flow, place);
        let plain = transfer::explained(flow, place, scale, &errors(&given, &seen), &errors(&saved, &seen));
        let beside = (value.explained * value.explained - plain * plain).max(0.0).sqrt();
        let inside = if flow.nodes[place.0].is_module() { self.inside[place.0] } else { 0.0 };
        let may = carried.hypot(excess.floor).hypot(beside).max(inside).min(1.0);
        if let Some(identity) = fact.identity {
            let relative = (may * scale / fact.norm.max(f64::MIN_POSITIVE)).min(1.0);
            self.made.entry(identity).or_insert(relative);
        }
        if let Some(parent) = flow.parent(place.0) {
            self.inside[parent] = self.inside[parent].max(may);
        }
        self.largest = self.largest.max(may);
        may
    }

    /// Returns the error that a value may have where it is read. A weight has what earlier steps left; what no
    /// recorded op made may be off by as much as anything before it.
    fn of_input(&self, place: Place) -> InputError {
        let fact = self.flow.fact(place);
        let own = seen(self.flow, place);
        // Nothing is in proportion to zero: what noise makes of it was held against the scale of the op that made it.
        if fact.norm <= 0.0 {
            return own;
        }
        let known = fact.identity.and_then(|identity| self.made.get(&identity)).copied();
        let relative = match known {
            Some(may) => may.min(own.relative),
            None if self.flow.pair.step > 0 && self.flow.is_weight(place) => own.relative,
            None => own.relative.min(self.largest),
        };
        InputError { relative, absolute: relative * fact.norm }
    }
}

/// Returns the error that a value has.
fn seen(flow: &Flow<'_>, place: Place) -> InputError {
    let fact = flow.fact(place);
    if !fact.is_float || fact.swamped {
        return InputError::default();
    }
    if fact.difference.hides_numbers() {
        return InputError { relative: 1.0, absolute: fact.norm };
    }
    InputError { relative: fact.relative(), absolute: fact.distance }
}

#[cfg(test)]
mod tests {
    use super::{Budget, beyond_half, parameter_gradients};
    use crate::difference::ByIdentity;
    use crate::drawn::{Drawn, Part};

    #[test]
    fn noise_beside_a_baseline_of_zeros_counts_whole() {
        let x = Drawn::normal(1, &[40, 30]);
        let absolute = |baseline: &Drawn| {
            let mut part = Part::default();
            part.op("Torch.sin.0.forward").tensor("input.0", baseline, &x).tensor("output.0", &x, &x);
            part.flow(|flow| {
                let inside = vec![0.0; flow.nodes.len()];
                let budget = Budget { flow, made: ByIdentity::default(), inside, largest: 0.1 };
                budget.of_input((0, 0)).absolute
            })
        };
        assert!((absolute(&x.map(|_| 0.0)) / x.norm() - 1.0).abs() < 1e-9);
        let half = x.map(|value| 0.5 * value);
        assert!((absolute(&half) / half.norm() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn matrices_tell_if_half_of_all_gradients_are_off() {
        let g = Drawn::normal(21, &[40, 30]);
        let is_beyond = |shape: &[u64], error: f64| {
            let mut part = Part::default();
            for at in 0..5 {
                part.op(&format!("Torch.sin.{at}.backward")).tensor("input.0", &g, &g.off(22, 1e-3));
                part.tensor("output.0", &g, &g.off(23 + at, 1e-3));
            }
            for at in 0..5 {
                let gradient = Drawn::normal(30 + at, shape);
                part.op(&format!("Module.m{at}.Linear.parameters_grad.0"));
                part.tensor("grad.other", &gradient, &gradient.off(50 + at, error));
            }
            part.flow(|flow| {
                let places: Vec<_> = parameter_gradients(flow).map(|(place, _)| place).collect();
                beyond_half(flow, &places).is_some()
            })
        };
        assert!(is_beyond(&[30, 30], 0.5));
        assert!(!is_beyond(&[900], 0.5));
        assert!(!is_beyond(&[30, 30], 1e-2));
    }
}
