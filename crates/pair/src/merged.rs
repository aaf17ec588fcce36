//! Paired calls although one side computes in one call what the other computes in several: gate and up
//! projection of an MLP, or queries, keys and values, as one product with the weights side by side. Each of
//! the several calls reads what the one call reads, and only one of them can be its partner by name.

use std::collections::{HashMap, HashSet};

use super::sequence::value_key;
use probe_dump::{Op, OpKind, Phase, TensorRecord};

/// Returns pairs in `partners`, by position in `baseline`, of functions whose weights and results differ in
/// size while another unpaired call of the function reads the same input; and of backward passes whose forward
/// calls are not paired.
pub(super) fn find(baseline: &[Op], candidate: &[Op], partners: &[Option<usize>]) -> Vec<usize> {
    let mut partners = partners.to_vec();
    let mut paired = vec![false; candidate.len()];
    partners.iter().flatten().for_each(|&c| paired[c] = true);
    let alone = [reads(baseline, |at| partners[at].is_none()), reads(candidate, |at| !paired[at])];
    let calls = [baseline, candidate].map(|ops| {
        let calls = ops.iter().enumerate().filter(|(_, op)| is_forward(op));
        calls.map(|(at, op)| (op.name.as_str(), at)).collect::<HashMap<_, _>>()
    });
    let forward_of =
        |side: usize, op: &Op| calls[side].get(op.name.in_phase(Phase::Forward)?.as_str()).copied();
    let mut found = Vec::new();
    for b in 0..baseline.len() {
        let Some(c) = partners[b] else { continue };
        let (x, y) = (&baseline[b], &candidate[c]);
        let resized = |results: bool| resized(x, y, results);
        let is_another = if is_forward(x) {
            let again = |side: usize, op: &Op| keys(op).any(|key| alone[side].contains(&key));
            (again(0, x) || again(1, y)) && resized(false) && resized(true)
        } else if x.name.kind() == OpKind::Api && (resized(false) || resized(true)) {
            matches!((forward_of(0, x), forward_of(1, y)), (Some(x), Some(y)) if partners[x] != Some(y))
        } else {
            false
        };
        if is_another {
            partners[b] = None;
            found.push(b);
        }
    }
    found
}

fn is_forward(op: &Op) -> bool {
    op.name.kind() == OpKind::Api && op.name.phase() == Phase::Forward
}

/// Returns the inputs of unpaired functions.
fn reads(ops: &[Op], is_alone: impl Fn(usize) -> bool) -> HashSet<(&str, u64)> {
    let alone = ops.iter().enumerate().filter(|(at, op)| is_forward(op) && is_alone(*at));
    alone.flat_map(|(_, op)| keys(op)).collect()
}

/// Returns the inputs of an op, each with the name of the function.
fn keys(op: &Op) -> impl Iterator<Item = (&str, u64)> {
    tensors(op, false).filter_map(|(_, record)| Some((op.name.stem(), value_key(record)?)))
}

/// Returns true if a tensor that both ops read, or make, differs in its number of elements.
fn resized(b: &Op, c: &Op, results: bool) -> bool {
    let partners: Vec<_> = tensors(c, results).collect();
    tensors(b, results).enumerate().any(|(index, (path, record))| {
        // Nearly always in the same order.
        let partner = partners.get(index).filter(|(other, _)| *other == path);
        let partner = partner.or_else(|| partners.iter().find(|(other, _)| *other == path));
        partner.is_some_and(|(_, partner)| partner.len() != record.len())
    })
}

fn tensors(op: &Op, results: bool) -> impl Iterator<Item = (&str, &TensorRecord)> {
    let slots = op.slots.iter().filter(move |slot| slot.side.is_result() == results);
    slots.filter_map(|slot| Some((&*slot.path, slot.value.tensor()?)))
}
