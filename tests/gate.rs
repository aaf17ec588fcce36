//! The commands of a gate, as a pipeline calls them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::support::testdata;
use serde_json::Value;

/// A folder of one test, in which commands run.
struct Place(tempfile::TempDir);

struct Ran {
    code: i32,
    said: String,
    error: String,
}

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn probe(&self, line: &str) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_probe"))
            .args(line.split_ascii_whitespace().map(|word| word.replace('+', " ")))
            .current_dir(self.0.path())
            .env_remove("GITHUB_STEP_SUMMARY")
            .env("GITHUB_SHA", "0123456789abcdef0123456789abcdef01234567")
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap(), said: text(output.stdout), error: text(output.stderr) }
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }
}

fn losses(change: impl Fn(u32) -> f64) -> String {
    (0..10).fold(String::new(), |text, step| {
        text + &format!("{step} {}\n", 8.0 / f64::from(step + 1) * (1.0 + change(step)))
    })
}

#[test]
fn three_lines_of_a_pipeline() {
    let place = Place::new();
    place.write("losses.txt", &losses(|_| 0.0));
    place.write("worse.txt", &losses(|step| if step == 7 { 1e-6 } else { 0.0 }));
    let imported = place.probe("baseline import losses.txt -o a.probe.json");
    assert_eq!((imported.code, &*imported.error), (0, ""), "{}", imported.said);
    assert!(imported.said.starts_with("a.probe.json: 1 scalar, 10 values\n"));
    let passed = place.probe("gate --baseline a.probe.json --candidate losses.txt -o out");
    assert_eq!(passed.code, 0, "{}{}", passed.said, passed.error);
    assert!(passed.said.starts_with("pass: 10 cases\n"), "{}", passed.said);
    let failed = place.probe("gate --baseline a.probe.json --candidate worse.txt -o out");
    assert_eq!(failed.code, 1);
    let report = place.json("out/gate.json");
    assert_eq!((&report["state"], &report["exit_code"]), (&"regression".into(), &1.into()));
    assert_eq!((&report["culprits"][0]["name"], &report["culprits"][0]["step"]), (&"loss".into(), &7.into()));
    assert_eq!(report["commit"], "0123456789abcdef0123456789abcdef01234567");
    assert!(report["environment"].is_object());
    for name in [
        "gate.html",
        "junit.xml",
        "gate.sarif",
        "gate.md",
        "gate.txt",
        "events.jsonl",
        "gl-code-quality-report.json",
    ] {
        assert!(place.path("out").join(name).is_file(), "{name}");
    }
    // A scalar has no place in the sources.
    let sarif = place.json("out/gate.sarif");
    assert_eq!(sarif["runs"][0]["results"], Value::Array(Vec::new()));
    assert_eq!(sarif["runs"][0]["invocations"][0]["exitCode"], 1);
    // The same bytes for the same content.
    let first = fs::read(place.path("a.probe.json")).unwrap();
    place.probe("baseline import losses.txt -o a.probe.json");
    assert_eq!(fs::read(place.path("a.probe.json")).unwrap(), first);
}

#[test]
fn misuse_is_code_2_and_leaves_nothing() {
    let place = Place::new();
    place.write("losses.txt", &losses(|_| 0.0));
    place.write("typo.toml", "version = 1\n[[scalar]]\nname = \"los\"\nexact = true\n");
    place.write("broken.probe.json", "{\"format\": \"probe baseline\"");
    for (line, expected) in [
        ("gate --baseline none --candidate losses.txt -o out", "none (the baseline): "),
        ("gate --candidate losses.txt -o out", "no baseline: give --baseline"),
        (
            "gate --baseline broken.probe.json --candidate losses.txt -o out",
            "broken.probe.json: is not a baseline of probe",
        ),
        (
            "gate --baseline losses.txt --candidate losses.txt --policy typo.toml -o out",
            "typo.toml: [[scalar]] name = \"los\" matches no scalar",
        ),
        ("baseline import broken.probe.json -o x.probe.json", "error: broken.probe.json: "),
        ("baseline save losses.txt -o x.probe.json", "--reason"),
    ] {
        let ran = place.probe(line);
        assert_eq!(ran.code, 2, "{line}: {}", ran.said);
        assert!(ran.error.contains(expected), "{line}: {}", ran.error);
    }
    assert!(!place.path("out").exists() && !place.path("x.probe.json").exists());
}

