//! `config.junit.xml`: one test case per part, a failure if the part has a difference.

use crate::junit;
use crate::junit::{Suite, Test, TestResult};
use probe_config_check::{Outcome, PartOutcome, Verdict};

/// Returns the whole document.
pub(super) fn document(outcome: &Outcome) -> Result<Vec<u8>, String> {
    let class = "config-check".to_owned();
    let mut tests: Vec<Test> = outcome
        .parts
        .iter()
        .map(|part| Test {
            class: class.clone(),
            name: part.part.name().to_owned(),
            result: result(outcome, part),
        })
        .collect();
    if !outcome.incomplete.is_empty() {
        let lines: Vec<String> =
            outcome.incomplete.iter().map(|entry| format!("{}: {}", entry.place, entry.reason)).collect();
        let result =
            TestResult::Error { message: "not everything could be read".into(), text: lines.join("\n") };
        tests.push(Test { class, name: "reading".into(), result });
    }
    let name = format!("{} - {}", outcome.baseline.path, outcome.candidate.path);
    junit::document("probe config-check", outcome.seconds, &[Suite { name, properties: Vec::new(), tests }])
}

fn result(outcome: &Outcome, part: &PartOutcome) -> TestResult {
    let message = |verdict: Verdict| format!("{} {verdict}", part.count(verdict));
    match part.verdict {
        Verdict::Diff => failed(part, Verdict::Diff, message(Verdict::Diff)),
        Verdict::Unknown if outcome.strict => failed(part, Verdict::Unknown, message(Verdict::Unknown)),
        Verdict::Unknown => TestResult::Skipped { message: message(Verdict::Unknown) },
        Verdict::Match | Verdict::Expected | Verdict::Note => TestResult::Passed,
    }
}

/// Returns the failure of a part that did not pass, listing its rows with one verdict.
fn failed(part: &PartOutcome, verdict: Verdict, message: String) -> TestResult {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let lines: Vec<String> = part
        .rows
        .iter()
        .filter(|row| row.verdict == verdict)
        .map(|row| {
            let step = row.step.map_or_else(String::new, |step| format!("step {step} "));
            format!(
                "{step}{}: {} against {}: {}",
                row.key,
                side(&row.baseline),
                side(&row.candidate),
                row.reason
            )
        })
        .collect();
    TestResult::Failed { kind: verdict.name().to_owned(), message, text: lines.join("\n") }
}
