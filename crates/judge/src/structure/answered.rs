//! Determines if the other side computes in the place of an unpaired group.

use std::collections::{HashMap, HashSet};

use super::unpaired::{computes, computing, stand_for_themselves, writes};
use crate::flow::{Flow, Node, Place};
use probe_dump::{Phase, Slot};
use probe_pair::{Substitution, slot_key};

/// Returns, for each group, if the other side also computes there: by its own ops, of this group or of one
/// that reads this group's results; or by something unrecorded (an extension kernel), so that the values both
/// sides read behind the group first appear there on the other side. A side that passes on an existing value
/// computes nothing.
pub(super) fn answered(flow: &Flow<'_>) -> Vec<bool> {
    let groups = &flow.pair.substitutions;
    let mut answered = vec![false; groups.len()];
    if groups.is_empty() {
        return answered;
    }
    for (place, group) in groups.iter().enumerate().rev() {
        answered[place] = match computing(flow, group) {
            _ if stand_for_themselves(flow, group) => false,
            [Some(_), Some(_)] => true,
            // Computed by functions between modules.
            _ if flow.modules_alone && group.boundary.is_empty() => true,
            [Some(first), None] => is_new(flow, group, 1, first),
            [None, Some(first)] => is_new(flow, group, 0, first),
            [None, None] => false,
        } || group.feeds.iter().any(|&next| answered[next]);
    }
    // If the forward group is answered, so is its backward group.
    let forward: HashMap<&str, usize> = groups
        .iter()
        .enumerate()
        .flat_map(|(place, group)| group.baseline.iter().chain(&group.candidate).map(move |&op| (op, place)))
        .map(|(op, place)| (flow.nodes[op].op.name.as_str(), place))
        .collect();
    for (place, group) in groups.iter().enumerate() {
        let calls = group.baseline.iter().chain(&group.candidate).map(|&op| &flow.nodes[op].op.name);
        let mut calls = calls
            .filter(|name| name.phase() == Phase::Backward)
            .filter_map(|name| name.in_phase(Phase::Forward));
        let answers = |call: String| forward.get(&*call).is_some_and(|&place| answered[place]);
        answered[place] = answered[place] || calls.any(answers);
    }
    answered
}

/// Returns true if everything read behind a group, in which `side` has no computing op, is new on that
/// side: no paired op saw it before `first`.
fn is_new(flow: &Flow<'_>, group: &Substitution, side: usize, first: usize) -> bool {
    let read = |&(op, slot): &Place, side: usize| {
        let (b, c) = flow.pair.slot_at(op, slot);
        [b, c][side]
    };
    // A weight as the previous step read it is not new.
    let new = |place: &Place| {
        read(place, side).filter(|slot| !flow.is_old(side, slot)).is_some_and(|slot| {
            let makers = || flow.values.makers(side, slot).map(|(maker, _)| maker);
            let readers = flow.values.readers(side, slot).map(|(reader, _)| reader);
            let paired = makers().chain(readers).filter(|&op| flow.nodes[op].is_paired);
            makers().any(|op| !flow.nodes[op].is_paired && computes(&flow.nodes[op]))
                || paired.min().is_some_and(|seen| seen >= first)
        })
    };
    // Values that the group only passes on are not computed by the other side.
    let ops = if side == 0 { &group.candidate } else { &group.baseline };
    let made: HashSet<u64> = ops.iter().flat_map(|&op| made_anew(&flow.nodes[op])).collect();
    let reads_made =
        |place: &&Place| read(place, 1 - side).and_then(slot_key).is_some_and(|key| made.contains(&key));
    let behind: Vec<&Place> = group.boundary.iter().filter(reads_made).collect();
    let behind = if behind.is_empty() { group.boundary.iter().collect() } else { behind };
    !behind.is_empty() && behind.into_iter().all(new)
}

/// Returns true if one side alone computes in a group, and what it makes there is read where the other side reads a value as
/// the previous step left it: weights that follow others, on one side.
pub(super) fn moves_alone(flow: &Flow<'_>, group: &Substitution) -> bool {
    let side = match computing(flow, group) {
        [Some(_), None] => 0,
        [None, Some(_)] => 1,
        _ => return false,
    };
    // What is only made of a weight, as one merged with its adapter, is another value.
    let is_written =
        |slot: &Slot| flow.values.makers(side, slot).any(|(maker, _)| writes(&flow.nodes[maker]));
    group.boundary.iter().any(|&(op, slot)| {
        let (b, c) = flow.pair.slot_at(op, slot);
        let [own, other] = if side == 0 { [b, c] } else { [c, b] };
        own.is_some_and(|own| !flow.is_old(side, own) && is_written(own))
            && other.is_some_and(|other| flow.is_old(1 - side, other))
    })
}

/// Returns the keys of an op's results, except those of its inputs.
fn made_anew(node: &Node<'_>) -> HashSet<u64> {
    let keys = |results: bool| {
        let slots = node.op.slots.iter().filter(move |slot| slot.side.is_result() == results);
        slots.filter_map(slot_key).collect::<HashSet<u64>>()
    };
    &keys(true) - &keys(false)
}
