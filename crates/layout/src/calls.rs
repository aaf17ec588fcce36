//! Brings the calls of all ranks under the names of the first: a rank that calls a function once more than the others counts all later calls
//! differently.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use probe_dump::{Number, Op, OpKind, OpName, Phase, Rank, Scalar, Slot, Value, without_module_prefix};

use super::arguments::{SPLITS, is_element};
use super::numbering::modules;

/// Least share of calls in modules of both runs, from which on modules tell which calls belong together.
const SHARED: (usize, usize) = (9, 10);

/// Module of calls outside of all modules.
const OUTSIDE: &str = "the program";

/// Most pairs of calls in one module that are held against each other.
const MOST_PAIRS: usize = 1 << 20;

/// Calls of one function in one module, in order.
type InModule = BTreeMap<String, Vec<u32>>;

/// Renames the calls of functions that ranks call unequally often after the first rank's call at the same place in the same module. Where the
/// numbers of calls in a module differ, the function's calls there are left out; returns these functions and modules.
pub(crate) fn under_common_names(ranks: &mut [Rank]) -> Vec<String> {
    let calls: Vec<BTreeMap<String, InModule>> = ranks.iter().map(calls).collect();
    let stems: BTreeSet<&String> = calls.iter().flat_map(BTreeMap::keys).collect();
    let mut left_out = Vec::new();
    // For each rank, the new number of a call; `None` if it is left out.
    let mut renamed: Vec<HashMap<(&str, u32), Option<u32>>> = vec![HashMap::new(); ranks.len()];
    let none = InModule::new();
    for stem in stems {
        let of: Vec<&InModule> = calls.iter().map(|calls| calls.get(stem).unwrap_or(&none)).collect();
        let shape = |modules: &InModule| {
            modules.iter().map(|(module, calls)| (module.clone(), calls.len())).collect::<Vec<_>>()
        };
        if of.iter().all(|modules| shape(modules) == shape(of[0])) {
            continue;
        }
        let modules: BTreeSet<&String> = of.iter().flat_map(|modules| modules.keys()).collect();
        for module in modules {
            let numbers: Vec<&[u32]> =
                of.iter().map(|modules| modules.get(module).map_or(&[][..], Vec::as_slice)).collect();
            let even = numbers.iter().all(|calls| calls.len() == numbers[0].len());
            if !even {
                left_out.push(format!("{stem} in {module}"));
            }
            for (renamed, calls) in renamed.iter_mut().zip(&numbers) {
                for (place, call) in calls.iter().enumerate() {
                    renamed.insert((stem, *call), numbers[0].get(place).copied().filter(|_| even));
                }
            }
        }
    }
    for (rank, renamed) in ranks.iter_mut().zip(&renamed).filter(|(_, renamed)| !renamed.is_empty()) {
        apply(rank, renamed);
    }
    left_out
}

/// Gives the calls of functions in each module the numbers that `other` gave to those at the same place in the same module. Calls that `other`
/// lacks there get numbers of their own behind all of these; if ranks hold parts of the model, they are left out.
pub(crate) fn under_others_names(ranks: &mut [Rank], other: &Rank, split: bool) {
    let others = calls(other);
    let other_ops = by_name(other);
    let parts = ranks.len() as u64;
    for rank in ranks {
        let own = calls(rank);
        // Another structure of modules says nothing about calls.
        if !split && !are_of_one_structure(&own, &others) {
            continue;
        }
        let own_ops = by_name(rank);
        let mut renamed: HashMap<(&str, u32), Option<u32>> = HashMap::new();
        for (stem, modules) in own.iter().filter(|(stem, _)| !stem.starts_with("Aten.")) {
            let theirs = others.get(stem);
            let most = theirs.and_then(|theirs| theirs.values().flatten().max()).map_or(0, |most| most + 1);
            let mut new = most..;
            for (module, calls) in modules {
                let numbers = theirs.and_then(|theirs| theirs.get(module)).map_or(&[][..], Vec::as_slice);
                let partners = if numbers.len() == calls.len() {
                    numbers.iter().copied().map(Some).collect()
                } else if split && module == OUTSIDE {
                    // A stage's optimizer updates its own parameters alone.
                    vec![None; calls.len()]
                } else {
                    alike(stem, (calls, &own_ops), (numbers, &other_ops), parts)
                };
                for (call, partner) in calls.iter().zip(partners) {
                    let number = partner.or_else(|| if split { None } else { new.next() });
                    renamed.insert((stem, *call), number);
                }
            }
        }
        apply(rank, &renamed);
    }
}

