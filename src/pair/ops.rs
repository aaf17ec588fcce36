//! Pairs the ops of two ranks, and the slots of two ops.

use std::collections::{HashMap, HashSet};

use super::{OpPair, Paired};
use crate::dump::{Op, OpKind, Phase, Rank};

/// Pairs ops by name. Returns them in execution order of the baseline; an op of the candidate alone stands
/// behind the op that preceded it in its own run.
///
/// Two spellings of one name meet: parameter gradients with and without a call number (older dumps leave it out),
/// and module paths with the `module.` that a data-parallel wrapper adds on one side.
///
/// Where one side calls an API more often, call numbers do not tell which call is which: one call more at the start shifts
/// all later numbers. Such calls are paired by their place instead: behind which op of a reliable name they stand.
pub fn align(baseline: &Rank, candidate: &Rank) -> Vec<OpPair> {
    let strip = (wrapped(&baseline.ops), wrapped(&candidate.ops));
    // Where both sides are wrapped the prefix is part of the common name.
    let strip = if strip.0 && strip.1 { (false, false) } else { strip };
    let uneven = uneven_stems(&baseline.ops, &candidate.ops, strip);
    let b_keys = keys(&baseline.ops, strip.0, &uneven);
    let c_keys = keys(&candidate.ops, strip.1, &uneven);
    let mut index: HashMap<&Key<'_>, Vec<usize>> = HashMap::with_capacity(c_keys.len());
    for (position, key) in c_keys.iter().enumerate().rev() {
        index.entry(key).or_default().push(position);
    }
    let partners: Vec<Option<usize>> =
        b_keys.iter().map(|key| index.get_mut(key).and_then(Vec::pop)).collect();
    let mut taken = vec![false; candidate.ops.len()];
    for &partner in partners.iter().flatten() {
        taken[partner] = true;
    }
    let mut alone = (0..candidate.ops.len()).filter(|&position| !taken[position]).peekable();
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

/// An API or module in one phase, without the number of the call.
type Stem<'a> = (OpKind, Phase, &'a str);

fn stem_of(op: &Op, strip_wrapper: bool) -> Stem<'_> {
    let name = &op.name;
    let stem = name.stem().strip_prefix("Module.").unwrap_or_else(|| name.stem());
    let stem = if strip_wrapper { stem.strip_prefix("module.").unwrap_or(stem) } else { stem };
    (name.kind(), name.phase(), stem)
}

/// What the two sides call a different number of times, though both call it.
fn uneven_stems<'a>(baseline: &'a [Op], candidate: &'a [Op], strip: (bool, bool)) -> HashSet<Stem<'a>> {
    let mut counts: HashMap<Stem<'_>, (usize, usize)> = HashMap::new();
    for op in baseline {
        counts.entry(stem_of(op, strip.0)).or_default().0 += 1;
    }
    for op in candidate {
        counts.entry(stem_of(op, strip.1)).or_default().1 += 1;
    }
    counts.into_iter().filter(|(_, (b, c))| b != c && *b > 0 && *c > 0).map(|(stem, _)| stem).collect()
}

/// What two ops must share to be a pair.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key<'a> {
    stem: Stem<'a>,
    /// Number of the call; of an unevenly called stem, the how manieth since the anchor.
    call: u32,
    /// The last op before it that has a reliable name, for unevenly called stems.
    anchor: Option<(Stem<'a>, u32)>,
}

fn keys<'a>(ops: &'a [Op], strip_wrapper: bool, uneven: &HashSet<Stem<'_>>) -> Vec<Key<'a>> {
    let mut anchor = None;
    let mut since: HashMap<Stem<'_>, u32> = HashMap::new();
    ops.iter()
        .map(|op| {
            let stem = stem_of(op, strip_wrapper);
            if uneven.contains(&stem) {
                let count = since.entry(stem).or_default();
                *count += 1;
                return Key { stem, call: *count, anchor };
            }
            let call = op.name.call().unwrap_or(0);
            anchor = Some((stem, call));
            since.clear();
            Key { stem, call, anchor: None }
        })
        .collect()
}
