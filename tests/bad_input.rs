//! Input that is wrong, damaged or hostile: one line that names the file and the repair, no report where nothing was
//! compared, and the rest compared where there is a rest.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use support::command::Compare;
use support::dump_builder::{Dump, Op, Task, Tensor, op};
use support::testdata;
use tempfile::TempDir;

fn ops() -> Vec<Op> {
    let layer = |n: u32| {
        let (x, y) = (Tensor::wave(n, 8), Tensor::wave(n + 1, 8));
        op(&format!("Functional.linear.{n}.forward")).input(x).output(y)
    };
    (0..4).map(layer).collect()
}

/// A folder to spoil, with a sound dump `good` in it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.dump("good/step0/rank0", Task::Tensor);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn dump(&self, rank: &str, task: Task) {
        Dump::new(task, ops()).write(&self.path(rank));
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn folder(&self, name: &str) {
        fs::create_dir_all(self.path(name)).unwrap();
    }

    /// The sound dump against `candidate`.
    fn compare(&self, candidate: &str) -> Compare {
        Compare::new(self.path("good"), self.path(candidate))
    }

    /// Names of everything in it, to see that nothing was made.
    fn names(&self) -> Vec<PathBuf> {
        let mut names: Vec<_> =
            fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort_unstable();
        names
    }
}

/// A `dump.json` around the ops in `data`.
fn index(task: &str, data: &str) -> String {
    format!(
        r#"{{"task":"{task}","level":"L1","framework":"pytorch","dump_data_dir":null,"data":{{{data}}}}}"#
    )
}

fn leaf(shape: &str, more: &str) -> String {
    format!(
        r#"{{"type":"torch.Tensor","dtype":"torch.float32","shape":{shape},"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0,"requires_grad":false{more}}}"#
    )
}

fn one_op(output: &str) -> String {
    format!(r#""Functional.linear.0.forward":{{"input_args":[],"input_kwargs":{{}},"output":[{output}]}}"#)
}

#[test]
fn a_path_that_holds_no_dump_is_named_with_what_was_expected() {
    let place = Place::new();
    place.folder("empty");
    place.write("other/readme.txt", "hello");
    place.write("notes.txt", "hello");
    place.folder("steps/step0");
    place.folder("killed/step0/rank0");
    for (candidate, parts) in [
        ("missing", &["): No such file or directory"][..]),
        ("empty", &["empty: no dump here: the folder is empty", "expected a dump folder"]),
        ("other", &["other: no dump here", "readme.txt", "expected a dump folder"]),
        ("notes.txt", &["notes.txt: is no tensor file"]),
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
            index("tensor", &one_op("null")).replace("pytorch", "mindspore"),
            &["framework `mindspore` is not supported"],
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
        "breaks off",
        "the first 3 ops are compared, capture it again for the rest",
    ]);
    let json = run.json();
    assert_eq!(json["counts"]["ops_paired"], 3);
    assert_eq!(json["culprits"], json!([]), "what is missing was not left out by the run");
}

#[test]
fn tensors_without_readable_data_are_told_one_by_one_and_the_rest_is_compared() {
    let place = Place::new();
    let hostile = |name: &str| fs::read(testdata("hostile").join(name)).unwrap();
    let wrong_size = Tensor::wave(1, 9).npy();
    let file = "Functional.linear.2.forward.output.0.pt";
    let spoil: [(&str, Box<dyn Fn(&Path)>, &[&str]); 9] = [
        ("missing", Box::new(|path| fs::remove_file(path).unwrap()), &["No such file or directory"]),
        (
            "folder",
            Box::new(|path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            }),
            &["is a folder, a file is expected here"],
        ),
        ("empty", Box::new(|path| fs::write(path, "").unwrap()), &["is empty", "interrupted"]),
        (
            "cut",
            Box::new(|path| {
                let bytes = fs::read(path).unwrap();
                fs::write(path, &bytes[..bytes.len() - 4]).unwrap();
            }),
            &["needs 32 bytes of data, 28 are there"],
        ),
        (
            "other_size",
            Box::new(move |path| fs::write(path, &wrong_size).unwrap()),
            &["holds shape [9], the index says [8]"],
        ),
        (
            "code",
            Box::new(move |path| fs::write(path, hostile("pickle_os_system.pt")).unwrap()),
            &["os.system is not a tensor type", "nothing in this file was executed"],
        ),
        (
            "header",
            Box::new(move |path| fs::write(path, hostile("npy_header_4gib.npy")).unwrap()),
            &["header should be 4294967295 bytes long"],
        ),
        (
            "absurd",
            Box::new(move |path| fs::write(path, hostile("npy_absurd_shape.npy")).unwrap()),
            &["more elements than can be addressed"],
        ),
        ("bomb", Box::new(move |path| fs::write(path, hostile("npz_bomb_declared.npz")).unwrap()), &[file]),
    ];
    for (name, spoil, parts) in spoil {
        place.dump(&format!("{name}/step0/rank0"), Task::Tensor);
        let data = place.path(name).join("step0/rank0/dump_tensor_data");
        spoil(&data.join(file));
        let run = place.compare(name).run();
        run.incomplete(&[&["step 0 rank 0 Functional.linear.2.forward output.0", file], parts].concat());
        let json = run.json();
        assert_eq!(json["incomplete"].as_array().unwrap().len(), 1, "{name}");
        assert_eq!(json["counts"]["verdicts"]["bit-equal"], 7, "{name}: the others are compared");
        assert_eq!(json["counts"]["verdicts"]["unreadable"], 1, "{name}");
        assert_eq!(json["culprits"], json!([]), "{name}: what cannot be read accuses no op");
    }
}

