//! Paired ops that do different things, but compute nothing that would show it. They have the same name and
//! module.
//!
//! Some pass on what they read, but read something else: a transpose of the queries in front of a fused
//! attention on one side, one of the result of another attention on the other. Others make a constant for
//! another purpose: the ones of a mask of 24 x 24 for one attention, of 2048 x 2048 for another. Others have the name in
//! common and not the kind of number.

use std::cell::LazyCell;
use std::collections::HashMap;

use super::sequence::{apart, value_key};
use probe_dump::{DType, Op, OpKind, Phase, SeenAs, Slot, TensorRecord};

/// Difference of extremes or norms from which on two ops read different things: a tenth.
const STRANGE: f64 = 0.1;

/// Returns pairs in `partners`, by position in `baseline`, of ops that pass on values which differ or have
/// different shapes, and which were not made by a pair of ops either.
pub(super) fn find(baseline: &[Op], candidate: &[Op], partners: &[Option<usize>]) -> Vec<usize> {
    let mut partners = partners.to_vec();
    let makers = LazyCell::new(|| [makers(baseline), makers(candidate)]);
    let by_module = LazyCell::new({
        let partners = partners.clone();
        move || made_by_module(baseline, candidate, &partners)
    });
    let mut found = Vec::new();
    for b in 0..baseline.len() {
        let Some(c) = partners[b] else { continue };
        let (Some(x), Some(y)) = (handed_on(&baseline[b]), handed_on(&candidate[c])) else { continue };
        let reshaped = x.squeezed_shape() != y.squeezed_shape();
        if !reshaped && apart(x, y).is_none_or(|off| off <= STRANGE) {
            continue;
        }
        // If the shapes differ, the op that made the shape counts as maker.
        let maker = |side: usize, record: &TensorRecord, reader: usize| {
            let [in_any_shape, in_this] = keys(record)?;
            let key = if reshaped { in_this } else { in_any_shape };
            makers[side].get(&key).copied().filter(|&(maker, _)| maker < reader)
        };
        let of_a_pair = match (maker(0, x, b), maker(1, y, c)) {
            (Some((x, of_x)), Some((y, of_y))) => partners[x] == Some(y) && of_x == of_y,
            // Their origin is unknown.
            (None, None) => true,
            _ => false,
        };
        // What ranks exchange inside of a module changes a value without an op.
        let of_a_module = || {
            let [x, _] = keys(x)?;
            let [y, _] = keys(y)?;
            by_module.get(&(x, y)).copied().filter(|&(x, y)| x < b && y < c)
        };
        if !of_a_pair && of_a_module().is_none() {
            partners[b] = None;
            found.push(b);
        }
    }
    found
}

/// Returns pairs in `partners`, by position in `baseline`, of ops that make tensors of different sizes from no
/// tensor, read by unpaired ops only.
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

/// Returns pairs in `partners`, by position in `baseline`, of functions of which one computes with complex numbers where
/// the other has real ones: a product of two spectra on one side, that of their real parts on the other.
pub(super) fn find_complex(baseline: &[Op], candidate: &[Op], partners: &[Option<usize>]) -> Vec<usize> {
    let is_complex = |record: &TensorRecord| record.dtype.known().map(DType::is_complex);
    let differ = |b: &Slot, c: &Slot| {
        let both = b.value.tensor().zip(c.value.tensor()).filter(|_| b.path == c.path);
        both.and_then(|(b, c)| is_complex(b).zip(is_complex(c))).is_some_and(|(b, c)| b != c)
    };
    let is_pair_of_fields = |b: &usize| {
        let both = partners[*b].map(|c| baseline[*b].slots.iter().zip(&candidate[c].slots));
        // The tensors of a checkpoint are no functions.
        baseline[*b].name.kind() == OpKind::Api
            && both.is_some_and(|mut both| both.any(|(b, c)| differ(b, c)))
    };
    (0..baseline.len()).filter(is_pair_of_fields).collect()
}

