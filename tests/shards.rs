//! A comparison in shards on the command line, on dumps of msprobe: exit codes, what is printed, what is written.

use std::fs;

use crate::support::testdata;
use assert_cmd::Command;
use serde_json::Value;

fn probe(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_probe"))
        .args(args)
        .env("JOB_COMPLETION_INDEX", "1")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn shards_lead_to_the_reports_and_the_exit_code_of_one_process() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let case = testdata("faults/gpt_rank1_linear_L1_statistics");
    let side = |name: &str| case.join(name).to_str().unwrap().to_owned();
    let (b, c, run, plan) = (side("baseline"), side("candidate"), path("run"), path("run/plan.json"));
    let report = |folder: &str| {
        let text = fs::read_to_string(format!("{folder}/report.json")).unwrap();
        let mut report: Value = serde_json::from_str(&text).unwrap();
        report.as_object_mut().unwrap().remove("seconds");
        report
    };
    let (single, ..) = probe(&["compare", &b, &c, "-q", "-o", &path("single")]);
    assert_eq!(single, 1);

    let (code, said, _) = probe(&["plan", &b, &c, "-o", &run]);
    assert_eq!(code, 0);
    assert!(said.contains("2 parts of 2 ranks"), "{said}");
    let (code, _, said) = probe(&["merge", &run]);
    assert_eq!((code, said.contains("no shard of it is done")), (2, true), "{said}");
    let (code, said, _) = probe(&["compare", "--plan", &plan, "--shard", "1/2"]);
    assert_eq!(code, 0);
    assert!(said.starts_with("shard 1/2: done, 1 part,"), "{said}");
    let (code, said, _) = probe(&["merge", &run]);
    assert_eq!(code, 3);
    assert!(said.contains(&format!("probe compare --plan {plan} --shard 2/2")), "{said}");
    // The pod of an indexed job.
    let (code, ..) = probe(&["compare", "-q", "--plan", &plan, "--shard", "k8s/2"]);
    assert_eq!(code, 0);
    let (code, said, _) = probe(&["compare", "--plan", &plan, "--shard", "2/2"]);
    assert_eq!((code, said.contains("was already done")), (0, true), "{said}");
    a_changed_shard_is_to_be_run_again(&run);
    let (code, ..) = probe(&["merge", "-q", &run]);
    assert_eq!(code, single);
    assert_eq!(report(&run), report(&path("single")));
    let again = |folder: &str| fs::read_to_string(format!("{folder}/suspects.toml")).unwrap();
    assert_eq!(again(&run).replace(&run, ""), again(&path("single")).replace(&path("single"), ""));
    assert!(again(&run).contains("# at fault\n"));
    for (name, least) in [("result.xlsx", 20_000), ("result.html", 100_000)] {
        assert!(fs::metadata(format!("{run}/{name}")).unwrap().len() > least, "{name}");
    }
    replays_of_a_run_are_shown(&run);
}

fn a_changed_shard_is_to_be_run_again(run: &str) {
    let part = walk_to_part(run);
    let sound = fs::read(&part).unwrap();
    let mut changed = sound.clone();
    let digit = changed.iter().rposition(|byte| *byte == b':').unwrap() - 40;
    changed[digit] ^= 1;
    fs::write(&part, changed).unwrap();
    let (code, said, _) = probe(&["merge", run]);
    assert_eq!((code, said.contains(" --shard ")), (3, true), "{said}");
    fs::write(&part, sound).unwrap();
}

#[test]
fn shards_that_cannot_be_are_misuse() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let case = testdata("faults/gpt_rank1_linear_L1_statistics");
    let side = |name: &str| case.join(name).to_str().unwrap().to_owned();
    let (b, c, run, plan) = (side("baseline"), side("candidate"), path("run"), path("run/plan.json"));
    assert_eq!(probe(&["plan", &b, &c, "-o", &run]).0, 0);
    for args in [
        &["compare", "--plan", &plan, "--shard", "3/2"][..],
        &["compare", "--plan", &plan],
        &["compare", &b, &c, "--plan", &plan, "--shard", "1/2"],
        &["merge", &run, "--format", "parquet"],
        &["compare", &b, &c, "--ray", "local", "--format", "parquet"],
        &["compare", "--plan", &plan, "--shard", "1/2", "--ray", "local"],
        &["merge", &b],
        &["plan", &b, &c, "-o", &run, "--noise", &b],
        &["peers", &case.join("baseline/step0/rank0").to_string_lossy()],
    ] {
        assert_eq!(probe(args).0, 2, "{args:?}");
    }
}

#[test]
fn ranks_of_one_dump_of_msprobe_are_compared() {
    // Two replicas on data of their own.
    let b = testdata("faults/gpt_rank1_linear_L1_statistics/baseline").to_str().unwrap().to_owned();
    let (code, said, _) = probe(&["peers", &b]);
    assert!(said.contains("2 ranks, 1 step,"), "{code} {said}");
    let (_, said, _) = probe(&["peers", &b, "--format", "json"]);
    let found: Value = serde_json::from_str(&said).unwrap();
    let schema: Value = serde_json::from_str(include_str!("../schemas/peers.schema.json")).unwrap();
    jsonschema::validate(&schema, &found).unwrap();
    assert_eq!((&found["ranks"], &found["steps"][0]["step"]), (&serde_json::json!([0, 1]), &0.into()));
}

/// Returns the file of the first shard of a run.
fn walk_to_part(run: &str) -> std::path::PathBuf {
    let plan = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    plan.unwrap().join("2/1/part.json")
}

