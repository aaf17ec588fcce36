//! Brings the layers of pipeline stages and the experts of expert-parallel ranks under the numbers that they have in the whole model.
//!
//! A list of modules (`layers`, `mlp.experts`) of which each rank has a part is numbered from 0 on every rank. The ranks' order gives the
//! offset of each part; weights decide between orders, and show where a rank holds another part than its place calls for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use probe_dump::{Checksum, Op, OpKind, OpName, Phase, Rank, SlotName, SlotSide, TensorRecord, Value};

/// Part of a list of modules that ranks hold in place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// Ranks that hold it.
    pub ranks: Vec<u32>,
    /// Path of the list in the whole model: `layers`, `layers.1.mlp.experts`.
    pub list: String,
    /// Number of the part among all parts, from 0.
    pub part: usize,
    /// Numbers of the modules whose weights the ranks hold, in their order.
    pub held: Vec<u32>,
    /// Numbers that they should hold.
    pub due: Vec<u32>,
}

/// What the numbering showed.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    /// True if ranks hold parts of the model.
    pub(crate) split: bool,
    /// Parts in place of others.
    pub(crate) misplaced: Vec<Misplaced>,
}

/// Modules of a run by path: the parameters of each with a digest of what they hold.
pub(crate) type Modules = BTreeMap<String, Vec<(Box<str>, u128)>>;

/// Modules of one rank, or of one of several chunks of the model that it holds.
pub(crate) struct Unit {
    pub(crate) rank: usize,
    pub(crate) chunk: u32,
    /// Path in the rank's model, and in the whole one as far as it is known.
    paths: Vec<(String, String)>,
    weights: Modules,
}

impl Unit {
    /// Returns the numbers of the modules in a list of the whole model.
    pub(crate) fn numbers(&self, list: &str) -> BTreeSet<u32> {
        self.paths.iter().filter_map(|(_, path)| number_in(path, list)).map(|(number, _)| number).collect()
    }

    /// Moves the modules of a list from their own numbers to others.
    pub(crate) fn renumber(&mut self, list: &str, offset: u32) {
        for (_, path) in &mut self.paths {
            if let Some((number, rest)) = number_in(path, list) {
                *path = joined(list, &format!("{}{rest}", number + offset));
            }
        }
    }

    /// Returns the paths of the modules that are in no list, or in another.
    pub(crate) fn beside(&self, list: &str) -> BTreeSet<&str> {
        let all = self.paths.iter().map(|(_, path)| path.as_str());
        all.filter(|path| number_in(path, list).is_none()).collect()
    }

    /// Returns the weights of one module of a list, by path inside it and name.
    pub(crate) fn held(&self, list: &str, number: u32) -> Vec<(String, u128)> {
        let of = self.paths.iter().filter_map(|(own, path)| {
            let (found, rest) = number_in(path, list)?;
            (found == number).then_some((own, rest))
        });
        let named = of.flat_map(|(own, rest)| {
            let weights = self.weights.get(own).map_or(&[][..], Vec::as_slice);
            weights.iter().map(move |(name, digest)| (format!("{rest}.{name}"), *digest))
        });
        named.collect()
    }
}

/// A way to give each unit its place in a list.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// Part of each unit.
    pub(crate) parts: Vec<usize>,
    /// First number of each unit.
    pub(crate) offsets: Vec<u32>,
}

