//! A page for the summary of a CI job.

use super::text::answer;
use crate::markdown::Page;
use crate::number::thousands;
use probe_dump::Exact;
use probe_gate::{GateOutcome, Kind, Status};

/// Returns the page, at most 40 lines.
pub fn page(outcome: &GateOutcome) -> String {
    let paths = |paths: &[std::path::PathBuf]| {
        paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut facts = vec![
        ("baseline".to_owned(), paths(&outcome.baseline.paths)),
        ("candidate".to_owned(), paths(&outcome.candidate.paths)),
    ];
    facts.extend(outcome.candidate.commit.iter().map(|commit| ("commit".to_owned(), commit.clone())));
    let counts: Vec<String> = [
        (Status::Passed, "passed"),
        (Status::Failed, "failed"),
        (Status::Follows, "follow"),
        (Status::Waived, "waived"),
        (Status::Unverified, "not verified"),
    ]
    .into_iter()
    .filter(|(status, _)| outcome.count(*status) > 0)
    .map(|(status, word)| format!("{} {word}", thousands(outcome.count(status) as u64)))
    .collect();
    facts.push(("cases".to_owned(), counts.join(", ")));
    let moved: Vec<String> = outcome.environment.differences.iter().map(super::text::moved).collect();
    if !moved.is_empty() {
        facts.push(("environment".to_owned(), moved.join(", ")));
    }
    let rows = outcome.culprits.iter().map(|culprit| {
        let numbers = match (culprit.baseline, culprit.candidate, culprit.error) {
            (Some(b), Some(c), _) => format!("{b} → {c}"),
            (_, _, Some(Exact(error))) => format!("{error:.2e}"),
            _ => String::new(),
        };
        let cause = if culprit.waived.is_some() {
            format!("{} (waived)", culprit.cause)
        } else {
            culprit.cause.to_owned()
        };
        let place = match culprit.kind {
            Kind::Scalar => culprit.place(),
            Kind::Op | Kind::Module => culprit.source.clone().unwrap_or_else(|| culprit.place()),
        };
        vec![culprit.title(), cause, numbers, place, culprit.reason.clone()]
    });
    let unverified =
        outcome.unverified.iter().map(|entry| format!("not verified: {}: {}", entry.place, entry.reason));
    Page {
        title: answer(outcome),
        facts,
        columns: vec!["what", "cause", "numbers", "where", "why"],
        rows: rows.collect(),
        notes: unverified
            .chain(outcome.evidence.iter().cloned())
            .chain(super::text::moved_by(outcome))
            .chain(outcome.narrowed.iter().map(|line| format!("narrowed: {line}")))
            .chain(outcome.notes.iter().cloned())
            .collect(),
        next: outcome.next.clone(),
    }
    .text()
}
