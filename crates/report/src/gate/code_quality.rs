//! GitLab's code quality report: a list of objects, as its documentation requires.

use std::path::Path;

use serde::Serialize;

use super::place::{fingerprint, source};
use probe_gate::{GateOutcome, Kind, State};

#[derive(Serialize)]
struct Entry {
    description: String,
    check_name: String,
    fingerprint: String,
    severity: &'static str,
    location: Location,
}

#[derive(Serialize)]
struct Location {
    path: String,
    lines: Lines,
}

#[derive(Serialize)]
struct Lines {
    begin: u64,
}

/// Returns the whole document.
pub(super) fn document(outcome: &GateOutcome, root: Option<&Path>) -> serde_json::Result<Vec<u8>> {
    // Findings without a source location are placed at the file that decided: the policy, else the baseline.
    let decided = outcome.policy.as_ref().or(outcome.baseline.paths.first());
    let decided = decided.map_or_else(String::new, |path| {
        let path = path.to_string_lossy();
        path.strip_prefix("./").unwrap_or(&path).to_owned()
    });
    let entries: Vec<Entry> = outcome
        .to_blame()
        .map(|culprit| {
            let (path, begin) = source(culprit, root).unwrap_or_else(|| (decided.clone(), 1));
            Entry {
                description: format!("{}: {}", culprit.title(), culprit.reason),
                check_name: format!("probe/{}", culprit.cause),
                fingerprint: fingerprint(culprit),
                severity: match (outcome.state, culprit.kind) {
                    (State::Drift | State::Flaky, _) => "minor",
                    (_, Kind::Scalar) => "major",
                    _ => "critical",
                },
                location: Location { path, lines: Lines { begin } },
            }
        })
        .collect();
    let mut bytes = serde_json::to_vec_pretty(&entries)?;
    bytes.push(b'\n');
    Ok(bytes)
}
