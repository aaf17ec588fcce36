//! Dumps of probe's own format through `probe compare` and `probe inspect`, and the writer under bad conditions.
#![cfg(all(feature = "native", feature = "cli"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};

use probe::capture::{
    CaptureTask, Device, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, Software, TensorFacts,
};
use probe::dump::native::rank_folder;
use probe::dump::{Content, DType, Number, Scalar, SlotSide, TensorRef};
use probe::judge::{Cause, RunVerdict, Verdict};
use probe::measure::{Basis, Metric, observe};
use support::answer::Answer;
use support::command::Compare;

/// Rows and columns of the tensors.
const ROWS: usize = 64;
const COLUMNS: usize = 96;

/// Values like activations, other ones for every seed.
fn wave(seed: u32) -> Vec<f32> {
    let mut state = u64::from(seed) + 1;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..ROWS * COLUMNS).map(|_| uniform() + uniform() + uniform()).collect()
}

fn facts(writer: &mut DumpWriter, name: &str, values: &[f32], task: CaptureTask) -> TensorFacts {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (shape, strides) = ([ROWS, COLUMNS], [COLUMNS, 1]);
    let tensor = TensorRef::strided(&bytes, DType::F32, &shape, &strides, 0).unwrap();
    let content = match task {
        CaptureTask::Statistics => Content::STATISTICS,
        CaptureTask::Hash => Content::HASH,
        CaptureTask::Sketch | CaptureTask::Tensor => Content::SKETCH,
    };
    let shape = vec![ROWS as u64, COLUMNS as u64];
    let data = (task == CaptureTask::Tensor)
        .then(|| writer.push_tensor(name, "torch.float32", &shape, &bytes).unwrap());
    TensorFacts {
        dtype: "torch.float32".into(),
        shape,
        device: "cpu".into(),
        observation: Some(Arc::new(observe(tensor, content))),
        data,
        ..TensorFacts::default()
    }
}

/// Ops of a small network; `change` may alter what the gelu makes.
fn write(root: &Path, task: CaptureTask, rank: u32, change: &dyn Fn(&mut [f32]), noise: f32) {
    let mut writer = DumpWriter::create(root, &RunManifest { task, ..RunManifest::default() }, rank).unwrap();
    writer.begin_step(20).unwrap();
    push_network(&mut writer, task, change, noise);
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}

fn push_network(writer: &mut DumpWriter, task: CaptureTask, change: &dyn Fn(&mut [f32]), noise: f32) {
    let names = ["linear.0", "gelu.1", "linear.2"];
    for (index, name) in names.iter().enumerate() {
        let value = |seed: usize| {
            let mut values = wave(u32::try_from(seed).unwrap());
            if noise > 0.0 {
                for (value, other) in values.iter_mut().zip(wave(100 + u32::try_from(seed).unwrap())) {
                    *value += noise * other;
                }
            }
            if seed >= 2 {
                change(&mut values);
            }
            values
        };
        let name = format!("Functional.{name}.forward");
        let stack =
            writer.push_stack(&[format!("File /home/user/train.py, line {}, in forward", 10 + index)]);
        let mut record = OpRecord { name: name.clone(), stack: Some(stack.unwrap()), ..OpRecord::default() };
        for (path, side, values) in
            [("input.0", SlotSide::Input, value(index)), ("output.0", SlotSide::Output, value(index + 1))]
        {
            let facts = facts(writer, &format!("{name}/{path}"), &values, task);
            record.slots.push(SlotRecord { path: path.into(), side, value: SlotValue::Tensor(facts) });
        }
        writer.push(&record).unwrap();
    }
}

fn compare(task: CaptureTask, change: &dyn Fn(&mut [f32]), noise: f32) -> Answer {
    let folder = tempfile::tempdir().unwrap();
    let (b, c) = (folder.path().join("baseline"), folder.path().join("candidate"));
    write(&b, task, 0, &|_| (), 0.0);
    write(&c, task, 0, change, noise);
    Answer::of(&b, &c)
}

