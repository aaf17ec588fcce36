//! Things that scripts rely on: exit codes, the one line of `-q`, options, and that the answer does not depend on how it was asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::answer::Answer;
use crate::support::command::{Compare, Run};
use crate::support::dump_builder::{Dump, Task, Tensor, op};
use crate::support::testdata;
use probe::compare::CompareOptions;
use probe::judge::{Cause, Rules, RunVerdict, Verdict};
use probe::report::Format;
use serde_json::Value;

const GELU: &str = "Functional.gelu.1.forward";

/// The pair of the repository: the second GELU of the candidate is a little wrong.
fn pair() -> Compare {
    Compare::new(testdata("gpu_dump"), testdata("npu_dump"))
}

/// Seventy ops of which dozens are at fault.
fn many() -> Compare {
    Compare::new(testdata("edge/statistics/baseline"), testdata("edge/statistics/candidate"))
}

fn same() -> Compare {
    Compare::new(testdata("gpu_dump"), testdata("gpu_dump"))
}

#[test]
fn code_0_says_that_the_runs_agree() {
    let run = same().run();
    assert_eq!((run.code, &*run.stderr), (0, ""));
    assert!(run.stdout.starts_with("agree: 134 ops, 386 values compared, 386 bit-equal\n"), "{}", run.stdout);
}

#[test]
fn code_1_says_that_they_differ() {
    let run = pair().run();
    assert_eq!((run.code, &*run.stderr), (1, ""));
    let lines: Vec<&str> = run.stdout.lines().take(5).collect();
    let known = [
        &format!("first divergence: step 0, rank 0, {GELU} output.0"),
        "module     layers.1.mlp",
        "source     /home/user/train/train.py:54",
        "cause      numerics: same inputs and arguments, different result",
    ];
    assert_eq!(lines[..4], known, "{}", run.stdout);
    let why = "why        introduces: inputs agree to 1.2e-7, rel_l2 6.5e-4 (";
    assert!(lines[4].starts_with(why) && lines[4].contains(" expected)"), "{}", lines[4]);
}

#[test]
fn a_command_of_the_package_is_no_unknown_word() {
    let run = probe(&["replay", "npu_dump", "--op", GELU]);
    assert_eq!(run.status.code(), Some(2));
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.starts_with("error: probe replay needs the Python package probe-precision: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn code_2_says_that_nothing_was_compared() {
    Compare::new(testdata("gpu_dump"), testdata("nowhere")).run().failed(&["nowhere (the candidate): "]);
}

#[test]
fn code_3_says_that_something_was_left_out_even_where_something_differs() {
    let run = Compare::new(testdata("edge/baseline"), testdata("edge/candidate")).run();
    run.incomplete(&["Torch.missing_file.0.forward output.0"]);
    assert!(run.stdout.contains("incomplete 1 place could not be compared, listed below"), "{}", run.stdout);
    assert_eq!(run.json()["verdict"], "incomplete");
    assert!(run.json()["first_divergence"].is_object());
}

#[test]
fn quiet_prints_one_line() {
    for compare in [pair(), same(), many()] {
        let loud = compare.clone().run();
        let quiet = compare.arg("-q").run();
        assert_eq!(quiet.code, loud.code);
        let lines: Vec<&str> = quiet.stdout.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with(loud.stdout.lines().next().unwrap()), "{lines:?}");
    }
    let line = pair().arg("-q").run().stdout;
    let known = format!(
        "first divergence: step 0, rank 0, {GELU} output.0 in layers.1.mlp at /home/user/train/train.py:54 - numerics, introduces: inputs agree"
    );
    assert!(line.starts_with(&known), "{line}");
}

#[test]
fn lines_keep_to_the_width_and_cut_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_probe"))
        .args(["compare", "testdata/gpu_dump", "testdata/npu_dump", "--output"])
        .arg(folder.path())
        .env("COLUMNS", "80")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    let path = folder.path().to_str().unwrap();
    assert!(long.iter().all(|line| line.contains(path)), "{long:#?}");
    for whole in [GELU, "/home/user/train/train.py:54", "report.json"] {
        assert!(text.contains(whole), "{whole}");
    }
}

#[test]
fn a_closed_pipe_is_nobodys_fault() {
    for words in [&["--version"][..], &["compare", "--help"], &[]] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_probe"));
        if words.is_empty() {
            command.args(["compare", "--format", "json", "-b"]).arg(testdata("gpu_dump"));
            command.arg("-c").arg(testdata("npu_dump")).arg("-o").arg(folder.path());
        }
        let mut child = command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(i32::from(words.is_empty())), "{words:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
    }
}

