//! Dumps of probe's own format through `probe compare` and `probe inspect`, and the writer under bad conditions.
#![cfg(all(feature = "native", feature = "cli"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier};

use probe::capture::{
    CaptureTask, Device, DumpWriter, Existing, OpRecord, RunManifest, SlotRecord, SlotValue, Software,
    TensorFacts, prepare,
};
use probe::dump::native::rank_folder;
use probe::dump::{
    Content, DType, Number, Observation, Op, Scalar, SketchVersion, SlotSide, TensorRef, Value,
};
use probe::judge::{Cause, RunVerdict, Verdict};
use probe::measure::{Basis, Metric, observe};
use support::answer::Answer;
use support::command::Compare;
use support::dump_builder::Tensor;

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
        let mut record = OpRecord { name: name.clone(), stack: stack.unwrap(), ..OpRecord::default() };
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

/// A dump of ops on tensors of 60 elements: as sketches, or as they are.
fn write_small(root: &Path, stored: bool, scale: f32) {
    let mut writer = DumpWriter::create(root, &RunManifest::default(), 0).unwrap();
    writer.begin_step(20).unwrap();
    for (index, name) in ["add.0", "gelu.1", "mul.2"].iter().enumerate() {
        let slot = |path: &str, side, seed: usize| {
            let mut values = wave(u32::try_from(seed).unwrap())[..60].to_vec();
            if seed >= 2 {
                for value in &mut values {
                    *value *= scale;
                }
            }
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            SlotRecord { side, ..slot_of(path, "float32", &[60], &bytes, stored) }
        };
        let slots =
            vec![slot("input.0", SlotSide::Input, index), slot("output.0", SlotSide::Output, index + 1)];
        let name = format!("Functional.{name}.forward");
        writer.push(&OpRecord { name, slots, ..OpRecord::default() }).unwrap();
    }
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}

#[test]
fn small_tensors_are_compared_by_their_elements_and_against_sketches_by_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let root = |name: &str| folder.path().join(name);
    for (stored, name) in [(true, "stored"), (false, "sketched")] {
        write_small(&root(name), stored, 1.0);
        write_small(&root(&format!("{name} off")), stored, 1.01);
    }
    for (b, c, basis) in [
        ("stored", "stored", Basis::Data),
        ("stored", "sketched", Basis::Sketch),
        ("sketched", "stored", Basis::Sketch),
        ("sketched", "sketched", Basis::Sketch),
    ] {
        let sound = Answer::of(&root(b), &root(c));
        assert!(sound.rows.iter().all(|row| row.verdict == Verdict::BitEqual), "{b}, {c}");
        let answer = Answer::of(&root(b), &root(&format!("{c} off")));
        assert_eq!(
            answer.first(),
            Some(("Functional.gelu.1.forward", "output.0", Cause::Numerics)),
            "{b}, {c}"
        );
        assert_eq!(answer.summary.first_divergence.as_ref().unwrap().basis, Some(basis), "{b}, {c}");
        let error = answer.row("Functional.gelu.1.forward", "output.0").metric(Metric::RelL2).unwrap();
        // Each element has a lane of its own, so that sketches tell it as well.
        assert!((error / 0.01 - 1.0).abs() < 1e-4, "{b}, {c}: {error}");
    }
}

/// A dump of an attention: scores are added to a mask, and go into a softmax. `change` may alter what is added up.
fn write_attention(root: &Path, fill: f32, change: &dyn Fn(&mut [f32])) {
    let mut writer = DumpWriter::create(root, &RunManifest::default(), 0).unwrap();
    writer.begin_step(20).unwrap();
    let mask: Vec<f32> = (0..ROWS * COLUMNS).map(|at| if at % 3 == 0 { fill } else { 0.0 }).collect();
    let scores = wave(1);
    let mut masked: Vec<f32> = scores.iter().zip(&mask).map(|(score, mask)| score + mask).collect();
    change(&mut masked);
    let slot = |path: &str, side, values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        SlotRecord { side, ..slot_of(path, "float32", &[ROWS, COLUMNS], &bytes, false) }
    };
    let probabilities: Vec<f32> = masked.iter().map(|score| score.exp() / 100.0).collect();
    for (name, slots) in [
        (
            "Functional.baddbmm.0.forward",
            vec![
                slot("input.0", SlotSide::Input, &mask),
                slot("input.1", SlotSide::Input, &scores),
                slot("output.0", SlotSide::Output, &masked),
            ],
        ),
        (
            "Functional.softmax.1.forward",
            vec![
                slot("input.0", SlotSide::Input, &masked),
                slot("output.0", SlotSide::Output, &probabilities),
            ],
        ),
    ] {
        writer.push(&OpRecord { name: name.into(), slots, ..OpRecord::default() }).unwrap();
    }
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}

