//! Writes `config.junit.xml`: a test case for each part, a failure where it has a difference.
//!
//! The form is the one that CI systems agree on. Written here: a few elements do not call for an XML library.

use std::fmt::Write as _;

use crate::config_check::{Outcome, PartOutcome, Verdict};
use crate::report::visible::visible;

/// The whole document.
pub(super) fn document(outcome: &Outcome) -> String {
    let failed = |part: &&PartOutcome| {
        part.verdict == Verdict::Diff || (outcome.strict && part.verdict == Verdict::Unknown)
    };
    let (tests, failures) = (outcome.parts.len(), outcome.parts.iter().filter(failed).count());
    let skipped =
        outcome.parts.iter().filter(|part| part.verdict == Verdict::Unknown && !failed(part)).count();
    let errors = outcome.incomplete.len();
    let seconds = outcome.seconds;
    let tests = tests + usize::from(errors > 0);
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{}\"", usize::from(errors > 0));
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"probe config-check\" {counts} time=\"{seconds:.3}\">\n  \
         <testsuite name=\"{}\" {counts} skipped=\"{skipped}\" time=\"{seconds:.3}\">\n",
        escaped(&format!("{} - {}", outcome.baseline.path, outcome.candidate.path))
    );
    for part in &outcome.parts {
        _ = write!(out, "    <testcase classname=\"config-check\" name=\"{}\"", part.part);
        if failed(&part) {
            case(
                &mut out,
                part,
                "failure",
                if part.verdict == Verdict::Diff { Verdict::Diff } else { Verdict::Unknown },
            );
        } else if part.verdict == Verdict::Unknown {
            case(&mut out, part, "skipped", Verdict::Unknown);
        } else {
            out.push_str("/>\n");
        }
    }
    if errors > 0 {
        out.push_str("    <testcase classname=\"config-check\" name=\"reading\">\n      <error message=\"not everything could be read\">");
        for entry in &outcome.incomplete {
            _ = writeln!(out, "{}: {}", escaped(&entry.place), escaped(&entry.reason));
        }
        out.push_str("</error>\n    </testcase>\n");
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// A case that did not pass, with its rows of one verdict.
fn case(out: &mut String, part: &PartOutcome, element: &str, verdict: Verdict) {
    let count = part.count(verdict);
    _ = write!(out, ">\n      <{element} message=\"{count} {verdict}\">");
    for row in part.rows.iter().filter(|row| row.verdict == verdict) {
        let side = |value: &Option<String>| value.as_deref().map_or_else(|| "-".to_owned(), escaped);
        let step = row.step.map_or_else(String::new, |step| format!("step {step} "));
        _ = writeln!(
            out,
            "{step}{}: {} against {}: {}",
            escaped(&row.key),
            side(&row.baseline),
            side(&row.candidate),
            escaped(&row.reason)
        );
    }
    _ = writeln!(out, "</{element}>\n    </testcase>");
}

/// Text as it may stand in XML: nothing invisible, markup escaped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in visible(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}