fn swap_rows(values: &mut [f32]) {
    for column in 0..COLUMNS {
        values.swap(3 * COLUMNS + column, 7 * COLUMNS + column);
    }
}

fn flip_signs(values: &mut [f32]) {
    // Pairs of opposite values in one row: minimum, maximum and mean hardly move, the norm not at all.
    for column in (0..COLUMNS).step_by(2) {
        values[5 * COLUMNS + column] *= -1.0;
    }
}

fn scale(values: &mut [f32]) {
    for value in values {
        *value *= 1.01;
    }
}

#[test]
fn sketches_of_equal_and_nearly_equal_runs_are_silent() {
    for noise in [0.0, 1e-7, 3e-6] {
        let answer = compare(CaptureTask::Sketch, &|_| (), noise);
        assert_eq!(answer.summary.verdict, RunVerdict::Agree, "{noise}: {:?}", answer.first());
        let verdict = if noise > 0.0 { Verdict::Close } else { Verdict::BitEqual };
        assert!(answer.rows.iter().all(|row| row.verdict == verdict), "{noise}: {:?}", answer.rows[0]);
    }
}

#[test]
fn sketches_see_what_statistics_cannot() {
    for (what, change, exact) in [
        ("scale", scale as fn(&mut [f32]), 0.01),
        ("two rows swapped", swap_rows, 0.18),
        ("signs flipped", flip_signs, 0.18),
    ] {
        let answer = compare(CaptureTask::Sketch, &change, 0.0);
        assert_eq!(
            answer.first(),
            Some(("Functional.gelu.1.forward", "output.0", Cause::Numerics)),
            "{what}"
        );
        assert_eq!(answer.summary.culprits.len(), 1, "{what}");
        let first = answer.summary.first_divergence.as_ref().unwrap();
        assert_eq!(first.basis, Some(Basis::Sketch));
        assert_eq!(first.source.as_deref(), Some("/home/user/train.py:11"));
        assert!(first.reason.starts_with("inputs bit-equal, rel_l2 ≈"), "{}", first.reason);
        let truth = compare(CaptureTask::Tensor, &change, 0.0);
        let of = |answer: &Answer| {
            answer.row("Functional.gelu.1.forward", "output.0").metric(Metric::RelL2).unwrap()
        };
        let (estimate, truth) = (of(&answer), of(&truth));
        assert!((estimate / truth - 1.0).abs() < 0.2, "{what}: {estimate} for {truth}");
        assert!((truth / exact - 1.0).abs() < 0.5, "{what}: {truth}");
    }
    let blind = compare(CaptureTask::Statistics, &swap_rows, 0.0);
    assert_eq!(blind.summary.verdict, RunVerdict::Agree, "statistics do not see swapped rows");
    let hashed = compare(CaptureTask::Hash, &swap_rows, 0.0);
    assert_eq!(hashed.first(), Some(("Functional.gelu.1.forward", "output.0", Cause::Numerics)));
}

#[test]
fn one_element_that_is_far_off_is_seen() {
    let answer = compare(CaptureTask::Sketch, &|values| values[1234] += 0.05, 0.0);
    assert_eq!(answer.first(), Some(("Functional.gelu.1.forward", "output.0", Cause::Numerics)));
}

#[test]
fn dumps_of_different_tasks_are_compared_by_what_both_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let root = |name: &str| folder.path().join(name);
    write(&root("sketch"), CaptureTask::Sketch, 0, &|_| (), 0.0);
    write(&root("statistics"), CaptureTask::Statistics, 0, &scale, 0.0);
    write(&root("tensor"), CaptureTask::Tensor, 0, &swap_rows, 0.0);
    for (candidate, note) in
        [("statistics", "candidate task statistics"), ("tensor", "candidate task tensor")]
    {
        let answer = Answer::of(&root("sketch"), &root(candidate));
        assert_eq!(answer.first(), Some(("Functional.gelu.1.forward", "output.0", Cause::Numerics)));
        assert!(answer.summary.notes.iter().any(|said| said.contains(note)), "{:?}", answer.summary.notes);
    }
}

