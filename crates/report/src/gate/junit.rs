//! Cases as `JUnit` XML: a suite per step and rank, a case per module or scalar.

use std::collections::BTreeMap;

use crate::junit;
use crate::junit::{Suite, Test, TestResult};
use probe_gate::environment::fingerprint;
use probe_gate::{Case, GateOutcome, Kind, State, Status};
use probe_judge::Incomplete;

/// Returns the whole document.
pub(super) fn document(outcome: &GateOutcome) -> Result<Vec<u8>, String> {
    let flaky = outcome.state == State::Flaky;
    let environment = &outcome.environment;
    let properties: Vec<(String, String)> = [
        ("state", outcome.state.name().to_owned()),
        ("mode", outcome.mode.name().to_owned()),
        ("environment", fingerprint(&environment.candidate)),
    ]
    .into_iter()
    .chain(outcome.candidate.commit.iter().map(|commit| ("commit", commit.clone())))
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    // Statements about all steps sort last.
    let mut suites: BTreeMap<(u64, u32, bool), Suite> = BTreeMap::new();
    for case in &outcome.cases {
        let key = (case.step.unwrap_or(u64::MAX), case.rank.unwrap_or(0), case.rank.is_some());
        let suite = suites.entry(key).or_insert_with(|| Suite {
            name: case.place(),
            properties: properties.clone(),
            tests: Vec::new(),
        });
        suite.tests.push(test(case, flaky));
    }
    let mut suites: Vec<Suite> = suites.into_values().collect();
    // The whole environment is written only once, since there may be thousands of suites.
    if let Some(first) = suites.first_mut() {
        let settings = environment.candidate.iter();
        first.properties.extend(settings.map(|(name, value)| (format!("environment.{name}"), value.clone())));
    }
    if !outcome.unverified.is_empty() {
        let tests = outcome.unverified.iter().map(unread).collect();
        suites.push(Suite { name: "unverified".into(), properties, tests });
    }
    junit::document("probe gate", outcome.seconds, &suites)
}

/// Returns a test for something that could not be read.
pub(crate) fn unread(entry: &Incomplete) -> Test {
    Test {
        class: "unverified".into(),
        name: entry.place.clone(),
        result: TestResult::Error {
            message: entry.reason.clone(),
            text: format!("{}: {}", entry.place, entry.reason),
        },
    }
}

/// Returns the test for a case. `flaky` is true if the same run has passed before.
pub(crate) fn test(case: &Case, flaky: bool) -> Test {
    let class = match case.kind {
        Kind::Scalar => "scalar",
        Kind::Module => "module",
        Kind::Op => "op",
    };
    let text = case.evidence.join("\n");
    let message = case.message.clone();
    let result = match case.status {
        Status::Passed => TestResult::Passed,
        Status::Failed if flaky => TestResult::Flaky { message, text },
        Status::Failed => {
            let kind = message.split(':').next().filter(|kind| !kind.contains(' ')).unwrap_or("bound");
            TestResult::Failed { kind: kind.to_owned(), message, text }
        }
        Status::Follows | Status::Waived | Status::Unverified => TestResult::Skipped { message },
    };
    Test { class: class.to_owned(), name: case.name.clone(), result }
}
