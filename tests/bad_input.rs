//! Input and options that are wrong: one line that names the file and the repair, no report where nothing was compared, and
//! the rest compared where there is a rest.

use std::fs;

use crate::support::command::Compare;
use crate::support::dump_builder::{Dump, Op, Task, Tensor, op};
use crate::support::place::{Place, index, leaf, one_op};
#[cfg(unix)]
use crate::support::testdata;
use serde_json::json;

#[test]
fn a_path_that_holds_no_dump_is_named_with_what_was_expected() {
    let place = Place::new();
    place.folder("empty");
    place.write("other/readme.txt", "hello");
    place.write("notes.txt", "hello");
    place.folder("steps/step0");
    place.folder("killed/step0/rank0");
    for (candidate, parts) in [
        ("missing", &["missing (the ", "): No such file or directory"][..]),
        ("empty", &["empty: no dump here: the folder is empty", "expected a dump folder"]),
        ("other", &["other: no dump here", "readme.txt", "expected a dump folder"]),
        ("notes.txt", &["notes.txt: is not a tensor file"]),
        ("steps", &["step0: a step folder without rank or proc folders"]),
        ("killed", &["rank0: no dump.json in it", "capture this step again"]),
    ] {
        place.compare(candidate).run().failed(parts);
        Compare::new(place.path(candidate), place.path("good")).run().failed(parts);
    }
}

