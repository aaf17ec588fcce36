//! One operator on one side in the place of several on the other: what frameworks for NPUs put in the place of torch's functions, and
//! kernels that are not recorded at all.

use crate::support::answer::Answer;
use crate::support::dump_builder::{Op, Side, Task, Tensor, op};
use crate::support::runs::compare;
use probe::judge::{Cause, RunVerdict};

/// Relative difference of two devices in binary32.
const NOISE: f64 = 1e-7;

fn rows(seed: u32) -> Tensor {
    Tensor::wave(seed, 1024).shaped(&[32, 32])
}

/// The candidate's is rounded otherwise, and `factor` times as large.
fn other(side: Side, seed: u32, factor: f64) -> Tensor {
    side.pick(rows(seed), rows(seed).map(|x| x * factor).noisy(u64::from(seed), NOISE))
}

fn linear(call: usize, side: Side, given: &Tensor, made: u32, factor: f64) -> Op {
    let weight = rows(90 + u32::try_from(call).unwrap()).map(|x| x / 4.0);
    op(&format!("Functional.linear.{call}.forward"))
        .input(given)
        .input(weight)
        .output(other(side, made, factor))
}

fn named(answer: &Answer) -> Option<(&str, Cause)> {
    answer.summary.first_divergence.as_ref().map(|first| (&*first.op, first.cause))
}

fn agrees(answer: &Answer) {
    assert_eq!(
        (answer.summary.verdict, named(answer)),
        (RunVerdict::Agree, None),
        "{:?}",
        answer.summary.notes
    );
    let said = "the runs call different ops";
    assert!(answer.summary.notes.iter().any(|note| note.contains(said)), "{:?}", answer.summary.notes);
}

/// A normalisation between two products: of four ops in the baseline, one of the candidate, or none that was recorded.
fn normalised(side: Side, is_recorded: bool, factor: f64) -> Vec<Op> {
    let given = other(side, 1, 1.0);
    let mut ops = vec![linear(0, side, &rows(8), 1, 1.0)];
    let made = other(side, 2, factor);
    if side.is_candidate() {
        ops.extend(is_recorded.then(|| op("NPU.npu_rms_norm.0.forward").input(&given).output(&made)));
    } else {
        let [square, mean, root] = [11, 12, 13].map(rows);
        ops.push(op("Tensor.pow.0.forward").input(&given).input(2.0).output(&square));
        ops.push(op("Tensor.mean.0.forward").input(&square).output(&mean));
        ops.push(op("Torch.rsqrt.0.forward").input(&mean).output(&root));
        ops.push(op("Tensor.__mul__.0.forward").input(&given).input(&root).output(&made));
    }
    ops.push(linear(1, side, &made, 3, factor));
    ops
}

#[test]
fn a_fused_operator_that_makes_the_same_is_no_divergence() {
    agrees(&compare(Task::Tensor, &|side| normalised(side, true, 1.0)));
}

#[test]
fn a_kernel_that_was_not_recorded_stands_for_what_the_other_side_computes_there() {
    agrees(&compare(Task::Tensor, &|side| normalised(side, false, 1.0)));
    let wrong = compare(Task::Tensor, &|side| normalised(side, false, 1.01));
    assert_eq!(named(&wrong), Some(("Tensor.pow.0.forward", Cause::Structure)));
}

#[test]
fn what_hands_on_a_value_that_was_there_before_computes_nothing() {
    // The candidate bends the value a little: less than would show behind it, but it is an op that the baseline does not have.
    let answer = compare(Task::Tensor, &|side| {
        let given = other(side, 1, 1.0);
        let mut ops = vec![linear(0, side, &rows(8), 1, 1.0)];
        let bent = given.map(|x| x * (1.0 + 1e-8));
        if side.is_candidate() {
            ops.push(op("Torch.tanh.0.forward").input(&given).output(&bent));
        }
        ops.push(linear(1, side, side.pick(&given, &bent), 3, 1.0));
        ops
    });
    assert_eq!(named(&answer), Some(("Torch.tanh.0.forward", Cause::Structure)));
}

#[test]
fn a_fused_operator_that_makes_something_else_is_named_with_what_it_stands_for() {
    let answer = compare(Task::Tensor, &|side| normalised(side, true, 1.01));
    assert_eq!(named(&answer), Some(("NPU.npu_rms_norm.0.forward", Cause::Structure)));
    let reason = &answer.summary.first_divergence.as_ref().unwrap().reason;
    for said in
        ["instead of Tensor.pow.0.forward", "Functional.linear.1.forward input.0 differs: error 1.0e-2"]
    {
        assert!(reason.contains(said), "{reason}");
    }
    assert_eq!(answer.summary.groups.len(), 1, "what follows is its");
}

/// A gate: its activation stands before the second product in the baseline, and the candidate does all of it behind that product.
fn gated(side: Side, factor: f64) -> Vec<Op> {
    let (gate, up, made) = (other(side, 1, 1.0), other(side, 2, 1.0), other(side, 4, factor));
    let mut ops = vec![linear(0, side, &rows(8), 1, 1.0)];
    if !side.is_candidate() {
        ops.push(op("Functional.silu.0.forward").input(&gate).output(rows(14)));
    }
    ops.push(linear(1, side, &rows(8), 2, 1.0));
    ops.push(match side {
        Side::Baseline => op("Tensor.__mul__.0.forward").input(rows(14)).input(&up).output(&made),
        Side::Candidate => op("NPU.npu_swiglu.0.forward").input(&gate).input(&up).output(&made),
    });
    ops.push(linear(2, side, &made, 5, factor));
    ops
}

