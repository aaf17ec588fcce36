//! Gradients of functions, which the two frameworks list in different orders.
//!
//! MindSpore lists the gradient of every input. PyTorch lists those of the last node of its graph.

use std::collections::BTreeSet;

use super::table::{Argument, Table};
use probe_dump::{Op, OpKind, Phase, Slot, SlotName, TensorRecord};

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

/// Gives the gradients of MindSpore's op, which is called `own` there, the positions of those in PyTorch's op. Gradients of
/// one shape pair in the order of the arguments. Those that cannot be told apart are removed.
pub(super) fn arrange(torch: &Op, mindspore: &mut Op, own: &str) {
    let signature = Table::get().signature(torch.name.stem());
    let theirs = Results::of(torch, signature.map(|found| &*found.torch));
    let ours = Results::of(mindspore, signature.and_then(|found| found.mindspore(own)));
    let mut paths: Vec<Option<Box<str>>> = vec![None; mindspore.slots.len()];
    for &(_, at) in &ours.places {
        let (own, other) = (ours.like(mindspore, mindspore, at), theirs.like(torch, mindspore, at));
        if own.len() == other.len() && (own.len() == 1 || ours.ordered && theirs.ordered) {
            let partner = own.iter().position(|&one| one == at).and_then(|place| other.get(place));
            paths[at] = partner.map(|&partner| torch.slots[partner].path.clone());
        }
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

/// The gradients of one op in the order of its arguments.
struct Results {
    /// Positions of the arguments, if they are known, and those of the slots.
    places: Vec<(Option<usize>, usize)>,
    /// True if the position of every argument is known. Dumps list named arguments as their gradients arrive.
    ordered: bool,
}

impl Results {
    fn of(op: &Op, arguments: Option<&[Argument]>) -> Self {
        let position = |path: &str| {
            let name = path.split('.').nth(1)?;
            let named = || arguments?.iter().position(|argument| argument.keyword == name);
            name.parse().ok().or_else(named)
        };
        let is_gradient = |slot: &Slot| slot.side.is_result() && slot.value.tensor().is_some();
        let slots = op.slots.iter().enumerate().filter(|(_, slot)| is_gradient(slot));
        let mut places: Vec<_> = slots.map(|(at, slot)| (position(&slot.path), at)).collect();
        places.sort_by_key(|&(place, _)| place);
        Self { ordered: places.iter().all(|(place, _)| place.is_some()), places }
    }

    /// Returns the slots of `op`, whose gradients these are, that have the shape of a slot of `other`.
    fn like(&self, op: &Op, other: &Op, at: usize) -> Vec<usize> {
        let shape = |op: &Op, at: usize| op.slots[at].value.tensor().map(TensorRecord::squeezed_shape);
        let slots = self.places.iter().map(|&(_, slot)| slot);
        slots.filter(|&slot| shape(op, slot) == shape(other, at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use probe_dump::{DType, OpName, RecordedDType, SlotSide, Value};

    fn op(name: &str, gradients: &[(&str, u64)]) -> Op {
        let mut op = Op::new(OpName::parse(name));
        for &(path, size) in gradients {
            let record = TensorRecord::new(RecordedDType::Known(DType::F32), [size].as_slice().into());
            op.slots.push(Slot::new(path, SlotSide::Output, Value::Tensor(Arc::new(record))));
        }
        op
    }

    fn paired(torch: &Op, own: &str) -> Vec<String> {
        let mut mindspore = op(torch.name.as_str(), &[("output.0", 9), ("output.1", 4), ("output.2", 4)]);
        arrange(torch, &mut mindspore, own);
        mindspore.slots.iter().map(|slot| slot.path.to_string()).collect()
    }

    #[test]
    fn gradients_of_one_shape_pair_in_the_order_of_the_arguments() {
        let arrived = [("output.0", 9), ("output.bias", 4), ("output.weight", 4)];
        let known = op("Functional.batch_norm.0.backward", &arrived);
        assert_eq!(paired(&known, "Primitive.bn.BatchNorm"), ["output.0", "output.weight", "output.bias"]);
        // Nothing tells the two apart without a signature.
        let unknown = op("Functional.novel.0.backward", &arrived);
        assert_eq!(paired(&unknown, "Functional.novel"), ["output.0"]);
    }
}
