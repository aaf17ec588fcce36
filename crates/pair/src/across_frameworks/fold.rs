//! Primitives of MindSpore that together are one function of PyTorch: a product on two axes, its bias, and the reshapes
//! around both are `linear`; a lookup between reshapes is `embedding`.
//!
//! A pair of the parts alone would compare a product without bias with one that has it.

use std::collections::{HashMap, HashSet};

use super::table::without_attribute;
use crate::sequence::value_key;
use probe_dump::{Op, OpName, Phase, Slot, SlotSide, TensorRecord, Value};

/// Primitives to which a bias is added by another.
const PRODUCTS: [&str; 5] = [
    "Primitive.MatMul",
    "Primitive.Dense",
    "Primitive.Conv2D",
    "Primitive.Conv3D",
    "Primitive.Conv2DTranspose",
];

/// Primitives that read rows of a table.
const LOOKUP: &str = "Primitive.Gather";

const BIAS: &str = "Primitive.BiasAdd";

/// Functions that change the shape alone.
const RESHAPES: [&str; 4] = ["Primitive.Reshape", "Tensor.reshape", "Tensor.view", "Functional.reshape"];

/// Functions that compute sizes, which may stand between the parts.
const SIZES: [&str; 2] = ["Primitive.Shape", "Functional.shape"];

/// Number of ops before and after a primitive among which its parts are searched.
const NEAR: usize = 6;

/// Positions of ops that are one function.
struct Parts {
    core: usize,
    before: Option<usize>,
    bias: Option<usize>,
    after: Option<usize>,
}

/// Folds the parts into the op that computes, in both passes. The other parts are removed.
pub(super) fn fold(ops: &mut Vec<Op>) {
    let index: HashMap<Box<str>, usize> =
        ops.iter().enumerate().map(|(at, op)| (op.name.as_str().into(), at)).collect();
    let backward = |name: &OpName| index.get(name.in_phase(Phase::Backward)?.as_str()).copied();
    let mut removed: HashSet<usize> = HashSet::new();
    for core in 0..ops.len() {
        let Some(parts) = parts(ops, core) else { continue };
        let others = [parts.before, parts.bias, parts.after];
        let passed = others.map(|at| at.and_then(|at| backward(&ops[at].name)));
        if let Some(core) = backward(&ops[core].name) {
            fold_backward(ops, core, &parts, passed);
            removed.extend(passed.into_iter().flatten());
        }
        fold_forward(ops, &parts);
        removed.extend(others.into_iter().flatten());
    }
    let mut at = 0;
    ops.retain(|_| {
        at += 1;
        !removed.contains(&(at - 1))
    });
}

/// Returns the parts around the primitive at `core`; `None` if it stands alone.
fn parts(ops: &[Op], core: usize) -> Option<Parts> {
    let op = ops.get(core).filter(|op| op.name.phase() == Phase::Forward)?;
    let key = without_attribute(op.name.stem());
    let is_product = PRODUCTS.contains(&&*key);
    if !is_product && key != LOOKUP {
        return None;
    }
    let operand = tensor(op, operand(op))?;
    let made = tensor(op, "output.0")?;
    let bias = following(ops, core, made, |key| key == BIAS).filter(|_| is_product);
    let last = bias.and_then(|at| tensor(&ops[at], "output.0")).unwrap_or(made);
    let before = (core.saturating_sub(NEAR)..core).rev().find(|&at| {
        let reshapes = is_forward(&ops[at], |key| RESHAPES.contains(&key));
        reshapes && tensor(&ops[at], "output.0").is_some_and(|record| is_same(record, operand))
    });
    let after = following(ops, bias.unwrap_or(core), last, |key| RESHAPES.contains(&key));
    // A reshape on one side alone belongs to the program.
    let (before, after) = if before.is_some() && after.is_some() { (before, after) } else { (None, None) };
    (bias.is_some() || before.is_some()).then_some(Parts { core, before, bias, after })
}

/// Returns the next op after `at`, behind ops that compute sizes, if it is of the given kind and reads `record`.
fn following(ops: &[Op], at: usize, record: &TensorRecord, is_kind: impl Fn(&str) -> bool) -> Option<usize> {
    let next = (at + 1..ops.len().min(at + 1 + NEAR))
        .find(|&at| !is_forward(&ops[at], |key| SIZES.contains(&key)))?;
    let reads = tensor(&ops[next], "input.0").is_some_and(|given| is_same(given, record));
    (is_forward(&ops[next], is_kind) && reads).then_some(next)
}

