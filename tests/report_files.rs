//! `report.json`: valid under its published schema for every outcome, and complete enough to act on without a dump at hand.

use std::fs;

use crate::support::command::{Compare, Run};
use crate::support::testdata;
use jsonschema::Validator;
use serde_json::{Value, json};

fn schema() -> Validator {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/report.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

/// A comparison that agrees, one that diverged, and one that is incomplete.
fn outcomes() -> [(&'static str, i32, Run); 3] {
    let run = |b: &str, c: &str| Compare::new(testdata(b), testdata(c)).run();
    [
        ("agree", 0, run("gpu_dump", "gpu_dump")),
        ("diverged", 1, run("gpu_dump", "npu_dump")),
        ("incomplete", 3, run("edge/baseline", "edge/candidate")),
    ]
}

#[test]
fn the_report_is_valid_for_every_outcome() {
    let schema = schema();
    for (verdict, code, run) in outcomes() {
        let json = run.json();
        assert_eq!((json["verdict"].as_str(), run.code), (Some(verdict), code));
        let errors: Vec<String> =
            schema.iter_errors(&json).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{verdict}: {errors:#?}");
    }
}

#[test]
fn the_schema_refuses_what_is_no_report() {
    let schema = schema();
    let [(.., run), ..] = outcomes();
    for spoil in [
        |json: &mut Value| json["verdict"] = "fine".into(),
        |json: &mut Value| json["counts"]["parts"] = (-1).into(),
        |json: &mut Value| _ = json.as_object_mut().unwrap().remove("incomplete"),
        |json: &mut Value| json["surprise"] = 1.into(),
    ] {
        let mut json = run.json();
        spoil(&mut json);
        assert!(!schema.is_valid(&json), "{json:#}");
    }
}

#[test]
fn the_first_divergence_holds_what_its_repair_needs() {
    let run = Compare::new(testdata("gpu_dump"), testdata("npu_dump")).run();
    let json = run.json();
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["tool"]["name"], "probe");
    let first = &json["first_divergence"];
    assert_eq!(&json["culprits"][0], first);
    let expected = json!({
        "step": 0, "rank": 0, "op": "Functional.gelu.1.forward", "slot": "output.0", "cause": "numerics",
        "role": "introduces", "estimated": false, "module": "layers.1.mlp",
    });
    for (key, expected) in expected.as_object().unwrap() {
        assert_eq!(&first[key], expected, "{key}");
    }
    let error = first["metrics"]["rel_l2"].as_f64().unwrap();
    assert!((6.0e-4..7.0e-4).contains(&error), "{error}");
    assert!(first["metrics"]["cosine"].as_f64().unwrap() > 0.999_999);
    assert!(first["reason"].as_str().unwrap().contains("rel_l2 6.5e-4"));
    let source = first["source"].as_str().unwrap();
    let (file, line) = source.rsplit_once(':').unwrap();
    assert!(file.ends_with("train.py") && line.parse::<u32>().is_ok(), "{source}");
    let stack = first["stack"].as_array().unwrap();
    assert!(stack[0].as_str().unwrap().contains(&format!("line {line}")), "{stack:?}");
}

#[test]
fn tallies_add_up() {
    for (verdict, _, run) in outcomes() {
        let json = run.json();
        let counts = &json["counts"];
        let sum =
            |tally: &Value| tally.as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum(&counts["verdicts"]), counts["slots"].as_u64().unwrap(), "{verdict}");
        let ops = ["ops_paired", "ops_baseline_only", "ops_candidate_only"];
        let ops: u64 = ops.iter().map(|key| counts[*key].as_u64().unwrap()).sum();
        assert_eq!(sum(&counts["roles"]), ops, "{verdict}");
        let incomplete = json["incomplete"].as_array().unwrap().len() as u64;
        assert_eq!(counts["verdicts"]["unreadable"].as_u64(), Some(incomplete), "{verdict}");
        assert_eq!(
            json["first_divergence"].is_null(),
            json["culprits"].as_array().unwrap().is_empty(),
            "{verdict}"
        );
    }
}

#[test]
fn both_runs_are_described() {
    let [.., (_, _, run)] = outcomes();
    let json = run.json();
    for side in ["baseline", "candidate"] {
        let described = &json[side];
        assert_eq!(described["path"], testdata("edge").join(side).to_str().unwrap());
        assert_eq!(described["format"], "msprobe dump");
        assert_eq!((&described["task"], &described["level"]), (&"tensor".into(), &"L1".into()));
        assert_eq!((&described["steps"], &described["ranks"]), (&json!([0]), &json!([0])));
        assert_eq!(described["ops"], 73);
    }
}

#[test]
fn numbers_that_json_has_no_form_for_are_words() {
    let run = Compare::new(testdata("edge/baseline"), testdata("edge/candidate")).run();
    let culprits = run.json()["culprits"].as_array().unwrap().clone();
    let rel_l2 = |case: &str| {
        let found = culprits.iter().find(|culprit| culprit["op"] == format!("Torch.{case}.0.forward"));
        found.unwrap()["metrics"]["rel_l2"].clone()
    };
    assert_eq!(rel_l2("zeros_baseline"), "Infinity");
    assert_eq!(rel_l2("scalar_nan"), Value::Null);
    assert_eq!(rel_l2("zeros_candidate"), 1.0);
}
