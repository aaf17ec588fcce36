//! Values that lead nowhere: memory that nothing reads, and ops that one program runs to look at a value.

use crate::support::dump_builder::{Op, Side, Task, Tensor, op};
use crate::support::runs::compare;
use probe::judge::{Cause, RunVerdict};

fn wave(seed: u32) -> Tensor {
    Tensor::wave(seed, 64).shaped(&[8, 8])
}

/// A function that both sides call alike, with `ops` before it.
fn before_a_product(mut ops: Vec<Op>, given: &Tensor) -> Vec<Op> {
    ops.push(op("Functional.linear.0.forward").input(given).input(wave(3)).output(wave(4)));
    ops
}

/// A buffer that holds what its memory held before, and a view of it.
fn buffer(side: Side, size: f64) -> (Vec<Op>, Tensor) {
    let left_over = side.pick(wave(1).map(|x| x * size), wave(2));
    let view = op("Tensor.view.0.forward").input(&left_over).output(left_over.clone().shaped(&[64]));
    (vec![view], left_over.shaped(&[64]))
}

#[test]
fn what_memory_held_before_is_no_difference_until_something_computes_with_it() {
    for size in [1e20, 1e-20] {
        let unread = compare(Task::Tensor, &|side| before_a_product(buffer(side, size).0, &wave(5)));
        assert_eq!(unread.summary.first_divergence, None, "{size}");
    }
    let read = compare(Task::Tensor, &|side| {
        let (ops, view) = buffer(side, 2.0);
        before_a_product(ops, &view)
    });
    let first = read.summary.first_divergence.unwrap();
    assert_eq!((&*first.op, first.cause), ("Tensor.view.0.forward", Cause::Input));
}

#[test]
fn copies_of_memory_that_was_never_written_are_not_judged() {
    let answer = compare(Task::Tensor, &|side| {
        let (view, _) = buffer(side, 3.0);
        let left_over = side.pick(wave(1).map(|x| x * 3.0), wave(2));
        let filled = left_over.clone().with(0, 1.0);
        let mut ops = vec![op("Torch.empty.0.forward").output(&left_over)];
        ops.extend(view);
        ops.push(op("Tensor.__setitem__.0.forward").input(&left_over).input(1.0).output(&filled));
        ops.push(op("Tensor.masked_fill.0.forward").input(&filled).input(0.0).output(wave(5)));
        before_a_product(ops, &wave(5))
    });
    assert_eq!(answer.summary.first_divergence, None);
}

/// The candidate takes the mean of a value, and reads it if `handed_on`.
fn looked_at(side: Side, handed_on: bool) -> Vec<Op> {
    let mean = Tensor::f32(&[0.25]).shaped(&[]);
    let mut ops = vec![op("Functional.gelu.0.forward").input(wave(1)).output(wave(5))];
    if side.is_candidate() {
        ops.push(op("Tensor.mean.0.forward").input(wave(5)).output(&mean));
    }
    let mut ops = before_a_product(ops, &wave(5));
    let given = if handed_on { mean } else { Tensor::f32(&[0.5]).shaped(&[]) };
    ops.push(op("Tensor.mul.0.forward").input(wave(4)).input(given).output(wave(6)));
    ops
}

#[test]
fn a_value_that_one_program_looks_at_is_no_divergence() {
    let answer = compare(Task::Tensor, &|side| looked_at(side, false));
    assert_eq!(answer.summary.first_divergence, None);
    let said = "the runs call different ops at one place, but the values they pass on agree";
    assert!(answer.summary.notes.iter().any(|note| note.contains(said)), "{:?}", answer.summary.notes);
}

#[test]
fn what_is_computed_and_read_is_one() {
    let answer = compare(Task::Tensor, &|side| looked_at(side, true));
    let first = answer.summary.first_divergence.unwrap();
    assert_eq!((&*first.op, first.cause), ("Tensor.mean.0.forward", Cause::Structure));
}

