//! Alignment of two long runs: how long it takes to pair their ops, how much memory, and how many pairs are right.
//!
//! `cargo bench --bench align -- 100000` makes two runs of so many ops of a transformer, forward and backward. Of the candidate's, two in a hundred are edited: left
//! out, called by another name, preceded by an op that the baseline has not, or one op for three. Numbers carry noise of 1e-4.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement says what it found")]

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use probe::dump::{
    DType, Framework, Number, Op, OpName, PartKey, Rank, RankId, ReadError, RecordedDType,
    RecordedStatistics, Slot, SlotSide, Task, TensorData, TensorRecord, TensorStore, Value,
};
use probe::pair::{Mapping, Paired, align, substitutions};

/// One edit in so many ops.
const EDITED: u64 = 50;

/// Functions of a layer, with the last dimension of each result.
const LAYER: [(&str, u64); 14] = [
    ("native_layer_norm", 64),
    ("addmm", 192),
    ("view", 192),
    ("split", 64),
    ("transpose", 64),
    ("bmm", 16),
    ("_softmax", 16),
    ("bmm", 64),
    ("transpose", 64),
    ("addmm", 64),
    ("add", 64),
    ("addmm", 256),
    ("gelu", 256),
    ("addmm", 64),
];

struct NoStore;

impl TensorStore for NoStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        Err(ReadError::usage(key, "no data"))
    }
}

/// A number that looks drawn at random, from 0 to 1.
fn drawn(seed: u64) -> f64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A run while it is made: its ops, and what each was in the run without edits.
struct Run {
    noise: f64,
    calls: HashMap<String, u32>,
    ops: Vec<Op>,
    origin: Vec<Option<u64>>,
}

impl Run {
    fn record(&self, value: u64, width: u64) -> TensorRecord {
        let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), [2, 16, width].into());
        let of = |salt: u64| {
            0.5 + drawn(value * 8 + salt) * (1.0 + self.noise * (drawn(value * 8 + salt + 4) - 0.5))
        };
        record.statistics = RecordedStatistics {
            min: Some(Number::Float(-of(0))),
            max: Some(Number::Float(of(1))),
            mean: Some(of(2) / 10.0),
            norm: Some(of(3) * (record.len() as f64).sqrt()),
        }
        .into();
        record
    }

    fn call(
        &mut self,
        name: &str,
        origin: Option<u64>,
        (given, before): (u64, u64),
        (made, width): (u64, u64),
    ) {
        let call = self.calls.entry(name.to_owned()).or_default();
        let mut op = Op::new(OpName::parse(&format!("Aten.{name}.{call}.forward")));
        *call += 1;
        for (path, side, value, width) in
            [("input.0", SlotSide::Input, given, before), ("output.0", SlotSide::Output, made, width)]
        {
            let value = Value::Tensor(Arc::new(self.record(value, width)));
            op.slots.push(Slot::new(path, side, value));
        }
        self.ops.push(op);
        self.origin.push(origin);
    }

    fn of(count: u64, edited: bool) -> Self {
        let noise = if edited { 1e-4 } else { 0.0 };
        let mut run = Self { noise, calls: HashMap::new(), ops: Vec::new(), origin: Vec::new() };
        for (at, place) in (0..count).zip((0..LAYER.len()).cycle()) {
            let (name, width) = LAYER[place];
            let before = LAYER[(place + LAYER.len() - 1) % LAYER.len()].1;
            let (given, made) = ((at, before), (at + 1, width));
            let chosen = drawn(at ^ 0x5eed_0000_0000) * EDITED as f64;
            match (chosen * 4.0).floor() {
                _ if !edited || chosen >= 1.0 => run.call(name, Some(at), given, made),
                0.0 => {}
                1.0 => run.call(&format!("npu_{name}"), None, given, made),
                2.0 => {
                    run.call("clone", None, given, given);
                    run.call(name, Some(at), given, made);
                }
                _ => {
                    for (step, part) in ["expand", "mm", "_unsafe_view"].into_iter().enumerate() {
                        let between = (count + 4 * at + step as u64, width);
                        run.call(part, None, given, if step == 2 { made } else { between });
                    }
                }
            }
        }
        run
    }

    fn rank(self) -> Rank {
        Rank {
            key: PartKey { step: 0, rank: RankId::Single, label: "".into() },
            framework: Framework::default(),
            task: Task::Statistics,
            level: "op".into(),
            ops: self.ops,
            stacks: Vec::new(),
            store: Arc::new(NoStore),
            faults: Vec::new(),
            notes: Vec::new(),
            cut: false,
        }
    }
}

fn main() {
    let count: u64 = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(100_000);
    let (baseline, candidate) = (Run::of(count, false), Run::of(count, true));
    let origin = candidate.origin.clone();
    let (baseline, candidate) = (baseline.rank(), candidate.rank());
    println!("{} and {} ops, {} MB", baseline.ops.len(), candidate.ops.len(), peak() >> 10);
    let begun = Instant::now();
    let pairs = align(&baseline, &candidate, &Mapping::default()).ops;
    let aligned = begun.elapsed();
    let groups = substitutions(&baseline, &candidate, &pairs);
    println!(
        "aligned in {:.2} s, with what stands for what in {:.2} s; {} MB at most",
        aligned.as_secs_f64(),
        begun.elapsed().as_secs_f64(),
        peak() >> 10
    );
    let both = |pair: &probe::pair::OpPair| match pair.ops {
        Paired::Both(b, c) => Some((b as u64, origin[c])),
        _ => None,
    };
    let right = pairs.iter().filter_map(both).filter(|&(b, origin)| origin == Some(b)).count();
    let wrong = pairs.iter().filter_map(both).filter(|&(b, origin)| origin.is_some_and(|at| at != b)).count();
    let shared = origin.iter().flatten().count();
    println!(
        "{right} of {shared} pairs right, {wrong} wrong; {} places where the runs call other ops",
        groups.len()
    );
}

/// Most memory that the process held, in KiB; 0 where the system does not say.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
