//! Gradients of functions, which the two frameworks list in different orders.
//!
//! MindSpore lists the gradient of every input. PyTorch lists those of the last node of its graph.

use std::collections::BTreeSet;

use super::table::Table;
use probe_dump::{Op, OpKind, Phase, SlotName, TensorRecord};

fn is_backward(op: &Op) -> bool {
    op.name.kind() == OpKind::Api && op.name.phase() == Phase::Backward
}

/// Removes the gradients of functions of which PyTorch's are not those of the arguments. Returns the functions.
pub(super) fn without_composites(ops: &mut [Op]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    for op in ops.iter_mut().filter(|op| is_backward(op)) {
        let Some(name) = Table::get().composite(op.name.api()) else { continue };
        op.slots.retain(|slot| !slot.side.is_result());
        found.insert(name);
    }
    found
}

/// Gives the gradients of MindSpore's op the positions of those in PyTorch's op. Gradients that cannot be told apart are
/// removed.
pub(super) fn arrange(torch: &Op, mindspore: &mut Op) {
    let shape = |op: &Op, at: usize| op.slots[at].value.tensor().map(TensorRecord::squeezed_shape);
    let results = |op: &Op| -> Vec<usize> {
        (0..op.slots.len()).filter(|&at| op.slots[at].side.is_result() && shape(op, at).is_some()).collect()
    };
    let (theirs, ours) = (results(torch), results(mindspore));
    let in_order = theirs.len() == ours.len()
        && theirs.iter().zip(&ours).all(|(&a, &b)| shape(torch, a) == shape(mindspore, b));
    let alone = |op: &Op, all: &[usize], at: usize| {
        all.iter().filter(|&&other| shape(op, other) == shape(op, at)).count() == 1
    };
    let mut paths: Vec<Option<Box<str>>> = vec![None; mindspore.slots.len()];
    for (place, &at) in ours.iter().enumerate() {
        let partner = if in_order {
            theirs.get(place).copied()
        } else {
            let same = theirs.iter().copied().find(|&other| shape(torch, other) == shape(mindspore, at));
            same.filter(|&other| alone(torch, &theirs, other) && alone(mindspore, &ours, at))
        };
        paths[at] = partner.map(|partner| torch.slots[partner].path.clone());
    }
    let mut paths = paths.into_iter();
    mindspore.slots.retain_mut(|slot| match (slot.side.is_result(), paths.next().flatten()) {
        (true, None) => false,
        (true, Some(path)) => {
            slot.name = SlotName { path, side: slot.side }.into();
            true
        }
        (false, _) => true,
    });
}
