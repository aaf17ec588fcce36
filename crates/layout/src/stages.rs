//! Two runs of which neither holds the whole model on a rank: the layers and experts of both are brought under the numbers of the whole.
//!
//! The parts of a run make the whole, and so do those of the other: of the ways to order ranks, those count that give as many modules in both.
//! Modules outside of lists (embeddings, the head) belong to one part or to all, and weights that agree decide the rest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use probe_dump::{Op, OpName, Phase, Rank};

use super::merge::{add_slots, merged};
use super::numbering::{Modules, Order, Unit, as_named, lists, modules, offsets, rename_modules, units};

/// Weights of a module by path inside it and name, with a digest of each.
type Weights = BTreeSet<(String, u128)>;

/// Brings the modules of two runs under the numbers that they have in the whole model; returns false if their parts do not make one model.
pub(crate) fn under_common_numbers(ranks: &mut [Rank], others: &mut [Rank]) -> bool {
    let of = |side: &[Rank]| -> Vec<Unit> {
        let whole = Modules::new();
        side.iter().enumerate().flat_map(|(rank, ops)| units(rank, ops, &whole)).collect()
    };
    let mut sides = [of(ranks), of(others)];
    let mut done = BTreeSet::new();
    // The numbers of an outer list are part of the path of an inner one.
    while let Some(list) = next_list(&sides, &done) {
        let held = sides.each_ref().map(|units| holders(units, &list));
        let sets = held.iter().flatten().map(|(_, numbers)| numbers).collect::<BTreeSet<_>>();
        // Stages of one size have the same numbers on all ranks, as ranks have that share every layer.
        let in_stages = (0..2).all(|side| are_stages(&sides[side], &held[side], &list));
        if sets.len() > 1 || in_stages {
            let Some(orders) = best(&sides, &held, &list) else { return false };
            for ((units, held), order) in sides.iter_mut().zip(&held).zip(&orders) {
                for ((unit, _), &offset) in held.iter().zip(&order.offsets) {
                    units[*unit].renumber(&list, offset);
                }
            }
        }
        done.insert(list);
    }
    for (side, units) in [ranks, others].into_iter().zip(&sides) {
        rename_modules(side, units);
    }
    true
}

/// Returns the outermost list whose modules are not numbered yet.
fn next_list(sides: &[Vec<Unit>; 2], done: &BTreeSet<String>) -> Option<String> {
    let all: BTreeSet<String> = sides.iter().flatten().flat_map(lists).collect();
    all.into_iter().filter(|list| !done.contains(list)).min_by_key(|list| list.split('.').count())
}

/// Returns the units that hold modules of a list, with their numbers.
fn holders(units: &[Unit], list: &str) -> Vec<(usize, BTreeSet<u32>)> {
    let held = units.iter().enumerate().map(|(unit, held)| (unit, held.numbers(list)));
    held.filter(|(_, numbers)| !numbers.is_empty()).collect()
}

/// Returns true if the units that hold a list do not have the same modules beside it: the first stage has the embedding, the last the head.
fn are_stages(units: &[Unit], held: &[(usize, BTreeSet<u32>)], list: &str) -> bool {
    let mut beside = held.iter().map(|(unit, _)| units[*unit].beside(list));
    let first = beside.next().unwrap_or_default();
    beside.any(|other| other != first)
}

/// Returns the orders of both runs' units that make one list of them: with the fewest misfits, and then with the most weights in common.
fn best(sides: &[Vec<Unit>; 2], held: &[Vec<(usize, BTreeSet<u32>)>; 2], list: &str) -> Option<[Order; 2]> {
    let [own, theirs] = [0, 1].map(|side| orders(&sides[side], &held[side], list));
    let weights = |side: usize, order: &Order| weights(&sides[side], &held[side], order, list);
    let theirs: Vec<(Way, BTreeMap<u32, Weights>)> = theirs
        .into_iter()
        .map(|way| {
            let held = weights(1, &way.order);
            (way, held)
        })
        .collect();
    let mut found: Option<(Rating, [Order; 2])> = None;
    for way in own {
        let held = weights(0, &way.order);
        for (other, their) in theirs.iter().filter(|(other, _)| other.total == way.total) {
            let both = held.iter().filter_map(|(number, own)| Some((own, their.get(number)?)));
            let common: Weights = both.flat_map(|(own, their)| own.intersection(their).cloned()).collect();
            let strain = strain(&held) + strain(their);
            let rated =
                (Reverse(way.misfits + other.misfits), common.len().cast_signed() - strain.cast_signed());
            // Of orders that are as good, the first counts: that of Megatron.
            if found.as_ref().is_none_or(|(best, _)| rated > *best) {
                found = Some((rated, [way.order.clone(), other.order.clone()]));
            }
        }
    }
    found.map(|(_, orders)| orders)
}