#[test]
fn options_of_the_older_tool_are_understood() {
    let (b, c) = (testdata("gpu_dump"), testdata("npu_dump"));
    for (golden, target) in
        [("-gp", "-tp"), ("--golden_path", "--target_path"), ("--golden-path", "--target-path")]
    {
        let run = Compare::with_args([target.into(), c.clone(), golden.into(), b.clone()]).run();
        assert_eq!(run.code, 1, "{golden}: {}", run.stderr);
        assert_eq!(run.json()["baseline"]["path"], b.to_str().unwrap(), "{golden}");
    }
}

/// `report.json` without the time it took.
fn timeless(run: &Run) -> String {
    let text = fs::read_to_string(run.reports().join("report.json")).unwrap();
    let (kept, seconds): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| !line.trim_start().starts_with("\"seconds\": "));
    assert_eq!(seconds.len(), 1);
    kept.join("\n")
}

#[test]
fn the_answer_does_not_depend_on_threads_nor_on_how_files_are_read() {
    for compare in [pair(), many()] {
        let one = timeless(&compare.clone().args("--threads 1").run());
        for args in ["--threads 2", "--threads 7", "--no-mmap", ""] {
            assert!(timeless(&compare.clone().args(args).run()) == one, "{args}");
        }
    }
}

#[test]
fn top_shortens_the_list_on_the_terminal_and_not_in_the_report() {
    let rows = |run: &Run| {
        let (_, list) = run.stdout.split_once("ops at fault").unwrap_or_default();
        list.lines().filter(|line| line.contains(" Torch.")).count()
    };
    for top in [0, 1, 7] {
        let run = many().args(&format!("--top {top}")).run();
        assert_eq!(rows(&run), top, "{}", run.stdout);
        let all = run.json()["culprits"].as_array().unwrap().len();
        assert!(all > 30);
        let head = format!("ops at fault (first {top} of {all})");
        assert_eq!(run.stdout.contains(&head), top > 0, "{}", run.stdout);
    }
}

#[test]
fn level_chooses_the_kinds_of_op() {
    let found = |level: &str| {
        let json = pair().args("--level").arg(level).run().json();
        (
            json["counts"]["ops_paired"].as_u64().unwrap(),
            json["first_divergence"]["op"].as_str().unwrap().to_owned(),
        )
    };
    assert_eq!(found("all"), (134, GELU.into()));
    assert_eq!(found("api"), (70, GELU.into()));
    assert_eq!(found("module"), (64, "Module.layers.1.mlp.MLP.forward.0".into()));
}

fn probe(args: &[&str]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_probe")).args(args).output().unwrap()
}