#[test]
fn a_place_that_is_named_is_not_among_those_that_agree() {
    // One function stands for another, and only its backward pass differs: named is the forward call, whose own result agrees.
    let answer = compare(Task::Tensor, &|side| {
        let mut ops = vec![op("Functional.gelu.0.forward").input(wave(2)).output(wave(1))];
        ops.push(
            op(side.pick("Tensor.clamp.0.forward", "Tensor.mul.0.forward")).input(wave(1)).output(wave(5)),
        );
        ops = before_a_product(ops, &wave(5));
        ops.push(op("Functional.linear.0.backward").input(wave(7)).output(wave(8)));
        if side.is_candidate() {
            ops.push(op("Tensor.mul.0.backward").input(wave(8)).output(wave(9)));
        }
        let (given, made) = side.pick((wave(8), wave(10)), (wave(9), wave(11)));
        ops.push(op("Functional.gelu.0.backward").input(given).output(made));
        ops
    });
    let first = answer.summary.first_divergence.unwrap();
    assert_eq!((&*first.op, first.cause), ("Tensor.mul.0.forward", Cause::Structure));
    let notes = &answer.summary.notes;
    assert!(!notes.iter().any(|note| note.contains("call different ops")), "{notes:?}");
}

/// Grouped attention: one side's kernel shares keys between heads, the other side repeats them for each head, and adds up their gradients.
/// `bent` changes what the candidate's attention makes.
fn grouped(side: Side, repeats: Side, bent: f64) -> Vec<Op> {
    let shared = |seed: u32| Tensor::wave(seed, 16).shaped(&[2, 8]);
    let (keys, gradient) = (shared(1), shared(2));
    let (each, each_gradient) = (wave(3), wave(4));
    let mut ops = vec![op("Tensor.transpose.0.forward").input(shared(5)).output(&keys)];
    let repeated = side == repeats;
    if repeated {
        ops.push(op("Tensor.expand.0.forward").input(&keys).output(&each));
    }
    let read = if repeated { &each } else { &keys };
    let made = side.pick(wave(6), wave(6).map(|x| x * (1.0 + bent)));
    ops.push(op("Functional.scaled_dot_product_attention.0.forward").input(wave(7)).input(read).output(made));
    let read = if repeated { &each_gradient } else { &gradient };
    ops.push(
        op("Functional.scaled_dot_product_attention.0.backward").input(wave(8)).output(wave(9)).output(read),
    );
    if repeated {
        ops.push(op("Tensor.expand.0.backward").input(&each_gradient).output(&gradient));
    }
    ops.push(op("Tensor.transpose.0.backward").input(&gradient).output(shared(10)));
    ops
}

#[test]
fn what_one_side_repeats_for_its_kernel_is_no_divergence() {
    for task in [Task::Tensor, Task::Statistics] {
        for repeats in [Side::Baseline, Side::Candidate] {
            let answer = compare(task, &|side| grouped(side, repeats, 0.0));
            assert_eq!(
                answer.summary.verdict,
                RunVerdict::Agree,
                "{task:?} {repeats:?} {:?}",
                answer.summary
            );
            let said = "the runs call different ops at 2 places, but the values they pass on agree";
            assert!(
                answer.summary.notes.iter().any(|note| note.contains(said)),
                "{:?}",
                answer.summary.notes
            );
        }
    }
}

#[test]
fn a_kernel_that_is_given_repeated_values_may_be_at_fault() {
    for repeats in [Side::Baseline, Side::Candidate] {
        let first =
            compare(Task::Tensor, &|side| grouped(side, repeats, 0.01)).summary.first_divergence.unwrap();
        assert_eq!(
            (&*first.op, first.cause),
            ("Functional.scaled_dot_product_attention.0.forward", Cause::Numerics)
        );
        let said = "inputs bit-equal except for the shapes of input.1, which one side repeats with extra ops";
        assert!(first.reason.contains(said), "{}", first.reason);
    }
}

#[test]
fn what_is_computed_before_it_is_repeated_is_one() {
    let answer = compare(Task::Tensor, &|side| {
        let mut ops = grouped(side, Side::Candidate, 0.0);
        if side.is_candidate() {
            ops[1] = op("Tensor.mul.0.forward")
                .input(Tensor::wave(1, 16).shaped(&[2, 8]))
                .input(1.02)
                .output(wave(3));
        }
        ops
    });
    let first = answer.summary.first_divergence.unwrap();
    assert_eq!((&*first.op, first.cause), ("Tensor.mul.0.forward", Cause::Structure));
}