#[test]
fn a_baseline_is_refreshed_with_a_reason_and_says_what_moved() {
    let place = Place::new();
    place.write("old.txt", &losses(|_| 0.0));
    place.write("new.txt", &losses(|step| if step > 4 { 0.01 } else { 0.0 }));
    place.write("nan.txt", "0 8.0\n1 nan\n");
    assert_eq!(place.probe("baseline save old.txt -o a.probe.json --reason first").code, 0);
    let again = place.probe("baseline save old.txt -o a.probe.json --reason first");
    assert!(again.code == 2 && again.error.contains("already exists"), "{}", again.error);
    let before = fs::read(place.path("a.probe.json")).unwrap();
    for line in [
        "baseline update a.probe.json new.txt",
        "baseline update a.probe.json new.txt --accept",
        "baseline update a.probe.json new.txt --reason x",
    ] {
        let refused = place.probe(line);
        assert!(
            refused.code == 2 && refused.said.starts_with("5 values differ, 5 equal"),
            "{line}: {}",
            refused.said
        );
    }
    assert_eq!(fs::read(place.path("a.probe.json")).unwrap(), before);
    assert_eq!(
        place.probe("baseline update a.probe.json new.txt --accept --reason new+kernel --by me").code,
        0
    );
    let shown = place.probe("baseline show a.probe.json").said;
    assert!(shown.contains("update by me") && shown.contains("new kernel"), "{shown}");
    assert!(shown.contains("loss (step 5, and 4 more)") && shown.contains(" became "), "{shown}");
    assert_eq!(place.probe("baseline diff a.probe.json new.txt").code, 0);
    assert_eq!(place.probe("baseline diff old.txt new.txt").code, 1);
    let nan = place.probe("baseline save nan.txt -o b.probe.json --reason x");
    assert!(nan.code == 2 && nan.error.contains("loss step 1: NaN"), "{}", nan.error);
    assert_eq!(
        place.probe("baseline save nan.txt -o b.probe.json --reason x --allow-nonfinite known").code,
        0
    );
    // Recorded, and still nothing that passes.
    assert_eq!(place.probe("gate --baseline b.probe.json --candidate nan.txt -o out -q").code, 1);
}

#[test]
fn bounds_come_from_runs_and_are_tried() {
    let place = Place::new();
    for (name, size) in [("a.txt", 0.0), ("b.txt", 1e-4), ("c.txt", -1e-4)] {
        place.write(name, &losses(|step| if step % 2 == 0 { size } else { -size }));
    }
    let made = place.probe("baseline calibrate a.txt b.txt c.txt -o policy.toml");
    assert_eq!(made.code, 0, "{}{}", made.said, made.error);
    assert!(
        made.said.contains("run 3 against run 1: pass") && made.said.contains("at one step: regression"),
        "{}",
        made.said
    );
    let policy = fs::read_to_string(place.path("policy.toml")).unwrap();
    assert!(policy.contains("# 3 runs, 10 steps, largest spread 2.000e-4"), "{policy}");
    assert_eq!(place.probe("gate --baseline a.txt --candidate b.txt --policy policy.toml -o out -q").code, 0);
    assert_eq!(place.probe("baseline calibrate a.txt b.txt -o other.toml").code, 2);
    assert_eq!(place.probe("gate --policy policy.toml --explain-policy-diff policy.toml").code, 0);
    fs::write(place.path("wider.toml"), policy.replace("bias = ", "bias = 1")).unwrap();
    let wider = place.probe("gate --policy wider.toml --explain-policy-diff policy.toml");
    assert!(wider.code == 1 && wider.said.contains("scalar \"loss\" bias"), "{}", wider.said);
}