/// Misfits, the fewer the better, and weights in common less the strain.
type Rating = (Reverse<usize>, isize);

/// A way to order the units of a run.
struct Way {
    order: Order,
    /// Number of modules of the list.
    total: u32,
    /// Modules beside the list that do not belong to one part or to all.
    misfits: usize,
}

/// Returns the ways to order the units of a run.
fn orders(units: &[Unit], held: &[(usize, BTreeSet<u32>)], list: &str) -> Vec<Way> {
    let size = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let from_zero = |(_, own): &(usize, BTreeSet<u32>)| own.iter().copied().eq(0..size(own.len()));
    if !held.iter().all(from_zero) {
        let numbers: Vec<BTreeSet<u32>> = held.iter().map(|(_, own)| own.clone()).collect();
        let total = size(numbers.iter().flatten().collect::<BTreeSet<_>>().len());
        return vec![Way { order: as_named(&numbers), total, misfits: 0 }];
    }
    let ranks: BTreeSet<usize> = held.iter().map(|(unit, _)| units[*unit].rank).collect();
    let place = |rank: usize| ranks.iter().position(|&own| own == rank).unwrap_or(0);
    let counts: Vec<u32> = held.iter().map(|(_, own)| size(own.len())).collect();
    let mut found = Vec::new();
    for stages in (1..=ranks.len()).filter(|stages| ranks.len().is_multiple_of(*stages)) {
        for blocks in [true, false] {
            let stage = |rank: usize| {
                if blocks { place(rank) / (ranks.len() / stages) } else { place(rank) % stages }
            };
            let part = |(unit, _): &(usize, BTreeSet<u32>)| {
                units[*unit].chunk as usize * stages + stage(units[*unit].rank)
            };
            let parts: Vec<usize> = held.iter().map(part).collect();
            let sizes: BTreeMap<usize, u32> = parts.iter().copied().zip(counts.iter().copied()).collect();
            let total = sizes.values().sum();
            let misfits = misfits(units, held, &parts, list);
            if let Some(offsets) = offsets(&parts, &counts, total) {
                found.push(Way { order: Order { parts, offsets }, total, misfits });
            }
        }
    }
    found
}

/// Returns how many modules beside the list are not in one part alone or in all, or not in all units of a part.
fn misfits(units: &[Unit], held: &[(usize, BTreeSet<u32>)], parts: &[usize], list: &str) -> usize {
    let mut beside: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    let mut found = 0;
    for ((unit, _), part) in held.iter().zip(parts) {
        let own = units[*unit].beside(list);
        let of = beside.entry(*part).or_insert_with(|| own.clone());
        found += of.symmetric_difference(&own).count();
    }
    let all: BTreeSet<&str> = beside.values().flatten().copied().collect();
    let parts_with = |path: &str| beside.values().filter(|own| own.contains(path)).count();
    found + all.iter().filter(|path| ![1, beside.len()].contains(&parts_with(path))).count()
}

/// Returns how many weights speak against an order: modules of one number that hold different ones, and modules of several that hold the same.
fn strain(weights: &BTreeMap<u32, Weights>) -> usize {
    let of_one = |held: &Weights| {
        let names: BTreeSet<&str> = held.iter().map(|(name, _)| name.as_str()).collect();
        held.len() - names.len()
    };
    let all: usize = weights.values().map(BTreeSet::len).sum();
    let different: BTreeSet<&(String, u128)> = weights.values().flatten().collect();
    weights.values().map(of_one).sum::<usize>() + all - different.len()
}

/// Returns the weights of each module of a list in an order.
fn weights(
    units: &[Unit],
    held: &[(usize, BTreeSet<u32>)],
    order: &Order,
    list: &str,
) -> BTreeMap<u32, Weights> {
    let mut found: BTreeMap<u32, Weights> = BTreeMap::new();
    for ((unit, numbers), offset) in held.iter().zip(&order.offsets) {
        for number in numbers {
            found.entry(number + offset).or_default().extend(units[*unit].held(list, *number));
        }
    }
    found
}

