//! Checks `report.json` against its committed schema.

use serde_json::Value;

use super::fixture::{everything, full_summary, summary};
use crate::json::JsonReport;
use crate::{ReportWriter, model};
use probe_judge::{RunVerdict, Summary};

const SCHEMA: &str = include_str!("../../../../schemas/report.schema.json");

fn written(summary: &Summary) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let writer = Box::new(JsonReport::create(&folder.path().join("report.json")).unwrap());
    let path = writer.finish(summary).unwrap().place().unwrap();
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn check(report: &Value) {
    let schema = serde_json::from_str(SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(report).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn a_full_report_follows_the_schema() {
    let part = everything();
    let report = written(&full_summary(&part));
    check(&report);
    assert_eq!(report["schema_version"], model::SCHEMA_VERSION);
    assert_eq!(report["verdict"], "diverged");
    assert_eq!(report["first_divergence"], report["culprits"][0]);
    assert_eq!(report["first_divergence"]["op"], "Functional.gelu.1.forward");
    assert_eq!(report["first_divergence"]["metrics"]["rel_l2"], 0.01);
    assert_eq!(report["first_divergence"]["metrics"]["max_rel_err"], "Infinity");
    let born = report["culprits"].as_array().unwrap().iter().find(|c| c["cause"] == "non-finite").unwrap();
    assert_eq!(born["metrics"]["rel_l2"], "NaN");
    assert_eq!(born["metrics"]["cosine"], Value::Null);
    assert_eq!(report["incomplete"].as_array().unwrap().len(), 7);
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), report["culprits"].as_array().unwrap().len());
    assert_eq!(faults[1]["culprit"], 1);
    assert_eq!(
        (&faults[1]["steps"], &faults[1]["ranks"]),
        (&serde_json::json!([0]), &serde_json::json!([0]))
    );
    let place = &report["first_divergence"]["place"];
    assert_eq!(
        (&place["largest"]["index"], &place["largest"]["candidate"]),
        (&serde_json::json!([0, 3, 1]), &serde_json::json!(1.53))
    );
    assert_eq!(place["region"], serde_json::json!([[0, 4], [3, 4], [0, 16]]));
    assert_eq!(report["counts"]["verdicts"]["missing"], 4);
    assert_eq!(report["counts"]["roles"]["unpaired"], 2);
}

#[test]
fn an_empty_report_follows_the_schema() {
    for verdict in [RunVerdict::Agree, RunVerdict::Incomplete] {
        let report = written(&Summary { verdict, ..summary(&[]) });
        check(&report);
        assert_eq!(report["first_divergence"], Value::Null);
        assert_eq!(report["culprits"], Value::Array(vec![]));
    }
}

#[test]
fn the_schema_refuses_what_a_report_never_says() {
    let schema = serde_json::from_str(SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = written(&summary(&[&everything()]));
    for (pointer, wrong) in [
        ("/verdict", Value::from("fine")),
        ("/first_divergence/cause", Value::from("magic")),
        ("/first_divergence/metrics/cosine", Value::from("one")),
        ("/counts/roles", Value::from(3)),
    ] {
        let mut report = good.clone();
        *report.pointer_mut(pointer).unwrap() = wrong;
        assert!(!validator.is_valid(&report), "{pointer}");
    }
}

#[cfg(feature = "schema")]
#[test]
fn the_committed_schema_is_the_generated_one() {
    assert_eq!(SCHEMA, model::report_schema(), "run `cargo run --features schema --bin generate-schemas`");
}

#[cfg(feature = "schema")]
#[test]
fn the_committed_types_of_the_page_are_the_generated_ones() {
    let committed = include_str!("../../../../web/src/report.ts");
    assert_eq!(committed, crate::page_types(), "run `cargo run --features schema --bin generate-schemas`");
}