#[test]
fn an_error_beside_sentinels_is_found_where_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let root = |name: &str| folder.path().join(name);
    write_attention(&root("sound"), f32::MIN, &|_| ());
    assert_eq!(Answer::of(&root("sound"), &root("sound")).summary.verdict, RunVerdict::Agree);
    write_attention(&root("scaled"), f32::MIN, &|values| {
        for value in values.iter_mut().filter(|value| **value > -1e30) {
            *value *= 1.01;
        }
    });
    let answer = Answer::of(&root("sound"), &root("scaled"));
    assert_eq!(answer.first(), Some(("Functional.baddbmm.0.forward", "output.0", Cause::Numerics)));
    let error = answer.row("Functional.baddbmm.0.forward", "output.0").metric(Metric::RelL2).unwrap();
    assert!((error / 0.01 - 1.0).abs() < 0.2, "{error}");
    // One place more is masked.
    write_attention(&root("masked"), f32::MIN, &|values| values[1] = f32::MIN);
    let answer = Answer::of(&root("sound"), &root("masked"));
    assert_eq!(answer.first(), Some(("Functional.baddbmm.0.forward", "output.0", Cause::Numerics)));
    let row = answer.row("Functional.baddbmm.0.forward", "output.0");
    assert!(row.reason.contains("beyond 2^100"), "{}", row.reason);
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
    Compare::new(&b, &c).run().incomplete(&["step 20 rank 3: ", "candidate/step20/rank3: incomplete, 3 ops"]);
    let output = Command::new(env!("CARGO_BIN_EXE_probe")).arg("inspect").arg(&c).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(said.ends_with("candidate/step20/rank3: incomplete, 3 ops\n"), "{said}");
    assert!(
        text.contains("probe dump") && text.contains("task sketch") && text.contains("+sketch"),
        "{text}"
    );
}

/// Writes a sound dump and one of which 64 bytes of a tensor are zero.
fn damaged_pair(folder: &Path) -> [PathBuf; 2] {
    let [sound, damaged] = ["sound", "damaged"].map(|name| folder.join(name));
    for root in [&sound, &damaged] {
        write(root, CaptureTask::Tensor, 0, &|_| (), 0.0);
    }
    let shard = damaged.join("step20/rank0/tensors-00000.safetensors");
    let mut bytes = fs::read(&shard).unwrap();
    let end = bytes.len();
    bytes[end - 128..end - 64].fill(0);
    fs::write(shard, bytes).unwrap();
    [sound, damaged]
}

#[test]
fn damage_is_no_divergence() {
    let folder = tempfile::tempdir().unwrap();
    let [sound, damaged] = damaged_pair(folder.path());
    for more in ["", "--no-mmap"] {
        let run = Compare::new(&sound, &damaged).args(more).run();
        run.incomplete(&["rank0/tensors-00000.safetensors: tensor", "by their hash"]);
        let json = run.json();
        assert_eq!(json["first_divergence"], serde_json::Value::Null, "{}", run.stdout);
        assert!(json["counts"]["verdicts"]["unreadable"].as_u64() > Some(0), "{}", run.stdout);
        assert_eq!(json["counts"]["verdicts"]["differs"], 0, "{}", run.stdout);
    }
}

#[test]
fn what_cannot_be_read_moves_the_exit_code_of_inspect() {
    let folder = tempfile::tempdir().unwrap();
    let [sound, damaged] = damaged_pair(folder.path());
    let last = "Functional.linear.2.forward output.0";
    let inspect = |path: &Path, more: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_probe")).arg("inspect").arg(path).args(more).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(inspect(&sound, &["--tensor", last]).0, 0);
    let (code, shown, said) = inspect(&damaged, &["--tensor", last]);
    assert!(code == 3 && shown.contains("unreadable: ") && said.contains("by their hash"), "{shown}{said}");
    // Statistics that were not recorded are measured, where the data can be read.
    let files = folder.path().join("tensors");
    fs::create_dir_all(&files).unwrap();
    let npy = Tensor::wave(1, 100).npy();
    fs::write(files.join("whole.npy"), &npy).unwrap();
    fs::write(files.join("cut.npy"), &npy[..npy.len() - 4]).unwrap();
    let (code, shown, said) = inspect(&files, &[]);
    assert!(code == 3 && shown.contains("unreadable: ") && said.contains("cut.npy"), "{shown}{said}");
}

