//! Cases as `JUnit` has them: a suite for each step and rank, a case for each module or scalar.

use std::collections::BTreeMap;

use crate::gate::{Case, GateOutcome, Kind, State, Status};
use crate::report::junit::{self, Suite, Test, TestResult};

/// The whole document.
pub(super) fn document(outcome: &GateOutcome) -> Result<Vec<u8>, String> {
    let flaky = outcome.state == State::Flaky;
    let environment = &outcome.environment;
    let properties: Vec<(String, String)> = [("state", outcome.state.name()), ("mode", outcome.mode.name())]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .chain(outcome.candidate.commit.iter().map(|commit| ("commit".to_owned(), commit.clone())))
        .chain(
            environment.candidate.iter().map(|(name, value)| (format!("environment.{name}"), value.clone())),
        )
        .collect();
    // Statements about all steps come last.
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
    if !outcome.unverified.is_empty() {
        let tests = outcome.unverified.iter().map(|entry| Test {
            class: "unverified".into(),
            name: entry.place.clone(),
            result: TestResult::Error {
                message: entry.reason.clone(),
                text: format!("{}: {}", entry.place, entry.reason),
            },
        });
        suites.push(Suite { name: "unverified".into(), properties, tests: tests.collect() });
    }
    junit::document("probe gate", outcome.seconds, &suites)
}

/// A case as a test. `flaky`: the same run has passed before.
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
