//! How much memory a comparison holds.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use probe::capture::{CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts};
use probe::dump::{Content, DType, Observation, SlotSide, TensorRef};
use probe::measure::observe;

use crate::support::dump_builder::Tensor;

/// Elements of each side: half a gibibyte.
const COUNT: u64 = 1 << 27;

/// Most memory that a comparison has held, pages of mapped files included, in bytes.
fn peak(folder: &Path, arguments: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_probe"))
        .args(["compare", "--threads", "2"])
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let code = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(kibibytes.unwrap_or(0) << 10);
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        sleep(Duration::from_millis(2));
    };
    assert_eq!(code, Some(0));
    peak
}

#[test]
fn large_tensors_are_not_held() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.npy", "b.npy"] {
        Tensor::write_hole(&folder.path().join(name), COUNT);
    }
    for (more, most) in [(&[][..], 300), (&["--no-mmap"], 100)] {
        let held = peak(folder.path(), &[&["a.npy", "b.npy", "-o", "-"], more].concat()) >> 20;
        assert!(held < most, "{more:?}: {held} MiB");
    }
}

/// A step of so many ops, each of which reads what the one before made, and every second one of a hundred weights as well. Sketches of
/// tensors as small as these are their bytes.
fn many_ops(to: &Path, task: CaptureTask, ops: usize, noise: f32) {
    let manifest = RunManifest { task, run: "one".into(), ..RunManifest::default() };
    let is_sketch = task == CaptureTask::Sketch;
    let content = if is_sketch { Content::HASH } else { Content::STATISTICS };
    let measured = |value: f32| -> (Arc<Observation>, Option<Arc<[u8]>>) {
        let bytes: Vec<u8> = (0..64_u8).flat_map(|at| (value + f32::from(at)).to_le_bytes()).collect();
        let tensor = TensorRef::strided(&bytes, DType::F32, &[64], &[1], 0).unwrap();
        (observe(tensor, content).into(), is_sketch.then(|| bytes.into()))
    };
    let slot = |path: &str, side, (observation, bytes): &(Arc<Observation>, Option<Arc<[u8]>>), identity| {
        SlotRecord {
            path: path.into(),
            side,
            value: SlotValue::Tensor(TensorFacts {
                dtype: "torch.float32".into(),
                shape: vec![64],
                device: "cpu".into(),
                observation: Some(observation.clone()),
                bytes: bytes.clone(),
                identity: Some(identity),
                ..TensorFacts::default()
            }),
        }
    };
    let mut writer = DumpWriter::create(to, &manifest, 0).unwrap();
    writer.begin_step(0).unwrap();
    let weights: Vec<_> = (0..100_u8).map(|at| measured(f32::from(at))).collect();
    let mut last = measured(1.0);
    for op in 0..ops {
        let mut slots = vec![slot("input.0", SlotSide::Input, &last, op as u64)];
        if op % 2 == 0 {
            let weight = op / 2 % 100;
            slots.push(slot("input.1", SlotSide::Input, &weights[weight], (ops + 1 + weight) as u64));
        }
        last = measured((op as f32).sin() * (1.0 + noise));
        slots.push(slot("output.0", SlotSide::Output, &last, op as u64 + 1));
        let kind = ["mul", "tanh"][op % 2];
        writer
            .push(&OpRecord { name: format!("Aten.{kind}.{}.forward", op / 2), slots, ..OpRecord::default() })
            .unwrap();
    }
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}

#[test]
fn a_hundred_thousand_ops_take_few_bytes_each() {
    // Held are 176 and 191 MiB, in a release build 172 and 187: less than 200 MB. Where each slot had facts of its own, statistics took 440.
    for (task, most) in [(CaptureTask::Statistics, 190), (CaptureTask::Sketch, 205)] {
        let folder = tempfile::tempdir().unwrap();
        for (name, noise) in [("b", 0.0), ("c", 1e-7)] {
            many_ops(&folder.path().join(name), task, 100_000, noise);
        }
        let held = peak(folder.path(), &["b", "c", "-o", "report", "--quiet"]) >> 20;
        let workbook = fs::metadata(folder.path().join("report/result.xlsx")).unwrap().len() >> 20;
        assert!(held < most && workbook < 10, "{task:?}: {held} MiB, a workbook of {workbook} MiB");
    }
}