#[test]
fn an_interrupted_capture_is_incomplete_and_says_how_far_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (b, c) = (folder.path().join("baseline"), folder.path().join("candidate"));
    write(&b, CaptureTask::Sketch, 3, &|_| (), 0.0);
    let manifest = RunManifest { world_size: 4, ..RunManifest::default() };
    let mut writer = DumpWriter::create(&c, &manifest, 3).unwrap();
    writer.begin_step(20).unwrap();
    push_network(&mut writer, CaptureTask::Sketch, &|_| (), 0.0);
    // As after kill -9: what was flushed is there, nothing is finished.
    writer.flush().unwrap();
    std::mem::forget(writer);
    Compare::new(&b, &c).run().incomplete(&["step 20 rank 3", "step 20 rank 3: incomplete, 3 ops"]);
    let output = Command::new(env!("CARGO_BIN_EXE_probe")).arg("inspect").arg(&c).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(said.contains("step 20 rank 3: incomplete, 3 ops"), "{said}");
    assert!(
        text.contains("probe dump") && text.contains("task sketch") && text.contains("+sketch"),
        "{text}"
    );
}

#[test]
fn one_tensor_is_shown_on_request() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("dump").as_path(), CaptureTask::Tensor, 0, &|_| (), 0.0);
    let output = Command::new(env!("CARGO_BIN_EXE_probe"))
        .args(["inspect", "--tensor", "Functional.gelu.1.forward output.0"])
        .arg(folder.path().join("dump"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("6144 elements"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn ranks_may_begin_at_the_same_moment() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("dump");
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for rank in 0..8 {
                let (root, barrier) = (&root, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let manifest = RunManifest { world_size: 8, ..RunManifest::default() };
                    let mut writer = DumpWriter::create(root, &manifest, rank).unwrap();
                    writer.begin_step(1).unwrap();
                    writer.push(&OpRecord { name: "A.a.0.forward".into(), ..OpRecord::default() }).unwrap();
                    writer.finish_step().unwrap();
                    writer.close(&[format!("note of rank {rank}")]).unwrap();
                });
            }
        });
        let dump = probe::read::open(&root, probe::read::map::FileAccess::Read).unwrap();
        assert!(dump.faults.is_empty(), "{:?}", dump.faults);
        assert_eq!(dump.parts.len(), 8);
        let part = dump.reader.read(&dump.parts[5]).unwrap();
        assert_eq!(part.notes.len(), 8, "no rank's note is lost: {:?}", part.notes);
        let names: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "the manifest and one step: {names:?}");
    }
}

#[test]
fn folders_of_others_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = RunManifest::default();
    let refused = |root: &Path, manifest: &RunManifest| {
        DumpWriter::create(root, manifest, 0).map(drop).unwrap_err().to_string()
    };
    fs::write(folder.path().join("thesis.tex"), "mine").unwrap();
    assert!(refused(folder.path(), &manifest).contains("is not empty and not a probe dump"));
    let root = folder.path().join("dump");
    write(&root, CaptureTask::Sketch, 0, &|_| (), 0.0);
    let other = RunManifest { task: CaptureTask::Tensor, ..RunManifest::default() };
    assert!(refused(&root, &other).contains("another task or level"));
    assert!(refused(&folder.path().join("thesis.tex"), &manifest).contains("cannot write"));
    // Another run of the same kind may go on, but not over a step that is there.
    let mut writer = DumpWriter::create(&root, &manifest, 0).unwrap();
    assert_eq!(writer.recorded_steps(), [20]);
    assert!(writer.begin_step(20).unwrap_err().to_string().contains("was recorded before"));
    writer.begin_step(21).unwrap();
}

