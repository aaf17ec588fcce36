//! Dumps, checkpoints and packs of MindSpore, compared with one another and with those of PyTorch. `testdata/mindspore` holds the
//! same training in both frameworks, and runs whose second GELU returns 1.01 times its result.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::command::{Compare, Run, probe};
use crate::support::testdata;

fn folder(name: &str) -> std::path::PathBuf {
    testdata(&format!("mindspore/{name}"))
}

fn pair(baseline: &str, candidate: &str) -> Run {
    Compare::new(folder(baseline), folder(candidate)).arg("--any-task").run()
}

#[test]
fn sound_pairs_agree_within_a_framework_and_across() {
    for (baseline, candidate, ops, values) in [
        ("mindspore_mix_statistics", "mindspore_mix_md5", 227, 600),
        ("pytorch_L0_tensor", "mindspore_L0_tensor", 74, 170),
        ("mindspore_L0_tensor", "pytorch_L0_tensor", 74, 170),
        ("pytorch_L0_statistics", "mindspore_L0_statistics", 148, 350),
        ("pytorch_mix_statistics", "mindspore_mix_statistics", 148, 370),
    ] {
        let run = pair(baseline, candidate);
        assert_eq!(run.code, 0, "{baseline} {candidate}: {}{}", run.stdout, run.stderr);
        let counts = &run.json()["counts"];
        assert_eq!(counts["ops_paired"], ops, "{}", run.stdout);
        let verdicts = counts["verdicts"].as_object().unwrap();
        let compared: u64 = ["bit-equal", "close"].iter().filter_map(|word| verdicts[*word].as_u64()).sum();
        assert!(compared >= values, "{compared} values: {}", run.stdout);
        assert!(!run.stdout.contains("TF32"), "{}", run.stdout);
    }
}

#[test]
fn the_wrong_function_is_named_within_a_framework_and_across() {
    for (baseline, candidate) in [
        ("mindspore_L1_statistics", "mindspore_fault_L1_statistics"),
        ("mindspore_mix_statistics", "mindspore_fault_mix_statistics"),
        ("pytorch_mix_statistics", "mindspore_fault_mix_statistics"),
    ] {
        let run = pair(baseline, candidate);
        let found = &run.json()["first_divergence"];
        assert_eq!(run.code, 1, "{baseline} {candidate}: {}", run.stdout);
        assert_eq!(found["op"], "Functional.gelu.1.forward", "{}", run.stdout);
        // The line of the program, not one of MindSpore's.
        assert_eq!(found["source"], "/home/user/train/train_ms.py:66");
    }
}

#[test]
fn recordings_of_both_frameworks_agree_and_the_wrong_function_is_named() {
    let run = |baseline: &str, candidate: &str| {
        let place = testdata("mindspore_captured");
        Compare::new(place.join(baseline), place.join(candidate)).run()
    };
    for (baseline, candidate) in [("torch", "mindspore"), ("mindspore", "torch")] {
        let found = run(baseline, candidate);
        assert_eq!(found.code, 0, "{baseline} {candidate}: {}{}", found.stdout, found.stderr);
        let counts = &found.json()["counts"];
        assert_eq!((&counts["ops_paired"], &counts["slots"]), (&135.into(), &356.into()), "{}", found.stdout);
    }
    for baseline in ["torch", "mindspore"] {
        let found = run(baseline, "fault");
        let divergence = &found.json()["first_divergence"];
        assert_eq!(
            (found.code, &divergence["op"]),
            (1, &"Functional.gelu.1.forward".into()),
            "{}",
            found.stdout
        );
        assert_eq!(divergence["source"], "/home/user/train/networks_mindspore.py:31");
    }
}

#[test]
fn what_the_frameworks_define_differently_is_said_once() {
    let run = pair("pytorch_L0_statistics", "mindspore_L0_statistics");
    assert_eq!(run.stdout.matches("momentum 0.9 of MindSpore's batch norm").count(), 1, "{}", run.stdout);
    assert_eq!(run.stdout.matches("adds epsilon before the bias correction").count(), 1, "{}", run.stdout);
}

