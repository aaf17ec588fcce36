//! Ops that replace others on the other side: a product that is `matmul` on one side and `expand`, `bmm`,
//! `view` on the other.

use std::collections::HashMap;

use super::sequence::slot_key;
use super::{OpPair, Paired, Substitution};
use probe_dump::{Op, Rank, Slot};

/// Maximum number of readers considered for a group, the nearest first: enough to tell, without much later
/// uses.
const READERS: usize = 8;

/// Returns every run of unpaired ops between two pairs, with the places where its results are read: by paired
/// ops and by other runs.
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
            // A reader of a value that is made again may read either: two masks with equal elements, of which
            // one is used.
            if let Some(maker) = made[side].insert(key, group)
                && maker != group
            {
                feed(&mut found[maker], group);
            }
        }
    }
    found
}

/// Records that a later group reads what `from` made, or makes it again.
fn feed(from: &mut Substitution, group: usize) {
    if from.feeds.len() < READERS && from.feeds.last() != Some(&group) {
        from.feeds.push(group);
    }
}

/// Records that the paired op at `at` reads a result of a group.
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

/// Returns the keys of an op's inputs or results.
fn values(op: &Op, results: bool) -> impl Iterator<Item = u64> {
    let slots = op.slots.iter().filter(move |slot| slot.side.is_result() == results);
    slots.filter_map(slot_key)
}