/// Renames the modules of ranks that hold parts of the model as `other`, which has all of it, names them.
pub(crate) fn under_global_numbers(ranks: &mut [Rank], other: &Rank) -> Numbering {
    let whole = modules(other);
    let mut units: Vec<Unit> =
        ranks.iter().enumerate().flat_map(|(rank, ops)| units(rank, ops, &whole)).collect();
    let mut numbering = Numbering { split: units.iter().any(|unit| unit.chunk > 0), misplaced: Vec::new() };
    let everything = Unit {
        rank: 0,
        chunk: 0,
        paths: whole.keys().map(|path| (path.clone(), path.clone())).collect(),
        weights: whole,
    };
    let mut lists: Vec<String> = lists(&everything).into_iter().collect();
    // The numbers of an outer list are part of the path of an inner one.
    lists.sort_by_key(|list| list.split('.').count());
    for list in lists {
        let all = everything.numbers(&list);
        let holders: Vec<usize> =
            (0..units.len()).filter(|&unit| !units[unit].numbers(&list).is_empty()).collect();
        let held: Vec<BTreeSet<u32>> = holders.iter().map(|&unit| units[unit].numbers(&list)).collect();
        if all.len() < 2 || held.iter().all(|own| *own == all) {
            continue;
        }
        numbering.split = true;
        let global = held.iter().flatten().copied().collect::<BTreeSet<_>>() == all;
        let order = if global {
            as_named(&held)
        } else {
            let counts: Vec<u32> = held.iter().map(|own| u32::try_from(own.len()).unwrap_or(0)).collect();
            let from_zero = held.iter().zip(&counts).all(|(own, &count)| own.iter().copied().eq(0..count));
            let total = u32::try_from(all.len()).unwrap_or(0);
            if !from_zero || !all.iter().copied().eq(0..total) {
                continue;
            }
            let Some(order) = best(&units, &holders, &counts, total, (&list, &everything)) else { continue };
            order
        };
        for (&unit, &offset) in holders.iter().zip(&order.offsets).filter(|_| !global) {
            units[unit].renumber(&list, offset);
        }
        numbering.misplaced.extend(misplaced(&units, &holders, &order, (&list, &everything), ranks));
    }
    rename_modules(ranks, &units);
    numbering
}

/// Gives the modules of ranks the paths that they have in the whole model.
pub(crate) fn rename_modules(ranks: &mut [Rank], units: &[Unit]) {
    for (rank, ops) in ranks.iter_mut().enumerate() {
        let of = units.iter().filter(|unit| unit.rank == rank).flat_map(|unit| &unit.paths);
        let renamed: HashMap<&str, &str> =
            of.filter(|(own, path)| own != path).map(|(own, path)| (own.as_str(), path.as_str())).collect();
        if !renamed.is_empty() {
            rename(ops, &renamed);
        }
    }
}

/// Returns the modules of a run that were called, with digests of their own parameters.
pub(crate) fn modules(rank: &Rank) -> Modules {
    let mut found = Modules::new();
    let forward = |op: &&Op| op.name.kind() == OpKind::Module && op.name.phase() == Phase::Forward;
    for op in rank.ops.iter().filter(forward) {
        let Some(path) = op.name.module_path().filter(|path| !found.contains_key(*path)) else { continue };
        let weights = op.slots.iter().filter(|slot| slot.side == SlotSide::Parameter);
        let weights = weights.filter_map(|slot| match &slot.value {
            Value::Tensor(record) => Some((slot.path.clone(), digest(record)?)),
            _ => None,
        });
        let weights = weights.collect();
        found.insert(path.to_owned(), weights);
    }
    found
}

/// Returns a number that is equal for equal tensors, and hardly ever for others.
pub(crate) fn digest(record: &TensorRecord) -> Option<u128> {
    match &record.checksum {
        Some(Checksum::Xxh3(hash)) => Some(hash.bits()),
        _ => Some(u128::from(record.statistics.norm()?.to_bits())),
    }
}

/// Returns the chunks of the model that a rank holds: one, or several in a list without a name (interleaved pipeline stages).
pub(crate) fn units(rank: usize, ops: &Rank, whole: &Modules) -> Vec<Unit> {
    let weights = modules(ops);
    let chunk = |path: &str| path.split('.').next().and_then(|first| first.parse::<u32>().ok());
    let chunked = !weights.is_empty()
        && weights.keys().all(|path| chunk(path).is_some())
        && !whole.keys().any(|path| chunk(path).is_some());
    if !chunked {
        let paths = weights.keys().map(|path| (path.clone(), path.clone())).collect();
        return vec![Unit { rank, chunk: 0, paths, weights }];
    }
    let chunks: BTreeSet<u32> = weights.keys().filter_map(|path| chunk(path)).collect();
    let of = |number: u32| {
        let own = weights.iter().filter(|(path, _)| chunk(path) == Some(number));
        let weights: Modules = own.map(|(path, weights)| (path.clone(), weights.clone())).collect();
        let inner =
            |path: &String| path.split_once('.').map_or_else(String::new, |(_, rest)| rest.to_owned());
        let paths = weights.keys().map(|path| (path.clone(), inner(path))).collect();
        Unit { rank, chunk: number, paths, weights }
    };
    chunks.into_iter().map(of).collect()
}

