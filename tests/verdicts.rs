//! Small runs with one thing wrong, and the answer each must get, whatever was recorded of its tensors.
//!
//! Every case is a comparison that the older tool gets wrong or leaves to the reader. Those about one value by itself
//! are in `edge.rs`, those that need a real training run in `corpus.rs`.

use crate::support::dump_builder::{Op, Side, Task, Tensor, op};
use crate::support::runs::{NEVER, chain, compare, module};
use probe::judge::{Cause, Role, RunVerdict, Verdict};
use serde_json::json;

/// Ops behind a NaN; only the first op makes it.
fn spreading_nan(side: Side) -> Vec<Op> {
    let spoilt = |seed| {
        let value = Tensor::wave(seed, 16);
        side.pick(value.clone(), value.with(3, f64::NAN))
    };
    vec![
        op("Torch.exp.0.forward").input(Tensor::wave(1, 16)).output(Tensor::wave(2, 16)),
        op("Torch.log.0.forward").input(Tensor::wave(2, 16)).output(spoilt(3)),
        op("Torch.mul.0.forward").input(spoilt(3)).output(spoilt(4)),
        op("Torch.sum.0.forward")
            .input(spoilt(4))
            .output(side.pick(Tensor::f32(&[1.5]), Tensor::f32(&[f64::NAN]))),
        // Nothing is recorded that led to a gradient that a hook saw.
        op("Module.fc.Linear.parameters_grad.0").gradient("weight", spoilt(5)),
    ]
}

/// One result whose statistics differ as `change` has it; it runs on equal inputs.
fn one_result(side: Side, dtype: &'static str, baseline: &[f64], candidate: &[f64]) -> Vec<Op> {
    let values = side.pick(baseline, candidate);
    let result = Tensor::new(dtype, &[values.len()], values);
    vec![op("Torch.result.0.forward").input(Tensor::wave(1, 8)).output(result)]
}

fn renamed(mut ops: Vec<Op>, position: usize, side: Side, name: &str) -> Vec<Op> {
    if side.is_candidate() {
        ops[position] = ops[position].clone().renamed(name);
    }
    ops
}

#[test]
fn a_reason_is_given_once() {
    let answer = compare(Task::Tensor, &|side| chain(side, 3, 1.01));
    let reason = answer.summary.first_divergence.unwrap().reason;
    assert_eq!(reason.matches("all elements are scaled by 1.01").count(), 1, "{reason}");
    let mut parts: Vec<&str> = reason.split(", ").collect();
    let all = parts.len();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts.len(), all, "{reason}");
}

struct Case {
    what: &'static str,
    tasks: &'static [Task],
    ops: fn(Side) -> Vec<Op>,
    /// Op, slot and cause of the first divergence, and number of ops at fault; `None` when the runs agree.
    expected: Option<(&'static str, &'static str, Cause, usize)>,
}

const ALL: &[Task] = &[Task::Tensor, Task::Statistics, Task::Checksum, Task::Xor];
const NUMBERS: &[Task] = &[Task::Tensor, Task::Statistics];
const STATISTICS: &[Task] = &[Task::Statistics];