#[test]
fn dumps_below_the_folder_of_a_mode_are_found() {
    let place = tempfile::tempdir().unwrap();
    let source = folder("mindspore_L0_tensor");
    for mode in ["pynative", "graph"] {
        fs::create_dir(place.path().join(mode)).unwrap();
    }
    symlink(source.join("step0"), place.path().join("pynative/step0")).unwrap();
    let run = Compare::new(&source, place.path()).run();
    assert_eq!((run.code, run.json()["counts"]["ops_paired"].as_u64()), (0, Some(74)), "{}", run.stdout);
    symlink(source.join("step0"), place.path().join("graph/step0")).unwrap();
    let run = Compare::new(&source, place.path()).run();
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("name one: pynative or graph"), "{}", run.stderr);
}

#[test]
fn a_converted_dump_keeps_its_framework() {
    let place = tempfile::tempdir().unwrap();
    let native = place.path().join("native");
    let source = folder("mindspore_L0_tensor");
    let (code, said, _) = probe(&["convert", source.to_str().unwrap(), "-o", native.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    let run = Compare::new(folder("pytorch_L0_tensor"), &native).run();
    assert_eq!((run.code, run.json()["counts"]["ops_paired"].as_u64()), (0, Some(74)), "{}", run.stdout);
}

#[test]
fn mappings_of_the_older_tool_hold_across_frameworks() {
    let place = tempfile::tempdir().unwrap();
    let renamed = place.path().join("renamed");
    let step = renamed.join("step0/proc1");
    fs::create_dir_all(&step).unwrap();
    for name in ["dump.json", "construct.json", "stack.json"] {
        let text = fs::read_to_string(folder("mindspore_L0_statistics/step0/proc1").join(name)).unwrap();
        fs::write(step.join(name), text.replace(".mlp.", ".ffn.")).unwrap();
    }
    for (name, text) in [
        ("layers.yaml", "Layer:\n  ffn: mlp\n"),
        (
            "cells.yaml",
            "Cell.text.layers.0.ffn: Module.text.layers.0.mlp\nCell.text.layers.1.ffn: Module.text.layers.1.mlp\n",
        ),
    ] {
        let mapping = place.path().join(name);
        fs::write(&mapping, text).unwrap();
        let baseline = folder("pytorch_L0_statistics/step0");
        let run = Compare::new(baseline, &renamed).arg("--mapping").arg(&mapping).run();
        assert_eq!(
            (run.code, run.json()["counts"]["ops_paired"].as_u64()),
            (0, Some(74)),
            "{name}: {}",
            run.stdout
        );
        assert!(!run.stdout.contains("a different path"), "{name}: {}", run.stdout);
    }
}

#[test]
fn positions_of_a_mapped_function_decide_what_is_compared() {
    let place = tempfile::tempdir().unwrap();
    let mapping = place.path().join("api.yaml");
    for (positions, values) in [("[0]", 376), ("[1]", 374)] {
        let text = format!(
            "- ms_api: Functional.gelu\n  pt_api: Functional.gelu\n  ms_args: {positions}\n  pt_args: [0]\n  ms_output: [0]\n  pt_output: [0]\n"
        );
        fs::write(&mapping, text).unwrap();
        let (b, c) = (folder("pytorch_mix_statistics"), folder("mindspore_mix_statistics"));
        let run = Compare::new(b, c).arg("--mapping").arg(&mapping).run();
        assert_eq!((run.code, run.json()["counts"]["slots"].as_u64()), (0, Some(values)), "{}", run.stdout);
    }
}

/// Copies a folder and what is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

#[test]
fn dumps_that_mindspore_makes_of_a_graph_have_steps_and_ranks() {
    let place = tempfile::tempdir().unwrap();
    let (source, wrong) = (folder("dumped"), place.path().join("wrong"));
    copy(&source, &wrong);
    for below in ["", "rank_0", "rank_0/Net", "rank_0/Net/0"] {
        let run = Compare::new(source.join(below), source.join(below)).run();
        assert_eq!(run.code, 0, "{below}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains("2 steps and ranks, 62 ops paired"), "{below}: {}", run.stdout);
    }
    let iteration = wrong.join("rank_0/Net/0/1");
    let is_relu = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with("ReLU.Default");
    let files = fs::read_dir(iteration).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|path| is_relu(path) && path.to_str().unwrap().contains(".output.")) {
        let mut bytes = fs::read(&file).unwrap();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&7.5_f32.to_le_bytes());
        fs::write(file, bytes).unwrap();
    }
    let run = Compare::new(&source, &wrong).run();
    let found = &run.json()["first_divergence"];
    assert_eq!((run.code, found["step"].as_u64()), (1, Some(1)), "{}", run.stdout);
    assert!(found["op"].as_str().unwrap().starts_with("ReLU.Default_network"), "{}", run.stdout);
}

#[test]
fn statistics_of_a_graph_are_read_and_a_bad_line_is_named() {
    const HEADER: &str = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,Count,NaN Count,Negative Inf Count,Positive Inf Count,Zero Count,L2Norm Value,";
    let place = tempfile::tempdir().unwrap();
    let line = |op: &str, at: u64, io: &str, max: f64| {
        format!("{op},Default_{op}-op0,0,0,{at},{io},0,80,float32,\"(5,4)\",{max},-1,0.5,20,0,0,0,2,3.5,")
    };
    let write = |name: &str, max: f64, end: &str| {
        let folder = place.path().join(name).join("rank_1/Net/2/3");
        fs::create_dir_all(&folder).unwrap();
        let lines = [
            line("MatMul", 1, "input", 1.0),
            line("MatMul", 2, "output", 2.0),
            line("ReLU", 3, "output", max),
        ];
        fs::write(folder.join("statistic.csv"), format!("{HEADER}\n{}\n{end}", lines.join("\n"))).unwrap();
        place.path().join(name)
    };
    let right = write("right", 2.0, "");
    let (run, other) = (
        Compare::new(&right, write("same", 2.0, "")).run(),
        Compare::new(&right, write("wrong", 3.0, "")).run(),
    );
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert_eq!(run.json()["counts"]["ops_paired"], 3, "{}", run.stdout);
    assert_eq!(other.code, 1, "{}", other.stdout);
    let found = &other.json()["first_divergence"];
    assert_eq!((found["step"].as_u64(), found["rank"].as_u64()), (Some(3), Some(1)), "{}", other.stdout);
    assert_eq!(found["op"], "ReLU.Default_ReLU-op0.output.0", "{}", other.stdout);
    let cut = Compare::new(&right, write("cut", 2.0, "ReLU,Default_ReLU-op1,0,0,4,outp")).run();
    assert_eq!(cut.code, 2, "{}{}", cut.stdout, cut.stderr);
    assert!(
        format!("{}{}", cut.stdout, cut.stderr).contains("statistic.csv: line 5 is cut off"),
        "{}{}",
        cut.stdout,
        cut.stderr
    );
}

#[test]
fn checkpoints_hold_what_safetensors_hold() {
    let (ckpt, safetensors) = (folder("net.ckpt"), folder("net.safetensors"));
    let (code, shown, _) = probe(&["inspect", ckpt.to_str().unwrap()]);
    assert_eq!(code, 0, "{shown}");
    for line in ["bfloat16 [2, 3]", "mindspore checkpoint", "int64 [3]", "float32 []", "\"x\""] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let run = Compare::new(&safetensors, &ckpt).run();
    let verdicts = &run.json()["counts"]["verdicts"];
    assert_eq!(verdicts["bit-equal"], 12, "{}", run.stdout);
}

#[test]
fn packs_of_two_frameworks_differ_in_the_framework_alone() {
    let place = tempfile::tempdir().unwrap();
    let [a, b] = ["pytorch.zip", "mindspore.zip"].map(folder);
    let output = place.path().join("out");
    let (_, shown, said) =
        probe(&["config-check", a.to_str().unwrap(), b.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(output.join("config.json")).unwrap()).unwrap();
    let text = report.to_string();
    assert!(text.contains("one side runs PyTorch, the other MindSpore"), "{shown}{said}");
    assert!(text.contains("cuts the mean of integers"), "{shown}");
    // The two environments hold different versions of NumPy, and nothing else differs.
    assert!(shown.starts_with("diff: 1 difference that can change numerics (pip 1)"), "{shown}");
}