/// A dump of probe as a test of the repository has it.
fn dump(name: &str) -> String {
    testdata(name).display().to_string()
}

#[test]
fn dumps_become_baselines_that_name_the_module() {
    let place = Place::new();
    let saved = place.probe(&format!("baseline save {} -o a.probe.json --reason first", dump("gpu_dump")));
    assert_eq!(saved.code, 0, "{}{}", saved.said, saved.error);
    let same = place.probe(&format!("gate --baseline a.probe.json --candidate {} -o out", dump("gpu_dump")));
    assert_eq!(same.code, 0, "{}{}", same.said, same.error);
    let failed =
        place.probe(&format!("gate --baseline a.probe.json --candidate {} -o out", dump("npu_dump")));
    assert_eq!(failed.code, 1, "{}{}", failed.said, failed.error);
    let report = place.json("out/gate.json");
    let culprit = report["culprits"][0]["name"].as_str().unwrap();
    assert!(culprit.starts_with("Module.layers.1.mlp"), "{}", failed.said);
    assert_eq!(report["culprits"][0]["kind"], "module");
    // The baseline has no stacks; the candidate's dump says where the module is called.
    let source = report["culprits"][0]["source"].as_str().unwrap_or_default();
    assert!(source.contains("/train/train.py:"), "{report:#}");
    // A baseline may be the candidate as well.
    assert_eq!(place.probe("gate --baseline a.probe.json --candidate a.probe.json -o out -q").code, 0);
    let half = place.probe("gate --baseline a.probe.json --candidate losses.txt -o out -q");
    assert_eq!(half.code, 2);
    place.write("losses.txt", &losses(|_| 0.0));
    assert_eq!(place.probe("gate --baseline a.probe.json --candidate losses.txt -o out -q").code, 3);
}

#[test]
fn the_summary_of_a_job_is_appended_to() {
    let place = Place::new();
    place.write("losses.txt", &losses(|_| 0.0));
    place.write("summary.md", "before\n");
    let done = Command::new(env!("CARGO_BIN_EXE_probe"))
        .args(["gate", "-b", "losses.txt", "-c", "losses.txt", "-q", "-o", "out"])
        .current_dir(place.0.path())
        .env("GITHUB_STEP_SUMMARY", place.path("summary.md"))
        .status()
        .unwrap();
    assert!(done.success());
    let text = fs::read_to_string(place.path("summary.md")).unwrap();
    assert!(text.starts_with("before\n### pass: 10 cases\n"), "{text}");
}

#[test]
fn a_history_names_the_commit_of_a_jump() {
    let place = Place::new();
    for run in 0..12 {
        place.write("losses.txt", &losses(|_| if run < 8 { 0.0 } else { 1e-5 }));
        if run == 0 {
            place.write("base.txt", &losses(|_| 0.0));
        }
        place.probe(&format!("gate -b base.txt -c losses.txt --commit {run:040} --history gates -o out -q"));
    }
    let told = place.probe("history gates --svg plot.svg");
    assert_eq!(told.code, 1, "{}", told.error);
    assert!(told.said.contains("jump: loss by 1.000e-5 in run 8"), "{}", told.said);
    let plot = fs::read_to_string(place.path("plot.svg")).unwrap();
    assert!(plot.starts_with("<svg ") && plot.ends_with("</svg>\n") && plot.matches("<circle").count() == 12);
}