/// Returns true if each rank holds all modules that any of them holds.
pub(crate) fn hold_all(ranks: &[Rank]) -> bool {
    let held: Vec<BTreeSet<String>> = ranks.iter().map(|rank| modules(rank).into_keys().collect()).collect();
    held.iter().all(|own| *own == held[0])
}

/// Returns the ops of ranks that hold parts of the model in an order in which they may have run: forward from the first layer to the last, backward
/// from the last, and then what comes behind. An op of several ranks has the slots of all.
pub(crate) fn in_order_of_layers(ranks: &[Rank]) -> Vec<Op> {
    let mut keys: HashMap<&str, (u8, i64)> = HashMap::new();
    for rank in ranks {
        let last = rank.ops.iter().rposition(|op| op.name.phase() == Phase::Backward);
        // Without a backward pass, nothing comes behind it.
        let last = last.unwrap_or(rank.ops.len());
        let layers: Vec<Option<u32>> = rank.ops.iter().map(layer_of).collect();
        let mut at = layers.iter().flatten().min().copied().unwrap_or(0);
        for (place, (op, layer)) in rank.ops.iter().zip(&layers).enumerate() {
            at = layer.unwrap_or(at);
            let key = match op.name.phase() {
                _ if place > last => (2, 0),
                Phase::Backward | Phase::ParameterGradient => (1, -i64::from(at)),
                _ => (0, i64::from(at)),
            };
            keys.entry(op.name.as_str()).or_insert(key);
        }
    }
    let mut ops = merged(ranks);
    let places: HashMap<String, usize> =
        ops.iter().enumerate().map(|(place, op)| (op.name.as_str().to_owned(), place)).collect();
    for op in ranks.iter().skip(1).flat_map(|rank| &rank.ops) {
        if let Some(&place) = places.get(op.name.as_str()) {
            add_slots(&mut ops[place], op);
        }
    }
    ops.sort_by_key(|op| keys.get(op.name.as_str()).copied());
    ops
}

/// Returns the number of the layer in which an op ran.
fn layer_of(op: &Op) -> Option<u32> {
    let parent = || op.parent.as_deref().map(OpName::parse)?.module_path().and_then(layer);
    op.name.module_path().map_or_else(parent, layer)
}