/// Returns true if the calls of all ranks are in the modules of `other`: its calls then tell which belong together.
pub(crate) fn are_like(ranks: &[Rank], other: &Rank) -> bool {
    let others = calls(other);
    ranks.iter().all(|rank| are_of_one_structure(&calls(rank), &others))
}

/// Returns true if nearly all calls are in modules that the other run has.
fn are_of_one_structure(own: &BTreeMap<String, InModule>, others: &BTreeMap<String, InModule>) -> bool {
    let modules: BTreeSet<&String> = others.values().flat_map(BTreeMap::keys).collect();
    let (known, all) = own.values().flatten().fold((0, 0), |(known, all), (module, calls)| {
        (known + if modules.contains(module) { calls.len() } else { 0 }, all + calls.len())
    });
    known * SHARED.1 >= all * SHARED.0
}

fn by_name(rank: &Rank) -> HashMap<&str, &Op> {
    rank.ops.iter().map(|op| (op.name.as_str(), op)).collect()
}

/// Returns for each of `calls` the call of the other run that it stands for: of all sequences of pairs whose arguments may be parts of each
/// other's, the one with the most pairs, equal values and sizes that as many `parts` make.
fn alike<'r>(
    stem: &str,
    (calls, own): (&[u32], &HashMap<&str, &'r Op>),
    (others, theirs): (&[u32], &HashMap<&str, &'r Op>),
    parts: u64,
) -> Vec<Option<u32>> {
    let mut partners = vec![None; calls.len()];
    if calls.len().saturating_mul(others.len()) > MOST_PAIRS {
        return partners;
    }
    // A backward pass that a program wrote itself calls functions that have no forward pass.
    let of_call = |ops: &HashMap<&str, &'r Op>, call: &u32| {
        ["forward", "backward"]
            .iter()
            .find_map(|phase| ops.get(format!("{stem}.{call}.{phase}").as_str()).copied())
    };
    let own: Vec<_> = calls.iter().map(|call| of_call(own, call)).collect();
    let theirs: Vec<_> = others.iter().map(|call| of_call(theirs, call)).collect();
    let likeness = |a: usize, b: usize| match (own[a], theirs[b]) {
        (Some(a), Some(b)) if a.name.phase() == b.name.phase() && is_part(a, b) => {
            1 + equal_values(a, b) + usize::from(is_made_of(b, a, parts))
        }
        _ => 0,
    };
    // The best from each pair of places on.
    let mut best = vec![vec![0_usize; others.len() + 1]; calls.len() + 1];
    for a in (0..calls.len()).rev() {
        for b in (0..others.len()).rev() {
            let skipped = best[a + 1][b].max(best[a][b + 1]);
            best[a][b] = match likeness(a, b) {
                0 => skipped,
                pair => skipped.max(best[a + 1][b + 1] + pair),
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    while a < calls.len() && b < others.len() {
        let pair = likeness(a, b);
        let pairs = pair > 0 && best[a][b] == best[a + 1][b + 1] + pair;
        // Of sequences that are as good, one with early calls counts in the forward pass, where what ranks call besides mostly comes behind, and one with
        // late calls in the backward pass.
        let is_early = own[a].is_some_and(|call| call.name.phase() == Phase::Forward);
        if !(pairs && is_early) && best[a][b] == best[a + 1][b] {
            a += 1;
        } else if !(pairs && is_early) && best[a][b] == best[a][b + 1] {
            b += 1;
        } else {
            partners[a] = Some(others[b]);
            (a, b) = (a + 1, b + 1);
        }
    }
    partners
}

/// Returns the number of slots that hold equal values in both calls.
fn equal_values(own: &Op, whole: &Op) -> usize {
    let equal = |slot: &&Slot| {
        let other = whole.slots.iter().find(|other| other.path == slot.path);
        other.is_some_and(|other| match (&slot.value, &other.value) {
            (Value::Tensor(a), Value::Tensor(b)) => a.checksum.is_some() && a.checksum == b.checksum,
            (a, b) => a == b,
        })
    };
    own.slots.iter().filter(equal).count()
}

/// Returns true if a call's arguments and results may be parts of those of another call: no dimension is larger, and no option differs. Into how many
/// parts of which sizes a value is cut belongs to the layout.
fn is_part(own: &Op, whole: &Op) -> bool {
    let cuts = SPLITS.contains(&own.name.api());
    let given = |slot: &&Slot| !cuts || !(slot.side.is_result() || is_element(slot));
    let arguments = |op: &Op| op.slots.iter().filter(given).filter(|slot| !slot.side.is_result()).count();
    let same = arguments(own) == arguments(whole);
    same && own.slots.iter().filter(given).all(|slot| {
        let Some(other) = whole.slots.iter().find(|other| other.path == slot.path) else { return false };
        match (&slot.value, &other.value) {
            (Value::Tensor(a), Value::Tensor(b)) => {
                a.shape.len() == b.shape.len() && a.shape.iter().zip(b.shape.iter()).all(|(a, b)| a <= b)
            }
            (
                Value::Scalar(Scalar::Number(Number::Int(a))),
                Value::Scalar(Scalar::Number(Number::Int(b))),
            ) => a == b || (*a > 0 && b > a && b % a == 0),
            (a, b) => a == b,
        }
    })
}

/// Returns true if no more than so many parts of the sizes of a call's tensors make those of the whole call. Ranks that call a function for themselves
/// have smaller ones.
fn is_made_of(whole: &Op, own: &Op, parts: u64) -> bool {
    if SPLITS.contains(&own.name.api()) {
        return cuts_as(own, whole);
    }
    own.slots.iter().all(|slot| {
        let other = whole.slots.iter().find(|other| other.path == slot.path);
        let records = other.and_then(|other| Some((slot.value.tensor()?, other.value.tensor()?)));
        records.is_none_or(|(own, whole)| own.len().saturating_mul(parts) >= whole.len())
    })
}

/// Returns true if a call cuts a value into the whole call's parts, or each of these into as many: the tokens that each rank sends to an expert. How
/// many these are may differ, where rounding decides about the expert.
fn cuts_as(own: &Op, whole: &Op) -> bool {
    let parts = |op: &Op| op.slots.iter().filter(|slot| slot.side.is_result()).count();
    parts(whole) > 1 && parts(own).is_multiple_of(parts(whole))
}

/// Gives calls new numbers, by function and number, and takes out those without one.
fn apply(rank: &mut Rank, renamed: &HashMap<(&str, u32), Option<u32>>) {
    rank.ops.retain_mut(|op| {
        let Some(call) = op.name.call().filter(|_| op.name.kind() == OpKind::Api) else { return true };
        match renamed.get(&(op.name.stem(), call)) {
            None => true,
            Some(None) => false,
            Some(Some(number)) if *number == call => true,
            Some(Some(number)) => {
                let phase = if op.name.phase() == Phase::Backward { "backward" } else { "forward" };
                op.name = OpName::parse(&format!("{}.{number}.{phase}", op.name.stem()));
                true
            }
        }
    });
}

/// Gives the calls of functions of ranks that hold other parts of the model numbers that are unique in the whole: those at one place in one module
/// have the same on all ranks that hold the module.
pub(crate) fn under_unique_names(ranks: &mut [Rank]) {
    let calls: Vec<BTreeMap<String, InModule>> = ranks.iter().map(calls).collect();
    let held: Vec<BTreeSet<String>> = ranks.iter().map(|rank| modules(rank).into_keys().collect()).collect();
    let stems: BTreeSet<&String> = calls.iter().flat_map(BTreeMap::keys).collect();
    let mut renamed: Vec<HashMap<(&str, u32), Option<u32>>> = vec![HashMap::new(); ranks.len()];
    let none = InModule::new();
    for stem in stems {
        let of: Vec<&InModule> = calls.iter().map(|calls| calls.get(stem).unwrap_or(&none)).collect();
        let count = |rank: usize, module: &String| of[rank].get(module).map_or(0, Vec::len);
        // A stage calls other functions outside of its modules than another does.
        let is_other = |rank: usize, other: usize, module: &String| {
            let counts = [count(rank, module), count(other, module)];
            counts[0] != counts[1] && (counts[1] > 0 || module == OUTSIDE)
        };
        let mut numbers: HashMap<(&str, usize, usize), u32> = HashMap::new();
        for rank in 0..ranks.len() {
            let mut in_order: Vec<(&String, &Vec<u32>)> = of[rank].iter().collect();
            in_order.sort_by_key(|(_, calls)| calls.first().copied());
            for (module, calls) in in_order {
                let common = (0..ranks.len()).all(|other| !is_other(rank, other, module));
                let alike = |other: &usize| held[*other] == held[rank] && !is_other(rank, *other, module);
                let own = if common { None } else { (0..ranks.len()).find(alike) };
                for (place, call) in calls.iter().enumerate() {
                    let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                    let key = (module.as_str(), place, own.unwrap_or(usize::MAX));
                    renamed[rank].insert((stem, *call), Some(*numbers.entry(key).or_insert(next)));
                }
            }
        }
    }
    for (rank, renamed) in ranks.iter_mut().zip(&renamed) {
        apply(rank, renamed);
    }
}

/// Returns path and call of a module: classes of parallel layers have other names, as that of the model itself has in FSDP.
fn without_class(name: &str) -> String {
    let name = OpName::parse(name);
    let Some((path, call)) = name.module_path().zip(name.call()) else { return name.as_str().to_owned() };
    // The model itself has its class for a path.
    let of_model =
        without_module_prefix(name.stem()).rsplit_once('.').is_some_and(|(path, class)| path == class);
    format!("{}.{call}", if of_model { "" } else { path })
}

/// Returns the calls of every function, forward or in the backward pass alone, by the module in which they ran.
fn calls(rank: &Rank) -> BTreeMap<String, InModule> {
    let mut found: BTreeMap<String, InModule> = BTreeMap::new();
    let forward = rank.ops.iter().filter(|op| op.name.phase() == Phase::Forward);
    let forward: HashSet<(&str, Option<u32>)> = forward.map(|op| (op.name.stem(), op.name.call())).collect();
    for op in &rank.ops {
        // A backward pass that a program wrote itself calls functions too.
        let counts = match op.name.phase() {
            Phase::Forward => true,
            Phase::Backward => !forward.contains(&(op.name.stem(), op.name.call())),
            _ => false,
        };
        if op.name.kind() == OpKind::Api
            && counts
            && !op.name.is_collective()
            && let Some(call) = op.name.call()
        {
            // An optimizer updates the parameters that a rank has.
            let module = op.parent.as_deref().filter(|parent| !parent.starts_with("Optimizer."));
            let module = module.map_or_else(|| OUTSIDE.to_owned(), without_class);
            found.entry(op.name.stem().to_owned()).or_default().entry(module).or_default().push(call);
        }
    }
    found
}
