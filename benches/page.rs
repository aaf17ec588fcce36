//! The page of a large result: how long writing it takes, apart from the comparison, and how large it is.
//!
//! `cargo bench --bench page` compares two dumps of one step of 100,000 ops with 600,000 values, a third of them seen before, every other one with
//! elements, so that all metrics are known. `cargo bench --bench page -- FOLDER` keeps the page in FOLDER, for `web/bench.mjs`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on fails, and says what it found"
)]

mod clock;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use probe::capture::{DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts};
use probe::compare::{CompareOptions, Quiet, compare};
use probe::dump::{Content, DType, Number, Scalar, SlotSide, TensorRef};
use probe::measure::observe;
use probe::report::ReportWriter;
use probe::report::html::HtmlReport;

use clock::cpu_seconds;

/// Ops, and layers that they are spread over.
const OPS: u32 = 100_000;
const LAYERS: u32 = 250;

/// Elements of a tensor.
const ELEMENTS: u32 = 64;

/// Times that the page is written.
const ROUNDS: usize = 5;

/// The op whose candidate is wrong; what comes after it in its layer is, too.
const FAULT: u32 = 30_077;

fn main() {
    let kept = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).map(PathBuf::from);
    let place = tempfile::tempdir().unwrap();
    for side in ["baseline", "candidate"] {
        dump(&place.path().join(side), side == "candidate");
    }
    let folder = kept.unwrap_or_else(|| place.path().join("page"));
    fs::create_dir_all(&folder).unwrap();
    let target = folder.join("result.html");
    for round in 1..=ROUNDS {
        let mut writer = Some(Box::new(HtmlReport::create(&target).unwrap()));
        let (mut wall, mut cpu) = (0.0, 0.0);
        let summary = compare(
            &place.path().join("baseline"),
            &place.path().join("candidate"),
            &CompareOptions::default(),
            &Quiet,
            &mut |part| {
                // One part: nothing else runs meanwhile.
                let started = (Instant::now(), cpu_seconds());
                let done = writer.as_mut().unwrap().part(part);
                (wall, cpu) = (wall + started.0.elapsed().as_secs_f64(), cpu + cpu_seconds() - started.1);
                done
            },
        )
        .unwrap();
        let started = (Instant::now(), cpu_seconds());
        writer.take().unwrap().finish(&summary).unwrap().place().unwrap();
        (wall, cpu) = (wall + started.0.elapsed().as_secs_f64(), cpu + cpu_seconds() - started.1);
        let values: u64 = summary.counts.compared();
        let bytes = fs::metadata(&target).unwrap().len();
        println!(
            "round {round}: {} ops, {values} values, {} at fault; written in {wall:.2} s, {cpu:.2} s of CPU; {:.1} MB",
            summary.counts.ops_paired,
            summary.culprits.len(),
            bytes as f64 / 1e6
        );
    }
}

/// Values of a tensor, told by a number; the candidate's are off by rounding, and by more from the fault to the end of its layer.
fn tensor(path: &str, side: SlotSide, number: u32, op: u32, candidate: bool) -> SlotRecord {
    let per_layer = OPS / LAYERS;
    let wrong = candidate && op >= FAULT && op / per_layer == FAULT / per_layer;
    let mixed = |i: u32| number.wrapping_mul(2_654_435_761).wrapping_add(i * 40_503) >> 8;
    let values = (0..ELEMENTS).map(|i| {
        let value = mixed(i) as f32 / 1e7 - 0.8;
        let off = if wrong { 1e-3 } else { 6e-8 * (mixed(i) % 3) as f32 };
        if candidate { value * (1.0 + off) } else { value }
    });
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let view = TensorRef::strided(&bytes, DType::F32, &[4, 16], &[16, 1], 0).unwrap();
    let facts = TensorFacts {
        dtype: "torch.float32".into(),
        shape: vec![4, 16],
        requires_grad: Some(true),
        observation: Some(Arc::new(observe(view, Content::STATISTICS))),
        bytes: Some(bytes.into()),
        identity: Some(number.into()),
        ..TensorFacts::default()
    };
    SlotRecord { path: path.into(), side, value: SlotValue::Tensor(facts) }
}

/// Writes one side: a chain of ops in layers, each with its weight, what the one before made, and two results.
fn dump(root: &Path, candidate: bool) {
    let mut writer = DumpWriter::create(root, &RunManifest::default(), 0).unwrap();
    writer.begin_step(0).unwrap();
    let per_layer = OPS / LAYERS;
    for op in 0..OPS {
        let layer = op / per_layer;
        let input = |path: &str, number, of| tensor(path, SlotSide::Input, number, of, candidate);
        let output = |path: &str, number| tensor(path, SlotSide::Output, number, op, candidate);
        let before = op.saturating_sub(1);
        let first = op % per_layer == 0;
        let slots = vec![
            input("input.0", 2 * before, if first { 0 } else { before }),
            input("input.1", 10_000_000 + op, 0),
            input("input.2", 10_000_000 + layer, 0),
            SlotRecord {
                path: "kwarg.eps".into(),
                side: SlotSide::Input,
                value: SlotValue::Scalar(Scalar::Number(Number::Float(1e-5))),
            },
            output("output.0", 2 * op),
            output("output.1", 2 * op + 1),
        ];
        let stack = vec![
            format!("File /home/user/train/model.py, line {}, in forward", 20 + op % per_layer),
            "File /home/user/train/train.py, line 54, in step".to_owned(),
        ];
        let stack = writer.push_stack(&stack).unwrap();
        let record = OpRecord {
            name: format!("Functional.f{}.{}.forward", op % 40, op / 40),
            scope: Some(format!("Module.layers.{layer}.mlp.MLP.forward.0")),
            stack,
            slots,
            ..OpRecord::default()
        };
        writer.push(&record).unwrap();
    }
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}
