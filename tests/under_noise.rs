//! Runs whose every value carries the noise of another device: what is wrong must stand out of it, and noise alone must not.

use crate::support::answer::Answer;
use crate::support::dump_builder::{Op, Side, Task, Tensor, op};
use crate::support::runs::{compare, compare_parts};
use probe::judge::{Cause, RunVerdict};

/// Relative error of products in TF32.
const NOISE: f64 = 3e-4;

fn square(seed: u32) -> Tensor {
    Tensor::wave(seed, 1024).shaped(&[32, 32])
}

/// A weight that makes products of the size of what it multiplies.
fn weight(values: &Tensor) -> Tensor {
    values.map(|x| x / 4.0)
}

/// The candidate's has noise, and is `factor` times as large.
fn off(side: Side, value: &Tensor, seed: u64, noise: f64, factor: f64) -> Tensor {
    side.pick(value.clone(), value.map(|x| x * factor).noisy(seed, noise))
}

fn named(answer: &Answer) -> Option<(&str, &str, Cause)> {
    let first = answer.summary.first_divergence.as_ref()?;
    Some((&first.op, &first.slot, first.cause))
}

/// Eight products in a row, each of which adds noise; from number `at` on they are `factor` times as large.
fn products(side: Side, at: usize, factor: f64) -> Vec<Op> {
    let mut input = square(1);
    let mut ops = Vec::new();
    for index in 0..8 {
        let number = u32::try_from(index).unwrap();
        let noise = NOISE * f64::from(number + 1).sqrt();
        let factor = if index >= at { factor } else { 1.0 };
        let output = off(side, &square(number + 2), u64::from(number) + 1, noise, factor);
        let product = op(&format!("Functional.linear.{index}.forward"));
        ops.push(product.input(input).input(weight(&square(number + 20))).output(&output));
        input = output;
    }
    ops
}

#[test]
fn noise_alone_is_silent() {
    let answer = compare(Task::Tensor, &|side| products(side, 8, 1.0));
    assert_eq!((answer.summary.verdict, named(&answer)), (RunVerdict::Agree, None));
    assert!(answer.summary.notes.iter().any(|note| note.contains("TF32")), "{:?}", answer.summary.notes);
}

#[test]
fn a_factor_common_to_all_elements_is_seen_below_what_noise_adds_up_to() {
    let answer = compare(Task::Tensor, &|side| products(side, 5, 1.003));
    assert_eq!(named(&answer), Some(("Functional.linear.5.forward", "output.0", Cause::Numerics)));
    let reason = &answer.summary.first_divergence.as_ref().unwrap().reason;
    assert!(reason.contains("all elements are scaled by 1.00"), "{reason}");
    assert_eq!(answer.summary.groups.len(), 1, "the others hand the factor on");
}

/// A router in a noisy run: the two best of eight of 512 tokens, and what an op makes of them.
fn routed(side: Side, flips: usize, reordered: bool, handed_on: f64) -> Vec<Op> {
    let logits = Tensor::wave(7, 4096).shaped(&[512, 8]);
    let choice = |token: usize, place: usize| ((token * 5 + place * 3) % 8) as f64;
    let pairs = |changes: bool| -> Vec<f64> {
        let token = |token: usize| {
            let (mut first, second) = (choice(token, 0), choice(token, 1));
            if changes && token < flips {
                first = (first + 1.0) % 8.0;
            }
            if changes && reordered && token == 300 { [second, first] } else { [first, second] }
        };
        (0..512).flat_map(token).collect()
    };
    let chosen = Tensor::new("int64", &[512, 2], &pairs(side.is_candidate()));
    let table = Tensor::wave(9, 8 * 64).shaped(&[8, 64]);
    let rows = Tensor::wave(11, 1024 * 64).shaped(&[1024, 64]);
    vec![
        op("Functional.linear.0.forward")
            .input(Tensor::wave(5, 512 * 16).shaped(&[512, 16]))
            .input(weight(&Tensor::wave(6, 128).shaped(&[8, 16])))
            .output(off(side, &logits, 1, NOISE, 1.0)),
        op("Torch.topk.0.forward").input(off(side, &logits, 1, NOISE, 1.0)).output(&chosen),
        op("Torch.index_select.0.forward")
            .input(&table)
            .input(&chosen)
            .output(off(side, &rows, 2, handed_on, 1.0)),
    ]
}

