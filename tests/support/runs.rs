//! Small runs, and the comparison of two that one function made.

use tempfile::TempDir;

use super::answer::Answer;
use super::dump_builder::{Dump, Op, Side, Task, Tensor, op};

/// The two dumps of a case, one part each.
pub(crate) fn compare(task: Task, ops: &dyn Fn(Side) -> Vec<Op>) -> Answer {
    compare_parts(&[("step0/rank0", task)], |_, side| Some(ops(side)))
}

/// Dumps of several parts; a side lacks those for which `ops` gives nothing.
pub(crate) fn compare_parts(parts: &[(&str, Task)], ops: impl Fn(&str, Side) -> Option<Vec<Op>>) -> Answer {
    let folder = write_parts(parts, ops);
    Answer::of(&folder.path().join("baseline"), &folder.path().join("candidate"))
}

fn write_parts(parts: &[(&str, Task)], ops: impl Fn(&str, Side) -> Option<Vec<Op>>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (side, name) in [(Side::Baseline, "baseline"), (Side::Candidate, "candidate")] {
        for (part, task) in parts {
            if let Some(ops) = ops(part, side) {
                Dump::new(*task, ops).write(&folder.path().join(name).join(part));
            }
        }
    }
    folder
}

/// Four ops in a row; what they hand on is scaled in the candidate from op number `from` on.
pub(crate) fn chain(side: Side, from: usize, factor: f64) -> Vec<Op> {
    let value = |index: usize| {
        let value = Tensor::wave(u32::try_from(index).unwrap(), 64);
        if index >= from { side.scaled(&value, factor) } else { value }
    };
    let weight = Tensor::wave(40, 16);
    vec![
        op("Functional.embedding.0.forward").input(value(0)).output(value(1)),
        op("Functional.linear.0.forward").input(value(1)).input(&weight).output(value(2)),
        op("Functional.gelu.0.forward").input(value(2)).output(value(3)),
        op("Functional.linear.1.forward").input(value(3)).input(&weight).output(value(4)),
    ]
}

/// For [`chain`]: nothing is wrong.
pub(crate) const NEVER: usize = usize::MAX;

/// Forward pass, parameter gradients and backward pass of one module; the weight and what it leads to are scaled by `weight` in
/// the candidate, its gradient by `gradient` on top.
pub(crate) fn module(side: Side, weight: f64, gradient: f64) -> Vec<Op> {
    let name = |phase: &str| format!("Module.fc.Linear.{phase}.0");
    let spread = side.scaled(&Tensor::wave(3, 32), weight);
    let g = Tensor::wave(4, 32);
    vec![
        op(&name("forward"))
            .input(Tensor::wave(1, 32))
            .parameter("weight", side.scaled(&Tensor::wave(2, 32), weight))
            .parameter("bias", Tensor::wave(5, 8))
            .output(spread),
        op(&name("parameters_grad"))
            .gradient("bias", Tensor::wave(6, 8))
            .gradient("weight", side.scaled(&Tensor::wave(7, 32), gradient)),
        op(&name("backward")).input(&g).output(side.scaled(&Tensor::wave(8, 32), weight)),
    ]
}
