//! Modules that several stages call, each with its own layers: the whole of them takes what the first stage takes, and returns what the last one returns.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use probe_dump::{OpKind, OpName, Phase, Rank, Slot, SlotSide, Value, without_module_prefix};

/// What a rank calls inside of a module.
#[derive(Default)]
struct Inside<'r> {
    modules: BTreeSet<&'r str>,
    /// Places of its first and its last call in the other run.
    ends: Option<(usize, usize)>,
}

/// Ranks that hold the first layers of a module, and the last.
struct Ends {
    first: Vec<usize>,
    last: Vec<usize>,
}

/// Takes from calls of such modules what one stage hands to the next. `other` has all layers.
pub(crate) fn without_hand_overs(ranks: &mut [Rank], other: &Rank) {
    let places: HashMap<&str, usize> =
        other.ops.iter().enumerate().map(|(place, op)| (op.name.as_str(), place)).collect();
    let spanning = spanning(ranks, &places);
    if spanning.is_empty() {
        return;
    }
    // The values of the ranks at either end, by op and slot.
    let mut known: [HashSet<(String, Box<str>)>; 2] = Default::default();
    for (number, rank) in ranks.iter().enumerate() {
        for op in &rank.ops {
            let Some(ends) = path_of(&op.name).and_then(|path| spanning.get(path)) else { continue };
            for slot in op.slots.iter().filter(|slot| is_handed(slot)) {
                let at_start = is_at_start(op.name.phase(), slot);
                if (if at_start { &ends.first } else { &ends.last }).contains(&number) {
                    known[usize::from(at_start)].insert((op.name.as_str().to_owned(), slot.path.clone()));
                }
            }
        }
    }
    for (number, rank) in ranks.iter_mut().enumerate() {
        for op in &mut rank.ops {
            let Some(ends) = path_of(&op.name).and_then(|path| spanning.get(path)) else { continue };
            let (name, phase) = (op.name.as_str(), op.name.phase());
            op.slots.retain(|slot| {
                let at_start = is_at_start(phase, slot);
                let holders = if at_start { &ends.first } else { &ends.last };
                let key = || (name.to_owned(), slot.path.clone());
                !is_handed(slot)
                    || holders.contains(&number)
                    || !known[usize::from(at_start)].contains(&key())
            });
        }
    }
}

/// Returns the modules in which ranks call others, by path; the model itself has none.
fn spanning(ranks: &[Rank], places: &HashMap<&str, usize>) -> BTreeMap<String, Ends> {
    let inside: Vec<BTreeMap<&str, Inside<'_>>> = ranks.iter().map(|rank| inside(rank, places)).collect();
    let paths: BTreeSet<&str> = inside.iter().flat_map(|of| of.keys().copied()).collect();
    let ends = |path: &str| {
        let of: Vec<(usize, &Inside<'_>)> =
            inside.iter().enumerate().filter_map(|(rank, of)| Some((rank, of.get(path)?))).collect();
        // A layer of which all ranks call some modules is no stage's: each has experts of it.
        let in_layer = path.split('.').any(|part| part.parse::<u32>().is_ok());
        let common =
            || of[0].1.modules.iter().any(|name| of.iter().all(|(_, own)| own.modules.contains(name)));
        let is_split = of.iter().any(|(_, own)| own.modules != of[0].1.modules) && !(in_layer && common());
        let first = of.iter().filter_map(|(_, own)| Some(own.ends?.0)).min().filter(|_| is_split)?;
        let last = of.iter().filter_map(|(_, own)| Some(own.ends?.1)).max()?;
        let at = |wanted: &dyn Fn((usize, usize)) -> bool| {
            of.iter().filter(|(_, own)| own.ends.is_some_and(wanted)).map(|(rank, _)| *rank).collect()
        };
        Some(Ends { first: at(&|ends| ends.0 == first), last: at(&|ends| ends.1 == last) })
    };
    paths.into_iter().filter_map(|path| Some((path.to_owned(), ends(path)?))).collect()
}

/// Returns what a rank calls inside of each module.
fn inside<'r>(rank: &'r Rank, places: &HashMap<&str, usize>) -> BTreeMap<&'r str, Inside<'r>> {
    let mut found: BTreeMap<&str, Inside<'_>> = BTreeMap::new();
    for op in rank.ops.iter().filter(|op| op.name.phase() == Phase::Forward) {
        let Some(path) = path_of(&op.name).filter(|path| !path.is_empty()) else { continue };
        let outer = path.match_indices('.').map(|(at, _)| &path[..at]);
        for outer in outer.chain([""]) {
            let inside = found.entry(outer).or_default();
            inside.modules.insert(path);
            if let Some(&place) = places.get(op.name.as_str()) {
                let (first, last) = inside.ends.unwrap_or((place, place));
                inside.ends = Some((first.min(place), last.max(place)));
            }
        }
    }
    found
}