#[test]
fn one_report_is_printed_on_request_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (b, c) = (testdata("gpu_dump"), testdata("npu_dump"));
    for args in [&["--format", "json"][..], &["-o", "-", "--format", "json"], &["--format=json", "-q"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_probe"))
            .arg("compare")
            .args([&b, &c])
            .args(args)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["first_divergence"]["op"], GELU, "{args:?}");
    }
    let text = |more: &[&str]| {
        let output =
            probe(&[&["compare", b.to_str().unwrap(), c.to_str().unwrap(), "-o", "-"], more].concat());
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, answer, _) = text(&[]);
    assert!(
        code == Some(1) && answer.starts_with("first divergence: ") && !answer.contains("written "),
        "{answer}"
    );
    for (formats, part) in [("xlsx", "format xlsx is not text"), ("json,text", "--format text or json")] {
        let (code, answer, said) = text(&["--format", formats]);
        assert!((code, &*answer) == (Some(2), "") && said.contains(part), "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(!Path::new("-").exists());
}

#[test]
fn shells_and_man_are_told_of_every_subcommand() {
    for shell in ["bash", "zsh", "fish"] {
        let output = probe(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["compare", "any-level", "config-check"] {
            assert!(output.status.success() && script.contains(word), "{shell} {word}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert!(probe(&["man", pages.to_str().unwrap()]).status.success());
    let page = fs::read_to_string(pages.join("probe-compare.1")).unwrap();
    assert!(page.contains("no\\-mmap") && page.contains("Examples"), "{page}");
    assert!(pages.join("probe.1").exists() && pages.join("probe-config-check.1").exists());
}

#[test]
fn short_help_has_examples_and_fits_a_terminal() {
    for command in ["compare", "inspect", "config-check", "capture"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_probe"))
            .args([command, "-h"])
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("Examples:\n  probe "), "{help}");
        let widest = help.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}: {help}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_comparison_leaves_nothing_behind() {
    use std::os::unix::process::ExitStatusExt as _;
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.npy", "b.npy"] {
        // Takes some seconds to compare.
        Tensor::write_hole(&folder.path().join(name), 900_000_000);
    }
    for (signal, number) in [("INT", 2), ("TERM", 15)] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_probe"))
            .args(["compare", "a.npy", "b.npy", "-o", "new/reports"])
            .current_dir(folder.path())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let reports = folder.path().join("new/reports");
        let begun = || fs::read_dir(&reports).is_ok_and(|entries| entries.count() == Format::USUAL.len());
        while !begun() {
            assert!(child.try_wait().unwrap().is_none(), "ended before it was interrupted");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let told = std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(told.unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(number));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "error: interrupted; no report was written\n");
        assert!(!folder.path().join("new").exists(), "{signal}: something is left");
    }
}

#[test]
fn step_and_rank_choose_the_parts() {
    let folder = tempfile::tempdir().unwrap();
    for (side, result) in [("b", 1), ("c", 2)] {
        for (part, seed) in
            [("step0/rank0", 1), ("step0/rank1", result), ("step1/rank0", 1), ("step1/rank1", 1)]
        {
            let ops = vec![op("Torch.rand.0.forward").output(Tensor::wave(seed, 8))];
            Dump::new(Task::Statistics, ops).write(&folder.path().join(side).join(part));
        }
    }
    let run = |args: &str| Compare::new(folder.path().join("b"), folder.path().join("c")).args(args).run();
    for (args, parts, code) in [
        ("", 4, 1),
        ("--step 1", 2, 0),
        ("--rank 0", 2, 0),
        ("--step 0-1 --rank 1", 2, 1),
        ("--step 0 --rank 0", 1, 0),
    ] {
        let run = run(args);
        assert_eq!((run.code, run.json()["counts"]["parts"].as_u64()), (code, Some(parts)), "{args}");
    }
}

#[test]
fn format_chooses_the_reports() {
    for (formats, names) in [
        ("json", &["report.json"][..]),
        ("text", &["report.txt"]),
        ("json,text,json", &["report.json", "report.txt"]),
        ("xlsx", &["result.xlsx"]),
        ("parquet,text", &["report.txt", "result.parquet"]),
        ("text,xlsx,parquet,json", &["report.json", "report.txt", "result.parquet", "result.xlsx"]),
        ("html", &["result.html"]),
    ] {
        let run = pair().arg(format!("--format={formats}")).run();
        assert_eq!(run.report_names(), names);
        for name in names {
            assert!(
                run.stdout.contains(&format!("written    {}", run.reports().join(name).display())),
                "{}",
                run.stdout
            );
        }
    }
}

#[test]
fn reports_of_an_earlier_comparison_are_replaced() {
    let first = pair().run();
    let output = first.reports();
    let second = same().run_into(tempfile::tempdir().unwrap(), &output);
    assert_eq!(second.code, 0);
    assert_eq!(first.json()["verdict"], "agree");
    assert_eq!(first.report_names(), ["report.json", "report.txt"]);
}

fn with_rules(text: &str) -> Answer {
    let options = CompareOptions { rules: Rules::parse(text).unwrap(), ..CompareOptions::default() };
    Answer::with(&testdata("gpu_dump"), &testdata("npu_dump"), &options)
}

#[test]
fn a_tolerance_rule_loosens_limits_or_excludes_and_is_named_where_it_decided() {
    let loose = with_rules("[[rule]]\npattern = \"*\"\nrel_l2 = 0.1\n");
    assert_eq!(loose.summary.verdict, RunVerdict::Agree);
    assert_eq!(loose.row(GELU, "output.0").rule.as_deref(), Some("user rule \"*\": rel_l2 <= 1e-1"));

    // A bound of the op's own error accuses nothing that was no fault before.
    let tight = with_rules("[[rule]]\npattern = \"Functional.linear.*.output.*\"\nrel_l2 = 1e-9\n");
    assert_eq!(tight.first().unwrap().0, GELU);

    let limit =
        with_rules("[[rule]]\npattern = \"Functional.linear.*.output.*\"\nlimit = { rel_l2 = 1e-9 }\n");
    let row = limit.row("Functional.linear.0.forward", "output.0");
    assert_eq!(row.verdict, Verdict::Differs);
    assert!(row.reason.starts_with("beyond your limit: rel_l2 "), "{}", row.reason);
    assert_eq!(row.rule.as_deref(), Some("user rule \"Functional.linear.*.output.*\": limit rel_l2 <= 1e-9"));
    assert_eq!(limit.first().unwrap().0, GELU, "the inputs of the products explain them");

    let ignored = with_rules("[[rule]]\npattern = \"*.gelu.1.*\"\nignore = true\n");
    let row = ignored.row(GELU, "output.0");
    assert_eq!((row.verdict, &*row.reason), (Verdict::Unknown, "not judged: excluded by a user rule"));
    assert_ne!(ignored.first().unwrap().0, GELU);
}

#[test]
fn tolerance_files_reach_the_judge() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    fs::write(&path, "[[rule]]\npattern = \"*\"\nrel_l2 = 0.1\n").unwrap();
    let run = pair().arg("--tolerance").arg(&path).run();
    assert_eq!(run.code, 0, "{}", run.stdout);
}

fn tensor_files() -> Vec<(String, Value)> {
    let text = fs::read_to_string(testdata("tensor_files/expected.json")).unwrap();
    let files: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    assert!(files.len() > 70, "the files are there");
    files.into_iter().collect()
}

#[test]
fn every_tensor_file_agrees_with_itself_as_far_as_it_can_be_read() {
    for (name, expected) in tensor_files() {
        let path = testdata("tensor_files").join(&name);
        let summary = Answer::of(&path, &path).summary;
        let refused =
            expected["values"].as_array().unwrap().iter().filter(|value| value["error"].is_string()).count();
        assert_eq!(summary.incomplete.len(), refused, "{name}: {:?}", summary.incomplete);
        let expected = if refused == 0 { RunVerdict::Agree } else { RunVerdict::Incomplete };
        assert_eq!((summary.verdict, summary.culprits.len()), (expected, 0), "{name}");
    }
    for folder in ["tensor_files/sharded", "tensor_files/sharded/model.safetensors.index.json"] {
        let path = testdata(folder);
        assert_eq!(Answer::of(&path, &path).summary.verdict, RunVerdict::Agree, "{folder}");
    }
}

#[test]
fn a_checkpoint_agrees_with_itself_in_another_form() {
    let files = testdata("tensor_files");
    let saved = "pt_state_dict.pt";
    for other in ["pt_state_dict_protocol3.bin", "pt_state_dict_protocol4.bin", "pt_state_dict_protocol5.pt"]
    {
        let answer = Answer::of(&files.join(saved), &files.join(other));
        assert_eq!(answer.summary.verdict, RunVerdict::Agree, "{other}: {:?}", answer.first());
    }
}

/// A safetensors file of float32 vectors.
fn safetensors(path: &Path, tensors: &[(&str, &[f32])]) {
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, values) in tensors {
        let begin = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let entry = serde_json::json!({ "dtype": "F32", "shape": [values.len()], "data_offsets": [begin, data.len()] });
        header.insert((*name).to_owned(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    fs::write(path, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).unwrap();
}

#[test]
fn the_one_weight_in_which_two_checkpoints_differ_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let weight: Vec<f32> = (0..64_u8).map(|i| f32::from(i) / 7.0 - 4.0).collect();
    let mut nudged = weight.clone();
    nudged[17] += 0.25;
    for (name, middle) in [("a.safetensors", &weight), ("b.safetensors", &nudged)] {
        let tensors: [(&str, &[f32]); 3] =
            [("layers.0.weight", &weight), ("layers.1.weight", middle), ("layers.2.weight", &weight)];
        safetensors(&path(name), &tensors);
    }
    let answer = Answer::of(&path("a.safetensors"), &path("b.safetensors"));
    assert_eq!(answer.first(), Some(("layers.1.weight", "value", Cause::Input)));
    assert_eq!((answer.summary.culprits.len(), answer.summary.counts.verdict(Verdict::BitEqual)), (1, 2));
    assert_eq!(Compare::new(path("a.safetensors"), path("b.safetensors")).run().code, 1);
    // A tensor that one side lacks is no less a difference.
    safetensors(&path("short.safetensors"), &[("layers.0.weight", &weight), ("layers.1.weight", &weight)]);
    let answer = Answer::of(&path("a.safetensors"), &path("short.safetensors"));
    assert_eq!(answer.first(), Some(("layers.2.weight", "", Cause::Structure)));
}