#[test]
fn a_name_that_nothing_has_is_answered_with_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    write(&root, CaptureTask::Sketch, 0, &|_| (), 0.0);
    for (more, hint) in [
        (["--op", "gelx"], "the nearest name is \"gelu\"; try --op '*gelu*'"),
        (["--op", "GELU"], "try --op '*gelu*'"),
        (["--op", "zzzzzzzz*"], "`probe inspect PATH` lists what there is"),
        (
            ["--tensor", "Functional.gelu.1.forwrad output.0"],
            "did you mean \"Functional.gelu.1.forward output.0\"?",
        ),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_probe")).arg("inspect").arg(&root).args(more).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{more:?}");
        assert!(said.trim_end().ends_with(hint) && said.contains("dump: no "), "{said}");
    }
}

#[test]
fn a_manifest_stands_for_its_dump() {
    let folder = tempfile::tempdir().unwrap();
    let [b, c] = ["b", "c"].map(|name| folder.path().join(name));
    write(&b, CaptureTask::Sketch, 0, &|_| (), 0.0);
    write(&c, CaptureTask::Sketch, 0, &|_| (), 0.0);
    let run = Compare::new(&b, c.join("manifest.json")).run();
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

#[cfg(feature = "schema")]
#[test]
fn an_inspection_for_programs_follows_its_schema() {
    let schema =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/inspection.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [_, damaged] = damaged_pair(folder.path());
    let gpu = support::testdata("gpu_dump");
    let [last, first] = ["linear.2", "gelu.1"].map(|op| format!("Functional.{op}.forward output.0"));
    let (broken, sound) = (["--tensor", &last], ["--tensor", &first]);
    for (path, more, code) in
        [(&damaged, &broken[..], 3), (&damaged, &[], 0), (&gpu, &["--op", "*gelu*"], 0), (&gpu, &sound, 0)]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_probe"))
            .args(["inspect", "--format", "json"])
            .arg(path)
            .args(more)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{more:?}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            schema.iter_errors(&json).map(|error| error.to_string()).collect::<Vec<_>>(),
            [""; 0],
            "{more:?}"
        );
        let part = &json["parts"][0];
        match more.first() {
            Some(&"--tensor") => assert_eq!(part["tensor"]["elements"].is_null(), code == 3),
            _ => assert!(part["ops"].as_array().unwrap().len() > 1),
        }
    }
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
    assert!(refused(&folder.path().join("thesis.tex"), &manifest).contains("cannot write"));
    let before = contents(&root);
    let said = refused(&root, &manifest);
    assert!(
        said.contains("holds a dump already") && said.contains("such as ") && said.contains("dump-2"),
        "{said}"
    );
    assert_eq!(contents(&root), before, "nothing of the old dump changes");
}

/// Every file below a folder, with its bytes.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_run_goes_on_in_its_own_dump_but_not_over_a_step_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let manifest = RunManifest { run: "this one".into(), ..RunManifest::default() };
    let mut writer = DumpWriter::create(&root, &manifest, 0).unwrap();
    writer.begin_step(20).unwrap();
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
    let other = RunManifest { task: CaptureTask::Tensor, ..manifest.clone() };
    let said = DumpWriter::create(&root, &other, 0).unwrap_err().to_string();
    assert!(said.contains("another task or level"), "{said}");
    let mut writer = DumpWriter::create(&root, &manifest, 0).unwrap();
    assert_eq!(writer.recorded_steps(), [20]);
    assert!(writer.begin_step(20).unwrap_err().to_string().contains("was recorded before"));
    writer.begin_step(21).unwrap();
}