/// Returns the first number in the path of a module.
fn layer(path: &str) -> Option<u32> {
    path.split('.').find_map(|part| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{names, stage};
    use super::super::{Declared, fold, joined, numbered};
    use super::*;

    /// Returns the stages of a model of eight layers: for each rank, the first layer and the one behind the last.
    fn stages(parts: &[(u64, u64)]) -> Vec<Rank> {
        let paths: Vec<String> = (0..8).map(|layer| format!("layers.{layer}")).collect();
        let one = |(number, &(first, end)): (usize, &(u64, u64))| {
            let mut layers: Vec<(&str, u64)> = Vec::new();
            layers.extend((first == 0).then_some(("embed", 90)));
            layers.extend((first..end).zip(&paths).map(|(layer, path)| (path.as_str(), layer + 1)));
            layers.extend((end == 8).then_some(("head", 91)));
            stage(u32::try_from(number).unwrap(), &layers)
        };
        parts.iter().enumerate().map(one).collect()
    }

    /// Returns the paths of the layers of each rank.
    fn held(ranks: &[Rank]) -> Vec<Vec<u32>> {
        ranks.iter().map(|rank| modules(rank).keys().filter_map(|path| layer(path)).collect()).collect()
    }

    const HALVES: [(u64, u64); 4] = [(0, 4), (0, 4), (4, 8), (4, 8)];
    const QUARTERS: [(u64, u64); 4] = [(0, 2), (2, 4), (4, 6), (6, 8)];

    #[test]
    fn stages_of_both_runs_bear_the_numbers_of_the_whole() {
        let (mut ranks, mut others) = (stages(&HALVES), stages(&QUARTERS));
        assert!(!numbered(&mut ranks, &mut others).unwrap());
        assert_eq!(held(&ranks), [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]);
        assert_eq!(held(&others), [[0, 1], [2, 3], [4, 5], [6, 7]]);
        // Ranks of one stage need not be neighbours.
        let mut ranks = stages(&[(0, 4), (4, 8), (0, 4), (4, 8)]);
        numbered(&mut ranks, &mut stages(&QUARTERS)).unwrap();
        assert_eq!(held(&ranks), [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7]]);
        // Experts: modules beside the list tell nothing.
        let experts = |count: u64, ranks: &[u64]| -> Vec<Rank> {
            let paths: Vec<String> = (0..count).map(|expert| format!("experts.{expert}")).collect();
            let one = |(number, &first): (usize, &u64)| {
                let own = paths.iter().zip(first..).map(|(path, expert)| (path.as_str(), expert + 1));
                let held: Vec<(&str, u64)> = own.chain([("router", 90)]).collect();
                stage(u32::try_from(number).unwrap(), &held)
            };
            ranks.iter().enumerate().map(one).collect()
        };
        let (mut ranks, mut others) = (experts(2, &[0, 2]), experts(1, &[0, 1, 2, 3]));
        numbered(&mut ranks, &mut others).unwrap();
        assert_eq!(
            (held(&ranks), held(&others)),
            (vec![vec![0, 1], vec![2, 3]], vec![vec![0], vec![1], vec![2], vec![3]])
        );
        // Replicas of experts do not make more of them.
        let (mut ranks, mut others) = (experts(2, &[0, 2, 0, 2]), experts(1, &[0, 1, 2, 3]));
        numbered(&mut ranks, &mut others).unwrap();
        assert_eq!(held(&ranks), [[0, 1], [2, 3], [0, 1], [2, 3]]);
        assert_eq!(held(&others), [[0], [1], [2], [3]]);
        let mut three = stages(&[(0, 3), (3, 6), (6, 7)]);
        assert!(numbered(&mut three, &mut stages(&[(0, 4), (4, 8)])).is_err());
    }

    #[test]
    fn stages_of_one_size_are_told_from_ranks_that_share_every_layer() {
        let halves = [(0, 4), (4, 8)];
        let (mut ranks, mut others) = (stages(&halves), stages(&HALVES));
        numbered(&mut ranks, &mut others).unwrap();
        assert_eq!(held(&ranks), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        assert_eq!(held(&others), [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]);
        let whole = joined(ranks, &mut others).rank;
        assert_eq!(names(&whole), names(&stages(&[(0, 8)])[0]));
        // Every rank has all layers, whatever else one of them calls.
        let mut shared = [stages(&[(0, 8), (0, 8)]), stages(&[(0, 8), (0, 8), (0, 8), (0, 8)])];
        let extra = stage(0, &[("log", 92)]).ops;
        shared[0][0].ops.extend(extra);
        let [ranks, others] = &mut shared;
        numbered(ranks, others).unwrap();
        assert!(held(ranks).iter().chain(&held(others)).all(|own| **own == [0, 1, 2, 3, 4, 5, 6, 7]));
    }

    #[test]
    fn stages_of_one_run_become_a_run_on_one_rank() {
        let (mut ranks, mut others) = (stages(&HALVES), stages(&QUARTERS));
        numbered(&mut ranks, &mut others).unwrap();
        let whole = joined(ranks, &mut others).rank;
        assert_eq!(names(&whole), names(&stages(&[(0, 8)])[0]));
        let folded = fold(others, &whole, &Declared::default()).unwrap();
        assert_eq!(names(&folded.rank), names(&whole));
        assert!(folded.apart.is_empty() && folded.misplaced.is_empty());
    }

    #[test]
    fn a_stage_with_other_layers_than_the_other_run_is_told() {
        let mut others = stages(&[(0, 2), (2, 4), (4, 6), (6, 8)]);
        let mut wrong = stages(&[(0, 2), (2, 4), (2, 4), (6, 8)]);
        others[2] = wrong.swap_remove(2);
        let mut ranks = stages(&HALVES);
        numbered(&mut ranks, &mut others).unwrap();
        let whole = joined(ranks, &mut others).rank;
        let folded = fold(others, &whole, &Declared::default()).unwrap();
        let [found] = &*folded.misplaced else { panic!("{:?}", folded.misplaced) };
        assert_eq!((&*found.held, &*found.due), (&[2, 3][..], &[4, 5][..]));
    }
}