/// Checks that both `probe report` and another merge keep what `probe replay` found, and show it.
fn replays_of_a_run_are_shown(run: &str) {
    let page = || fs::metadata(format!("{run}/result.html")).unwrap().len();
    let before = page();
    let answer = "far from float64 ".repeat(1000);
    let replay = serde_json::json!({
        "step": 0, "rank": 1, "op": "x", "guilty": null, "answer": answer, "equal_to": null, "results": []
    });
    let replays = serde_json::json!({ "schema_version": 1, "replays": [replay] });
    fs::write(format!("{run}/replays.json"), replays.to_string()).unwrap();
    let (code, said, _) = probe(&["report", run]);
    assert_eq!(code, 0);
    assert_eq!(said, format!("written    {run}/result.xlsx\nwritten    {run}/result.html\n"));
    // The page is compressed.
    assert!(page() > before + 200, "{} after {before}", page());
    assert_eq!(probe(&["merge", "-q", run]).0, 1);
    assert!(page() > before + 200, "{} after {before}", page());
    let (code, _, said) = probe(&["report", run, "-o", "x.html"]);
    assert_eq!((code, said.contains("leave -o out")), (2, true), "{said}");
}

#[test]
fn a_shard_whose_dump_could_not_be_read_is_compared_again() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let case = testdata("faults/gpt_rank1_linear_L1_statistics");
    let (b, c) = (path("baseline"), path("candidate"));
    for (side, copy) in [("baseline", &b), ("candidate", &c)] {
        for rank in ["rank0", "rank1"] {
            let (from, to) = (case.join(side).join("step0").join(rank), format!("{copy}/step0/{rank}"));
            fs::create_dir_all(&to).unwrap();
            for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
                fs::copy(entry.path(), format!("{to}/{}", entry.file_name().display())).unwrap();
            }
        }
    }
    let (run, plan) = (path("run"), path("run/plan.json"));
    assert_eq!(probe(&["plan", "-q", &b, &c, "-o", &run]).0, 0);
    // A folder that this machine does not see: the shard fails, and is not taken for done.
    fs::rename(&c, path("away")).unwrap();
    let (code, _, said) = probe(&["compare", "--plan", &plan, "--shard", "1/1"]);
    assert!(code == 2 && said.contains(&c), "{code} {said}");
    assert_eq!(probe(&["merge", &run]).0, 2);
    fs::rename(path("away"), &c).unwrap();
    // A file that was not copied to its end.
    let file = format!("{c}/step0/rank1/dump.json");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let (code, _, said) = probe(&["compare", "--plan", &plan, "--shard", "1/1"]);
    assert!(code == 0 && said.contains("1 place could not be compared"), "{code} {said}");
    assert_eq!(probe(&["merge", &run]).0, 3);
    fs::write(&file, whole).unwrap();
    let (code, said, _) = probe(&["compare", "--plan", &plan, "--shard", "1/1"]);
    assert!(code == 0 && said.starts_with("shard 1/1: done, 2 parts"), "{said}");
    assert_eq!(probe(&["merge", &run]).0, 1);
}

/// Four ranks that add up what each makes of its own data; rank 2 of the candidate makes 5 % too much.
fn reduced(root: &str, candidate: bool) {
    use serde_json::json;

    let tensor = |size: f64| {
        json!({
            "type": "torch.Tensor", "dtype": "torch.float32", "shape": [64, 64], "requires_grad": false,
            "Max": size * 3.0, "Min": size * -3.0, "Mean": size * 0.01, "Norm": size * 64.0,
        })
    };
    for rank in 0..4 {
        let (wrong, sum) = match (candidate, rank) {
            (true, 2) => (1.05, 1.0125),
            (true, _) => (1.0, 1.0125),
            (false, _) => (1.0, 1.0),
        };
        let own = 1.0 + f64::from(rank) / 10.0;
        let op = |given: f64, made: f64| json!({ "input_args": [tensor(given)], "input_kwargs": {}, "output": [tensor(made)] });
        // In the order of execution, which a map of the library would not keep.
        let data = [
            ("Functional.exp.0.forward", op(own, own * 2.0 * wrong)),
            ("Distributed.all_reduce.0.forward", op(own * 2.0 * wrong, 9.0 * sum)),
            ("Functional.mul.0.forward", op(9.0 * sum, 18.0 * sum)),
        ];
        let data: Vec<String> = data.iter().map(|(name, op)| format!("\"{name}\": {op}")).collect();
        let folder = format!("{root}/step0/rank{rank}");
        fs::create_dir_all(&folder).unwrap();
        let dump = format!(
            r#"{{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": {{{}}}}}"#,
            data.join(", ")
        );
        fs::write(format!("{folder}/dump.json"), dump).unwrap();
    }
}

#[test]
fn an_error_that_a_collective_handed_on_is_named_where_it_was_born() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (b, c) = (path("b"), path("c"));
    reduced(&b, false);
    reduced(&c, true);
    let (code, said, _) = probe(&["compare", &b, &c, "-o", "-", "--format", "json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    let first = &report["first_divergence"];
    assert_eq!((code, &first["rank"], &first["op"]), (1, &2.into(), &"Functional.exp.0.forward".into()));
    assert_eq!(report["culprits"].as_array().unwrap().len(), 1, "{said}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("ranks 0-1, 3 have the error of rank 2's Functional.exp.0.forward, received through Distributed.all_reduce.0.forward"), "{notes}");
    // Alone, a rank that was handed it shows what it received.
    let (_, said, _) = probe(&["compare", &b, &c, "--rank", "0", "-q", "-o", &path("one")]);
    assert!(said.contains("rank 0, Distributed.all_reduce.0.forward"), "{said}");
}
