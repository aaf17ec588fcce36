//! Facts about unpaired ops and their groups.

use std::collections::BTreeSet;

use crate::flow::{Flow, Node};
use crate::ops::Kind;
use probe_dump::{DType, Op, OpKind, Slot, TensorRecord};
use probe_pair::Substitution;

/// Factor over the error of another group with the same products that no precision explains.
pub(super) const ALONE: f64 = 8.0;

/// Returns true if an op does more than copy, or make a constant or memory; these show in what is made from them and
/// data.
pub(super) fn computes(node: &Node<'_>) -> bool {
    !matches!(node.traits.kind, Kind::Copy | Kind::Uninitialised) && !is_constant(node)
}

/// Returns true if a function has only non-tensor inputs and does not draw: `scalar_tensor`, `arange`.
fn is_constant(node: &Node<'_>) -> bool {
    let mut given = node.op.slots.iter().filter(|slot| !slot.side.is_result()).peekable();
    let is_function = node.op.name.kind() == OpKind::Api && !node.is_backward();
    is_function
        && node.traits.kind != Kind::Random
        && given.peek().is_some()
        && given.all(|slot| slot.value.tensor().is_none())
}

/// Returns the first op of each side that computes.
pub(super) fn computing(flow: &Flow<'_>, group: &Substitution) -> [Option<usize>; 2] {
    [&group.baseline, &group.candidate].map(|ops| ops.iter().copied().find(|&op| computes(&flow.nodes[op])))
}

/// Returns true if a group has the same functions on both sides, in the same order.
pub(super) fn are_same_calls(flow: &Flow<'_>, group: &Substitution) -> bool {
    let name = |&op: &usize| flow.nodes[op].base;
    group.baseline.iter().map(name).eq(group.candidate.iter().map(name))
}

/// Returns true if an op modifies existing memory, which is read under another name or in a later step.
pub(crate) fn writes(node: &Node<'_>) -> bool {
    let api = node.op.name.api();
    let in_place = api.ends_with('_') && !api.ends_with("__");
    node.traits.optimizes || in_place || api.starts_with("__i") || api == "__setitem__"
}

/// Returns true if an op makes whole numbers alone, one each: it counts batches or steps. What is made of a count is held
/// against the other side's where it is read.
pub(super) fn counts(op: &Op) -> bool {
    let mut made = op.slots.iter().filter(|slot| slot.side.is_result()).peekable();
    made.peek().is_some()
        && made.all(|slot| {
            slot.value.tensor().is_some_and(|record| {
                record.len() == 1 && record.dtype.known().is_some_and(DType::is_integer)
            })
        })
}

/// Returns the tensors of an op's inputs or results.
pub(super) fn tensors<'a>(
    node: &Node<'a>,
    results: bool,
) -> impl Iterator<Item = &'a TensorRecord> + use<'a> {
    let slots = node.op.slots.iter().filter(move |slot| slot.side.is_result() == results);
    slots.filter_map(|slot| slot.value.tensor())
}

/// Returns true for checkpoint tensors and saved variables, which replace no others.
pub(super) fn stand_for_themselves(flow: &Flow<'_>, group: &Substitution) -> bool {
    let mut kinds = group.baseline.iter().chain(&group.candidate).map(|&op| flow.nodes[op].op.name.kind());
    kinds.any(|kind| matches!(kind, OpKind::Tensor | OpKind::Saved))
}

/// Returns true if one side alone has a function, and no more than one.
pub(super) fn is_single([b, c]: &[BTreeSet<&str>; 2]) -> bool {
    b.len() + c.len() == 1
}

/// Returns true for a tensor that may have a gradient.
pub(super) fn is_trained(slot: &Slot) -> bool {
    slot.value.tensor().is_some_and(|record| record.requires_grad != Some(false))
}
