//! Brings the calls of all ranks under the names of the first: a rank that calls a function once more than the others counts all later calls
//! differently.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use probe_dump::{OpKind, OpName, Phase, Rank};

/// Least share of calls in modules of both runs, from which on modules tell which calls belong together.
const SHARED: (usize, usize) = (9, 10);

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
    let modules: BTreeSet<&String> = others.values().flat_map(BTreeMap::keys).collect();
    for rank in ranks {
        let own = calls(rank);
        let inside = own.values().flatten();
        let (known, all) = inside.fold((0, 0), |(known, all), (module, calls)| {
            (known + if modules.contains(module) { calls.len() } else { 0 }, all + calls.len())
        });
        // Another structure of modules says nothing about calls.
        if !split && known * SHARED.1 < all * SHARED.0 {
            continue;
        }
        let mut renamed: HashMap<(&str, u32), Option<u32>> = HashMap::new();
        for (stem, modules) in own.iter().filter(|(stem, _)| !stem.starts_with("Aten.")) {
            let theirs = others.get(stem);
            let most = theirs.and_then(|theirs| theirs.values().flatten().max()).map_or(0, |most| most + 1);
            let mut new = most..;
            for (module, calls) in modules {
                let numbers = theirs.and_then(|theirs| theirs.get(module)).map_or(&[][..], Vec::as_slice);
                if split && numbers.len() != calls.len() {
                    renamed.extend(calls.iter().map(|call| ((stem.as_str(), *call), None)));
                    continue;
                }
                for (place, call) in calls.iter().enumerate() {
                    let number = numbers.get(place).copied().or_else(|| new.next());
                    renamed.insert((stem, *call), number);
                }
            }
        }
        apply(rank, &renamed);
    }
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

/// Returns path and call of a module: classes of parallel layers have other names.
fn without_class(name: &str) -> String {
    let name = OpName::parse(name);
    name.module_path()
        .zip(name.call())
        .map_or_else(|| name.as_str().to_owned(), |(path, call)| format!("{path}.{call}"))
}

/// Returns the forward calls of every function by the module in which they ran.
fn calls(rank: &Rank) -> BTreeMap<String, InModule> {
    let mut found: BTreeMap<String, InModule> = BTreeMap::new();
    for op in &rank.ops {
        if op.name.kind() == OpKind::Api
            && op.name.phase() == Phase::Forward
            && !op.name.is_collective()
            && let Some(call) = op.name.call()
        {
            let module = op.parent.as_deref().map_or_else(|| "the program".to_owned(), without_class);
            found.entry(op.name.stem().to_owned()).or_default().entry(module).or_default().push(call);
        }
    }
    found
}
