//! Runs whose ops do not pair by name alone.

use std::sync::Arc;

use super::*;
use probe_dump::{
    DType, Framework, Number, OpName, PartKey, RankId, ReadError, RecordedDType, RecordedStatistics, SeenAs,
    Slot, SlotSide, Task, TensorData, TensorRecord, TensorStore, Value,
};

mod long;

struct NoStore;

impl TensorStore for NoStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        Err(ReadError::usage(key, "no data"))
    }
}

/// A tensor: its identity and its shape.
type Tensor<'a> = (u64, &'a [u64]);

/// A run being recorded.
struct Run {
    ops: Vec<Op>,
    /// Relative error of everything that is not a weight or input.
    noise: f64,
    statistics: bool,
    calls: std::collections::HashMap<String, u32>,
}

/// Tensors from this number on are computed; lower ones are weights and data.
const COMPUTED: u64 = 1000;

impl Run {
    fn new(noise: f64) -> Self {
        Self { ops: Vec::new(), noise, statistics: true, calls: std::collections::HashMap::new() }
    }

    fn record(&self, (seed, shape): Tensor<'_>) -> TensorRecord {
        let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), shape.into());
        // Any distribution of values will do, if other tensors have a different one.
        let spread = |salt: u64| {
            let mut mixed = (seed * 8 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 40;
            let error = if seed >= COMPUTED { 1.0 + self.noise * (mixed % 7) as f64 } else { 1.0 };
            (0.5 + mixed as f64 / f64::from(1 << 24)) * error
        };
        if self.statistics {
            record.statistics = RecordedStatistics {
                min: Some(Number::Float(-spread(1))),
                max: Some(Number::Float(spread(2))),
                mean: Some(spread(3) / 10.0),
                norm: Some(spread(4) * (record.len() as f64).sqrt()),
            }
            .into();
        }
        record
    }

    /// Records a call of `stem` in the phase named `phase`.
    fn push(&mut self, stem: &str, phase: &str, inputs: &[Tensor<'_>], outputs: &[Tensor<'_>]) {
        let call = self.calls.entry(format!("{stem} {phase}")).or_default();
        let name = if stem.starts_with("Module.") {
            format!("{stem}.{phase}.{call}")
        } else {
            format!("{stem}.{call}.{phase}")
        };
        *call += 1;
        let mut op = Op::new(OpName::parse(&name));
        for (word, side, tensors) in
            [("input", SlotSide::Input, inputs), ("output", SlotSide::Output, outputs)]
        {
            for (at, &tensor) in tensors.iter().enumerate() {
                let value = Value::Tensor(Arc::new(self.record(tensor)));
                op.slots.push(Slot::new(format!("{word}.{at}"), side, value));
            }
        }
        self.ops.push(op);
    }

    fn call(&mut self, stem: &str, inputs: &[Tensor<'_>], outputs: &[Tensor<'_>]) {
        self.push(stem, "forward", inputs, outputs);
    }

    fn rank(self) -> Rank {
        Rank {
            key: PartKey { step: 0, rank: RankId::Single, label: "".into() },
            framework: Framework::default(),
            task: Task::Statistics,
            level: "mix".into(),
            ops: self.ops,
            stacks: Vec::new(),
            store: Arc::new(NoStore),
            faults: Vec::new(),
            notes: Vec::new(),
            cut: false,
        }
    }
}

/// The alignment of two runs, by names.
struct Seen {
    pairs: Vec<(String, String)>,
    /// Replaced ops, their replacements, and the slots at which the results are read.
    groups: Vec<(Vec<String>, Vec<String>, Vec<String>)>,
    notes: Vec<String>,
}