#[test]
fn flipped_choices_are_counted_and_what_reads_them_is_judged_beyond_them() {
    // Three tokens of 512 went to another expert: of 1024 rows handed on three are others, which is an error of about 0.08.
    let answer = compare(Task::Tensor, &|side| routed(side, 3, true, 0.07));
    assert_eq!(named(&answer), None, "{:?}", answer.summary.first_divergence);
    let chosen = answer.rows.iter().find(|row| row.op == "Torch.topk.0.forward" && row.slot == "output.0");
    let reason = &chosen.unwrap().reason;
    assert!(reason.contains("5 of 1024 elements differ; 3 of 512 rows hold different numbers"), "{reason}");
    let notes = &answer.summary.notes;
    assert!(notes.iter().any(|note| note.contains("rounding flipped choices")), "{notes:?}");
    // More than that was not handed on by three rows.
    let answer = compare(Task::Tensor, &|side| routed(side, 1, false, 0.9));
    assert_eq!(named(&answer).map(|(op, ..)| op), Some("Torch.index_select.0.forward"));
}

#[test]
fn sizes_that_follow_from_flipped_choices_are_no_difference() {
    let expand = |side: Side| {
        let tokens = serde_json::json!({"type": "int", "value": side.pick(18, 19)});
        op("Tensor.repeat.0.forward").input(square(13)).input(tokens).output(square(13))
    };
    let answer = compare(Task::Tensor, &|side| {
        let mut ops = routed(side, 3, false, 0.07);
        ops.push(expand(side));
        ops
    });
    assert_eq!((answer.summary.verdict, named(&answer)), (RunVerdict::Agree, None));
    let alone = compare(Task::Tensor, &|side| vec![expand(side)]);
    assert_eq!(
        named(&alone).map(|(op, _, cause)| (op, cause)),
        Some(("Tensor.repeat.0.forward", Cause::Argument))
    );
}

#[test]
fn statistics_of_a_product_of_few_rows_show_no_factor() {
    // Inputs of which noise is a fiftieth; the norm of what the product makes is off by as much. Of 16 rows noise may do that, of
    // 1024 it does not.
    let run = |rows: usize| {
        compare(Task::Statistics, &|side| {
            let given = Tensor::wave(3, rows * 32).shaped(&[rows, 32]);
            let made = Tensor::wave(4, rows * 64).shaped(&[rows, 64]);
            vec![
                op("Functional.gelu.0.forward").input(&given).output(off(side, &given, 1, 0.02, 1.0)),
                op("Functional.linear.0.forward")
                    .input(off(side, &given, 1, 0.02, 1.0))
                    .input(weight(&Tensor::wave(6, 2048).shaped(&[64, 32])))
                    .output(off(side, &made, 2, 0.02, 1.02)),
            ]
        })
    };
    let linear = |answer: &Answer| answer.summary.culprits.iter().any(|found| found.op.contains("linear"));
    assert!(!linear(&run(16)) && linear(&run(1024)));
}

#[test]
fn a_norm_that_parts_by_itself_is_no_factor_of_all_elements() {
    // The smaller values that a ReLU hands on are off, behind a normalisation, whose norm is fixed: its error does not show in front. Of all
    // elements the same factor would be a fault.
    let run = |factor: f64, of_all: bool| {
        compare(Task::Statistics, &|side| {
            let given = square(3);
            let made = given.map(|x| x.max(0.0));
            let scaled = made.map(|x| if of_all || x < 0.9 { x * factor } else { x });
            vec![
                op("Functional.layer_norm.0.forward")
                    .input(square(2))
                    .output(off(side, &given, 1, 3e-6, 1.0)),
                op("Functional.relu.0.forward").input(off(side, &given, 1, 3e-6, 1.0)).output(off(
                    side,
                    side.pick(&made, &scaled),
                    2,
                    1e-7,
                    1.0,
                )),
            ]
        })
    };
    let relu = |factor: f64, of_all: bool| {
        let answer = run(factor, of_all);
        let first = answer.summary.first_divergence.as_ref();
        first.filter(|first| first.op == "Functional.relu.0.forward").map(|first| first.reason.clone())
    };
    assert_eq!(relu(1.000_015, false), None);
    assert!(relu(1.000_015, true).is_some_and(|said| said.contains("all elements are scaled by 1.0000")));
    assert!(relu(1.000_1, false).is_some_and(|said| said.contains("its norm is 1.0000")));
}

