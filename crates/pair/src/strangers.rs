//! Ops that were paired although they do other things, and compute nothing by which they could be told. They have the same name and module.
//!
//! Some hand on what they read, and read something else: a transpose of the queries in front of a fused attention here, one of the result of
//! another attention there. Others make a constant for something else: the ones of a mask of 24 x 24 for one attention, of 2048 x 2048 for
//! another.

use std::cell::LazyCell;
use std::collections::HashMap;

use super::sequence::{apart, value_key};
use probe_dump::{Op, OpKind, Phase, SeenAs, Slot, TensorRecord};

/// What two ops read is something else from here on: extremes or norms that differ by a tenth.
const STRANGE: f64 = 0.1;

/// Pairs in `partners`, by position in `baseline`, of ops that hand on values which are not about the same or have another shape, and were not made
/// by a pair of ops either: positions in `baseline`.
pub(super) fn find(baseline: &[Op], candidate: &[Op], partners: &[Option<usize>]) -> Vec<usize> {
    let mut partners = partners.to_vec();
    let makers = LazyCell::new(|| [makers(baseline), makers(candidate)]);
    let mut found = Vec::new();
    for b in 0..baseline.len() {
        let Some(c) = partners[b] else { continue };
        let (Some(x), Some(y)) = (handed_on(&baseline[b]), handed_on(&candidate[c])) else { continue };
        let reshaped = x.squeezed_shape() != y.squeezed_shape();
        if !reshaped && apart(x, y).is_none_or(|off| off <= STRANGE) {
            continue;
        }
        // Where the shapes differ, who gave it that shape made it.
        let maker = |side: usize, record: &TensorRecord, reader: usize| {
            let [in_any_shape, in_this] = keys(record)?;
            let key = if reshaped { in_this } else { in_any_shape };
            makers[side].get(&key).copied().filter(|&(maker, _)| maker < reader)
        };
        let of_a_pair = match (maker(0, x, b), maker(1, y, c)) {
            (Some((x, of_x)), Some((y, of_y))) => partners[x] == Some(y) && of_x == of_y,
            // Nothing is known of where they come from.
            (None, None) => true,
            _ => false,
        };
        if !of_a_pair {
            partners[b] = None;
            found.push(b);
        }
    }
    found
}

/// Pairs in `partners`, by position in `baseline`, of ops that make a tensor of none, in another size, which only ops without a partner read.
pub(super) fn find_constants(baseline: &[Op], candidate: &[Op], partners: &[Option<usize>]) -> Vec<usize> {
    let resized = |b: usize, c: usize| {
        let made = constant(&baseline[b]).zip(constant(&candidate[c]));
        made.is_some_and(|((_, x), (_, y))| x.len() != y.len())
    };
    let mut found: Vec<usize> =
        (0..baseline.len()).filter(|&b| partners[b].is_some_and(|c| resized(b, c))).collect();
    if found.is_empty() {
        return found;
    }
    let mut paired = vec![false; candidate.len()];
    partners.iter().flatten().for_each(|&c| paired[c] = true);
    let readers = [
        readers(baseline, |position| partners[position].is_some()),
        readers(candidate, |position| paired[position]),
    ];
    let read_alone = |side: usize, op: &Op| {
        let seen = constant(op).and_then(|(seen, _)| seen);
        seen.and_then(|seen| readers[side].get(&seen)) == Some(&false)
    };
    found.retain(|&b| {
        read_alone(0, &baseline[b]) && partners[b].is_some_and(|c| read_alone(1, &candidate[c]))
    });
    found
}

/// Which tensors are read, and whether any op that has a partner does.
fn readers(ops: &[Op], is_paired: impl Fn(usize) -> bool) -> HashMap<SeenAs, bool> {
    let mut readers = HashMap::new();
    for (position, op) in ops.iter().enumerate() {
        for seen in op.slots.iter().filter(|slot| !slot.side.is_result()).filter_map(|slot| slot.identity) {
            *readers.entry(seen).or_default() |= is_paired(position);
        }
    }
    readers
}

/// The tensor that a function makes of none.
fn constant(op: &Op) -> Option<(Option<SeenAs>, &TensorRecord)> {
    let is_function = op.name.kind() == OpKind::Api && op.name.phase() == Phase::Forward;
    let mut tensors = op.slots.iter().filter(|slot| slot.value.tensor().is_some());
    let made: &Slot = tensors.next().filter(|slot| is_function && slot.side.is_result())?;
    Some((made.identity, made.value.tensor()?)).filter(|_| tensors.next().is_none())
}

/// What a value is known by, with its sizes where these count.
type Key = (u64, Option<Vec<u64>>);

/// What a value is known by in any shape, and in the one that it has.
fn keys(record: &TensorRecord) -> Option<[Key; 2]> {
    let key = value_key(record)?;
    Some([(key, None), (key, Some(record.squeezed_shape()))])
}

/// Which op made each value first, in any shape and in each, and as which of its results.
fn makers(ops: &[Op]) -> HashMap<Key, (usize, &str)> {
    let mut makers = HashMap::new();
    for (position, op) in ops.iter().enumerate().filter(|(_, op)| op.name.kind() == OpKind::Api) {
        for slot in op.slots.iter().filter(|slot| slot.side.is_result()) {
            for key in slot.value.tensor().and_then(keys).into_iter().flatten() {
                makers.entry(key).or_insert((position, &*slot.path));
            }
        }
    }
    makers
}

/// The tensor that an op of one tensor makes another of, with as many elements and the same extremes.
fn handed_on(op: &Op) -> Option<&TensorRecord> {
    let only = |results: bool| {
        let slots = op.slots.iter().filter(move |slot| slot.side.is_result() == results);
        let mut tensors = slots.filter_map(|slot| slot.value.tensor());
        tensors.next().filter(|_| tensors.next().is_none())
    };
    let (read, made) = (only(false)?, only(true)?);
    let extremes =
        |record: &TensorRecord| Some((record.statistics.min()?.as_f64(), record.statistics.max()?.as_f64()));
    (op.name.kind() == OpKind::Api && read.len() == made.len() && extremes(read)? == extremes(made)?)
        .then_some(read)
}