/// Returns pairs in `partners`, by position in `baseline`, of functions called in another order than the pairs around
/// them, with other shapes: the negation of a loss on one side, that of what the loss is made from on the other. The
/// backward pass may run in any order.
pub(super) fn find_crossing(baseline: &[Op], candidate: &[Op], partners: &[Option<usize>]) -> Vec<usize> {
    let resized = |b: usize, c: usize| {
        baseline[b].name.kind() != OpKind::Module && differ_in_shape(&baseline[b], &candidate[c])
    };
    let in_order = |b: &usize| partners[*b].is_some() && baseline[*b].name.phase() == Phase::Forward;
    let (suspects, others): (Vec<usize>, Vec<usize>) =
        (0..baseline.len()).filter(in_order).partition(|&b| partners[b].is_some_and(|c| resized(b, c)));
    let latest: Vec<usize> = others
        .iter()
        .filter_map(|&b| partners[b])
        .scan(0, |latest, c| {
            *latest = c.max(*latest);
            Some(*latest)
        })
        .collect();
    let mut earliest: Vec<usize> = others
        .iter()
        .rev()
        .filter_map(|&b| partners[b])
        .scan(usize::MAX, |earliest, c| {
            *earliest = c.min(*earliest);
            Some(*earliest)
        })
        .collect();
    earliest.reverse();
    let crosses = |&b: &usize| {
        let at = others.partition_point(|&other| other < b);
        let behind = earliest.get(at).copied().unwrap_or(usize::MAX);
        let before = at.checked_sub(1).map(|last| latest[last]);
        partners[b].is_some_and(|c| before.is_some_and(|before| c < before) || c > behind)
    };
    suspects.into_iter().filter(crosses).collect()
}

/// Returns true if a slot of both ops holds tensors of different shapes.
pub(super) fn differ_in_shape(b: &Op, c: &Op) -> bool {
    b.slots.iter().zip(&c.slots).any(|(b, c)| {
        let both = b.value.tensor().zip(c.value.tensor()).filter(|_| b.path == c.path);
        both.is_some_and(|(b, c)| b.squeezed_shape() != c.squeezed_shape())
    })
}

/// Returns the tensors that are read, and for each if any paired op does.
fn readers(ops: &[Op], is_paired: impl Fn(usize) -> bool) -> HashMap<SeenAs, bool> {
    let mut readers = HashMap::new();
    for (position, op) in ops.iter().enumerate() {
        for seen in op.slots.iter().filter(|slot| !slot.side.is_result()).filter_map(|slot| slot.identity) {
            *readers.entry(seen).or_default() |= is_paired(position);
        }
    }
    readers
}

/// Returns the tensor that a function makes from no tensor.
fn constant(op: &Op) -> Option<(Option<SeenAs>, &TensorRecord)> {
    let is_function = op.name.kind() == OpKind::Api && op.name.phase() == Phase::Forward;
    let mut tensors = op.slots.iter().filter(|slot| slot.value.tensor().is_some());
    let made: &Slot = tensors.next().filter(|slot| is_function && slot.side.is_result())?;
    Some((made.identity, made.value.tensor()?)).filter(|_| tensors.next().is_none())
}

/// Key of a value, with its shape if that counts.
type Key = (u64, Option<Vec<u64>>);

/// Returns the keys of a value in any shape, and in its own shape.
fn keys(record: &TensorRecord) -> Option<[Key; 2]> {
    let key = value_key(record)?;
    Some([(key, None), (key, Some(record.squeezed_shape()))])
}

/// Returns the op that first made each value, in any shape and in each, with the path of the result.
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

/// Returns the pairs of values that paired module calls returned, by their keys in any shape, with the first of these calls.
fn made_by_module(
    baseline: &[Op],
    candidate: &[Op],
    partners: &[Option<usize>],
) -> HashMap<(Key, Key), (usize, usize)> {
    let key = |slot: &Slot| {
        let [key, _] = slot.value.tensor().filter(|_| slot.side.is_result()).and_then(keys)?;
        Some(key)
    };
    let mut made = HashMap::new();
    for (b, op) in baseline.iter().enumerate().filter(|(_, op)| op.name.kind() == OpKind::Module) {
        let Some(c) = partners[b] else { continue };
        let both = op.slots.iter().zip(&candidate[c].slots).filter(|(x, y)| x.path == y.path);
        for pair in both.filter_map(|(x, y)| Some((key(x)?, key(y)?))) {
            made.entry(pair).or_insert((b, c));
        }
    }
    made
}

/// Returns the input of an op that turns one tensor into another with the same number of elements and the same
/// extremes.
fn handed_on(op: &Op) -> Option<&TensorRecord> {
    let only = |results: bool| {
        let slots = op.slots.iter().filter(move |slot| slot.side.is_result() == results);
        let mut tensors = slots.filter_map(|slot| slot.value.tensor());
        tensors.next().filter(|_| tensors.next().is_none())
    };
    let (read, made) = (only(false)?, only(true)?);
    let extremes =
        |record: &TensorRecord| Some((record.statistics.min()?.as_f64(), record.statistics.max()?.as_f64()));
    // A number may be handed on by any function: a loss that is divided by 1.
    (op.name.kind() == OpKind::Api
        && read.len() == made.len()
        && read.len() > 1
        && extremes(read)? == extremes(made)?)
    .then_some(read)
}