#[test]
fn ranks_join_a_run_that_is_alive_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let manifest = RunManifest { world_size: 2, ..RunManifest::default() };
    // A run of another node, which has begun; its process stands for the time that it lives.
    let first = DumpWriter::create(&root, &manifest, 0);
    let mut first = first.unwrap();
    first.begin_step(0).unwrap();
    prepare(&root, Existing::Keep, "--overwrite").unwrap();
    prepare(&root, Existing::Replace, "--overwrite").unwrap();
    assert!(root.join("step0").exists(), "a run that goes on is not removed");
    DumpWriter::create(&root, &manifest, 1).unwrap();
    let said = DumpWriter::create(&root, &manifest, 0).unwrap_err().to_string();
    assert!(said.contains("holds what rank 0 recorded before"), "{said}");
    let alone = RunManifest::default();
    let said = DumpWriter::create_over(Existing::Replace, &root, &alone, 0).unwrap_err().to_string();
    assert!(said.contains("is being recorded into by a run that goes on"), "{said}");
}

#[test]
fn an_old_dump_makes_room_when_that_is_wanted_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    write(&root, CaptureTask::Tensor, 0, &|_| (), 0.0);
    for place in ["step20/rank0/notes.txt", "step20/notes.txt", "notes.txt"] {
        fs::write(root.join(place), "mine").unwrap();
        let before = contents(&root);
        let said = prepare(&root, Existing::Replace, "--overwrite").unwrap_err().to_string();
        assert!(said.contains(&format!("{place}: is no part of a probe dump")), "{said}");
        assert_eq!(contents(&root), before);
        fs::remove_file(root.join(place)).unwrap();
    }
    let manifest = RunManifest::default();
    let mut writer = DumpWriter::create_over(Existing::Replace, &root, &manifest, 0).unwrap();
    assert!(!root.join("step20").exists());
    writer.begin_step(20).unwrap();
    drop(writer);
    fs::create_dir(folder.path().join("mine")).unwrap();
    fs::write(folder.path().join("mine/manifest.json"), "{\"name\": \"an extension\"}").unwrap();
    let said =
        prepare(&folder.path().join("mine"), Existing::Replace, "--overwrite").unwrap_err().to_string();
    assert!(said.contains("is not the manifest of a probe dump"), "{said}");
}

#[test]
fn a_run_that_recorded_nothing_leaves_its_folder_free() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let manifest = RunManifest { started: "yesterday".into(), ..RunManifest::default() };
    DumpWriter::create(&root, &manifest, 0).unwrap().close(&[]).unwrap();
    DumpWriter::create(&root, &RunManifest { started: "today".into(), ..manifest }, 0).unwrap();
    assert!(fs::read_to_string(root.join("manifest.json")).unwrap().contains("today"));
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
        fault.contains("step2/rank0: incomplete") && fault.contains("capture stopped: cannot write"),
        "{fault}"
    );
}

/// A tensor that is stored in the table, or measured with a sketch.
fn slot_of(path: &str, dtype: &str, shape: &[usize], bytes: &[u8], stored: bool) -> SlotRecord {
    let strides = probe::dump::contiguous_strides(shape);
    let tensor = TensorRef::strided(bytes, DType::parse(dtype).unwrap(), shape, &strides, 0).unwrap();
    let content = if stored { Content::HASH } else { Content::SKETCH };
    let facts = TensorFacts {
        dtype: format!("torch.{dtype}").into(),
        shape: shape.iter().map(|&size| size as u64).collect(),
        strides: Some(strides.iter().map(|&stride| i64::try_from(stride).unwrap()).collect()),
        device: "cpu".into(),
        observation: Some(Arc::new(observe(tensor, content))),
        bytes: stored.then(|| bytes.into()),
        ..TensorFacts::default()
    };
    SlotRecord { path: path.into(), side: SlotSide::Input, value: SlotValue::Tensor(facts) }
}

/// What version 2 has and version 1 has not: small tensors as they are, and sentinels apart.
fn push_version_2(writer: &mut DumpWriter) {
    let mut mask = wave(7);
    for row in 0..ROWS {
        mask[row * COLUMNS + row + 1..(row + 1) * COLUMNS].fill(f32::MIN);
    }
    let mask: Vec<u8> = mask.iter().flat_map(|value| value.to_le_bytes()).collect();
    let half: Vec<u8> =
        [0xfbff_u16, 0x3c00, 0x7bff, 0x7c00].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let numbers: Vec<u8> =
        [f64::NAN, -0.0, 5e-324, f64::MIN].iter().flat_map(|value| value.to_le_bytes()).collect();
    let slots = vec![
        slot_of("input.0", "float32", &[ROWS, COLUMNS], &mask, false),
        slot_of("input.1", "float16", &[2, 2], &half, true),
        slot_of("input.2", "float64", &[4], &numbers, true),
        slot_of("input.3", "float64", &[2, 2], &numbers, true),
        slot_of("input.4", "bool", &[], &[1], true),
        slot_of("input.5", "int64", &[0], &[], true),
    ];
    let name = "Functional.version2.0.forward".into();
    writer.push(&OpRecord { name, slots, ..OpRecord::default() }).unwrap();
}