fn seen(b: Run, c: Run, mapping: &Mapping) -> Seen {
    let (b, c) = (b.rank(), c.rank());
    let Alignment { ops, notes } = align(&b, &c, mapping);
    let groups = substitutions(&b, &c, &ops);
    let name = |at: usize| {
        let op = match ops[at].ops {
            Paired::Both(at, _) | Paired::BaselineOnly(at) => &b.ops[at],
            Paired::CandidateOnly(at) => &c.ops[at],
        };
        op.name.as_str().to_owned()
    };
    let names = |positions: &[usize]| positions.iter().map(|&at| name(at)).collect::<Vec<_>>();
    let place = |&(at, slot): &(usize, usize)| {
        let Paired::Both(op, _) = ops[at].ops else { panic!("read by an op without partner") };
        format!("{} {}", name(at), b.ops[op].slots[ops[at].slots.get(slot).unwrap().baseline().unwrap()].path)
    };
    Seen {
        pairs: ops
            .iter()
            .filter_map(|pair| match pair.ops {
                Paired::Both(x, y) => Some((b.ops[x].name.to_string(), c.ops[y].name.to_string())),
                _ => None,
            })
            .collect(),
        groups: groups
            .iter()
            .map(|group| {
                let read = group.boundary.iter().map(place).collect();
                (names(&group.baseline), names(&group.candidate), read)
            })
            .collect(),
        notes,
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

const X: Tensor<'_> = (1, &[2, 8, 16]);
const W: Tensor<'_> = (2, &[16, 16]);

#[test]
fn one_product_is_three_ops_on_the_other_side() {
    let run = |parts: bool| {
        let mut run = Run::new(if parts { 1e-5 } else { 0.0 });
        let (a, y, z) = ((1001, &[2, 8, 16][..]), (1002, &[2, 8, 16][..]), (1003, &[2, 8, 16][..]));
        run.call("Aten.mul", &[X], &[a]);
        // Ops with the same names elsewhere.
        run.call("Aten.expand", &[(3, &[16])], &[(3, &[8, 16])]);
        run.call("Aten.view", &[a], &[(1001, &[16, 16])]);
        if parts {
            run.call("Aten.expand", &[W], &[(2, &[2, 16, 16])]);
            run.call("Aten.bmm", &[a, (2, &[2, 16, 16])], &[(1002, &[2, 8, 16])]);
            run.call("Aten.view", &[(1002, &[2, 8, 16])], &[y]);
        } else {
            run.call("Aten.matmul", &[a, W], &[y]);
        }
        run.call("Aten.add", &[y, a], &[z]);
        run.call("Aten.view", &[z], &[(1003, &[16, 16])]);
        run
    };
    let seen = seen(run(false), run(true), &Mapping::default());
    let twins = |names: &[(&str, &str)]| -> Vec<(String, String)> {
        names.iter().map(|(b, c)| (format!("Aten.{b}.forward"), format!("Aten.{c}.forward"))).collect()
    };
    assert_eq!(
        seen.pairs,
        twins(&[
            ("mul.0", "mul.0"),
            ("expand.0", "expand.0"),
            ("view.0", "view.0"),
            ("add.0", "add.0"),
            ("view.1", "view.2")
        ])
    );
    assert_eq!(
        seen.groups,
        [(
            owned(&["Aten.matmul.0.forward"]),
            owned(&["Aten.expand.1.forward", "Aten.bmm.0.forward", "Aten.view.1.forward"]),
            owned(&["Aten.add.0.forward input.0"]),
        )]
    );
}

#[test]
fn attention_is_one_op_or_its_decomposition() {
    let run = |fused: bool| {
        let mut run = Run::new(if fused { 0.0 } else { 1e-4 });
        let wide: &[u64] = &[2, 4, 8, 16];
        let square: &[u64] = &[2, 4, 8, 8];
        for layer in 0..3 {
            let id = |n: u64| COMPUTED + layer * 100 + n;
            let (q, k, v) = ((id(1), wide), (id(2), wide), (id(3), wide));
            for (n, tensor) in [q, k, v].into_iter().enumerate() {
                run.call(
                    "Functional.linear",
                    &[(id(0), &[2, 8, 64]), (10 + layer * 4 + n as u64, &[64, 64])],
                    &[tensor],
                );
            }
            let out = (id(9), wide);
            if fused {
                run.call("Functional.scaled_dot_product_attention", &[q, k, v], &[out]);
            } else {
                run.call("Torch.matmul", &[q, k], &[(id(4), square)]);
                run.call("Tensor.__truediv__", &[(id(4), square)], &[(id(5), square)]);
                run.call("Functional.softmax", &[(id(5), square)], &[(id(6), square)]);
                run.call("Torch.matmul", &[(id(6), square), v], &[out]);
            }
            run.call(
                "Functional.linear",
                &[out, (13 + layer * 4, &[64, 64])],
                &[(COMPUTED + (layer + 1) * 100, &[2, 8, 64])],
            );
        }
        // The loss has its own softmax and product on both sides.
        run.call("Functional.softmax", &[(COMPUTED + 300, &[2, 8, 64])], &[(1901, &[2, 8, 64])]);
        run.call("Torch.matmul", &[(1901, &[2, 8, 64]), (90, &[64, 3])], &[(1902, &[2, 8, 3])]);
        run
    };
    let seen = seen(run(true), run(false), &Mapping::default());
    assert_eq!(seen.pairs.len(), 14, "{:?}", seen.pairs);
    assert!(
        seen.pairs.contains(&("Functional.softmax.0.forward".into(), "Functional.softmax.3.forward".into()))
    );
    assert!(seen.pairs.contains(&("Torch.matmul.0.forward".into(), "Torch.matmul.6.forward".into())));
    assert_eq!(seen.groups.len(), 3);
    for (layer, (b, c, read)) in seen.groups.iter().enumerate() {
        assert_eq!((b.len(), c.len()), (1, 4), "{b:?} {c:?}");
        assert_eq!(*read, [format!("Functional.linear.{}.forward input.0", layer * 4 + 3)]);
    }
}

#[test]
fn a_module_tree_under_another_name_is_paired_by_structure() {
    let run = |root: &str, noise: f64| {
        let mut run = Run::new(noise);
        let shape: &[u64] = &[8, 64];
        for layer in 0..6_u64 {
            let at = |n: u64| (COMPUTED + layer * 10 + n, shape);
            let path = format!("Module.{root}.{layer}");
            run.call(&format!("{path}.norm.LayerNorm"), &[at(0), (500 + layer, &[64])], &[at(1)]);
            run.call(&format!("{path}.mlp.fc1.Linear"), &[at(1), (520 + layer, &[64, 64])], &[at(2)]);
            run.call(&format!("{path}.mlp.fc2.Linear"), &[at(2), (540 + layer, &[64, 64])], &[at(3)]);
            run.call(&format!("{path}.mlp.MLP"), &[at(1)], &[at(3)]);
            run.call(&format!("{path}.Block"), &[at(0)], &[at(10)]);
        }
        for layer in (0..6_u64).rev() {
            let at = |n: u64| (COMPUTED + 500 + layer * 10 + n, shape);
            for name in ["mlp.fc2.Linear", "mlp.fc1.Linear", "norm.LayerNorm"] {
                run.push(&format!("Module.{root}.{layer}.{name}"), "backward", &[at(1)], &[at(2)]);
            }
        }
        run
    };
    let seen = seen(run("encoder.layers", 0.0), run("model.blocks", 1e-4), &Mapping::default());
    assert_eq!(seen.pairs.len(), 48);
    for (b, c) in &seen.pairs {
        assert_eq!(b.replace("encoder.layers", "model.blocks"), *c);
    }
    assert!(seen.groups.is_empty());
    let [note] = seen.notes.as_slice() else { panic!("{:?}", seen.notes) };
    assert!(note.starts_with("30 modules of the candidate have a different path"), "{note}");
}

#[test]
fn ops_that_hand_on_what_they_read_are_told_from_those_that_both_have() {
    let run = |extra: bool| {
        let mut run = Run::new(if extra { 1e-3 } else { 0.0 });
        for layer in 0..20_u64 {
            let at = |n: u64| (COMPUTED + layer * 2 + n, &[4, 32][..]);
            if extra && layer % 3 == 1 {
                run.call("Tensor.contiguous", &[at(0)], &[at(0)]);
            }
            run.call("Functional.relu", &[at(0)], &[at(1)]);
            if layer % 2 == 0 {
                run.call("Tensor.contiguous", &[at(1)], &[at(1)]);
            }
            run.call("Functional.dropout", &[at(1)], &[at(2)]);
        }
        run
    };
    let seen = seen(run(false), run(true), &Mapping::default());
    assert_eq!(seen.pairs.len(), 50);
    assert_eq!(seen.groups.len(), 7);
    for (at, (b, c, read)) in seen.groups.iter().enumerate() {
        assert!(b.is_empty() && c.len() == 1 && c[0].starts_with("Tensor.contiguous"), "{b:?} {c:?}");
        assert_eq!(read[0], format!("Functional.relu.{}.forward input.0", 3 * at + 1));
    }
}

#[test]
fn what_a_pair_of_modules_returned_is_of_a_pair_whatever_op_made_it() {
    // The candidate's module adds up what its ranks made, by no op that was recorded.
    let run = |reduced: u64, in_module: bool| {
        let mut run = Run::new(0.0);
        let at = |n: u64| (COMPUTED + n, &[4, 32][..]);
        run.call("Functional.linear", &[at(0), (500, &[32, 32])], &[at(1)]);
        if in_module {
            run.call("Module.down.Row", &[at(0)], &[at(reduced)]);
        }
        if reduced != 1 {
            run.call("Tensor.__mul__", &[at(reduced)], &[at(reduced)]);
        }
        run.call("Functional.dropout", &[at(reduced)], &[at(reduced)]);
        run.call("Functional.gelu", &[at(reduced)], &[at(9)]);
        run
    };
    let dropouts = |in_module: bool| {
        let seen = seen(run(1, in_module), run(7, in_module), &Mapping::default());
        seen.pairs.iter().filter(|(b, _)| b.starts_with("Functional.dropout")).count()
    };
    assert_eq!((dropouts(true), dropouts(false)), (1, 0));
}

#[test]
fn constants_of_other_sizes_for_other_ops_are_no_pair() {
    let (x, y): (Tensor<'_>, Tensor<'_>) = ((1001, &[4, 32]), (1002, &[4, 32]));
    let run = |mask: &str, size: &[u64]| {
        let mut run = Run::new(0.0);
        run.call("Aten.ones", &[], &[(1003, size)]);
        run.call(mask, &[(1003, size)], &[(1004, size)]);
        run.call("Aten.gelu", &[x], &[y]);
        let mut rank = run.rank();
        // `ones` is read by the op that makes the mask.
        for (op, slot) in [(0, 0), (1, 0)] {
            rank.ops[op].slots[slot].identity = SeenAs::new(3);
        }
        rank
    };
    let pairs = |b: &Rank, c: &Rank| {
        let Alignment { ops, .. } = align(b, c, &Mapping::default());
        ops.iter().filter(|pair| matches!(pair.ops, Paired::Both(..))).count()
    };
    let small = run("Aten.tril", &[24, 24]);
    assert_eq!(pairs(&small, &run("Aten.triu", &[2048, 2048])), 1);
    // With the same size, or if read by paired ops, it is recognised by name: a different size is then a
    // finding.
    assert_eq!(pairs(&small, &run("Aten.triu", &[24, 24])), 2);
    assert_eq!(pairs(&small, &run("Aten.tril", &[2048, 2048])), 3);
}

#[test]
fn complex_and_real_numbers_are_multiplied_by_different_ops() {
    let shape: &[u64] = &[4, 6];
    let run = |complex: bool| {
        let mut run = Run::new(0.0);
        run.call("Torch.fft.rfft", &[(1, &[4, 10])], &[(1000, shape)]);
        run.call("Tensor.__mul__", &[(1000, shape), (2, shape)], &[(1001, shape)]);
        run.call("Torch.fft.irfft", &[(1001, shape)], &[(1002, &[4, 10])]);
        let mut rank = run.rank();
        for slot in rank.ops[1].slots.iter_mut().filter(|_| complex) {
            let Value::Tensor(record) = &mut slot.value else { panic!("a tensor") };
            Arc::make_mut(record).dtype = RecordedDType::Known(DType::C64);
        }
        rank
    };
    let pairs = |b: bool, c: bool| {
        let Alignment { ops, .. } = align(&run(b), &run(c), &Mapping::default());
        ops.iter().filter(|pair| matches!(pair.ops, Paired::Both(..))).count()
    };
    assert_eq!((pairs(true, false), pairs(false, true), pairs(true, true)), (2, 2, 3));
}

#[test]
fn calls_of_one_name_in_another_order_and_shape_are_no_pair() {
    let run = |first: bool| {
        let mut run = Run::new(0.0);
        let (margin, cost, mean): (Tensor<'_>, Tensor<'_>, Tensor<'_>) =
            ((1000, &[5]), (1001, &[5]), (1002, &[]));
        run.call("Torch.sub", &[(1, &[5]), (2, &[5])], &[margin]);
        if first {
            run.call("Tensor.__neg__", &[margin], &[(1003, &[5])]);
            run.call("Functional.softplus", &[(1003, &[5])], &[cost]);
            run.call("Tensor.mean", &[cost], &[mean]);
        } else {
            run.call("Functional.logsigmoid", &[margin], &[(1004, &[5])]);
            run.call("Tensor.mean", &[(1004, &[5])], &[(1005, &[])]);
            run.call("Tensor.__neg__", &[(1005, &[])], &[mean]);
        }
        run
    };
    let seen = seen(run(true), run(false), &Mapping::default());
    assert_eq!(seen.pairs.iter().filter(|(b, c)| b.contains("__neg__") || c.contains("__neg__")).count(), 0);
    assert!(seen.pairs.iter().any(|(b, c)| b.contains("mean") && c.contains("mean")));
}

#[test]
fn one_product_in_the_place_of_two_is_the_partner_of_neither() {
    let (x, half, whole): (Tensor<'_>, &[u64], &[u64]) = ((1001, &[4, 32]), &[4, 16], &[4, 32]);
    let mut b = Run::new(0.0);
    b.call("Functional.linear", &[x, (1, &[16, 32])], &[(1002, half)]);
    b.call("Functional.silu", &[(1002, half)], &[(1003, half)]);
    b.call("Functional.linear", &[x, (2, &[16, 32])], &[(1004, half)]);
    b.call("Tensor.__mul__", &[(1003, half), (1004, half)], &[(1005, half)]);
    b.push("Functional.linear", "backward", &[(1010, half)], &[(1011, &[4, 32]), (1012, &[16, 32])]);
    let mut c = Run::new(0.0);
    c.call("Functional.linear", &[x, (3, &[32, 32])], &[(1006, whole)]);
    c.call("NPU.npu_swiglu", &[(1006, whole)], &[(1005, half)]);
    c.push("Functional.linear", "backward", &[(1013, whole)], &[(1014, &[4, 32]), (1015, &[32, 32])]);
    let (b, c) = (b.rank(), c.rank());
    let Alignment { ops, .. } = align(&b, &c, &Mapping::default());
    assert!(ops.iter().all(|pair| !matches!(pair.ops, Paired::Both(..))), "{ops:?}");
    // A layer of another width that nothing replaces stays a pair: the shapes are the finding.
    let of_width = |width: &[u64]| {
        let mut run = Run::new(0.0);
        run.call("Functional.linear", &[x, (4, width)], &[(1007, width)]);
        run.rank()
    };
    let Alignment { ops, .. } = align(&of_width(&[16, 32]), &of_width(&[32, 32]), &Mapping::default());
    assert_eq!(ops.iter().map(|pair| pair.ops).collect::<Vec<_>>(), [Paired::Both(0, 0)]);
}

#[test]
fn what_the_user_maps_belongs_together() {
    let (shape, y): (&[u64], &[u64]) = (&[4, 32], &[4, 16]);
    let mut b = Run::new(0.0);
    b.call("Functional.layer_norm", &[(1001, shape)], &[(1002, shape)]);
    b.call("Functional.glu", &[(1002, shape)], &[(1003, y)]);
    let mut c = Run::new(0.0);
    c.call("NPU.npu_layer_norm", &[(1001, shape)], &[(1002, shape)]);
    c.call("NPU.npu_swiglu", &[(1002, shape), (1002, shape)], &[(1004, shape), (1003, y)]);
    let mapping = Mapping::from_toml(
        "[[op]]\nbaseline = 'Functional.layer_norm'\ncandidate = 'NPU.npu_layer_norm'\n\
         [[value]]\nbaseline = 'Functional.glu.0.forward output.0'\ncandidate = 'NPU.npu_swiglu.0.forward output.1'\n",
    )
    .unwrap();
    let (b, c) = (b.rank(), c.rank());
    let Alignment { ops, .. } = align(&b, &c, &mapping);
    assert_eq!(ops.iter().map(|pair| pair.ops).collect::<Vec<_>>(), [Paired::Both(0, 0), Paired::Both(1, 1)]);
    assert!(ops[1].slots.iter().any(|slots| slots == Paired::Both(1, 3)), "{:?}", ops[1].slots);
}

#[test]
fn a_value_has_one_number_on_both_sides_and_wherever_it_is_seen() {
    let y: Tensor<'_> = (1001, &[2, 8, 16]);
    let z: Tensor<'_> = (1002, &[2, 8, 16]);
    let run = |is_candidate: bool| {
        let mut run = Run::new(if is_candidate { 1e-5 } else { 0.0 });
        run.call("Functional.gelu", &[X], &[y]);
        if is_candidate {
            run.call("Functional.relu", &[y], &[z]);
        }
        run.call("Tensor.view", &[y], &[(1001, &[16, 16])]);
        run.rank()
    };
    let (baseline, candidate) = (run(false), run(true));
    let Alignment { ops, .. } = align(&baseline, &candidate, &Mapping::default());
    let pair =
        PartPair { step: 0, rank: 0, since: None, baseline, candidate, ops, substitutions: Vec::new() };
    let numbers = value_numbers(&pair);
    let of = |name: &str| {
        let at = pair.ops.iter().position(|op| pair.name(op) == name).unwrap();
        &numbers[at]
    };
    // A value with different statistics on each side is one value, also in the op that only one side has; a
    // view holds the same elements.
    assert_eq!(of("Functional.gelu.0.forward"), [Some(0), Some(1)]);
    assert_eq!(of("Functional.relu.0.forward"), [Some(1), Some(2)]);
    assert_eq!(of("Tensor.view.0.forward"), [Some(1), Some(1)]);
}

#[test]
fn of_micro_batches_the_first_is_kept_and_of_a_step_the_forward_pass() {
    let rank = |calls: &[&str]| {
        let mut run = Run::new(0.0);
        run.ops = calls.iter().map(|name| Op::new(OpName::parse(name))).collect();
        run.rank()
    };
    let whole =
        ["Torch.exp.0.forward", "Torch.exp.1.forward", "Tensor.add.0.forward", "Tensor.add.0.backward"];
    let more = ["Torch.exp.2.forward", "Torch.exp.3.forward", "Tensor.add.1.forward"];
    let (mut b, mut c) = (rank(&whole), rank(&[&whole[..3], &more[..]].concat()));
    keep_first_batch(&mut b, &mut c);
    let names = |side: &Rank| side.ops.iter().map(|op| op.name.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&b), whole[..3]);
    assert_eq!(names(&c), whole[..3]);
    assert_eq!(b.notes.len(), 2);
    // The same number of calls: nothing is left out.
    keep_first_batch(&mut c, &mut b);
    assert_eq!(names(&b), whole[..3]);
}
