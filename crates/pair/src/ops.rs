//! Pairs the ops of two ranks, and the slots of two ops.

use std::borrow::Cow;
use std::collections::HashMap;

use super::mapping::Mapping;
use super::sequence::{Name, Names, OpsToAlign, align_gap, increasing};
use super::{Alignment, OpPair, Paired, SlotPairs, merged, strangers};
use probe_dump::{Op, OpKind, Phase, Rank, without_module_prefix};

/// Number of modules listed in the note on renamed ones.
const LISTED: usize = 3;

/// Pairs ops. Returns them in execution order of the baseline; a candidate-only op follows the op that preceded
/// it in its own run.
///
/// Ops pair by name if both sides call an API equally often, with the same shapes. Some spellings of a name
/// are equivalent: parameter gradients with and without a call number (older dumps omit it), module paths with
/// the `module.` that a data-parallel wrapper adds on one side, and the names in `mapping`.
///
/// Everything else is aligned as a sequence between those pairs: one extra call at the start shifts all later
/// call numbers, so that they no longer identify calls, and a module may have a different path.
pub fn align(baseline: &Rank, candidate: &Rank, mapping: &Mapping) -> Alignment {
    let strip = (wrapped(&baseline.ops), wrapped(&candidate.ops));
    // If both sides are wrapped, the prefix is part of the common name.
    let strip = if strip.0 && strip.1 { (false, false) } else { strip };
    let b_stems: Vec<Cow<'_, str>> =
        baseline.ops.iter().map(|op| Cow::Borrowed(stem_of(op, strip.0))).collect();
    let in_common_terms = |op| mapping.stem(stem_of(op, strip.1), op.name.kind() == OpKind::Module);
    let c_stems: Vec<Cow<'_, str>> = candidate.ops.iter().map(in_common_terms).collect();
    let mut names = Names::default();
    let b_names = numbered(&mut names, &baseline.ops, &b_stems);
    let c_names = numbered(&mut names, &candidate.ops, &c_stems);

    let mut pairs = Pairs::new(baseline.ops.len(), candidate.ops.len());
    pairs.by_mapping(&baseline.ops, &candidate.ops, mapping);
    pairs.by_name((&baseline.ops, &b_names), (&candidate.ops, &c_names));
    pairs.by_sequence((&baseline.ops, &b_names), (&candidate.ops, &c_names));
    pairs.without(strangers::find, &baseline.ops, &candidate.ops, mapping);
    pairs.without(strangers::find_complex, &baseline.ops, &candidate.ops, mapping);
    pairs.without(strangers::find_constants, &baseline.ops, &candidate.ops, mapping);
    pairs.without(strangers::find_crossing, &baseline.ops, &candidate.ops, mapping);
    pairs.without(merged::find, &baseline.ops, &candidate.ops, mapping);
    let renamed = pairs.by_renamed_module((&baseline.ops, &b_stems), (&candidate.ops, &c_stems));

    let ops = pairs.in_order(&baseline.ops, &candidate.ops, mapping);
    Alignment { ops, notes: renamed.into_iter().collect() }
}

fn numbered<'a>(names: &mut Names<'a>, ops: &[Op], stems: &'a [Cow<'_, str>]) -> Vec<Name> {
    ops.iter().zip(stems).map(|(op, stem)| names.number(op, stem)).collect()
}

/// Partners found so far.
struct Pairs {
    of_baseline: Vec<Option<usize>>,
    of_candidate: Vec<Option<usize>>,
}

/// Finds wrong pairs among the partners of the baseline's ops, by position in the baseline.
type Find = fn(&[Op], &[Op], &[Option<usize>]) -> Vec<usize>;

/// Ops of one side with an associated value each.
type With<'a, T> = (&'a [Op], &'a [T]);

impl Pairs {
    fn new(baseline: usize, candidate: usize) -> Self {
        Self { of_baseline: vec![None; baseline], of_candidate: vec![None; candidate] }
    }

    /// Pairs two ops unless one of them has a partner.
    fn add(&mut self, b: usize, c: usize) {
        if self.of_baseline[b].is_none() && self.of_candidate[c].is_none() {
            (self.of_baseline[b], self.of_candidate[c]) = (Some(c), Some(b));
        }
    }

    /// Pairs ops that the user mapped one to one.
    fn by_mapping(&mut self, baseline: &[Op], candidate: &[Op], mapping: &Mapping) {
        if mapping.is_empty() {
            return;
        }
        let index: HashMap<&str, usize> =
            baseline.iter().enumerate().map(|(at, op)| (op.name.as_str(), at)).collect();
        for (c, op) in candidate.iter().enumerate() {
            if let Some(&b) = mapping.op(op).and_then(|name| index.get(name)) {
                self.add(b, c);
            }
        }
    }