#[test]
fn an_index_that_is_none_is_named_with_the_repair() {
    let place = Place::new();
    let deep = format!(r#"{{"data":{{"A.a.0.forward":{{"output":{}"#, "[".repeat(100_000));
    let cases = [
        ("empty_file", String::new(), &["not a complete JSON index", "capture it again"][..]),
        ("text", "hello".into(), &["not a complete JSON index: expected value at line 1 column 1"]),
        ("list", "[1, 2]".into(), &["expected a map with the keys task, level and data"]),
        ("other_json", r#"{"a": 1}"#.into(), &["has no key `data`"]),
        ("deep", deep, &["recursion limit exceeded"]),
        ("no_ops", r#"{"data":{}}"#.into(), &["holds no op", "capture it again"]),
        ("structure", index("structure", ""), &["holds no op"]),
        ("task", index("grad", &one_op(&leaf("[2]", ""))), &["task `grad` holds nothing to compare"]),
        (
            "framework",
            index("tensor", &one_op("null")).replace("pytorch", "jax"),
            &["framework `jax` is not supported"],
        ),
    ];
    for (name, text, parts) in cases {
        place.write(&format!("{name}/step0/rank0/dump.json"), text);
        let path = place.path(name);
        let run = Compare::new(&path, &path).run();
        run.failed(&[&[path.to_str().unwrap()], parts].concat());
    }
}

#[test]
fn a_damaged_index_is_named_beside_steps_that_one_side_lacks() {
    let place = Place::new();
    place.dump("baseline/step0/rank0", Task::Tensor);
    place.dump("baseline/step2/rank0", Task::Tensor);
    place.dump("candidate/step0/rank0", Task::Tensor);
    let damaged = place.path("candidate/step0/rank0/dump.json");
    fs::write(&damaged, "{").unwrap();
    Compare::new(place.path("baseline"), place.path("candidate")).run().failed(&[
        "step 2 rank 0: only the baseline has it",
        damaged.to_str().unwrap(),
        "not a complete JSON index",
    ]);
}

#[test]
fn values_that_nobody_recorded_do_not_make_two_runs_agree() {
    let place = Place::new();
    place.write("blind/dump.json", index("statistics", &one_op("{}")));
    let path = place.path("blind");
    Compare::new(&path, &path).run().failed(&["nothing was compared: the ops present on both sides (1)"]);
}

#[test]
fn a_dump_that_breaks_off_is_compared_as_far_as_it_goes() {
    let place = Place::new();
    place.dump("broken/step0/rank0", Task::Tensor);
    let path = place.path("broken/step0/rank0/dump.json");
    let whole = fs::read_to_string(&path).unwrap();
    let cut = whole.find("Functional.linear.3").unwrap();
    fs::write(&path, &whole[..cut]).unwrap();
    let run = place.compare("broken").run();
    run.incomplete(&[
        "step 0 rank 0",
        "ends early",
        "the first 3 ops are compared, capture it again for the rest",
    ]);
    let json = run.json();
    assert_eq!(json["counts"]["ops_paired"], 3);
    assert_eq!(json["culprits"], json!([]), "what is missing was not left out by the run");
}

#[test]
fn dumps_of_different_tasks_are_compared_only_when_asked_for() {
    let place = Place::new();
    place.dump("other/step0/rank0", Task::Statistics);
    place.compare("other").run().failed(&[
        "step 0 rank 0: the baseline recorded task tensor, the candidate task statistics",
        "--any-task",
    ]);
    let run = place.compare("other").arg("--any-task").run();
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert_eq!(run.json()["counts"]["verdicts"]["close"], 8);
}

#[test]
fn dumps_of_different_levels_are_compared_only_when_asked_for() {
    let place = Place::new();
    let wave = |seed| Tensor::wave(seed, 8);
    let layer = |n: u32| op(&format!("Aten.addmm.{n}.forward")).input(wave(n)).output(wave(n + 1));
    let gradient = op("Module.fc.Linear.parameters_grad.0").gradient("weight", wave(7));
    let dump = |name: &str, level: &str, ops: Vec<Op>| {
        Dump::new(Task::Tensor, ops).write(&place.path(name));
        let index = place.path(name).join("dump.json");
        let text = fs::read_to_string(&index).unwrap();
        fs::write(index, text.replace(r#""level":"mix""#, &format!(r#""level":"{level}""#))).unwrap();
    };
    let calls =
        || (0..3).map(|n| layer(n).renamed(&format!("Functional.linear.{n}.forward"))).collect::<Vec<_>>();
    dump("mix/step0/rank0", "mix", [calls(), vec![gradient.clone()]].concat());
    dump("op/step0/rank0", "op", [(0..3).map(layer).collect(), vec![gradient]].concat());
    dump("api/step0/rank0", "L1", calls());
    let compare = |b: &str, c: &str| Compare::new(place.path(b), place.path(c));
    compare("op", "mix")
        .run()
        .failed(&["step 0 rank 0: the baseline recorded level op, the candidate level mix", "--any-level"]);
    let run = compare("op", "mix").arg("--any-level").run();
    assert_eq!((run.code, run.json()["counts"]["ops_paired"].as_u64()), (0, Some(1)), "{}", run.stdout);
    assert!(run.stdout.contains("left out: 3 calls of functions, 3 dispatcher ops"), "{}", run.stdout);
    compare("op", "api").arg("--any-level").run().failed(&["levels op and L1 have no kind of op in common"]);
    compare("api", "mix").run().failed(&["level L1", "level mix"]);
    let run = compare("api", "mix").args("--level api").run();
    assert_eq!((run.code, run.json()["counts"]["ops_paired"].as_u64()), (0, Some(3)), "{}", run.stdout);
}

#[test]
fn a_place_that_cannot_be_written_is_told_before_any_work() {
    let place = Place::new();
    place.write("taken", "a file");
    place.folder("full/report.json");
    // The candidate has no index: who reads before it creates the reports would complain of that.
    place.folder("killed/step0/rank0");
    for (output, part) in [("taken", "taken"), ("taken/below", "taken/below"), ("full", "full/report.json")] {
        let output = place.path(output);
        let run = place.compare("killed").run_into(tempfile::tempdir().unwrap(), &output);
        run.failed(&["cannot write", part]);
        assert!(run.stderr.matches("(os error").count() <= 1, "said once: {}", run.stderr);
    }
    assert_eq!(fs::read_to_string(place.path("taken")).unwrap(), "a file");
    assert_eq!(fs::read_dir(place.path("full")).unwrap().count(), 1, "no draft is left");
}

/// A limit on the size of files stands for a full disk: both refuse a write somewhere in the middle.
#[cfg(unix)]
#[test]
fn a_disk_that_fills_up_is_told_in_one_line_and_leaves_nothing() {
    let packs = [testdata("packs/base.zip"), testdata("packs/weight_nudge_1e-3.zip")];
    let dumps = [testdata("gpu_dump"), testdata("npu_dump")];
    // Limits in blocks of 512 bytes or a KiB, as the shell counts.
    let cases = [
        (vec!["config-check"], &packs, "xlsx", [2, 8, 12, 16, 20, 24, 1 << 14]),
        (vec!["compare", "-b", "-c"], &dumps, "xlsx", [2, 16, 40, 64, 96, 128, 1 << 14]),
        (vec!["compare", "-b", "-c"], &dumps, "parquet", [2, 16, 40, 64, 96, 128, 1 << 14]),
    ];
    for (words, inputs, format, limits) in cases {
        let mut refused = 0;
        for limit in limits {
            let folder = tempfile::tempdir().unwrap();
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "ulimit -f $0; exec \"$@\"", &limit.to_string()]);
            command.args([env!("CARGO_BIN_EXE_probe"), words[0]]);
            for (place, input) in inputs.iter().enumerate() {
                command.args(words.get(place + 1)).arg(input);
            }
            command.arg("-o").arg(folder.path()).args(["--format", format]);
            let run = command.output().unwrap();
            let errors = String::from_utf8(run.stderr).unwrap();
            let left = fs::read_dir(folder.path()).unwrap().count();
            let case = format!("{words:?} {format} {limit}: {errors}");
            if run.status.code() == Some(1) {
                assert_eq!((&*errors, left), ("", 1), "{case}");
                continue;
            }
            refused += 1;
            assert_eq!((run.status.code(), left), (Some(2), 0), "{case}");
            assert!(
                errors.starts_with("error: cannot write ") && errors.contains("File too large"),
                "{case}"
            );
            assert_eq!(errors.lines().count(), 1, "{case}");
        }
        assert!(
            (1..limits.len()).contains(&refused),
            "{words:?} {format}: {refused} of the limits were too low"
        );
    }
}

#[test]
fn folders_made_for_reports_that_never_came_are_removed_and_others_stay() {
    let place = Place::new();
    place.folder("empty");
    place.folder("mine");
    for (output, stays) in [("new/deep/report", "new"), ("mine/report", "mine/report")] {
        let output = place.path(output);
        place
            .compare("empty")
            .run_into(tempfile::tempdir().unwrap(), &output)
            .failed(&["the folder is empty"]);
        assert!(!place.path(stays).exists(), "{stays}");
    }
    assert!(place.path("mine").exists());
}

#[test]
fn mistakes_in_a_tolerance_file_are_told_with_their_line_or_rule() {
    let place = Place::new();
    place.folder("folder.toml");
    for (name, text, part) in [
        ("field.toml", "[[rule]]\npattern = \"*\"\nrel_12 = 1.0\n", "line 3: unknown field `rel_12`"),
        ("table.toml", "[[rules]]\npattern = \"*\"\nrel_l2 = 1.0\n", "line 1: unknown field `rules`"),
        ("bound.toml", "[[rule]]\npattern = \"*\"\n", "rule 1: has no bound"),
        (
            "limit.toml",
            "[[rule]]\npattern = \"*\"\nlimit = { rel_12 = 1.0 }\n",
            "rule 1: limit has an unknown metric `rel_12`",
        ),
        ("sign.toml", "[[rule]]\npattern = \"*\"\nrel_l2 = -1.0\n", "rule 1: rel_l2 = -1 is not a bound"),
        ("glob.toml", "[[rule]]\npattern = \"a[\"\nrel_l2 = 1.0\n", "rule 1: pattern \"a[\""),
        ("toml.toml", "pattern", "line 1: "),
    ] {
        place.write(name, text);
        place.compare("good").arg("--tolerance").arg(place.path(name)).run().failed(&[name, part]);
    }
    for (name, part) in [("none.toml", "No such file"), ("folder.toml", "s a directory")] {
        let run = place.compare("good").arg("--tolerance").arg(place.path(name)).run();
        run.failed(&[name, part]);
        assert_eq!(run.stderr.matches("(os error").count(), 1, "{}", run.stderr);
    }
}

#[test]
fn words_that_are_no_choice_are_told_with_the_choices() {
    let place = Place::new();
    for (args, part) in [
        ("--level layer", "module, api, op, all"),
        ("--format=pdf", "text, xlsx, parquet, json, html"),
        ("--step 3-", "`3-` is neither a number nor a range such as 10-12"),
        ("--rank x", "`x` is neither a number"),
        ("--threads 0", "'--threads <THREADS>'"),
        ("--quiet --verbose", "cannot be used with"),
        ("--nonsense", "--nonsense"),
    ] {
        let run = place.compare("good").args(args).run();
        assert_eq!((run.code, &*run.stdout), (2, ""), "{args}");
        assert!(run.stderr.starts_with("error: ") && run.stderr.contains(part), "{args}: {}", run.stderr);
        assert!(!run.reports().exists(), "{args}");
    }
    let alone = Compare::with_args(["-b".into(), place.path("good").into_os_string()]).run();
    assert_eq!(alone.code, 2);
    assert!(alone.stderr.contains("--candidate <CANDIDATE>"), "{}", alone.stderr);
}

#[test]
fn a_selection_that_leaves_nothing_is_told_with_what_there_is() {
    let place = Place::new();
    let good = place.path("good");
    let good = good.to_str().unwrap();
    for (args, parts) in [
        ("--step 9", &[good, "--step and --rank select nothing", "steps [0]"][..]),
        ("--rank 1-7", &[good, "ranks [0]"]),
        ("--level op", &[good, "holds no op of --level op; try --level all"]),
    ] {
        place.compare("good").args(args).run().failed(parts);
    }
}

#[test]
fn runs_of_other_models_share_no_name() {
    let place = Place::new();
    Dump::new(Task::Tensor, vec![op("Torch.other.0.forward").output(Tensor::wave(1, 8))])
        .write(&place.path("other/step0/rank0"));
    place.compare("other").run().failed(&["share no name", "good", "other"]);
}

#[test]
fn several_processes_in_one_step_need_a_choice() {
    let place = Place::new();
    place.dump("twice/step0/proc11", Task::Tensor);
    place.dump("twice/step0/proc12", Task::Tensor);
    let parts = &["candidate step 0 rank 0", "proc11, proc12", "give the path of one of them"];
    place.compare("twice").run().failed(parts);
    Compare::new(place.path("twice"), place.path("good"))
        .run()
        .failed(&["baseline step 0", "proc11, proc12"]);
    assert_eq!(place.compare("twice/step0/proc12").run().code, 0, "the path of one of them");
    // Beside another step the choice is no failure of the whole.
    place.dump("good/step1/rank0", Task::Tensor);
    place.dump("twice/step1/rank0", Task::Tensor);
    let run = place.compare("twice").run();
    run.incomplete(parts);
    assert_eq!(run.json()["incomplete"].as_array().unwrap().len(), 1, "said once");
}

#[test]
fn a_dump_may_be_given_at_any_depth_and_under_any_process_name() {
    let place = Place::new();
    place.dump("process/step0/proc4711", Task::Tensor);
    place.dump("other_process/step0/proc12", Task::Tensor);
    for (b, c) in [
        ("good", "good/step0"),
        ("good/step0", "good/step0/rank0"),
        ("good/step0/rank0", "good/step0/rank0/dump.json"),
        ("process", "good"),
        ("process", "other_process"),
        ("process/step0/proc4711/dump.json", "good"),
    ] {
        let run = Compare::new(place.path(b), place.path(c)).run();
        assert_eq!(run.code, 0, "{b} against {c}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.json()["counts"]["verdicts"]["bit-equal"], 8, "{b} against {c}");
    }
}

#[test]
fn steps_that_one_side_lacks_leave_the_others_compared() {
    let place = Place::new();
    for step in 0..12 {
        place.dump(&format!("long/step{step}/rank0"), Task::Statistics);
    }
    place.dump("short/step3/rank0", Task::Statistics);
    place.dump("short/step11/rank0", Task::Statistics);
    let run = Compare::new(place.path("long"), place.path("short")).run();
    run.incomplete(&["step 10 rank 0", "only the baseline has it"]);
    let json = run.json();
    assert_eq!((&json["counts"]["parts"], json["incomplete"].as_array().unwrap().len()), (&json!(2), 10));
    let chosen = Compare::new(place.path("long"), place.path("short")).args("--step 3,10-11").run();
    assert_eq!(chosen.json()["incomplete"].as_array().unwrap().len(), 1);
    assert_eq!(Compare::new(place.path("long"), place.path("short")).args("--step 3").run().code, 0);
}