/// Returns the path of a module; that of the model itself is empty.
fn path_of(name: &OpName) -> Option<&str> {
    if name.kind() != OpKind::Module {
        return None;
    }
    let (path, class) = without_module_prefix(name.stem()).rsplit_once('.')?;
    Some(if path == class { "" } else { path })
}

/// Returns true for a tensor that stages may hand on.
fn is_handed(slot: &Slot) -> bool {
    matches!(slot.value, Value::Tensor(_)) && matches!(slot.side, SlotSide::Input | SlotSide::Output)
}

/// Returns true for a value of the first layers: an input, or the gradient of one.
fn is_at_start(phase: Phase, slot: &Slot) -> bool {
    (phase == Phase::Backward) == slot.side.is_result()
}

#[cfg(test)]
mod tests {
    use probe_dump::{DType, Op, RecordedDType, TensorRecord};

    use super::*;
    use crate::tests::stage;

    fn call(name: &str, slots: &[(&str, SlotSide)]) -> Op {
        let tensor = || Value::Tensor(TensorRecord::new(RecordedDType::Known(DType::F32), [2].into()).into());
        let slots = slots.iter().map(|(path, side)| Slot::new(*path, *side, tensor())).collect();
        Op { slots, ..Op::new(OpName::parse(name)) }
    }

    /// A rank that calls these layers of a decoder.
    fn calling(layers: &[u32]) -> Rank {
        let ends = [("input.0", SlotSide::Input), ("output.0", SlotSide::Output)];
        let layer = |number: &u32| call(&format!("Module.decoder.layers.{number}.Layer.forward.0"), &ends);
        let mut ops: Vec<Op> = layers.iter().map(layer).collect();
        ops.extend(
            ["decoder.Block.forward", "decoder.Block.backward"]
                .map(|name| call(&format!("Module.{name}.0"), &ends)),
        );
        Rank { ops, ..stage(0, &[]) }
    }

    fn ends(rank: &Rank, name: &str) -> Vec<Box<str>> {
        let op = rank.ops.iter().find(|op| op.name.as_str() == name).unwrap();
        op.slots.iter().map(|slot| slot.path.as_ref().into()).collect()
    }

    #[test]
    fn a_module_of_several_stages_takes_from_the_first_and_returns_from_the_last() {
        let mut ranks = vec![calling(&[0, 1]), calling(&[2, 3])];
        without_hand_overs(&mut ranks, &calling(&[0, 1, 2, 3]));
        let of =
            |phase: &str| [0, 1].map(|rank| ends(&ranks[rank], &format!("Module.decoder.Block.{phase}.0")));
        assert_eq!(of("forward"), [vec!["input.0".into()], vec!["output.0".into()]]);
        assert_eq!(of("backward"), [vec!["output.0".into()], vec!["input.0".into()]]);
        assert_eq!(
            ends(&ranks[1], "Module.decoder.layers.2.Layer.forward.0").len(),
            2,
            "no other stage has it"
        );
    }

    #[test]
    fn a_module_that_all_ranks_have_whole_keeps_its_ends() {
        let mut ranks = vec![calling(&[0, 1]), calling(&[0, 1])];
        without_hand_overs(&mut ranks, &calling(&[0, 1]));
        assert_eq!(ends(&ranks[1], "Module.decoder.Block.forward.0").len(), 2);
    }

    #[test]
    fn a_layer_of_which_ranks_hold_experts_keeps_its_ends() {
        let ends_of = [("input.0", SlotSide::Input), ("output.0", SlotSide::Output)];
        let rank = |experts: &[u32]| {
            let expert =
                |number: &u32| call(&format!("Module.layers.1.mlp.experts.{number}.Mlp.forward.0"), &ends_of);
            let router = call("Module.layers.1.mlp.router.Linear.forward.0", &ends_of);
            let whole = call("Module.layers.1.mlp.Moe.forward.0", &ends_of);
            let ops = std::iter::once(router).chain(experts.iter().map(expert)).chain([whole]).collect();
            Rank { ops, ..stage(0, &[]) }
        };
        let mut ranks = vec![rank(&[0, 1]), rank(&[2, 3])];
        without_hand_overs(&mut ranks, &rank(&[0, 1, 2, 3]));
        for held in &ranks {
            assert_eq!(
                ends(held, "Module.layers.1.mlp.Moe.forward.0").len(),
                2,
                "each has a term of the sum"
            );
        }
    }
}
