//! Every report of a gate, checked against the public schema of its format or with a strict parser.

use std::path::Path;

use quick_junit::Report;
use serde_json::{Value, json};

use super::*;
use probe_compare::Quiet;
use probe_gate::{GateOptions, GateOutcome, Policy, State, baseline, gate, import};

fn outcome(baseline: &str, candidate: &str) -> GateOutcome {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let options = GateOptions {
        baseline: vec![data.join(baseline)],
        candidate: vec![data.join(candidate)],
        commit: Some("0".repeat(40)),
        ..GateOptions::default()
    };
    gate(&Policy::default(), &options, &Quiet).unwrap()
}

fn failed() -> GateOutcome {
    outcome("gpu_dump", "npu_dump")
}

fn content(format: GateFormat, outcome: &GateOutcome) -> String {
    String::from_utf8(format.content(outcome, Some(Path::new("/home/user/train")), None).unwrap()).unwrap()
}

#[test]
fn junit_has_a_suite_a_step_and_rank_and_fails_what_is_at_fault() {
    let report = Report::deserialize_from_str(&content(GateFormat::Junit, &failed())).unwrap();
    assert_eq!(report.failures, 1, "one fault, whatever follows it");
    let suite = &report.test_suites[0];
    assert_eq!(suite.name.as_str(), "step 0 rank 0");
    let fault = suite
        .test_cases
        .iter()
        .find(|case| matches!(case.status, quick_junit::TestCaseStatus::NonSuccess { .. }))
        .unwrap();
    assert_eq!(fault.name.as_str(), "Functional.gelu.1.forward");
    let quick_junit::TestCaseStatus::NonSuccess { description, .. } = &fault.status else { unreachable!() };
    let text = description.as_ref().unwrap().as_str();
    assert!(text.lines().count() <= 5 && text.contains("train.py:54"), "{text}");
    let passed =
        Report::deserialize_from_str(&content(GateFormat::Junit, &outcome("gpu_dump", "gpu_dump"))).unwrap();
    assert_eq!((passed.failures, passed.errors), (0, 0));
    assert!(passed.tests > 10);
}

#[test]
fn sarif_follows_its_schema_and_names_ops_by_relative_paths() {
    let log: Value = serde_json::from_str(&content(GateFormat::Sarif, &failed())).unwrap();
    let schema: Value =
        serde_json::from_str(include_str!("../../../../testdata/schemas/sarif-2.1.0.schema.json")).unwrap();
    jsonschema::validate(&schema, &log).unwrap();
    let result = &log["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "numerics");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place, &json!({"artifactLocation": {"uri": "train.py"}, "region": {"startLine": 54}}));
    let print = |outcome: &GateOutcome| {
        let log: Value = serde_json::from_str(&content(GateFormat::Sarif, outcome)).unwrap();
        log["runs"][0]["results"][0]["partialFingerprints"].clone()
    };
    // Neither the line nor the number is part of the fingerprint.
    let mut moved = failed();
    moved.culprits[0].source = Some("/home/user/train/other.py:1".into());
    moved.culprits[0].reason = "rel_l2 1.0".into();
    assert_eq!(print(&failed()), print(&moved));
    moved.culprits[0].slot = "output.1".into();
    assert_ne!(print(&failed()), print(&moved));
    let clean: Value =
        serde_json::from_str(&content(GateFormat::Sarif, &outcome("gpu_dump", "gpu_dump"))).unwrap();
    assert_eq!(clean["runs"][0]["results"], json!([]));
}

/// The form that GitLab documents for `gl-code-quality-report.json`.
#[test]
fn code_quality_follows_the_form_of_gitlab() {
    let schema = json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["description", "check_name", "fingerprint", "severity", "location"],
            "additionalProperties": false,
            "properties": {
                "description": { "type": "string", "minLength": 1 },
                "check_name": { "type": "string", "minLength": 1 },
                "fingerprint": { "type": "string", "pattern": "^[0-9a-f]{32}$" },
                "severity": { "enum": ["info", "minor", "major", "critical", "blocker"] },
                "location": {
                    "type": "object",
                    "required": ["path", "lines"],
                    "additionalProperties": false,
                    "properties": {
                        "path": { "type": "string", "pattern": "^[^./]" },
                        "lines": {
                            "type": "object",
                            "required": ["begin"],
                            "additionalProperties": false,
                            "properties": { "begin": { "type": "integer", "minimum": 1 } },
                        },
                    },
                },
            },
        },
    });
    let report: Value = serde_json::from_str(&content(GateFormat::CodeQuality, &failed())).unwrap();
    jsonschema::validate(&schema, &report).unwrap();
    assert_eq!(report[0]["location"], json!({"path": "train.py", "lines": {"begin": 54}}));
}

#[test]
fn json_follows_its_schema_and_events_are_a_line_each() {
    let schema: Value = serde_json::from_str(include_str!("../../../../schemas/gate.schema.json")).unwrap();
    for outcome in [failed(), outcome("gpu_dump", "gpu_dump")] {
        let report: Value = serde_json::from_str(&content(GateFormat::Json, &outcome)).unwrap();
        jsonschema::validate(&schema, &report).unwrap();
        assert_eq!(report["state"], outcome.state.name());
        let events = content(GateFormat::Events, &outcome);
        let kinds: Vec<String> = events
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!((&*kinds[0], &**kinds.last().unwrap()), ("started", "finished"));
        assert_eq!(kinds.iter().filter(|kind| *kind == "culprit").count(), outcome.culprits.len());
    }
}

