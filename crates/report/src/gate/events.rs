//! One line of JSON per finding, in order: `started`, `case`, `unverified`, `culprit`, `finished`.

use serde::Serialize;

use crate::model::{Place, Tool};
use probe_gate::{Case, Culprit, GateOutcome};

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Started { tool: Tool, mode: &'static str, commit: Option<&'a str> },
    Case(&'a Case),
    Unverified(Place<'a>),
    Culprit(&'a Culprit),
    Finished { state: &'static str, exit_code: u8, seconds: f64 },
}

/// Returns the whole document.
pub(super) fn document(outcome: &GateOutcome) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::new();
    let commit = outcome.candidate.commit.as_deref();
    let started = Event::Started { tool: Tool::THIS, mode: outcome.mode.name(), commit };
    let finished = Event::Finished {
        state: outcome.state.name(),
        exit_code: outcome.exit_code(),
        seconds: outcome.seconds,
    };
    let events = std::iter::once(started)
        .chain(outcome.cases.iter().map(Event::Case))
        .chain(outcome.unverified.iter().map(|entry| Event::Unverified(entry.into())))
        .chain(outcome.culprits.iter().map(Event::Culprit))
        .chain(std::iter::once(finished));
    for event in events {
        serde_json::to_writer(&mut out, &event)?;
        out.push(b'\n');
    }
    Ok(out)
}