#[test]
fn what_is_cut_off_or_repeated_for_an_op_whose_results_show_it_is_one() {
    let rows = |seed: u32, rows: usize| Tensor::wave(seed, rows * 8).shaped(&[rows, 8]);
    for (name, read, made) in [("Tensor.__getitem__.0.forward", 4, 4), ("Tensor.repeat.0.forward", 16, 16)] {
        let answer = compare(Task::Tensor, &|side| {
            let mut ops = vec![op("Functional.gelu.0.forward").input(rows(1, 8)).output(rows(2, 8))];
            if side.is_candidate() {
                ops.push(op(name).input(rows(2, 8)).output(rows(3, read)));
            }
            let (given, result) = side.pick((rows(2, 8), rows(4, 8)), (rows(3, read), rows(5, made)));
            ops.push(op("Functional.linear.0.forward").input(given).input(wave(6)).output(result));
            ops
        });
        let first = answer.summary.first_divergence.unwrap();
        assert_eq!((&*first.op, first.cause), (name, Cause::Structure));
    }
}

#[test]
fn variables_that_were_saved_under_other_names_stand_for_themselves() {
    let answer = compare(Task::Tensor, &|side| {
        let saved = |name: &str, seed: u32| op(&format!("{name}.0.debug")).gradient("", wave(seed));
        vec![saved("loss", 1), saved(side.pick("gradient", "slope"), 2)]
    });
    assert_eq!(answer.summary.first_divergence.map(|first| first.cause), Some(Cause::Structure));
}

/// The candidate copies a value into new memory before a kernel reads it; `bent` changes what it copies.
fn copied(side: Side, bent: f64) -> Vec<Op> {
    let zeros = Tensor::wave(1, 64).map(|_| 0.0).shaped(&[8, 8]);
    let read = wave(5).map(|x| x * (1.0 + bent));
    let mut ops = vec![op("Aten.gelu.0.forward").input(wave(1)).output(wave(5))];
    if side.is_candidate() {
        ops.push(op("Aten.new_zeros.0.forward").input(wave(5)).output(&zeros));
        ops.push(op("Aten.scatter.0.forward").input(&zeros).input(wave(5)).output(&read));
    }
    let read = side.pick(wave(5), read);
    ops.push(op("Aten.mm.0.forward").input(read).input(wave(3)).output(wave(4)));
    ops
}

#[test]
fn what_one_side_copies_into_new_memory_is_no_divergence() {
    let answer = compare(Task::Tensor, &|side| copied(side, 0.0));
    assert_eq!(answer.summary.first_divergence, None);
    let first = compare(Task::Tensor, &|side| copied(side, 1e-8)).summary.first_divergence.unwrap();
    assert_eq!((&*first.op, first.cause), ("Aten.new_zeros.0.forward", Cause::Structure));
}

/// A layer norm whose mean the candidate keeps in another type, for its backward pass, and for a function of the program if `is_read`.
fn normalised(side: Side, is_read: bool) -> Vec<Op> {
    let mean = Tensor::wave(6, 8).shaped(&[8, 1]);
    let mean = side.pick(mean.clone(), mean.named("bfloat16"));
    let mut ops = vec![op("Aten.native_layer_norm.0.forward").input(wave(1)).output(wave(5)).output(&mean)];
    if is_read {
        ops.push(op("Aten.tanh.0.forward").input(&mean).output(Tensor::wave(7, 8).shaped(&[8, 1])));
    }
    ops.push(op("Aten.mm.0.forward").input(wave(5)).input(wave(3)).output(wave(4)));
    ops.push(
        op("Aten.native_layer_norm_backward.0.backward")
            .input(wave(8))
            .input(wave(1))
            .input(&mean)
            .output(wave(9)),
    );
    ops
}

#[test]
fn what_a_kernel_keeps_for_its_backward_pass_may_have_another_type() {
    let answer = compare(Task::Statistics, &|side| normalised(side, false));
    assert_eq!(answer.summary.verdict, RunVerdict::Agree, "{:?}", answer.summary);
    let first = compare(Task::Statistics, &|side| normalised(side, true)).summary.first_divergence.unwrap();
    assert_eq!((&*first.op, first.cause), ("Aten.native_layer_norm.0.forward", Cause::DType));
}