/// Body of the process that [`a_full_disk_is_an_error_and_what_was_written_stays`] starts with a limit on the size of files.
#[test]
#[ignore = "run by another test, under a limit"]
fn writes_until_the_disk_is_full() {
    let root = std::path::PathBuf::from(std::env::var_os("PROBE_TEST_ROOT").unwrap());
    let mut writer = DumpWriter::create(&root, &RunManifest::default(), 0).unwrap();
    writer.begin_step(1).unwrap();
    push_network(&mut writer, CaptureTask::Sketch, &|_| (), 0.0);
    writer.finish_step().unwrap();
    writer.begin_step(2).unwrap();
    let error = (0..10_000)
        .find_map(|index| {
            let name = format!("Functional.relu.{index}.forward");
            let bytes = [0_u8; 4096];
            let pushed = writer.push_tensor(&name, "torch.uint8", &[4096], &bytes);
            let pushed = pushed.and_then(|_| writer.push(&OpRecord { name, ..OpRecord::default() }));
            pushed.and_then(|()| if index % 50 == 49 { writer.flush() } else { Ok(()) }).err()
        })
        .expect("the limit is reached");
    assert!(error.to_string().starts_with("cannot write"), "{error}");
    let again = writer.push(&OpRecord::default()).unwrap_err().to_string();
    assert!(again.starts_with("capture stopped: cannot write"), "{again}");
    writer.abandon(&error.to_string()).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_what_was_written_stays() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    // A limit on the size of a file, in units of 1024 bytes, stands for the end of the disk.
    let status = Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "writes_until_the_disk_is_full"])
        .env("PROBE_TEST_ROOT", &root)
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
    let dump = probe::read::open(&root, probe::read::map::FileAccess::Read).unwrap();
    assert!(dump.faults[0].to_string().contains("the capture stopped before its end"), "{:?}", dump.faults);
    let [whole, broken] = dump.parts.as_slice() else { panic!("{:?}", dump.parts) };
    let whole = dump.reader.read(whole).unwrap();
    assert!(whole.faults.is_empty() && whole.ops.len() == 3, "{:?}", whole.faults);
    let broken = dump.reader.read(broken).unwrap();
    assert!(!broken.ops.is_empty());
    let fault = broken.faults[0].to_string();
    assert!(
        fault.contains("step 2 rank 0: incomplete") && fault.contains("capture stopped: cannot write"),
        "{fault}"
    );
}