/// Returns the paths of the lists of a model: what stands in front of a number.
pub(crate) fn lists(unit: &Unit) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, path) in &unit.paths {
        let mut at = 0;
        for part in path.split('.') {
            if part.parse::<u32>().is_ok() {
                found.insert(path[..at].trim_end_matches('.').to_owned());
            }
            at += part.len() + 1;
        }
    }
    found
}

/// Returns the number of a module in a list, and the rest of its path with the dot in front.
fn number_in<'p>(path: &'p str, list: &str) -> Option<(u32, &'p str)> {
    let inner = if list.is_empty() { path } else { path.strip_prefix(list)?.strip_prefix('.')? };
    let number = inner.split('.').next()?;
    Some((number.parse().ok()?, &inner[number.len()..]))
}

fn joined(list: &str, rest: &str) -> String {
    if list.is_empty() { rest.to_owned() } else { format!("{list}.{rest}") }
}

/// Returns the order of parts that bear their numbers in the whole model.
pub(crate) fn as_named(held: &[BTreeSet<u32>]) -> Order {
    let starts: BTreeSet<u32> = held.iter().filter_map(|own| own.first().copied()).collect();
    let part = |own: &BTreeSet<u32>| starts.iter().position(|start| own.first() == Some(start)).unwrap_or(0);
    Order { parts: held.iter().map(part).collect(), offsets: vec![0; held.len()] }
}

/// Returns the order of the units that gives most modules the weights that they have in the whole model; of equals, the one in which
/// neighbouring ranks hold the same part (the order of Megatron and of meshes whose first dimension is the pipeline).
fn best(
    units: &[Unit],
    holders: &[usize],
    counts: &[u32],
    total: u32,
    (list, whole): (&str, &Unit),
) -> Option<Order> {
    let ranks: BTreeSet<usize> = holders.iter().map(|&unit| units[unit].rank).collect();
    let place = |rank: usize| ranks.iter().position(|&own| own == rank).unwrap_or(0);
    let score = |order: &Order| {
        let one = |(&unit, (&offset, &count)): (&usize, (&u32, &u32))| {
            let same = |number: u32| {
                let due = whole.held(list, number + offset);
                units[unit].held(list, number).iter().filter(|weight| due.contains(weight)).count()
            };
            (0..count).map(same).sum::<usize>()
        };
        holders.iter().zip(order.offsets.iter().zip(counts)).map(one).sum::<usize>()
    };
    let mut found: Option<(usize, Order)> = None;
    for stages in (1..=ranks.len()).filter(|stages| ranks.len().is_multiple_of(*stages)) {
        for blocks in [true, false] {
            let stage = |rank: usize| {
                if blocks { place(rank) / (ranks.len() / stages) } else { place(rank) % stages }
            };
            // Chunks are dealt out in turn: all first chunks come before all second ones.
            let parts: Vec<usize> = holders
                .iter()
                .map(|&unit| units[unit].chunk as usize * stages + stage(units[unit].rank))
                .collect();
            let Some(offsets) = offsets(&parts, counts, total) else { continue };
            let order = Order { parts, offsets };
            let scored = score(&order);
            if found.as_ref().is_none_or(|(most, _)| scored > *most) {
                found = Some((scored, order));
            }
        }
    }
    found.map(|(_, order)| order)
}

/// Returns the first number of each unit if the parts make the whole, and units of one part are of one size.
pub(crate) fn offsets(parts: &[usize], counts: &[u32], total: u32) -> Option<Vec<u32>> {
    let mut sizes: BTreeMap<usize, u32> = BTreeMap::new();
    for (&part, &count) in parts.iter().zip(counts) {
        if *sizes.entry(part).or_insert(count) != count {
            return None;
        }
    }
    let mut at = 0_u32;
    let mut starts = BTreeMap::new();
    for (part, size) in sizes {
        starts.insert(part, at);
        at = at.checked_add(size)?;
    }
    (at == total).then(|| parts.iter().map(|part| starts[part]).collect())
}