    /// Pairs calls of names that both sides call equally often, by call number.
    fn by_name(&mut self, (b_ops, b_names): With<'_, Name>, (c_ops, c_names): With<'_, Name>) {
        let mut calls: HashMap<u32, (Vec<usize>, Vec<usize>)> = HashMap::new();
        for (at, name) in b_names.iter().enumerate().filter(|(at, _)| self.of_baseline[*at].is_none()) {
            calls.entry(name.stem).or_default().0.push(at);
        }
        for (at, name) in c_names.iter().enumerate().filter(|(at, _)| self.of_candidate[*at].is_none()) {
            calls.entry(name.stem).or_default().1.push(at);
        }
        for (mut b, mut c) in calls.into_values().filter(|(b, c)| b.len() == c.len()) {
            b.sort_by_key(|&at| b_ops[at].name.call().unwrap_or(0));
            c.sort_by_key(|&at| c_ops[at].name.call().unwrap_or(0));
            let apart =
                b.iter().zip(&c).filter(|&(&b, &c)| strangers::differ_in_shape(&b_ops[b], &c_ops[c])).count();
            // Several with different shapes next to some with the same: the numbers are equal by chance, and
            // calls are shifted in between.
            if apart <= 1 || apart == b.len() {
                b.into_iter().zip(c).for_each(|(b, c)| self.add(b, c));
            }
        }
    }

    /// Pairs the remaining ops between the pairs that both sides have in the same order.
    fn by_sequence(&mut self, (b_ops, b_names): With<'_, Name>, (c_ops, c_names): With<'_, Name>) {
        let known: Vec<(usize, usize)> =
            self.of_baseline.iter().enumerate().filter_map(|(b, c)| Some((b, (*c)?))).collect();
        let free = |partners: &[Option<usize>]| -> Vec<usize> {
            (0..partners.len()).filter(|&at| partners[at].is_none()).collect()
        };
        let (free_b, free_c) = (free(&self.of_baseline), free(&self.of_candidate));
        if free_b.is_empty() || free_c.is_empty() {
            return;
        }
        let end = (b_ops.len(), c_ops.len());
        let anchors = increasing(&known).into_iter().map(|at| known[at]).chain([end]);
        let (mut rest_b, mut rest_c) = (&*free_b, &*free_c);
        for (b, c) in anchors {
            let (gap_b, later_b) = rest_b.split_at(rest_b.partition_point(|&at| at < b));
            let (gap_c, later_c) = rest_c.split_at(rest_c.partition_point(|&at| at < c));
            (rest_b, rest_c) = (later_b, later_c);
            if gap_b.is_empty() || gap_c.is_empty() {
                continue;
            }
            let baseline = OpsToAlign { ops: b_ops, names: b_names, free: gap_b };
            let candidate = OpsToAlign { ops: c_ops, names: c_names, free: gap_c };
            for (b, c) in align_gap(baseline, candidate) {
                self.add(b, c);
            }
        }
    }

    /// Separates the pairs that `find` returns, by position in the baseline, unless the user mapped them.
    fn without(&mut self, find: Find, baseline: &[Op], candidate: &[Op], mapping: &Mapping) {
        for b in find(baseline, candidate, &self.of_baseline) {
            if let Some(c) = self.of_baseline[b].filter(|&c| mapping.op(&candidate[c]).is_none()) {
                (self.of_baseline[b], self.of_candidate[c]) = (None, None);
            }
        }
    }

