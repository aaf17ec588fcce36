//! Values that a capture could not measure: they make a comparison incomplete, and no op that rests on them passes for clean.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::command::Compare;
use probe::capture::{CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts};
use probe::dump::{Content, DType, NO_DATA, SlotSide, TensorRef};
use probe::measure::observe;

const REASON: &str = "RuntimeError: aclnnBitwiseAndScalar not found";

/// A tensor: its numbers, or why there are none.
fn tensor(measured: Result<f32, &str>) -> SlotValue {
    let elements: Vec<u8> =
        (0..512).flat_map(|index| (measured.unwrap_or(0.0) + index as f32).to_le_bytes()).collect();
    let view = TensorRef::strided(&elements, DType::F32, &[512], &[1], 0).unwrap();
    SlotValue::Tensor(TensorFacts {
        dtype: "torch.float32".into(),
        shape: vec![512],
        device: "npu:0".into(),
        observation: measured.is_ok().then(|| Arc::new(observe(view, Content::SKETCH))),
        note: measured.err().map(Into::into),
        ..TensorFacts::default()
    })
}

/// A dump of ops with one input and one output each.
fn dump(root: &Path, ops: &[(&str, SlotValue, SlotValue)]) -> PathBuf {
    let manifest = RunManifest { task: CaptureTask::Sketch, run: "one".into(), ..RunManifest::default() };
    let mut writer = DumpWriter::create(root, &manifest, 0).unwrap();
    writer.begin_step(0).unwrap();
    for (name, input, output) in ops {
        let slots = [("input.0", SlotSide::Input, input), ("output.0", SlotSide::Output, output)];
        let slots =
            slots.map(|(path, side, value)| SlotRecord { path: path.into(), side, value: value.clone() });
        writer.push(&OpRecord { name: (*name).into(), slots: slots.into(), ..OpRecord::default() }).unwrap();
    }
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
    root.to_owned()
}

#[test]
fn an_op_with_an_unmeasured_result_is_unknown_and_the_comparison_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let known = |number: f32| tensor(Ok(number));
    let names = ["Functional.linear.0.forward", "Functional.gelu.0.forward", "Functional.relu.0.forward"];
    let baseline = dump(
        &folder.path().join("baseline"),
        &[
            (names[0], known(1.0), known(2.0)),
            (names[1], known(2.0), known(3.0)),
            (names[2], known(3.0), known(4.0)),
        ],
    );
    let unmeasured = || tensor(Err(REASON));
    let candidate = dump(
        &folder.path().join("candidate"),
        &[
            (names[0], known(1.0), known(2.0)),
            (names[1], known(2.0), unmeasured()),
            (names[2], unmeasured(), known(4.0)),
        ],
    );
    let run = Compare::new(baseline, candidate).run();
    run.incomplete(&[
        "step 0 rank 0 Functional.gelu.0.forward output.0",
        "not measured by the candidate",
        REASON,
        "1 more value",
    ]);
    let report = run.json();
    assert_eq!(report["incomplete"].as_array().unwrap().len(), 1, "{}", run.stdout);
    let roles = &report["counts"]["roles"];
    assert_eq!((&roles["clean"], &roles["unknown"]), (&2.into(), &1.into()), "{roles}");
}

#[test]
fn a_capture_that_measured_nothing_is_incomplete_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let ops = || [("Module.0.Linear.forward.0", tensor(Err(REASON)), tensor(Err(REASON)))];
    let baseline = dump(&folder.path().join("baseline"), &ops());
    let candidate = dump(&folder.path().join("candidate"), &ops());
    let run = Compare::new(baseline, candidate).run();
    run.incomplete(&["Module.0.Linear.forward.0 input.0", "not measured by either side", REASON]);
    assert_eq!(run.json()["counts"]["roles"]["clean"], 0);
}

#[test]
fn what_has_no_elements_in_memory_is_not_missed() {
    let folder = tempfile::tempdir().unwrap();
    let ops = || [("Functional.linear.0.forward", tensor(Err(NO_DATA)), tensor(Ok(2.0)))];
    let baseline = dump(&folder.path().join("baseline"), &ops());
    let candidate = dump(&folder.path().join("candidate"), &ops());
    let run = Compare::new(baseline, candidate).run();
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}
