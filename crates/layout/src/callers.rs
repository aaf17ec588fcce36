//! Modules that no model lists: a call makes one for itself (`nn.Softmax(dim=-1)(x)`), and it is named by its class and by how often the rank has
//! called that. Ranks with other layers count otherwise, so that one number means the call of another layer.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use probe_dump::{Op, OpKind, OpName, Phase, Rank, without_module_prefix};

/// New names by stem and call: the stem and the call.
type Renamed = HashMap<(String, u32), (String, u32)>;

/// Gives such modules, if not all ranks and the other run call them equally often, names inside of the modules that call them.
pub fn under_their_callers(ranks: &mut [Rank], others: &mut [Rank]) {
    let counts: Vec<BTreeMap<String, usize>> = ranks.iter().chain(&*others).map(counts).collect();
    let stems: BTreeSet<&String> = counts.iter().flat_map(BTreeMap::keys).collect();
    let is_uneven = |stem: &&String| counts.iter().any(|of| of.get(*stem) != counts[0].get(*stem));
    let uneven: BTreeSet<String> = stems.into_iter().filter(is_uneven).cloned().collect();
    if uneven.is_empty() {
        return;
    }
    for rank in ranks.iter_mut().chain(others) {
        let renamed = renamed(rank, &uneven);
        for op in &mut rank.ops {
            if let Some(name) = new_name(&op.name, &renamed) {
                op.name = name;
            }
            let parent = op.parent.as_deref().and_then(|parent| new_name(&OpName::parse(parent), &renamed));
            if let Some(parent) = parent {
                op.parent = Some(parent.as_str().into());
            }
        }
    }
}

/// Returns how often each such module is called.
fn counts(rank: &Rank) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for op in rank.ops.iter().filter(|op| is_unlisted(op)) {
        *counts.entry(op.name.stem().to_owned()).or_default() += 1;
    }
    counts
}

/// Returns true for a forward call of a module that is named by its class alone, within a call of another module: the model itself is within none.
fn is_unlisted(op: &Op) -> bool {
    let is_forward = op.name.kind() == OpKind::Module && op.name.phase() == Phase::Forward;
    is_forward && caller(op).is_some() && class_of(&op.name).is_some()
}

/// Returns the class of a module that is named by it alone.
fn class_of(name: &OpName) -> Option<&str> {
    let (path, class) = without_module_prefix(name.stem()).rsplit_once('.')?;
    (path == class).then_some(class)
}

/// Returns the path of the module in whose call an op is.
fn caller(op: &Op) -> Option<String> {
    OpName::parse(op.parent.as_deref()?).module_path().map(str::to_owned)
}

fn renamed(rank: &Rank, uneven: &BTreeSet<String>) -> Renamed {
    let mut renamed = Renamed::new();
    let mut calls: HashMap<String, u32> = HashMap::new();
    for op in rank.ops.iter().filter(|op| is_unlisted(op) && uneven.contains(op.name.stem())) {
        let (Some(caller), Some(class), Some(call)) = (caller(op), class_of(&op.name), op.name.call()) else {
            continue;
        };
        let stem = format!("Module.{caller}.{class}.{class}");
        let next = calls.entry(stem.clone()).or_default();
        renamed.insert((op.name.stem().to_owned(), call), (stem, *next));
        *next += 1;
    }
    renamed
}

/// Returns the new name of a call, in its phase.
fn new_name(name: &OpName, renamed: &Renamed) -> Option<OpName> {
    class_of(name)?;
    let (stem, call) = renamed.get(&(name.stem().to_owned(), name.call()?))?;
    let phase = name.as_str().strip_prefix(name.stem())?.strip_prefix('.')?.split_once('.')?.0;
    Some(OpName::parse(&format!("{stem}.{phase}.{call}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::stage;

    fn op(name: &str, parent: Option<&str>) -> Op {
        Op { parent: parent.map(Into::into), ..Op::new(OpName::parse(name)) }
    }

    /// One call of a module that each of these layers makes for itself, and the function in it.
    fn calls(layers: &[u32]) -> Rank {
        let mut ops = Vec::new();
        for (call, layer) in layers.iter().enumerate() {
            let made = format!("Module.Softmax.Softmax.forward.{call}");
            ops.push(op(&format!("Functional.softmax.{call}.forward"), Some(&made)));
            ops.push(op(&made, Some(&format!("Module.layers.{layer}.Attention.forward.0"))));
            ops.push(op(
                &format!("Module.layers.{layer}.Attention.forward.0"),
                Some("Module.Gpt.Gpt.forward.0"),
            ));
        }
        ops.push(op("Module.Gpt.Gpt.forward.0", None));
        let last = layers.len().saturating_sub(1);
        ops.push(op(&format!("Module.Softmax.Softmax.backward.{last}"), None));
        Rank { ops, ..stage(0, &[]) }
    }

    fn names(rank: &Rank) -> Vec<String> {
        rank.ops.iter().map(|op| op.name.as_str().to_owned()).collect()
    }

    #[test]
    fn a_module_that_each_layer_makes_for_itself_is_named_by_the_layer() {
        let (mut ranks, mut other) = (vec![calls(&[0, 1]), calls(&[2, 3])], vec![calls(&[0, 1, 2, 3])]);
        under_their_callers(&mut ranks, &mut other);
        let made = "Module.layers.3.Softmax.Softmax.forward.0";
        assert_eq!(ranks[1].ops[4].name.as_str(), made);
        assert_eq!(ranks[1].ops[3].parent.as_deref(), Some(made));
        assert_eq!(names(&ranks[1]).last().unwrap(), "Module.layers.3.Softmax.Softmax.backward.0");
        assert_eq!(names(&other[0])[10], made);
        assert!(
            names(&other[0]).contains(&"Module.Gpt.Gpt.forward.0".to_owned()),
            "the model itself is listed"
        );
    }

    #[test]
    fn names_stay_if_all_ranks_call_as_often() {
        let (mut ranks, mut other) = (vec![calls(&[0, 1]), calls(&[0, 1])], vec![calls(&[0, 1])]);
        under_their_callers(&mut ranks, &mut other);
        assert_eq!(names(&ranks[0]), names(&calls(&[0, 1])));
        assert_eq!(names(&other[0]), names(&calls(&[0, 1])));
    }
}