#[test]
fn a_wrong_weight_gradient_is_the_fault_of_the_function_that_made_it() {
    let answer = compare(Task::Tensor, &|side| {
        let gradient = side.scaled(&square(4), 1.5);
        vec![
            op("Functional.linear.0.forward").input(square(1)).input(square(2)).output(square(3)),
            op("Module.fc.Linear.forward.0")
                .input(square(1))
                .parameter("weight", square(2))
                .output(square(3)),
            op("Module.fc.Linear.parameters_grad.0").gradient("weight", &gradient),
            op("Functional.linear.0.backward").input(square(5)).output(square(6)).output(&gradient),
        ]
    });
    assert_eq!(named(&answer), Some(("Functional.linear.0.backward", "output.1", Cause::Gradient)));
}

#[test]
fn weights_move_by_less_than_their_statistics_show() {
    // The rows of an embedding that were trained differ by rounding; the statistics of the whole table do not.
    let table = Tensor::wave(3, 64 * 1024).shaped(&[1024, 64]);
    let parts = [("step0/rank0", Task::Statistics), ("step1/rank0", Task::Statistics)];
    let run = |noise: f64| {
        compare_parts(&parts, |part, side| {
            let later = part.starts_with("step1");
            let ids = Tensor::new("int64", &[32], &[7.0; 32]);
            let rows = square(8);
            let trained = if later { off(side, &rows, 3, noise, 1.0) } else { rows };
            let weight = square(2);
            let weight = if later { off(side, &weight, 4, 1e-4, 1.0) } else { weight };
            Some(vec![
                op("Module.embed.Embedding.forward.0")
                    .input(ids)
                    .parameter("weight", &table)
                    .output(&trained),
                op("Module.fc.Linear.forward.0").input(&trained).parameter("weight", weight).output(&trained),
            ])
        })
    };
    assert_eq!(named(&run(2e-5)), None);
    assert_eq!(
        named(&run(0.3)).map(|(op, ..)| op.to_owned()).as_deref(),
        Some("Module.embed.Embedding.forward.0")
    );
}

/// Three layers of an attention of which the modules alone were recorded, and a `ReLU` in it or behind it. Gradients of queries and keys are a
/// thousandth of the one that arrives; those of the queries of layer 1 are off by `wrong`.
fn attention(side: Side, gated: bool, wrong: f64) -> Vec<Op> {
    let value = |seed: u32, size: f64, noise: f64| {
        off(side, &square(seed).map(|x| x * size), u64::from(seed), noise, 1.0)
    };
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    let mut x = square(1);
    for layer in 0..3 {
        let seed = 100 * (layer + 1);
        let call = |part: &str, phase: &str| op(&format!("Module.layers.{layer}.{part}.{phase}.0"));
        let linear = |part: &str, seed: u32, input: &Tensor, output: &Tensor| {
            let of = call(&format!("attn.{part}.Linear"), "forward");
            of.input(input).parameter("weight", weight(&square(seed))).output(output)
        };
        let relu = |part: &str, input: &Tensor| call(part, "forward").input(input).output(input);
        let made = value(seed + 5, 1.0, NOISE * 1.5);
        forward.push(linear("q", seed, &x, &value(seed + 1, 1.0, NOISE)));
        forward.push(linear("k", seed + 2, &x, &value(seed + 3, 1.0, NOISE)));
        if gated {
            forward.push(relu("attn.act.ReLU", &value(seed + 6, 1.0, NOISE)));
        }
        forward.push(linear("o", seed + 4, &value(seed + 7, 1.0, NOISE), &made));
        forward.push(call("attn.Attention", "forward").input(&x).output(&made));
        if !gated {
            forward.push(relu("act.ReLU", &made));
        }
        x = value(seed + 8, 1.0, NOISE);
        let arrives = value(seed + 10, 1.0, NOISE);
        let small = |part: &str, seed: u32, noise: f64| {
            let of = call(&format!("attn.{part}.Linear"), "backward");
            of.input(value(seed, 1e-3, noise)).output(value(seed + 1, 1e-3, noise))
        };
        let outer = call("attn.Attention", "backward");
        backward.push(vec![
            call("attn.o.Linear", "backward").input(&arrives).output(value(seed + 11, 1.0, NOISE * 1.5)),
            small("k", seed + 12, 2e-3),
            small("q", seed + 14, if layer == 1 { wrong } else { 2e-3 }),
            outer.input(&arrives).output(value(seed + 16, 1.0, NOISE)),
        ]);
    }
    forward.extend(backward.into_iter().rev().flatten());
    forward
}