fn is_forward(op: &Op, is_kind: impl Fn(&str) -> bool) -> bool {
    op.name.phase() == Phase::Forward && is_kind(&without_attribute(op.name.stem()))
}

/// Returns the path of the input that reshapes prepare.
fn operand(op: &Op) -> &'static str {
    if without_attribute(op.name.stem()) == LOOKUP { "input.1" } else { "input.0" }
}

fn fold_forward(ops: &mut [Op], parts: &Parts) {
    let value = |at: Option<usize>, path: &str| at.and_then(|at| slot(&ops[at], path)).cloned();
    let given = value(parts.before, "input.0");
    let bias = value(parts.bias, "input.1");
    let made = value(parts.after.or(parts.bias), "output.0");
    let core = &mut ops[parts.core];
    let operand = operand(core);
    set(core, operand, given);
    set(core, "output.0", made);
    if let Some(bias) = bias {
        let place = core.slots.iter().filter(|slot| !slot.side.is_result()).count();
        core.slots.insert(place, Slot { name: renamed(&bias, format!("input.{place}")), ..bias });
    }
}

/// Folds the backward pass. `passed` are the gradients' ops of the parts before, of the bias, and after.
fn fold_backward(ops: &mut [Op], core: usize, parts: &Parts, passed: [Option<usize>; 3]) {
    let [before, bias, after] = passed;
    let value = |at: Option<usize>, path: &str| at.and_then(|at| slot(&ops[at], path)).cloned();
    let arrived = value(after.or(bias), "input.0");
    let shape = |slot: &Slot| slot.value.tensor().map(|record| record.shape.clone());
    let of_bias = parts.bias.and_then(|at| slot(&ops[at], "input.1")).and_then(shape);
    let bias_gradient = bias.and_then(|at| {
        let mut results = ops[at].slots.iter().filter(|slot| slot.side.is_result());
        results.find(|&slot| of_bias.is_some() && shape(slot) == of_bias).cloned()
    });
    let operand = slot(&ops[parts.core], operand(&ops[parts.core])).and_then(shape);
    let passed_on = value(before, "output.0");
    let op = &mut ops[core];
    set(op, "input.0", arrived);
    let results = op.slots.iter().filter(|slot| slot.side.is_result()).count();
    let own = op.slots.iter().find(|slot| slot.side.is_result() && shape(slot) == operand);
    let own: Option<Box<str>> = own.map(|slot| slot.path.clone());
    if let Some(own) = own {
        set(op, &own, passed_on);
    }
    if let Some(bias) = bias_gradient {
        op.slots.push(Slot { name: renamed(&bias, format!("output.{results}")), ..bias });
    }
}

fn renamed(slot: &Slot, path: String) -> std::sync::Arc<probe_dump::SlotName> {
    probe_dump::SlotName { path: path.into(), side: slot.side }.into()
}

fn slot<'a>(op: &'a Op, path: &str) -> Option<&'a Slot> {
    op.slots.iter().find(|slot| &*slot.path == path)
}

fn tensor<'a>(op: &'a Op, path: &str) -> Option<&'a TensorRecord> {
    slot(op, path)?.value.tensor()
}

/// Replaces the value of a slot.
fn set(op: &mut Op, path: &str, by: Option<Slot>) {
    let slot = op.slots.iter_mut().find(|slot| &*slot.path == path);
    if let (Some(slot), Some(Slot { value: value @ Value::Tensor(_), identity, .. })) = (slot, by) {
        (slot.value, slot.identity) = (value, identity);
    }
}

/// Returns true for equal elements; for constants, which no statistics tell apart, if the sizes are equal.
fn is_same(a: &TensorRecord, b: &TensorRecord) -> bool {
    match (value_key(a), value_key(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a.shape == b.shape,
    }
}

/// Returns true if a product is `linear`: its weight has a row for each feature of the result.
pub(super) fn is_linear(op: &Op) -> bool {
    if without_attribute(op.name.stem()) != "Primitive.MatMul" {
        return false;
    }
    let shape = |path: &str| tensor(op, path).map(|record| &*record.shape);
    let (Some([.., read]), Some([rows, columns]), Some([.., made])) =
        (shape("input.0"), shape("input.1"), shape("output.0"))
    else {
        return false;
    };
    let has_bias = op.slots.iter().any(|slot| slot.side == SlotSide::Input && &*slot.path == "input.2");
    columns == read && rows == made && (has_bias || rows != columns)
}