/// How long it takes is a benchmark's affair; that the output stays small is not.
#[test]
fn five_thousand_values_make_small_reports() {
    let place = Place::new();
    let table = |change: f64| {
        let mut text = String::from("step,a,b,c,d,e\n");
        for step in 0..1000 {
            let value = 2.0 + f64::from(step) / 1000.0 + if step == 900 { change } else { 0.0 };
            let row = format!("{step},{value},{value},{value},{value},{value}\n");
            text.push_str(&row);
        }
        text
    };
    place.write("a.csv", &table(0.0));
    place.write("b.csv", &table(1e-3));
    let started = Instant::now();
    let failed = place.probe("gate -b a.csv -c b.csv -o out");
    println!("gate of 5,000 values: {:.3} s", started.elapsed().as_secs_f64());
    assert_eq!(failed.code, 1, "{}", failed.error);
    assert!(failed.said.lines().count() <= 24, "{}", failed.said);
    let size = |name: &str| fs::metadata(place.path("out").join(name)).unwrap().len();
    assert!(size("junit.xml") < 1_500_000 && size("gate.json") < 20_000 && size("gate.md") < 8_000);
    assert!(Path::new(&place.path("out")).is_dir());
}

#[test]
fn bounds_of_values_come_from_dumps() {
    let place = Place::new();
    let (gpu, npu) = (dump("gpu_dump"), dump("npu_dump"));
    // The same run three times: everything is equal to the bit.
    let made = place.probe(&format!("baseline calibrate {gpu} {gpu} {gpu} -o exact.toml"));
    assert_eq!(made.code, 0, "{}{}", made.said, made.error);
    let policy = fs::read_to_string(place.path("exact.toml")).unwrap();
    assert!(policy.contains("[[value]]\npattern = \"*\"\nexact = true  # 3 runs bit-equal in "), "{policy}");
    let gate = |policy: &str, baseline: &str| {
        place.probe(&format!("gate --policy {policy} -b {baseline} -c {gpu} -o out -q")).code
    };
    assert_eq!((gate("exact.toml", &gpu), gate("exact.toml", &npu)), (0, 1));
    // Runs that differ by 1 %: that much, twice, is let pass, kind by kind.
    let made = place.probe(&format!("baseline calibrate {gpu} {npu} {gpu} -o wide.toml"));
    assert_eq!(made.code, 0, "{}{}", made.said, made.error);
    let policy = fs::read_to_string(place.path("wide.toml")).unwrap();
    assert!(policy.contains("pattern = \"Module.*.") && policy.contains("rel_l2 = "), "{policy}");
    for bound in policy.lines().filter_map(|line| line.strip_prefix("rel_l2 = ")) {
        let digits = bound.split(['e', ' ']).next().unwrap();
        assert!(digits.len() <= 4, "{bound}");
    }
    assert_eq!((gate("wide.toml", &gpu), gate("wide.toml", &npu)), (0, 0));
    let alone = place.probe(&format!("baseline calibrate {gpu} {gpu} -o few.toml"));
    assert!(alone.code == 2 && alone.error.contains("3 or more runs"), "{}", alone.error);
}

#[test]
fn a_gate_that_has_nothing_to_narrow_with_says_so() {
    let place = Place::new();
    place.write("a.txt", &losses(|_| 0.0));
    for (line, expected) in [
        ("gate -b a.txt -c a.txt --narrow -o out", "--candidate-cmd"),
        ("gate -b a.txt -c a.txt --candidate-cmd true -o out", "--narrow"),
        ("gate -b a.txt -c a.txt --narrow --candidate-cmd true -o out", "nothing to compare the ops with"),
    ] {
        let ran = place.probe(line);
        assert!(ran.code == 2 && ran.error.contains(expected), "{line}: {}", ran.error);
    }
    // A failure on the way does not cost the answer.
    place.write("b.txt", &losses(|_| 1e-3));
    let failed =
        place.probe("gate -b a.txt -c b.txt --narrow --candidate-cmd false --baseline-cmd false -o out");
    assert_eq!(failed.code, 1, "{}", failed.error);
    assert!(
        failed.said.starts_with("regression: loss") && failed.said.contains("not narrowed down: "),
        "{}",
        failed.said
    );
}