#[test]
fn what_a_failing_gate_says_fits_one_screen() {
    let options = GateTextOptions { width: 80, ..GateTextOptions::default() };
    let text = render(&failed(), &options);
    assert!(text.lines().count() <= 24, "{text}");
    for expected in
        ["regression: Functional.gelu.1.forward output.0", "train.py:54", "rel_l2 6.5e-4", "probe compare"]
    {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let page = content(GateFormat::Markdown, &failed());
    assert!(page.lines().count() <= 40 && page.starts_with("### regression"), "{page}");
}

/// Returns the JSON embedded in a page.
fn page_data(page: &str) -> Value {
    use std::io::Read as _;

    use base64::Engine as _;

    let (_, rest) = page.rsplit_once("data-name=\"head\">").unwrap();
    let (text, _) = rest.split_once("</script>").unwrap();
    let packed = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
    serde_json::from_slice::<Value>(&bytes).unwrap()["data"].take()
}

#[test]
fn the_page_holds_the_history_with_this_gate_as_its_last_run() {
    use probe_gate::history::{Entry, append};
    use probe_gate::past::{Past, table_name};

    let folder = tempfile::tempdir().unwrap();
    let keep = |outcome: &GateOutcome, time: u64| {
        let entry = Entry { time, ..Entry::of(outcome) };
        append(folder.path(), &entry).unwrap();
        let modules = folder.path().join("modules");
        std::fs::create_dir_all(&modules).unwrap();
        crate::history::modules(&modules.join(format!("{}-1.parquet", table_name(&entry))), outcome).unwrap();
    };
    let passed = outcome("gpu_dump", "gpu_dump");
    keep(&passed, 1);
    keep(&passed, 2);
    let failed = failed();
    let past = Past::of(folder.path(), Entry::of(&failed), &failed);
    assert_eq!((past.entries.len(), past.modules.len(), past.faults.len()), (3, 3, 0));
    let content = GateFormat::Html.content(&failed, None, Some(&past)).unwrap();
    let data = page_data(&String::from_utf8(content).unwrap());
    assert_eq!(data["gate"]["state"], "regression");
    let history = &data["history"];
    assert_eq!(history["runs"].as_array().unwrap().len(), 3);
    // Failures of the last run come first: here the op, which the earlier runs do not have as a case of its own.
    let first = &history["modules"][0];
    assert_eq!(
        (&first["name"], &first["statuses"]),
        (&json!("Functional.gelu.1.forward"), &json!([null, null, "failed"]))
    );
    let module = history["modules"]
        .as_array()
        .unwrap()
        .iter()
        .find(|module| module["name"] == "Module.layers.1.mlp.MLP.forward.0");
    assert_eq!(module.unwrap()["statuses"], json!(["passed", "passed", "follows"]));
    // A damaged history is reported, but does not withhold a result.
    std::fs::write(folder.path().join("history.jsonl"), "{\n").unwrap();
    let past = Past::of(folder.path(), Entry::of(&failed), &failed);
    assert_eq!((past.entries.len(), past.faults.len()), (1, 1));
    let content = GateFormat::Html.content(&failed, None, Some(&past)).unwrap();
    let data = page_data(&String::from_utf8(content).unwrap());
    assert!(data["history"]["faults"][0].as_str().unwrap().contains("history.jsonl"));
    // Without a history the page says so and shows everything else.
    let content = GateFormat::Html.content(&failed, None, None).unwrap();
    let data = page_data(&String::from_utf8(content).unwrap());
    assert_eq!((&data["history"], &data["cases"][0]["status"]), (&Value::Null, &json!("failed")));
}

#[test]
fn flaky_takes_the_same_commit_baseline_and_environment() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, loss: f64| {
        let path = folder.path().join(name);
        let made = baseline::Baseline {
            environment: [("torch".to_owned(), "2.7.1".to_owned())].into(),
            scalars: [("loss".to_owned(), import::Series::from([(0, loss)]))].into(),
            ..baseline::Baseline::default()
        };
        made.write(&path).unwrap();
        path
    };
    let (golden, good, bad) =
        (write("a.probe.json", 1.0), write("b.probe.json", 1.0), write("c.probe.json", 2.0));
    let result = |candidate: &Path, commit: &str, evidence: &[std::path::PathBuf]| {
        let options = GateOptions {
            baseline: vec![golden.clone()],
            candidate: vec![candidate.into()],
            commit: Some(commit.into()),
            evidence: evidence.to_vec(),
            ..GateOptions::default()
        };
        gate(&Policy::default(), &options, &Quiet).unwrap()
    };
    let earlier = result(&good, "abc", &[]);
    let report = folder.path().join("gate.json");
    std::fs::write(&report, model::json(&earlier).unwrap()).unwrap();
    let outcome = result(&bad, "abc", std::slice::from_ref(&report));
    assert_eq!((outcome.state, outcome.exit_code()), (State::Flaky, 1));
    assert_eq!(outcome.evidence.len(), 1);
    let other = result(&bad, "def", std::slice::from_ref(&report));
    assert_eq!(other.state, State::Regression);
    assert!(other.notes.iter().any(|note| note.contains("another commit")), "{:?}", other.notes);
    assert_eq!(result(&good, "abc", &[report]).state, State::Pass);
}
