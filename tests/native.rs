//! Dumps of probe's own format through `probe compare` and `probe inspect`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::answer::Answer;
use crate::support::command::Compare;
use crate::support::dump_builder::Tensor;
use crate::support::three_ops::{COLUMNS, ROWS, push_network, slot_of, wave, write};
use probe::capture::{CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord};
use probe::dump::SlotSide;
use probe::judge::{Cause, RunVerdict, Verdict};
use probe::measure::{Basis, Metric};

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
    // As a loop finds them.
    let values = wave(1);
    let best = |better: fn(&f32, &f32) -> bool| {
        let mut best = 0;
        for (index, value) in values.iter().enumerate() {
            best = if better(value, &values[best]) { index } else { best };
        }
        format!("{:.6e} at [{}, {}]", values[best], best / COLUMNS, best % COLUMNS)
    };
    let places = format!("min {} max {} mean", best(f32::lt), best(f32::gt));
    assert_eq!(text.matches(&places).count(), 2, "{places} in {text}");
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
        run.incomplete(&["rank0/tensors-00000.safetensors: tensor", "do not match the recorded hash"]);
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
    assert!(
        code == 3 && shown.contains("unreadable: ") && said.contains("do not match the recorded hash"),
        "{shown}{said}"
    );
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
    let gpu = crate::support::testdata("gpu_dump");
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