#[test]
fn ops_that_stand_apart_are_one_by_what_they_hand_to_one_another() {
    agrees(&compare(Task::Tensor, &|side| gated(side, 1.0)));
    let wrong = compare(Task::Tensor, &|side| gated(side, 1.01));
    assert_eq!(named(&wrong), Some(("NPU.npu_swiglu.0.forward", Cause::Structure)));
}

/// Attention in three layers: the baseline makes a mask for all, and transposes what its attention made; the candidate's needs no mask, and
/// is given transposed queries. That of layer `at` is `factor` times as large.
fn attention(side: Side, at: usize, factor: f64) -> Vec<Op> {
    let mut ops = Vec::new();
    let mask = rows(30);
    if !side.is_candidate() {
        // Twice the same elements, of which one is read: a model may make a mask for each kind of its layers.
        for call in 0..2 {
            ops.push(op(&format!("Torch.ones.{call}.forward")).output(rows(31)));
            ops.push(op(&format!("Tensor.tril.{call}.forward")).input(rows(31)).output(&mask));
            if call == 0 {
                ops.push(op("Functional.embedding.0.forward").input(rows(33)).output(rows(34)));
            }
        }
    } else {
        ops.push(op("Functional.embedding.0.forward").input(rows(33)).output(rows(34)));
    }
    let mut given = rows(8);
    for layer in 0..3_u32 {
        let factor = if layer as usize == at { factor } else { 1.0 };
        let (query, made) = (40 + 5 * layer, 41 + 5 * layer);
        // Larger than what attention makes of them.
        let query = other(side, query, 1.0).map(|x| 3.0 * x);
        let weight = rows(90 + layer).map(|x| x / 4.0);
        let linear_name = format!("Functional.linear.{}.forward", 2 * layer);
        ops.push(op(&linear_name).input(&given).input(weight).output(&query));
        let transpose = op(&format!("Tensor.transpose.{layer}.forward"));
        let result = other(side, made, factor);
        if side.is_candidate() {
            ops.push(transpose.input(&query).output(&query));
            ops.push(op(&format!("NPU.npu_fusion_attention.{layer}.forward")).input(&query).output(&result));
        } else {
            let name = format!("Functional.scaled_dot_product_attention.{layer}.forward");
            ops.push(op(&name).input(&query).kwarg("attn_mask", &mask).output(&result));
            ops.push(transpose.input(&result).output(&result));
        }
        ops.push(linear(2 * layer as usize + 1, side, &result, 42 + 5 * layer, factor));
        given = other(side, 42 + 5 * layer, factor);
    }
    ops
}

#[test]
fn a_mask_that_one_side_alone_makes_and_copies_of_other_values_are_no_divergence() {
    agrees(&compare(Task::Tensor, &|side| attention(side, 3, 1.0)));
}

#[test]
fn an_attention_that_is_off_like_none_of_the_others_is_no_matter_of_precision() {
    // As much as TF32 leaves: alone it could be that.
    let answer = compare(Task::Tensor, &|side| attention(side, 2, 1.0 + 4e-4));
    let first = named(&answer).unwrap();
    assert_eq!(first, ("NPU.npu_fusion_attention.2.forward", Cause::Structure));
}

#[test]
fn a_function_that_the_candidate_leaves_out_is_named_and_not_the_copy_behind_it() {
    let answer = compare(Task::Tensor, &|side| {
        let (given, bent) = (other(side, 1, 1.0), rows(2).map(|x| x / 7.0));
        let mut ops = vec![linear(0, side, &rows(8), 1, 1.0)];
        let read = side.pick(&bent, &given);
        if !side.is_candidate() {
            ops.push(op("Functional.gelu.0.forward").input(&given).output(&bent));
        }
        ops.push(op("Tensor.view.0.forward").input(read).output(read));
        ops.push(linear(1, side, read, 3, 1.2));
        ops
    });
    assert_eq!(named(&answer), Some(("Functional.gelu.0.forward", Cause::Structure)));
}

/// Modules alone were recorded: the baseline's activation is a module, which a function reads; the candidate's is a function, and what comes of
/// it is `factor` times as large.
fn activation_is_a_module(side: Side, factor: f64) -> Vec<Op> {
    let module = |name: &str| op(&format!("Module.mlp.{name}.forward.0"));
    let mut ops = vec![module("up.Linear").input(rows(8)).output(other(side, 1, 1.0))];
    if !side.is_candidate() {
        ops.push(module("act.SiLU").input(rows(1)).output(rows(6)));
    }
    let (read, made) = (other(side, 2, factor), other(side, 3, factor));
    ops.push(module("down.Linear").input(&read).output(&made));
    ops.push(op("Module.mlp.Mlp.forward.0").input(rows(8)).output(&made));
    ops
}

#[test]
fn a_module_that_one_side_calls_as_a_function_is_no_divergence_between_modules() {
    agrees(&compare(Task::Tensor, &|side| activation_is_a_module(side, 1.0)));
    let wrong = compare(Task::Tensor, &|side| activation_is_a_module(side, 1.02));
    assert_eq!(named(&wrong), Some(("Module.mlp.act.SiLU.forward.0", Cause::Structure)));
}
