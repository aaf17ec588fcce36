//! `config.md`: a page for the summary of a CI job.

use super::text::answer;
use crate::markdown::Page;
use probe_config_check::{Outcome, Row, Verdict};

/// Returns the page, at most 40 lines.
pub(super) fn page(outcome: &Outcome) -> String {
    let rows = outcome.parts.iter().flat_map(|part| {
        let differing = part.rows.iter().filter(|row| row.verdict == Verdict::Diff);
        differing.map(move |row| cells(part.part.name(), row))
    });
    let unread =
        outcome.incomplete.iter().map(|entry| format!("not read: {}: {}", entry.place, entry.reason));
    Page {
        title: answer(outcome),
        facts: vec![
            ("baseline".to_owned(), outcome.baseline.path.clone()),
            ("candidate".to_owned(), outcome.candidate.path.clone()),
        ],
        columns: vec!["part", "what", "baseline", "candidate", "why"],
        rows: rows.collect(),
        notes: unread.collect(),
        next: format!("probe config-check {} {} -v", outcome.baseline.path, outcome.candidate.path),
    }
    .text()
}

fn cells(part: &str, row: &Row) -> Vec<String> {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let step = row.step.map_or_else(String::new, |step| format!(" step {step}"));
    vec![
        format!("{part}{step}"),
        row.key.clone(),
        side(&row.baseline),
        side(&row.candidate),
        row.reason.clone(),
    ]
}
