//! Ops on one side in the place of others on the other side: a product that is `matmul` here and `expand`, `bmm`, `view` there.

use std::collections::HashMap;

use super::sequence::slot_key;
use super::{OpPair, Paired, Substitution};
use probe_dump::{Op, Rank, Slot};

/// Readers looked at of what a group hands on, the nearest first: enough to tell, and not what uses it much later.
const READERS: usize = 8;

/// Every run of ops without a partner between two pairs, with where what it hands on is read: by ops that have one, and by other runs.
pub fn substitutions(baseline: &Rank, candidate: &Rank, ops: &[OpPair]) -> Vec<Substitution> {
    let mut found: Vec<Substitution> = Vec::new();
    let mut made = [HashMap::new(), HashMap::new()];
    let mut open = false;
    for (at, pair) in ops.iter().enumerate() {
        if let Paired::Both(b, c) = pair.ops {
            open = false;
            if !found.is_empty() {
                read(&mut found, &made, at, pair, (&baseline.ops[b], &candidate.ops[c]));
            }
            continue;
        }
        if !std::mem::replace(&mut open, true) {
            found.push(Substitution::default());
        }
        let group = found.len() - 1;
        let (side, op) = match pair.ops {
            Paired::BaselineOnly(b) => (0, &baseline.ops[b]),
            Paired::CandidateOnly(c) | Paired::Both(_, c) => (1, &candidate.ops[c]),
        };
        let members = if side == 0 { &mut found[group].baseline } else { &mut found[group].candidate };
        members.push(at);
        for key in values(op, false) {
            if let Some(&maker) = made[side].get(&key)
                && maker != group
            {
                feed(&mut found[maker], group);
            }
        }
        for key in values(op, true) {
            // Who reads a value that is made again may read either: two masks of the same elements, of which one is used.
            if let Some(maker) = made[side].insert(key, group)
                && maker != group
            {
                feed(&mut found[maker], group);
            }
        }
    }
    found
}

/// Notes that a later group reads what `from` made, or makes it again.
fn feed(from: &mut Substitution, group: usize) {
    if from.feeds.len() < READERS && from.feeds.last() != Some(&group) {
        from.feeds.push(group);
    }
}

/// Notes that the op at `at`, which both sides have, reads what a group made.
fn read(
    found: &mut [Substitution],
    made: &[HashMap<u64, usize>; 2],
    at: usize,
    pair: &OpPair,
    ops: (&Op, &Op),
) {
    for (position, slots) in pair.slots.iter().enumerate() {
        let Paired::Both(b, c) = slots else { continue };
        let (b, c) = (&ops.0.slots[b], &ops.1.slots[c]);
        if b.side.is_result() {
            continue;
        }
        let maker = |slot: &Slot, side: usize| made[side].get(&slot_key(slot)?).copied();
        let makers = [maker(b, 0), maker(c, 1)];
        for group in makers.into_iter().flatten() {
            let boundary = &mut found[group].boundary;
            if boundary.len() < READERS && boundary.last() != Some(&(at, position)) {
                boundary.push((at, position));
            }
        }
    }
}

/// Keys of what an op was given, or made.
fn values(op: &Op, results: bool) -> impl Iterator<Item = u64> {
    let slots = op.slots.iter().filter(move |slot| slot.side.is_result() == results);
    slots.filter_map(slot_key)
}
