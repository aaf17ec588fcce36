//! Pairs the ops of two ranks, and the slots of two ops.

use std::collections::HashMap;

use super::{OpPair, Paired};
use crate::dump::{Op, OpKind, Phase, Rank};

/// Pairs ops by name. Returns them in execution order of the baseline; an op of the candidate alone stands
/// behind the op that preceded it in its own run.
///
/// Two spellings of one name meet: parameter gradients with and without a call number (older dumps leave it out),
/// and module paths with the `module.` that a data-parallel wrapper adds on one side.
pub fn align(baseline: &Rank, candidate: &Rank) -> Vec<OpPair> {
    let strip = (wrapped(&baseline.ops), wrapped(&candidate.ops));
    // Where both sides are wrapped the prefix is part of the common name.
    let strip = if strip.0 && strip.1 { (false, false) } else { strip };
    let mut index: HashMap<Key<'_>, Vec<usize>> = HashMap::with_capacity(candidate.ops.len());
    for (position, op) in candidate.ops.iter().enumerate().rev() {
        index.entry(Key::of(op, strip.1)).or_default().push(position);
    }
    let partners: Vec<Option<usize>> =
        baseline.ops.iter().map(|op| index.get_mut(&Key::of(op, strip.0)).and_then(Vec::pop)).collect();
    let mut taken = vec![false; candidate.ops.len()];
    for &partner in partners.iter().flatten() {
        taken[partner] = true;
    }
    let alone: Vec<usize> = (0..candidate.ops.len()).filter(|&position| !taken[position]).collect();
    let mut alone = alone.into_iter().peekable();
    let mut pairs = Vec::with_capacity(baseline.ops.len());
    for (b, partner) in partners.into_iter().enumerate() {
        match partner {
            Some(c) => {
                while let Some(before) = alone.next_if(|&position| position < c) {
                    pairs.push(one_sided(&candidate.ops, before, Paired::CandidateOnly));
                }
                let slots = pair_slots(&baseline.ops[b], &candidate.ops[c]);
                pairs.push(OpPair { ops: Paired::Both(b, c), slots });
            }
            None => pairs.push(one_sided(&baseline.ops, b, Paired::BaselineOnly)),
        }
    }
    pairs.extend(alone.map(|position| one_sided(&candidate.ops, position, Paired::CandidateOnly)));
    pairs
}

fn one_sided(ops: &[Op], position: usize, side: fn(usize) -> Paired) -> OpPair {
    OpPair { ops: side(position), slots: (0..ops[position].slots.len()).map(side).collect() }
}

/// Pairs slots by path, in the order of the baseline with the candidate's own ones at the end of their side.
pub fn pair_slots(baseline: &Op, candidate: &Op) -> Vec<Paired> {
    let (b, c) = (&baseline.slots, &candidate.slots);
    // Nearly always both sides list the same paths in the same order.
    if b.len() == c.len() && b.iter().zip(c).all(|(b, c)| b.path == c.path) {
        return (0..b.len()).map(|index| Paired::Both(index, index)).collect();
    }
    let by_path: HashMap<&str, usize> =
        c.iter().enumerate().map(|(index, slot)| (&*slot.path, index)).collect();
    let mut taken = vec![false; c.len()];
    let mut pairs: Vec<Paired> = b
        .iter()
        .enumerate()
        .map(|(index, slot)| match by_path.get(&*slot.path) {
            Some(&partner) if !taken[partner] => {
                taken[partner] = true;
                Paired::Both(index, partner)
            }
            _ => Paired::BaselineOnly(index),
        })
        .collect();
    pairs.extend((0..c.len()).filter(|&index| !taken[index]).map(Paired::CandidateOnly));
    let side = |pair: &Paired| {
        pair.baseline().map_or_else(|| pair.candidate().map(|i| c[i].side), |i| Some(b[i].side))
    };
    pairs.sort_by_key(side);
    pairs
}

/// True when every module path begins with the prefix of a data-parallel wrapper.
fn wrapped(ops: &[Op]) -> bool {
    let mut modules = ops.iter().filter_map(|op| op.name.module_path()).peekable();
    modules.peek().is_some() && modules.all(|path| path == "module" || path.starts_with("module."))
}

/// What two ops must share to be a pair.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    kind: OpKind,
    phase: Phase,
    stem: &'a str,
    call: u32,
}

impl<'a> Key<'a> {
    fn of(op: &'a Op, strip_wrapper: bool) -> Self {
        let name = &op.name;
        let stem = name.stem().strip_prefix("Module.").unwrap_or_else(|| name.stem());
        let stem = if strip_wrapper { stem.strip_prefix("module.").unwrap_or(stem) } else { stem };
        Self { kind: name.kind(), phase: name.phase(), stem, call: name.call().unwrap_or(0) }
    }
}