/// A dump with every kind of value, as committed in `testdata/native/version1`.
fn write_sample(root: &Path) {
    let manifest = RunManifest {
        task: CaptureTask::Tensor,
        started: "2026-11-21T12:00:00Z".into(),
        tool: Software { name: "probe".into(), version: "0.1.0".into() },
        framework: Software { name: "torch".into(), version: "2.9.0".into() },
        device: Device { kind: "cpu".into(), name: String::new(), count: 1 },
        config: serde_json::json!({ "steps": [7] }),
        ..RunManifest::default()
    };
    let mut writer = DumpWriter::create(root, &manifest, 0).unwrap();
    writer.begin_step(7).unwrap();
    push_network(&mut writer, CaptureTask::Tensor, &|_| (), 0.0);
    let mut slots = Vec::new();
    for (index, (dtype, shape, bytes)) in [
        ("bool", vec![3], vec![1, 0, 1]),
        ("int64", vec![2, 1], [i64::MIN, i64::MAX].iter().flat_map(|v| v.to_le_bytes()).collect()),
        (
            "float64",
            vec![4],
            [1.5, f64::NAN, f64::INFINITY, -0.0].iter().flat_map(|v| v.to_le_bytes()).collect(),
        ),
        ("complex64", vec![1], [3.0_f32, -4.0].iter().flat_map(|v| v.to_le_bytes()).collect()),
        ("complex128", vec![], [3.0_f64, -4.0].iter().flat_map(|v| v.to_le_bytes()).collect()),
        ("float32", vec![0, 5], Vec::<u8>::new()),
    ]
    .into_iter()
    .enumerate()
    {
        let sizes: Vec<usize> = shape.iter().map(|&size: &u64| usize::try_from(size).unwrap()).collect();
        let strides = probe::dump::contiguous_strides(&sizes);
        let tensor = TensorRef::strided(&bytes, DType::parse(dtype).unwrap(), &sizes, &strides, 0).unwrap();
        let (path, dtype) = (format!("input.{index}"), format!("torch.{dtype}"));
        let name = format!("Functional.mixed.0.forward/{path}");
        let facts = TensorFacts {
            observation: Some(Arc::new(observe(tensor, Content::SKETCH))),
            data: Some(writer.push_tensor(&name, &dtype, &shape, &bytes).unwrap()),
            strides: Some(strides.iter().map(|&stride| i64::try_from(stride).unwrap()).collect()),
            requires_grad: Some(false),
            device: "cpu".into(),
            dtype: dtype.into(),
            shape,
            ..TensorFacts::default()
        };
        slots.push(SlotRecord { path, side: SlotSide::Input, value: SlotValue::Tensor(facts) });
    }
    for (path, scalar) in [
        ("kwarg.count", Scalar::Number(Number::UInt(u64::MAX))),
        ("kwarg.eps", Scalar::Number(Number::Float(1e-5))),
        ("kwarg.train", Scalar::Number(Number::Bool(true))),
        ("kwarg.mode", Scalar::Text("mean".into())),
        ("kwarg.device", Scalar::Device("cpu".into())),
        ("kwarg.slice", Scalar::Printed { kind: "slice".into(), text: "slice(0, 1)".into() }),
    ] {
        slots.push(SlotRecord { path: path.into(), side: SlotSide::Input, value: SlotValue::Scalar(scalar) });
    }
    slots.push(SlotRecord { path: "output.0".into(), side: SlotSide::Output, value: SlotValue::None });
    writer
        .push(&OpRecord { name: "Functional.mixed.0.forward".into(), slots, ..OpRecord::default() })
        .unwrap();
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}

#[test]
fn the_committed_dump_reads_as_one_written_now() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::env::var_os("PROBE_WRITE_SAMPLE")
        .map_or_else(|| folder.path().join("dump"), std::path::PathBuf::from);
    write_sample(&made);
    let read = |root: &Path| {
        let dump = probe::read::open(root, probe::read::map::FileAccess::Read).unwrap();
        let part = dump.reader.read(&dump.parts[0]).unwrap();
        assert!(dump.faults.is_empty() && part.faults.is_empty());
        let data =
            part.ops.iter().flat_map(|op| &op.slots).filter_map(|slot| slot.value.tensor()?.data.as_deref());
        let bytes: Vec<Vec<u8>> = data.map(|key| part.store.load(key).unwrap().view().to_bytes()).collect();
        (part.key, part.task, part.level, part.ops, part.stacks, bytes)
    };
    assert!(
        read(&made) == read(&support::testdata("native/version1")),
        "a dump of version 1 reads otherwise now"
    );
}

#[test]
fn shards_are_safetensors_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    write(&root, CaptureTask::Tensor, 0, &|_| (), 0.0);
    let shard = rank_folder(&root, 20, 0).join("tensors-00000.safetensors");
    let file = probe::read::tensor_file::open(&shard, probe::read::map::FileAccess::Read).unwrap();
    let names: Vec<&str> = file.entries().iter().map(|entry| &*entry.name).collect();
    assert_eq!(names[1], "Functional.linear.0.forward/output.0");
    let values: Vec<u8> = wave(1).iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(file.load(1).unwrap().view().to_bytes(), values);
}