#[test]
fn a_data_name_reaches_no_other_folder() {
    let place = Place::new();
    place.write("secret.pt", Tensor::wave(1, 2).npy());
    for (number, name) in ["../../../secret.pt", "..", "", "/etc/passwd", "a\\\\b"].into_iter().enumerate() {
        let candidate = format!("sly{number}");
        let data = leaf("[2]", &format!(r#","data_name":"{name}""#));
        place.write(&format!("{candidate}/step0/rank0/dump.json"), index("tensor", &one_op(&data)));
        place.folder(&format!("{candidate}/step0/rank0/dump_tensor_data"));
        let path = place.path(&candidate);
        let run = Compare::new(&path, &path).run();
        run.incomplete(&["is not a plain file name; the index is damaged or was tampered with"]);
    }
}

#[test]
fn absurd_shapes_of_an_index_ask_for_no_memory() {
    let place = Place::new();
    let huge = "[4611686018427387904, 4611686018427387904]";
    place.write("huge/dump.json", index("statistics", &one_op(&leaf(huge, ""))));
    place.write("huger/dump.json", index("statistics", &one_op(&leaf(huge, "").replace("1.0", "2.0"))));
    assert_eq!(Compare::new(place.path("huge"), place.path("huge")).run().code, 0);
    assert_eq!(Compare::new(place.path("huge"), place.path("huger")).run().code, 1);
}

/// Every hostile tensor file, given by itself and as a member of a folder of sound ones.
#[test]
fn hostile_tensor_files_end_in_one_line_or_one_entry() {
    let place = Place::new();
    let mut count = 0;
    for entry in fs::read_dir(testdata("hostile")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "py") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let run = Compare::new(&path, &path).run();
        match run.code {
            2 => run.failed(&[path.to_str().unwrap()]),
            // The header is sound, one tensor is not.
            3 => run.incomplete(&[name]),
            code => panic!("{name}: {code}"),
        }
        count += 1;
    }
    assert!(count > 80, "the files are there");
    let folder = place.path("mixed");
    place.folder("mixed");
    for name in ["st_overlap.safetensors", "zip_dotdot.npz", "pickle_os_system.pt", "npy_header_4gib.npy"] {
        fs::copy(testdata("hostile").join(name), folder.join(name)).unwrap();
    }
    fs::write(folder.join("sound.npy"), Tensor::wave(1, 8).npy()).unwrap();
    let before = place.names();
    let run = Compare::new(&folder, &folder).run();
    run.incomplete(&["st_overlap.safetensors", "inside the tensor before it"]);
    run.incomplete(&["zip_dotdot.npz", "points outside the archive", "nothing was written"]);
    run.incomplete(&["pickle_os_system.pt", "nothing in this file was executed"]);
    run.incomplete(&["npy_header_4gib.npy"]);
    assert_eq!(run.json()["counts"]["verdicts"]["bit-equal"], 1, "the sound one is compared");
    assert_eq!(place.names(), before, "nothing was written");
    assert!(!Path::new("executed").exists(), "pickle_os_system.pt would have made this file");
}

#[cfg(unix)]
#[test]
fn links_in_circles_and_files_that_are_none_end() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    symlink("itself", place.path("itself")).unwrap();
    place.folder("round");
    symlink("../round", place.path("round/step0")).unwrap();
    place.folder("deep/step0/rank0");
    symlink("dump.json", place.path("deep/step0/rank0/dump.json")).unwrap();
    symlink("/dev/zero", place.path("endless")).unwrap();
    for (candidate, parts) in [
        ("itself", "itself (given with --candidate): Too many levels of symbolic links"),
        ("round", "step0: a step folder without rank or proc folders"),
        ("deep", "rank0: no dump.json in it"),
        ("endless", "endless: neither a file nor a folder"),
    ] {
        place.compare(candidate).run().failed(&[parts]);
    }
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
        ("--format=html", "text, xlsx, parquet, json"),
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
        ("--step 9", &[good, "--step and --rank leave nothing of it", "steps [0]"][..]),
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

#[test]
fn names_that_steer_a_terminal_reach_it_as_text() {
    let place = Place::new();
    let evil = "Torch.\\u001b[31mred\\u0007\\n\\u202e\\u009b.0.forward";
    for (name, max) in [("calm", "1.0"), ("loud", "9.0")] {
        let output = leaf("[2]", "").replace("1.0", max);
        let block = format!(
            r#"{{"input_args":[{}],"input_kwargs":{{"\u001b]0;t":{}}},"output":[{output}]}}"#,
            leaf("[2]", ""),
            leaf("[2]", "")
        );
        let only = format!(r#""Torch.\u001b[2J{name}.0.forward":{block}"#);
        place.write(
            &format!("{name}/step0/rank0/dump.json"),
            index("statistics", &format!(r#""{evil}":{block},{only}"#)),
        );
    }
    let run = Compare::new(place.path("calm"), place.path("loud")).run();
    assert_eq!(run.code, 1, "{}", run.stderr);
    let report = fs::read_to_string(run.reports().join("report.txt")).unwrap();
    for text in [&run.stdout, &run.stderr, &report] {
        let steers = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!text.contains(steers), "{text:?}");
    }
    assert!(run.stdout.contains("Torch.\\x1b[31mred\\x07\\n\\u{202e}\\u{9b}.0.forward"), "{}", run.stdout);
}
