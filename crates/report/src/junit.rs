//! `JUnit` XML for every command that reports cases.
//!
//! Suites, cases and results in the form that Jenkins, GitLab and GitHub Actions read; written by `quick-junit`.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestRerun, TestSuite};

use super::visible::{lines, visible};

/// A group of cases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Suite {
    /// Its name.
    pub(crate) name: String,
    /// Names and values of properties shared by all cases.
    pub(crate) properties: Vec<(String, String)>,
    /// The cases.
    pub(crate) tests: Vec<Test>,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    /// Class the case belongs to.
    pub(crate) class: String,
    /// Its name.
    pub(crate) name: String,
    /// Result of the case.
    pub(crate) result: TestResult,
}

/// Result of a case. Messages are one line; texts may have several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TestResult {
    /// The case passed.
    Passed,
    /// The case failed.
    Failed { kind: String, message: String, text: String },
    /// The case could not be evaluated.
    Error { message: String, text: String },
    /// The case was not judged on its own.
    Skipped { message: String },
    /// The case both passed and failed under the same conditions.
    Flaky { message: String, text: String },
}

/// Returns the whole document. `seconds` is the wall time of the work.
pub(crate) fn document(name: &str, seconds: f64, suites: &[Suite]) -> Result<Vec<u8>, String> {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let mut report = Report::new(name);
    report.set_time(time);
    for suite in suites {
        let mut out = TestSuite::new(&*visible(&suite.name));
        for (name, value) in &suite.properties {
            out.add_property(Property::new(&*visible(name), &*visible(value)));
        }
        out.add_test_cases(suite.tests.iter().map(case));
        report.add_test_suite(out);
    }
    let mut bytes = Vec::new();
    report.serialize(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn case(test: &Test) -> TestCase {
    let mut out = TestCase::new(&*visible(&test.name), status(&test.result));
    out.set_classname(&*visible(&test.class));
    out
}

fn status(result: &TestResult) -> TestCaseStatus {
    let with = |kind: NonSuccessKind, message: &str, text: &str| {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_message(&*visible(message)).set_description(lines(text));
        status
    };
    match result {
        TestResult::Passed => TestCaseStatus::success(),
        TestResult::Failed { kind, message, text } => {
            let mut status = with(NonSuccessKind::Failure, message, text);
            status.set_type(&*visible(kind));
            status
        }
        TestResult::Error { message, text } => with(NonSuccessKind::Error, message, text),
        TestResult::Skipped { message } => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(&*visible(message));
            status
        }
        TestResult::Flaky { message, text } => {
            // JUnit's representation of a flaky test: a success with a failed rerun.
            let mut rerun = TestRerun::new(NonSuccessKind::Failure);
            rerun.set_message(&*visible(message)).set_description(lines(text));
            let mut status = TestCaseStatus::success();
            status.add_rerun(rerun);
            status
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(result: TestResult) -> Suite {
        Suite {
            name: "step 0 rank 0".into(),
            properties: vec![("torch".into(), "2.7.1".into())],
            tests: vec![Test { class: "gate".into(), name: "Module.a<\"&>.forward.0\u{1b}".into(), result }],
        }
    }

    #[test]
    fn what_is_written_is_read_back_by_a_strict_reader() {
        let text = "why  a < b & c\nsource  x.py:3".to_owned();
        let failed = TestResult::Failed {
            kind: "numerics".into(),
            message: "it's \"off\"".into(),
            text: text.clone(),
        };
        let flaky = TestResult::Flaky { message: "once".into(), text };
        let bytes =
            document("probe gate", 0.5, &[suite(TestResult::Passed), suite(failed), suite(flaky)]).unwrap();
        let back = Report::deserialize(&*bytes).unwrap();
        assert_eq!((back.tests, back.failures, back.errors), (3, 1, 0));
        assert_eq!(back.test_suites.len(), 3);
        let TestCaseStatus::NonSuccess { message, description, .. } =
            &back.test_suites[1].test_cases[0].status
        else {
            panic!("{back:?}")
        };
        assert_eq!(message.as_ref().unwrap().as_str(), "it's \"off\"");
        assert_eq!(description.as_ref().unwrap().as_str(), "why  a < b & c\nsource  x.py:3");
        assert!(String::from_utf8(bytes).unwrap().contains("flakyFailure"));
        assert_eq!(back.test_suites[0].test_cases[0].name.as_str(), "Module.a<\"&>.forward.0\\x1b");
    }
}
