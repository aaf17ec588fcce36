//! Weights that two modules of the whole model share, and that stages have apart: the embedding of the first stage and the head of the last. Each
//! stage has a term of the gradient, under the name of its own module; the whole model has the gradient under the name of one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use probe_dump::{Op, OpName, Phase, Rank, SlotName};

use super::numbering::{digest, modules};

/// A parameter of one module that is also one of another.
struct Shared {
    /// Module whose gradient the whole model does not have apart.
    module: String,
    parameter: Box<str>,
    /// Start of the name of the ops that have the gradient: `Module.embed.Embedding`.
    keeper: String,
    /// Module that has the gradient.
    keeping: String,
    kept: Box<str>,
}

/// Gives gradients of shared parameters, on ranks that do not hold the module under which `other` has them, the name that they have there. The modules
/// bear the numbers of the whole model.
pub(crate) fn under_one_name(ranks: &mut [Rank], other: &Rank) {
    let shared = shared(other);
    for rank in ranks.iter_mut().filter(|_| !shared.is_empty()) {
        let held = modules(rank);
        for parameter in shared.iter().filter(|of| !held.contains_key(&of.keeping)) {
            parameter.rename(rank);
        }
    }
}

/// Returns the matrices of a run that one module has the gradient of, and another holds as well. Vectors of ones or zeros are equal in many modules.
fn shared(other: &Rank) -> Vec<Shared> {
    let mut gradients: HashMap<(&str, &str), &Op> = HashMap::new();
    for op in other.ops.iter().filter(|op| op.name.phase() == Phase::ParameterGradient) {
        for path in op.slots.iter().filter_map(|slot| slot.path.strip_prefix("grad.")) {
            gradients.entry((op.name.module_path().unwrap_or_default(), path)).or_insert(op);
        }
    }
    let calls = other.ops.iter().filter(|op| op.name.phase() == Phase::Forward);
    let parameters =
        calls.filter_map(|op| Some((op.name.module_path()?, &op.slots))).flat_map(|(module, slots)| {
            slots.iter().filter_map(move |slot| {
                let record = slot.value.tensor().filter(|record| record.shape.len() > 1)?;
                // A module may also be given the weight, and have none of its own.
                let given = || slot.path.strip_prefix("kwarg.");
                Some((module, slot.path.strip_prefix("parameter.").or_else(given)?, digest(record)?))
            })
        });
    let (kept, without): (Vec<_>, Vec<_>) = parameters
        .collect::<BTreeSet<_>>()
        .into_iter()
        .partition(|(module, name, _)| gradients.contains_key(&(*module, *name)));
    let of = |(module, parameter, digest): (&str, &str, u128)| {
        let &(keeping, kept, _) = kept.iter().find(|(.., held)| *held == digest)?;
        let keeper = gradients[&(keeping, kept)].name.as_str().rsplit_once(".parameters_grad")?.0.to_owned();
        let (module, keeping) = (module.to_owned(), keeping.to_owned());
        Some(Shared { module, parameter: parameter.into(), keeper, keeping, kept: kept.into() })
    };
    without.into_iter().filter_map(of).collect()
}

fn gradient_of(parameter: &str) -> String {
    format!("grad.{parameter}")
}

impl Shared {
    fn rename(&self, rank: &mut Rank) {
        let own = gradient_of(&self.parameter);
        let mut apart: Vec<(usize, Op)> = Vec::new();
        for (place, op) in rank.ops.iter_mut().enumerate() {
            if op.name.as_str().starts_with("Optimizer.") {
                self.rename_slots(op);
            }
            let is_of_module = op.name.phase() == Phase::ParameterGradient
                && op.name.module_path() == Some(self.module.as_str());
            let Some(slot) = op.slots.iter().position(|slot| *slot.path == *own).filter(|_| is_of_module)
            else {
                continue;
            };
            let Some((_, call)) = op.name.as_str().rsplit_once('.') else { continue };
            let mut gradient = op.clone();
            gradient.name = OpName::parse(&format!("{}.parameters_grad.{call}", self.keeper));
            let mut value = op.slots.remove(slot);
            value.name = Arc::new(SlotName { path: gradient_of(&self.kept).into(), side: value.side });
            gradient.slots = vec![value];
            apart.push((place, gradient));
        }
        for (place, gradient) in apart.into_iter().rev() {
            // The module may have gradients of its own beside it.
            if rank.ops[place].slots.is_empty() {
                rank.ops[place] = gradient;
            } else {
                rank.ops.insert(place + 1, gradient);
            }
        }
    }

    /// Renames what an optimizer has of the parameter: `input.grad.head.weight`.
    fn rename_slots(&self, op: &mut Op) {
        let own = format!(".{}.{}", self.module, self.parameter);
        for slot in &mut op.slots {
            if let Some(what) = slot.path.strip_suffix(&own) {
                let path = format!("{what}.{}.{}", self.keeping, self.kept);
                slot.name = Arc::new(SlotName { path: path.into(), side: slot.side });
            }
        }
    }
}