    /// Pairs the other passes and calls of modules that were found under a different path. Returns a note on
    /// these modules.
    fn by_renamed_module(
        &mut self,
        (b_ops, b_stems): With<'_, Cow<'_, str>>,
        (c_ops, c_stems): With<'_, Cow<'_, str>>,
    ) -> Option<String> {
        let mut renamed: HashMap<&str, &str> = HashMap::new();
        let mut listed: Vec<(&str, &str)> = Vec::new();
        for (b, c) in self.of_baseline.iter().enumerate() {
            let Some(c) = c.filter(|_| b_ops[b].name.kind() == OpKind::Module) else { continue };
            let (b, c) = (&*b_stems[b], &*c_stems[c]);
            if b != c && renamed.insert(c, b).is_none() {
                listed.push((b, c));
            }
        }
        if renamed.is_empty() {
            return None;
        }
        let index: HashMap<(Phase, u32, &str), usize> = (0..b_ops.len())
            .filter(|&at| self.of_baseline[at].is_none())
            .map(|at| ((b_ops[at].name.phase(), b_ops[at].name.call().unwrap_or(0), &*b_stems[at]), at))
            .collect();
        let moved: HashMap<&str, &str> = listed.iter().map(|&(b, c)| without_common_end(b, c)).collect();
        for (c, op) in c_ops.iter().enumerate().filter(|(_, op)| op.name.kind() == OpKind::Module) {
            let stem = &*c_stems[c];
            let inside = || {
                let ends = stem.match_indices('.').map(|(at, _)| at);
                ends.rev().find_map(|end| Some(format!("{}{}", moved.get(&stem[..end])?, &stem[end..])))
            };
            let known =
                renamed.get(stem).map(|&stem| Cow::Borrowed(stem)).or_else(|| inside().map(Cow::Owned));
            let Some(stem) = known else { continue };
            if let Some(&b) = index.get(&(op.name.phase(), op.name.call().unwrap_or(0), &*stem)) {
                self.add(b, c);
            }
        }
        let shown: Vec<String> = listed.iter().take(LISTED).map(|(b, c)| format!("{c} for {b}")).collect();
        let more = if listed.len() > LISTED { ", …" } else { "" };
        Some(format!(
            "{} modules of the candidate have a different path and were paired by structure and data: {}{more}; --mapping overrides this",
            listed.len(),
            shown.join(", ")
        ))
    }

    /// Returns all ops, with the slots of each pair.
    fn in_order(&self, baseline: &[Op], candidate: &[Op], mapping: &Mapping) -> Vec<OpPair> {
        let mut alone =
            (0..candidate.len()).filter(|&position| self.of_candidate[position].is_none()).peekable();
        let mut pairs = Vec::with_capacity(baseline.len());
        for (b, partner) in self.of_baseline.iter().enumerate() {
            match *partner {
                Some(c) => {
                    while let Some(before) = alone.next_if(|&position| position < c) {
                        pairs.push(one_sided(candidate, before, Paired::CandidateOnly));
                    }
                    let slots = pair_slots(&baseline[b], &candidate[c], mapping);
                    pairs.push(OpPair { ops: Paired::Both(b, c), slots });
                }
                None => pairs.push(one_sided(baseline, b, Paired::BaselineOnly)),
            }
        }
        pairs.extend(alone.map(|position| one_sided(candidate, position, Paired::CandidateOnly)));
        pairs
    }
}

/// Returns two paths without their common suffix, the candidate's first.
fn without_common_end<'a>(b: &'a str, c: &'a str) -> (&'a str, &'a str) {
    let shared: usize =
        b.rsplit('.').zip(c.rsplit('.')).take_while(|(b, c)| b == c).map(|(part, _)| part.len() + 1).sum();
    (&c[..c.len().saturating_sub(shared)], &b[..b.len().saturating_sub(shared)])
}

fn one_sided(ops: &[Op], position: usize, side: fn(usize) -> Paired) -> OpPair {
    OpPair { ops: side(position), slots: (0..ops[position].slots.len()).map(side).collect() }
}

/// Pairs slots by path, or as the user mapped them, in the order of the baseline, with the candidate's own
/// slots at the end of their side.
pub fn pair_slots(baseline: &Op, candidate: &Op, mapping: &Mapping) -> SlotPairs {
    let (b, c) = (&baseline.slots, &candidate.slots);
    let path = |index: usize| {
        let own = &*c[index].path;
        mapping.slot(candidate, own, baseline.name.as_str()).unwrap_or(own)
    };
    // Nearly always both sides list the same paths in the same order.
    if b.len() == c.len() && b.iter().enumerate().all(|(index, slot)| *slot.path == *path(index)) {
        return SlotPairs::in_order(b.len());
    }
    let by_path: HashMap<&str, usize> = (0..c.len()).map(|index| (path(index), index)).collect();
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
    pairs.into_iter().collect()
}

/// Returns true if every module path begins with the prefix of a data-parallel wrapper.
fn wrapped(ops: &[Op]) -> bool {
    let mut modules = ops.iter().filter_map(|op| op.name.module_path()).peekable();
    modules.peek().is_some() && modules.all(|path| path == "module" || path.starts_with("module."))
}

/// Returns the name without phase, call number, the prefix of modules and that of a wrapper.
fn stem_of(op: &Op, strip_wrapper: bool) -> &str {
    let stem = op.name.stem();
    let stem = without_module_prefix(stem);
    if strip_wrapper { stem.strip_prefix("module.").unwrap_or(stem) } else { stem }
}
