//! Whether the other side computes in the place of a group without a partner.

use std::collections::{HashMap, HashSet};

use super::{computes, computing, stand_for_themselves};
use crate::alone::MadeAlone;
use crate::flow::{Flow, Node, Place};
use probe_dump::Phase;
use probe_pair::{Substitution, slot_key};

/// For each group, whether the other side computes there as well: by ops of its own, of this group or of one that reads what this one made; or by
/// something that was not recorded (a kernel of an extension), so that what both sides read behind the group appears there for the
/// first time on the other side. Where that side hands on a value that was there before, it computes nothing.
pub(super) fn answered(flow: &Flow<'_>) -> Vec<bool> {
    let groups = &flow.pair.substitutions;
    let mut answered = vec![false; groups.len()];
    if groups.is_empty() {
        return answered;
    }
    let appearance = Appearance::of(flow);
    for (place, group) in groups.iter().enumerate().rev() {
        answered[place] = match computing(flow, group) {
            _ if stand_for_themselves(flow, group) => false,
            [Some(_), Some(_)] => true,
            // By functions between modules.
            _ if flow.modules_alone && group.boundary.is_empty() => true,
            [Some(first), None] => appearance.is_new(flow, group, 1, first),
            [None, Some(first)] => appearance.is_new(flow, group, 0, first),
            [None, None] => false,
        } || group.feeds.iter().any(|&next| answered[next]);
    }
    // What flows back through a group flows back through what stands in its place.
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

/// Where the values of each side appear first.
struct Appearance {
    /// Among the ops that both sides have.
    paired: [HashMap<u64, usize>; 2],
    alone: MadeAlone,
}

impl Appearance {
    fn of(flow: &Flow<'_>) -> Self {
        let mut paired = [HashMap::new(), HashMap::new()];
        for (position, op_pair) in flow.pair.ops.iter().enumerate() {
            let (Some(b), Some(c)) = flow.pair.op(op_pair) else { continue };
            for (side, op) in [b, c].into_iter().enumerate() {
                for key in op.slots.iter().filter_map(slot_key) {
                    paired[side].entry(key).or_insert(position);
                }
            }
        }
        Self { paired, alone: MadeAlone::of(flow, computes) }
    }

    /// Whether all that is read behind a group, of which `side` has no op that computes, is new on that side: no op that both have knew it
    /// before `first`.
    fn is_new(&self, flow: &Flow<'_>, group: &Substitution, side: usize, first: usize) -> bool {
        let read = |&(op, slot): &Place, side: usize| {
            let (b, c) = flow.pair.slot_at(op, slot);
            if side == 0 { b } else { c }.and_then(slot_key)
        };
        let new = |place: &Place| {
            read(place, side).is_some_and(|key| {
                self.alone.has(side, key) || self.paired[side].get(&key).is_some_and(|&seen| seen >= first)
            })
        };
        // What is only handed on in the group is not what the other side computes.
        let ops = if side == 0 { &group.candidate } else { &group.baseline };
        let made: HashSet<u64> = ops.iter().flat_map(|&op| made_anew(&flow.nodes[op])).collect();
        let reads_made = |place: &&Place| read(place, 1 - side).is_some_and(|key| made.contains(&key));
        let behind: Vec<&Place> = group.boundary.iter().filter(reads_made).collect();
        let behind = if behind.is_empty() { group.boundary.iter().collect() } else { behind };
        !behind.is_empty() && behind.into_iter().all(new)
    }
}

/// What the results of an op are known by, but for those that it was given.
fn made_anew(node: &Node<'_>) -> HashSet<u64> {
    let keys = |results: bool| {
        let slots = node.op.slots.iter().filter(move |slot| slot.side.is_result() == results);
        slots.filter_map(slot_key).collect::<HashSet<u64>>()
    };
    &keys(true) - &keys(false)
}