/// Returns the parts whose weights are those of other modules of the list.
fn misplaced(
    units: &[Unit],
    holders: &[usize],
    order: &Order,
    (list, whole): (&str, &Unit),
    ranks: &[Rank],
) -> Vec<Misplaced> {
    let all = whole.numbers(list);
    let known: Vec<(u32, Vec<(String, u128)>)> =
        all.iter().map(|&number| (number, whole.held(list, number))).collect();
    let mut found: Vec<Misplaced> = Vec::new();
    for (&unit, &part) in holders.iter().zip(&order.parts) {
        let due: Vec<u32> = units[unit].numbers(list).into_iter().collect();
        let nearest = |&number: &u32| {
            let own = units[unit].held(list, number);
            let same = |of: &[(String, u128)]| own.iter().filter(|weight| of.contains(weight)).count();
            let here = known.iter().find(|(of, _)| *of == number).map_or(0, |(_, of)| same(of));
            let (best, most) =
                known.iter().map(|(of, weights)| (*of, same(weights))).max_by_key(|(_, same)| *same)?;
            let told = known.iter().filter(|(_, weights)| same(weights) == most).count() == 1;
            if most == 0 {
                None
            } else if most > here && told {
                Some(best)
            } else {
                Some(number)
            }
        };
        let Some(held) = due.iter().map(nearest).collect::<Option<Vec<u32>>>() else { continue };
        if held == due {
            continue;
        }
        let rank = ranks[units[unit].rank].key.rank.number();
        match found.iter_mut().find(|other| other.part == part && other.held == held) {
            Some(same) => same.ranks.push(rank),
            None => found.push(Misplaced { ranks: vec![rank], list: list.to_owned(), part, held, due }),
        }
    }
    found
}

/// Renames the modules of a rank in ops, in the calls around them and in the slots of optimizers.
fn rename(rank: &mut Rank, renamed: &HashMap<&str, &str>) {
    let mut parents: HashMap<Arc<str>, Option<Arc<str>>> = HashMap::new();
    rank.ops.retain_mut(|op| {
        if let Some(parent) = &op.parent {
            let new = parents.entry(Arc::clone(parent)).or_insert_with(|| match new_name(parent, renamed) {
                None => Some(Arc::clone(parent)),
                Some(name) if name.is_empty() => None,
                Some(name) => Some(name.into()),
            });
            op.parent.clone_from(new);
        }
        if op.name.as_str().starts_with("Optimizer.") {
            for slot in &mut op.slots {
                if let Some(path) = new_slot(&slot.path, renamed) {
                    slot.name = Arc::new(SlotName { path: path.into(), side: slot.side });
                }
            }
        }
        match new_name(op.name.as_str(), renamed) {
            None => true,
            // A chunk of the model is not a module of the whole one.
            Some(name) if name.is_empty() => false,
            Some(name) => {
                op.name = OpName::parse(&name);
                true
            }
        }
    });
}

/// Returns the new name of a module's op; empty if it stands for the model as a whole.
fn new_name(name: &str, renamed: &HashMap<&str, &str>) -> Option<String> {
    let parsed = OpName::parse(name);
    let path = parsed.module_path()?;
    let new = renamed.get(path)?;
    if new.is_empty() {
        return Some(String::new());
    }
    let at = name.find(path)?;
    Some(format!("{}{new}{}", &name[..at], &name[at + path.len()..]))
}

/// Returns the new path of a slot that names a parameter: `input.grad.layers.0.weight`.
fn new_slot(path: &str, renamed: &HashMap<&str, &str>) -> Option<String> {
    let starts = path.match_indices('.').map(|(at, _)| at + 1).take(2);
    let mut found = starts.filter_map(|start| {
        let rest = &path[start..];
        let (end, new) =
            rest.rmatch_indices('.').find_map(|(end, _)| Some((end, renamed.get(&rest[..end])?)))?;
        let rest = if new.is_empty() {
            rest[end..].trim_start_matches('.').to_owned()
        } else {
            format!("{new}{}", &rest[end..])
        };
        Some(format!("{}{rest}", &path[..start]))
    });
    found.next()
}
