//! Reduces the suspected ops to those where the fault originates.
//!
//! A module whose inner op is at fault looks faulty too; and a wrong value that arrives inside a module with
//! correct inputs was made by something unrecorded in that module.

use std::collections::HashSet;

use super::Cause;
use super::candidate::Candidate;
use super::flow::{Flow, Place};
use probe_dump::{Phase, SlotSide};

/// A module's inputs count as correct if their errors are at most this fraction of the error that arrives
/// inside it.
const RIGHT: f64 = 0.25;

/// Returns the candidates to report, in execution order, one per op.
pub(super) fn of_candidates(flow: &Flow<'_>, candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut settled: Vec<Candidate> =
        candidates.into_iter().map(|candidate| by_function(flow, made_around(flow, candidate))).collect();
    // The first candidate of an op is kept: certain faults come first.
    let mut seen = HashSet::new();
    settled.retain(|candidate| seen.insert(candidate.op));
    settled.sort_by_key(|candidate| candidate.op);
    let inner: HashSet<usize> = settled
        .iter()
        .filter(|candidate| candidate.cause != Cause::Argument)
        .flat_map(|candidate| flow.around(candidate.op))
        .collect();
    let gradients: HashSet<String> = settled
        .iter()
        .filter(|candidate| flow.nodes[candidate.op].op.name.phase() == Phase::Backward)
        .filter_map(|candidate| flow.nodes[candidate.op].op.name.in_phase(Phase::ParameterGradient))
        .collect();
    let inner_gradients: HashSet<usize> = settled
        .iter()
        .filter(|candidate| flow.nodes[candidate.op].op.name.phase() == Phase::ParameterGradient)
        .map(|candidate| candidate.op)
        .collect();
    settled.retain(|candidate| {
        let name = flow.nodes[candidate.op].op.name.as_str();
        let told = inner.contains(&candidate.op) && candidate.cause != Cause::Argument;
        let by_backward = inner_gradients.contains(&candidate.op) && gradients.contains(name);
        !told && !by_backward
    });
    settled
}

/// Replaces a parameter gradient by the function that made it, if recorded: it says more than the parameter.
fn by_function(flow: &Flow<'_>, candidate: Candidate) -> Candidate {
    let node = &flow.nodes[candidate.op];
    if node.op.name.phase() != Phase::ParameterGradient {
        return candidate;
    }
    let Some(identity) = candidate.slot.and_then(|slot| flow.fact((candidate.op, slot)).identity) else {
        return candidate;
    };
    let functions = flow.nodes.iter().enumerate().filter(|(_, function)| {
        function.is_paired && !function.is_module() && function.op.name.phase() == Phase::Backward
    });
    let made = functions.flat_map(|(op, function)| function.results().map(move |slot| (op, slot)));
    let found = made.into_iter().find(|&place| flow.fact(place).identity == Some(identity));
    match found {
        Some((op, slot)) => Candidate { op, slot: Some(slot), ..candidate },
        None => candidate,
    }
}

/// Returns the innermost module call with correct inputs around an arrival: the arriving value was made in it.
/// If there is none, the difference came from outside the recorded ops.
fn made_around(flow: &Flow<'_>, candidate: Candidate) -> Candidate {
    let Some(slot) = candidate.slot.filter(|_| candidate.arrived) else { return candidate };
    let place = (candidate.op, slot);
    let fact = flow.fact(place);
    if flow.side(place) == SlotSide::Parameter {
        return candidate;
    }
    if candidate.cause == Cause::Input && flow.comes_from_outside(place) {
        return Candidate { said: owner(flow, place), ..candidate };
    }
    let error = if fact.difference.is_open() { fact.relative() } else { 1.0 };
    let right = |outer: &usize| {
        let node = &flow.nodes[*outer];
        let mut given = node
            .given()
            .filter(|&slot| flow.side((*outer, slot)) == SlotSide::Input)
            .map(|slot| flow.fact((*outer, slot)))
            .filter(|fact| fact.is_tensor)
            .peekable();
        given.peek().is_some()
            && given.all(|given| given.difference.is_open() && given.relative() <= RIGHT * error)
    };
    let Some(outer) = flow.around(candidate.op).find(right) else { return candidate };
    let node = &flow.nodes[outer];
    let cause = match candidate.cause {
        Cause::Input => Cause::Numerics,
        cause => cause,
    };
    let cause =
        if fact.difference == super::difference::Difference::NonFinite { Cause::NonFinite } else { cause };
    Candidate {
        seen: Some((candidate.op, slot)),
        beyond: candidate.beyond,
        ..Candidate::at(outer, node.results().next(), cause)
    }
}

/// Names the parameter that a function reads, after a module around it that recorded it as its own; empty if
/// none did.
fn owner(flow: &Flow<'_>, place: Place) -> String {
    let Some(identity) = flow.fact(place).identity else { return String::new() };
    let modules =
        flow.around(place.0).filter_map(|outer| Some((outer, flow.nodes[outer].op.name.module_path()?)));
    let mut owned = modules.flat_map(|(outer, path)| {
        let own = flow.nodes[outer].given().map(move |slot| (outer, slot));
        let own = own.filter(|&own| {
            flow.side(own) == SlotSide::Parameter && flow.fact(own).identity == Some(identity)
        });
        own.filter_map(move |own| {
            let name = &flow.slot(own)?.path;
            Some(format!("{path}.{} differs", name.strip_prefix("parameter.").unwrap_or(name)))
        })
    });
    owned.next().unwrap_or_default()
}
