//! Pairs of real training runs, most with a fault injected into one op: the fault is named, and nothing else is.
//!
//! `testdata/faults/cases.toml` holds the right answer of each pair; `testdata/make` made them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use probe::compare::{CompareOptions, Quiet, compare};
use probe::judge::{RunVerdict, Summary};
use serde::Deserialize;

#[derive(Deserialize)]
struct Cases {
    case: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    baseline: PathBuf,
    candidate: PathBuf,
    verdict: String,
    step: Option<u64>,
    rank: Option<u32>,
    #[serde(default)]
    ops: Vec<String>,
    #[serde(default)]
    causes: Vec<String>,
    #[serde(default)]
    notes: Vec<String>,
    what: String,
}

fn summary(baseline: &Path, candidate: &Path) -> Summary {
    compare(baseline, candidate, &CompareOptions::default(), &Quiet, &mut |_| Ok(()))
        .unwrap_or_else(|error| panic!("{}: {error}", candidate.display()))
}

/// Returns what is wrong with the answer for one case; empty when it is right.
fn complaint(case: &Case, summary: &Summary) -> String {
    let mut wrong = String::new();
    let first = summary.first_divergence.as_ref();
    if summary.verdict.name() != case.verdict {
        _ = write!(wrong, "verdict {}; ", summary.verdict);
    }
    if case.verdict == "diverged" {
        match first {
            None => wrong.push_str("no op named; "),
            Some(found) => {
                if !case.ops.is_empty() && !case.ops.contains(&found.op) {
                    _ = write!(wrong, "op {}; ", found.op);
                }
                if !case.causes.is_empty() && !case.causes.iter().any(|cause| cause == found.cause.name()) {
                    _ = write!(wrong, "cause {}; ", found.cause);
                }
                if case.step.is_some_and(|step| step != found.step)
                    || case.rank.is_some_and(|rank| rank != found.rank)
                {
                    _ = write!(wrong, "step {} rank {}; ", found.step, found.rank);
                }
            }
        }
    }
    for word in &case.notes {
        let said = summary.notes.iter().any(|note| note.to_lowercase().contains(&word.to_lowercase()));
        if !said {
            _ = write!(wrong, "no note on {word:?} in {:?}; ", summary.notes);
        }
    }
    if !wrong.is_empty() {
        let shown = first.map(|f| {
            format!(
                "step {} rank {} {} {} - {} {}: {}",
                f.step, f.rank, f.op, f.slot, f.role, f.cause, f.reason
            )
        });
        wrong.push_str(&shown.unwrap_or_default());
    }
    wrong
}

/// The pairs that have the data of their tensors, as probe's own capture would have written them.
#[test]
fn faults_are_named_in_sketches_of_the_same_runs() {
    use probe::capture::CaptureTask;

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/faults");
    let text = std::fs::read_to_string(folder.join("cases.toml")).unwrap();
    let cases: Cases = toml::from_str(&text).unwrap();
    let mut failures = String::new();
    let mut count = 0;
    for case in cases.case.iter().filter(|case| case.name.ends_with("_tensor")) {
        count += 1;
        let place = tempfile::tempdir().unwrap();
        for task in [CaptureTask::Sketch, CaptureTask::Tensor] {
            let sides = [(&case.baseline, "baseline"), (&case.candidate, "candidate")].map(|(from, name)| {
                let to = place.path().join(format!("{name}-{task:?}"));
                crate::support::native::convert(&folder.join(from), &to, task);
                to
            });
            let [baseline, candidate] = &sides;
            for (words, b, c) in [
                ("", baseline, candidate),
                ("the other way round", candidate, baseline),
                ("against the older tool's", baseline, &folder.join(&case.candidate)),
            ] {
                // Across tools gradients of functions are not compared, and of a sketch beside data only statistics are:
                // bounds from these do not reach above the rounding of bf16.
                let gradient = case.ops.iter().any(|op| op.contains(".backward"));
                let rounded = task == CaptureTask::Sketch && case.name.contains("bf16");
                if words.contains("older") && (gradient || rounded) {
                    continue;
                }
                let wrong = complaint(case, &summary(b, c));
                if !wrong.is_empty() {
                    writeln!(failures, "{} {task:?} {words}\n    {wrong}", case.name).unwrap();
                }
            }
            let verdict = summary(baseline, baseline).verdict;
            if verdict != RunVerdict::Agree {
                writeln!(failures, "{} {task:?}: not equal to itself\n    {verdict}", case.name).unwrap();
            }
        }
    }
    assert!(count > 10, "pairs with data are there");
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn faults_are_named_and_clean_pairs_are_silent() {
    let folder = std::env::var_os("PROBE_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/faults"), PathBuf::from);
    let text = std::fs::read_to_string(folder.join("cases.toml")).unwrap();
    let cases: Cases = toml::from_str(&text).unwrap();
    assert!(cases.case.len() > 50, "the corpus is there");
    let mut failures = String::new();
    for case in &cases.case {
        let found = summary(&folder.join(&case.baseline), &folder.join(&case.candidate));
        let wrong = complaint(case, &found);
        if !wrong.is_empty() {
            writeln!(
                failures,
                "{} ({}; expected {:?} {:?})\n    {wrong}",
                case.name, case.what, case.ops, case.causes
            )
            .unwrap();
        }
        let reversed = complaint(case, &summary(&folder.join(&case.candidate), &folder.join(&case.baseline)));
        if !reversed.is_empty() {
            writeln!(failures, "{}: the other way round\n    {reversed}", case.name).unwrap();
        }
        for side in [&case.baseline, &case.candidate] {
            let path = folder.join(side);
            let verdict = summary(&path, &path).verdict;
            if verdict != RunVerdict::Agree {
                writeln!(failures, "{}: not equal to itself\n    {}", case.name, verdict).unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "{} cases:\n{failures}", failures.lines().count() / 2);
}
