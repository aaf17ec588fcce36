//! The ops of all ranks as those of one.

use std::collections::HashMap;

use probe_dump::{Op, Rank};

/// Returns the ops of all ranks: those of the first, and after each what only later ranks called behind it.
pub(crate) fn merged(ranks: &[Rank]) -> Vec<Op> {
    let mut ops: Vec<Op> = ranks[0].ops.clone();
    for rank in &ranks[1..] {
        let known: HashMap<String, usize> =
            ops.iter().enumerate().map(|(place, op)| (op.name.as_str().to_owned(), place + 1)).collect();
        let mut new: Vec<Vec<Op>> = vec![Vec::new(); ops.len() + 1];
        let mut at = 0;
        for op in &rank.ops {
            if let Some(&place) = known.get(op.name.as_str()) {
                at = place;
                continue;
            }
            // Stacks and identities are numbered by each rank.
            let mut op = op.clone();
            op.stack = None;
            op.slots.iter_mut().for_each(|slot| slot.identity = None);
            new[at].push(op);
        }
        if new.iter().all(Vec::is_empty) {
            continue;
        }
        let mut new = new.into_iter();
        let mut all: Vec<Op> = new.next().unwrap_or_default();
        for (op, after) in ops.into_iter().zip(new) {
            all.push(op);
            all.extend(after);
        }
        ops = all;
    }
    ops
}

/// Adds the slots that an op has on another rank alone.
pub(crate) fn add_slots(op: &mut Op, other: &Op) {
    for slot in &other.slots {
        if !op.slots.iter().any(|own| own.path == slot.path) {
            op.slots.push(slot.clone());
            op.slots.last_mut().into_iter().for_each(|slot| slot.identity = None);
        }
    }
}

/// Returns the ops of ranks that hold parts of a model, in the order of `other`, which has all of it. An op of several ranks has the slots of all:
/// an optimizer's step has the parameters of every stage.
pub(crate) fn in_order_of(ranks: &[Rank], other: &Rank) -> Vec<Op> {
    let places: HashMap<&str, usize> =
        other.ops.iter().enumerate().map(|(place, op)| (op.name.as_str(), place)).collect();
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut ops: Vec<(usize, Op)> = Vec::new();
    for (number, rank) in ranks.iter().enumerate() {
        let mut at = 0;
        for op in &rank.ops {
            at = places.get(op.name.as_str()).copied().unwrap_or(at);
            if let Some(&place) = known.get(op.name.as_str()) {
                add_slots(&mut ops[place].1, op);
                continue;
            }
            known.insert(op.name.as_str(), ops.len());
            let mut op = op.clone();
            if number > 0 {
                op.stack = None;
                op.slots.iter_mut().for_each(|slot| slot.identity = None);
            }
            ops.push((at, op));
        }
    }
    ops.sort_by_key(|(place, _)| *place);
    ops.into_iter().map(|(_, op)| op).collect()
}