/// What version 3 has and versions before it have not: sums that are not exact, and statistics that are not known.
fn push_version_3(writer: &mut DumpWriter) {
    let bytes: Vec<u8> = wave(8).iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut slot = slot_of("input.0", "float32", &[ROWS, COLUMNS], &bytes, false);
    if let SlotValue::Tensor(facts) = &mut slot.value {
        let mut found = Observation::clone(facts.observation.as_ref().unwrap());
        (found.sum_error, found.hash) = (Some(2.0_f64.powi(-20)), None);
        (found.statistics.min, found.statistics.norm) = (None, None);
        facts.observation = Some(Arc::new(found));
    }
    let name = "Functional.version3.0.forward".into();
    writer.push(&OpRecord { name, slots: vec![slot], ..OpRecord::default() }).unwrap();
}

/// A dump with every kind of value, as committed in `testdata/native/version3`.
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
    push_version_2(&mut writer);
    push_version_3(&mut writer);
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}

#[test]
fn the_committed_dumps_read_as_one_written_now() {
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
    let mut now = read(&made);
    assert!(now == read(&support::testdata("native/version3")), "a dump of version 3 reads otherwise now");
    // Version 2 has none of what is new, and sketches by another function.
    assert_eq!(now.3.pop().unwrap().name.as_str(), "Functional.version3.0.forward");
    let dump = probe::read::open(&made, probe::read::map::FileAccess::Read).unwrap();
    let part = dump.reader.read(&dump.parts[0]).unwrap();
    for slot in now.3.iter_mut().flat_map(|op| &mut op.slots) {
        if let Value::Tensor(record) = &mut slot.value
            && record.sketch.is_some()
        {
            let first = Content { sketch: Some(SketchVersion::First), hash: false };
            record.sketch = record.data.as_deref().and_then(|key| {
                let data = part.store.load(key).unwrap();
                observe(data.view(), first).sketch.map(Arc::new)
            });
        }
    }
    let mut version_2 = read(&support::testdata("native/version2"));
    for slot in version_2.3.iter_mut().flat_map(|op| &mut op.slots) {
        if let Value::Tensor(record) = &mut slot.value
            && record.data.is_none()
        {
            record.sketch = None;
        }
    }
    // Of float16 it took the least number for a sentinel, and not the greatest.
    let half = |ops: &mut Vec<Op>| match &mut ops.last_mut().unwrap().slots[1].value {
        Value::Tensor(record) => (record.counts.unwrap().sentinels, std::mem::take(&mut record.statistics)),
        other => panic!("{other:?}"),
    };
    let (mut ours, mut theirs) = (now.3.clone(), version_2.3.clone());
    assert_eq!((half(&mut ours).0, half(&mut theirs).0), (Some(2), Some(1)));
    assert_eq!(half(&mut now.3.clone()).1.max, half(&mut version_2.3.clone()).1.max);
    if let Value::Tensor(record) = &mut ours.last_mut().unwrap().slots[1].value {
        record.counts.as_mut().unwrap().sentinels = Some(1);
    }
    assert!(ours == theirs && now.5 == version_2.5, "a dump of version 2 reads otherwise now");
    // Version 1 has none of what is new.
    assert_eq!(now.3.pop().unwrap().name.as_str(), "Functional.version2.0.forward");
    now.5.truncate(now.5.len() - 5);
    let mut before = read(&support::testdata("native/version1"));
    for op in before.3.iter_mut().chain(&mut now.3) {
        for slot in &mut op.slots {
            if let Value::Tensor(record) = &mut slot.value
                && let Some(counts) = &mut record.counts
            {
                counts.sentinels = None;
            }
        }
    }
    assert!(now == before, "a dump of version 1 reads otherwise now");
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