#[test]
fn what_is_left_of_gradients_is_held_against_what_is_left_of_others() {
    let run = |gated: bool, wrong: f64| compare(Task::Tensor, &|side| attention(side, gated, wrong));
    assert_eq!(named(&run(false, 2e-3)), None);
    let found = ("Module.layers.1.attn.Attention.backward.0", "output.0", Cause::Gradient);
    assert_eq!(named(&run(false, 0.2)), Some(found), "a ReLU that lies elsewhere is no reason");
    assert_eq!(
        named(&run(true, 0.2)),
        None,
        "behind a ReLU whose gradient was not recorded, choices may have flipped"
    );
}

type Function = fn(f64) -> f64;

/// A function of what nine products hand on with their noise. The candidate's smallest element is `lower`, and the first one `higher`.
fn function(side: Side, name: &str, of: Function, (lower, higher): (f64, f64)) -> Vec<Op> {
    let noisy =
        |value: &Tensor, seed: u32| off(side, value, u64::from(seed), NOISE * f64::from(seed).sqrt(), 1.0);
    let given = noisy(&Tensor::wave(9, 16384).map(|x| 6.0 * x).shaped(&[128, 128]), 9);
    let made = given.map(of);
    let (smallest, least) = made.smallest();
    let wrong = made.clone().with(0, made.first() + higher).with(smallest, least - lower);
    let mut ops = products(side, 8, 1.0);
    let product = op("Functional.linear.8.forward").input(noisy(&square(9), 8)).input(weight(&square(28)));
    ops.push(product.output(&given));
    ops.push(op(name).input(&given).output(side.pick(made, wrong)));
    ops
}

#[test]
fn what_a_function_cannot_make_of_its_inputs_is_seen_whatever_the_noise() {
    let gelu =
        |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (0.044_715 * x * x).mul_add(x, x)).tanh());
    let functions: [(&str, Function); 10] = [
        ("Functional.gelu.0.forward", gelu),
        ("Module.act.NewGELUActivation.forward.0", gelu),
        ("Functional.relu.0.forward", |x| x.max(0.0)),
        ("Aten.silu.0.forward", |x| x / (1.0 + (-x).exp())),
        ("Torch.tanh.0.forward", f64::tanh),
        ("Aten.sigmoid.0.forward", |x| 1.0 / (1.0 + (-x).exp())),
        ("Functional.max_pool2d.0.forward", |x| x),
        ("Functional.avg_pool2d.0.forward", |x| x),
        ("Aten.upsample_nearest2d.0.forward", |x| x),
        ("Tensor.mean.0.forward", |x| x),
    ];
    for (name, of) in functions {
        let wrong = Some((name, "output.0", Cause::Numerics));
        // A copy has the norm of what it reads.
        let within_range = wrong.filter(|_| name.contains("upsample"));
        for (change, expected) in [((0.0, 0.0), None), ((0.0, 0.1), within_range), ((0.1, 0.0), wrong)] {
            let answer = compare(Task::Tensor, &|side| function(side, name, of, change));
            assert_eq!(named(&answer), expected, "{name} {change:?}");
        }
    }
}