const CASES: &[Case] = &[
    Case { what: "equal runs agree", tasks: ALL, ops: |side| chain(side, NEVER, 1.0), expected: None },
    Case {
        what: "one op is wrong, and all later ops read what it made",
        tasks: ALL,
        ops: |side| chain(side, 3, 1.01),
        expected: Some(("Functional.gelu.0.forward", "output.0", Cause::Numerics, 1)),
    },
    Case {
        what: "the run's own data differ: no op made them differ",
        tasks: ALL,
        ops: |side| chain(side, 0, -0.7),
        expected: Some(("Functional.embedding.0.forward", "input.0", Cause::Input, 1)),
    },
    Case {
        what: "a weight differs before the first op",
        tasks: ALL,
        ops: |side| module(side, 1.05, 1.0),
        expected: Some(("Module.fc.Linear.forward.0", "parameter.weight", Cause::Input, 1)),
    },
    Case {
        what: "only the gradient of a parameter is wrong",
        tasks: ALL,
        ops: |side| module(side, 1.0, 1.1),
        expected: Some(("Module.fc.Linear.parameters_grad.0", "grad.weight", Cause::Gradient, 1)),
    },
    Case {
        what: "only the backward pass of an op is wrong",
        tasks: ALL,
        ops: |side| {
            let mut ops = chain(side, NEVER, 1.0);
            let wrong = side.scaled(&Tensor::wave(9, 64), 1.02);
            ops.push(op("Functional.gelu.0.backward").input(Tensor::wave(8, 64)).output(wrong));
            ops
        },
        expected: Some(("Functional.gelu.0.backward", "output.0", Cause::Gradient, 1)),
    },
    Case {
        what: "a NaN is born once and carried on",
        tasks: NUMBERS,
        ops: spreading_nan,
        expected: Some(("Torch.log.0.forward", "output.0", Cause::NonFinite, 1)),
    },
    Case {
        what: "a NaN of the baseline alone is no less a difference",
        tasks: NUMBERS,
        ops: |side| spreading_nan(side.pick(Side::Candidate, Side::Baseline)),
        expected: Some(("Torch.log.0.forward", "output.0", Cause::NonFinite, 1)),
    },
    Case {
        what: "a saved variable differs",
        tasks: ALL,
        ops: |side| {
            let loss = side.scaled(&Tensor::f32(&[2.5]), 1.5);
            vec![op("hidden.0.debug").gradient("", Tensor::wave(1, 8)), op("loss.0.debug").gradient("", loss)]
        },
        expected: Some(("loss.0.debug", "value", Cause::Numerics, 1)),
    },
    Case {
        what: "the gradient of a saved variable differs",
        tasks: ALL,
        ops: |side| {
            let wrong = side.scaled(&Tensor::wave(2, 8), 1.5);
            vec![op("x.0.debug").gradient("", Tensor::wave(1, 8)), op("x_grad.0.debug").gradient("", wrong)]
        },
        expected: Some(("x_grad.0.debug", "value", Cause::Gradient, 1)),
    },
    Case {
        what: "one extra call of an API, which nothing reads, does not make later calls of it differ",
        tasks: NUMBERS,
        ops: |side| {
            let mut ops = chain(side, NEVER, 1.0);
            if side.is_candidate() {
                let extra =
                    op("Functional.linear.0.forward").input(Tensor::wave(1, 64)).output(Tensor::wave(30, 64));
                ops[1] = ops[1].clone().renamed("Functional.linear.1.forward");
                ops[3] = ops[3].clone().renamed("Functional.linear.2.forward");
                ops.insert(0, extra);
            }
            ops
        },
        expected: None,
    },
    Case {
        what: "an op has another name on one side, and what it hands on agrees",
        tasks: NUMBERS,
        ops: |side| renamed(chain(side, NEVER, 1.0), 2, side, "NPU.npu_gelu.0.forward"),
        expected: None,
    },
    Case {
        what: "the class of a module has another name on one side, and what it hands on agrees",
        tasks: NUMBERS,
        ops: |side| renamed(module(side, 1.0, 1.0), 0, side, "Module.fc.NpuLinear.forward.0"),
        expected: None,
    },
    Case {
        what: "two ops of the baseline are fused in the candidate, and what it hands on agrees",
        tasks: NUMBERS,
        ops: |side| {
            let mut ops = chain(side, NEVER, 1.0);
            if side.is_candidate() {
                let fused =
                    op("NPU.linear_gelu.0.forward").input(Tensor::wave(1, 64)).output(Tensor::wave(3, 64));
                ops.splice(1..3, [fused]);
                ops[2] = ops[2].clone().renamed("Functional.linear.0.forward");
            }
            ops
        },
        expected: None,
    },
    Case {
        what: "an op without tensors to read is judged by what it makes",
        tasks: ALL,
        ops: |side| {
            let noise = side.pick(Tensor::wave(1, 8), Tensor::wave(2, 8));
            let size = json!({ "type": "torch.Size", "value": [8] });
            vec![
                op("Torch.ones.0.forward").input(size.clone()).output(Tensor::f32(&[1.0; 8])),
                op("Torch.randn.0.forward").input(size).output(noise),
            ]
        },
        expected: Some(("Torch.randn.0.forward", "output.0", Cause::Numerics, 1)),
    },
    Case {
        what: "memory that nobody has written to may differ",
        tasks: ALL,
        ops: |side| {
            let junk = side.pick(Tensor::wave(1, 8), Tensor::wave(2, 8));
            vec![
                op("Torch.empty.0.forward").input(8.0).output(junk),
                op("Torch.ones.0.forward").output(Tensor::f32(&[1.0])),
            ]
        },
        expected: None,
    },
    Case {
        what: "a computed argument (loss.item()) that differs while all before it agrees",
        tasks: ALL,
        ops: |side| {
            let scale = side.pick(0.123_456_789_012, 0.123_556_789_012);
            vec![
                op("Torch.mul.0.forward")
                    .input(Tensor::wave(1, 8))
                    .input(scale)
                    .output(side.scaled(&Tensor::wave(2, 8), 1.000_81)),
            ]
        },
        expected: Some(("Torch.mul.0.forward", "output.0", Cause::Argument, 1)),
    },
    Case {
        what: "minimum, maximum and norm agree, the mean is off by 200 %",
        tasks: STATISTICS,
        ops: |side| one_result(side, "float32", &[1.0, -1.0, 1.0, 1.0], &[1.0, -1.0, -1.0, -1.0]),
        expected: Some(("Torch.result.0.forward", "output.0", Cause::Numerics, 1)),
    },
    Case {
        what: "the norm agrees, the extremes do not",
        tasks: STATISTICS,
        ops: |side| one_result(side, "float32", &[3.0, 4.0, 0.0], &[5.0, 0.0, 0.0]),
        expected: Some(("Torch.result.0.forward", "output.0", Cause::Numerics, 1)),
    },
    Case {
        what: "integers are exact: the maximum is 20 % off",
        tasks: NUMBERS,
        ops: |side| one_result(side, "int64", &[1.0, 10.0], &[1.0, 12.0]),
        expected: Some(("Torch.result.0.forward", "output.0", Cause::Numerics, 1)),
    },
    Case {
        what: "a mask that was all true is not any more",
        tasks: NUMBERS,
        ops: |side| one_result(side, "bool", &[1.0, 1.0], &[1.0, 0.0]),
        expected: Some(("Torch.result.0.forward", "output.0", Cause::Numerics, 1)),
    },
    Case {
        what: "float64 is judged although the older tool records neither its mean nor its norm",
        tasks: NUMBERS,
        ops: |side| one_result(side, "float64", &[1.0, 2.0], &[1.0, 2.001]),
        expected: Some(("Torch.result.0.forward", "output.0", Cause::Numerics, 1)),
    },
    Case {
        what: "the baseline is zero and the candidate is not",
        tasks: NUMBERS,
        ops: |side| one_result(side, "float32", &[0.0, 0.0], &[0.0, 0.5]),
        expected: Some(("Torch.result.0.forward", "output.0", Cause::Numerics, 1)),
    },
    Case {
        what: "the baseline is zero and the candidate nearly so",
        tasks: NUMBERS,
        ops: |side| one_result(side, "float32", &[0.0, 0.0], &[0.0, 1e-12]),
        expected: None,
    },
    Case {
        what: "denormal numbers that one side flushes to zero",
        tasks: NUMBERS,
        ops: |side| one_result(side, "float32", &[1e-40, 2e-40], &[0.0, 0.0]),
        expected: None,
    },
];

#[test]
fn the_first_divergence_is_named_and_consequences_are_not() {
    let mut wrong = Vec::new();
    for case in CASES {
        for &task in case.tasks {
            let answer = compare(task, &case.ops);
            let culprits = answer.summary.culprits.len();
            let found = answer.first().map(|(op, slot, cause)| (op, slot, cause, culprits));
            let verdict = if case.expected.is_some() { RunVerdict::Diverged } else { RunVerdict::Agree };
            if found != case.expected || answer.summary.verdict != verdict {
                let reason = answer.summary.first_divergence.as_ref().map_or("", |first| &first.reason);
                wrong
                    .push(format!("{} ({task:?}): {} {found:?} {reason}", case.what, answer.summary.verdict));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same dumps as probe's own capture would have written them, against one another and against the older tool's.
#[test]
fn the_first_divergence_is_named_in_dumps_of_probes_own_format() {
    use crate::support::answer::Answer;
    use crate::support::native::{TASKS, convert};
    use probe::capture::CaptureTask;

    let mut wrong = Vec::new();
    for case in CASES.iter().filter(|case| case.tasks.contains(&Task::Tensor)) {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        for (side, name) in [(Side::Baseline, "baseline"), (Side::Candidate, "candidate")] {
            for (task, word) in [(Task::Tensor, "tensor"), (Task::Statistics, "statistics")] {
                let ops = (case.ops)(side);
                crate::support::dump_builder::Dump::new(task, ops)
                    .write(&place(&format!("{name}-{word}/step0/rank0")));
            }
            for task in TASKS {
                convert(&place(&format!("{name}-tensor")), &place(&format!("{name}-{task:?}")), task);
            }
        }
        let mut pairs: Vec<(String, String)> =
            TASKS.iter().map(|task| (format!("baseline-{task:?}"), format!("candidate-{task:?}"))).collect();
        // Hashes prove equality of bits, and these cases are those of bits that differ and do not matter.
        let matters = !case.what.contains("nearly so") && !case.what.contains("denormal");
        pairs.retain(|(name, _)| matters || !name.contains(&format!("{:?}", CaptureTask::Hash)));
        // Across tools gradients of functions are not compared, and an op that one tool alone has is no difference.
        let apart = matches!(
            case.expected,
            Some((op, _, cause, _)) if op.contains(".backward") || cause == Cause::Structure
        );
        // A fused op that one tool alone records is left out there, and what it replaces stands alone.
        let apart = apart || case.what.contains("fused");
        let own: &[CaptureTask] =
            if apart { &[] } else { &[CaptureTask::Statistics, CaptureTask::Sketch, CaptureTask::Tensor] };
        for own in own {
            for other in ["statistics", "tensor"] {
                pairs.push((format!("baseline-{own:?}"), format!("candidate-{other}")));
                pairs.push((format!("baseline-{other}"), format!("candidate-{own:?}")));
            }
        }
        for (baseline, candidate) in pairs {
            let answer = Answer::of(&place(&baseline), &place(&candidate));
            let culprits = answer.summary.culprits.len();
            let found = answer.first().map(|(op, slot, cause)| (op, slot, cause, culprits));
            if found != case.expected {
                let reason = answer.summary.first_divergence.as_ref().map_or("", |first| &first.reason);
                wrong.push(format!("{} ({baseline} against {candidate}): {found:?} {reason}", case.what));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn followers_carry_the_difference_on() {
    for task in [Task::Tensor, Task::Checksum] {
        let answer = compare(task, &|side| chain(side, 2, 1.01));
        let roles: Vec<Role> =
            answer.rows.iter().filter(|row| row.slot == "output.0").map(|row| row.role).collect();
        assert_eq!(roles, [Role::Clean, Role::Introduces, Role::Propagates, Role::Propagates], "{task:?}");
    }
}

#[test]
fn later_calls_pair_in_spite_of_an_extra_one() {
    let case = CASES.iter().find(|case| case.what.starts_with("one extra call")).unwrap();
    let counts = compare(Task::Tensor, &case.ops).summary.counts;
    assert_eq!((counts.ops_paired, counts.ops_candidate_only), (4, 1));
    assert_eq!(counts.verdict(Verdict::Differs), 0);
}

#[test]
fn an_op_without_inputs_is_said_to_have_none() {
    let case = CASES.iter().find(|case| case.what.starts_with("an op without tensors")).unwrap();
    let first = compare(Task::Tensor, &case.ops).summary.first_divergence.unwrap();
    assert!(first.reason.starts_with("no comparable inputs, "), "{}", first.reason);
}

#[test]
fn equal_xor_of_constants_is_weak_evidence() {
    // Ones and twos repeat, so the words cancel: XOR is 0 on both sides although everything differs.
    let answer = compare(Task::Xor, &|side| {
        one_result(side, "float32", &[1.0; 16], side.pick(&[1.0; 16], &[2.0; 16]))
    });
    let row = answer.row("Torch.result.0.forward", "output.0");
    assert_eq!(row.verdict, Verdict::Close);
    assert_eq!(row.reason, "equal XOR checksums, which constant or repeated data also produce");
}

#[test]
fn runs_in_different_float_types_are_judged_at_the_coarser_one() {
    let answer = compare(Task::Statistics, &|side| {
        let value = |seed| {
            let dtype = side.pick("float32", "bfloat16");
            Tensor::wave(seed, 64).named(dtype)
        };
        let layer =
            |n: u32| op(&format!("Functional.linear.{n}.forward")).input(value(n)).output(value(n + 1));
        (0..8).map(layer).collect()
    });
    assert_eq!(answer.summary.verdict, RunVerdict::Agree, "{:?}", answer.first());
    let [note] = &answer.summary.notes[..] else { panic!("{:?}", answer.summary.notes) };
    assert!(
        note.contains("mixed-precision") && note.contains("float32") && note.contains("bfloat16"),
        "{note}"
    );
    assert!(answer.rows.iter().all(|row| row.verdict == Verdict::DType));
}
