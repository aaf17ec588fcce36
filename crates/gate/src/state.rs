//! Derives the state from the findings: waivers, budget, requirements, drift, and flaky results.

use std::path::Path;

use serde::Deserialize;

use super::GateError;
use super::environment::{Environments, fingerprint};
use super::outcome::{Culprit, NOT_FINITE, State};
use super::policy::{Budget, Mode, Policy, Waiver};
use probe_dump::Named;
use probe_judge::Role;
use probe_read::ReadError;

/// Lets culprits pass that a waiver names; non-finite values never pass.
pub(super) fn waive(culprits: &mut [Culprit], waivers: &[Waiver]) {
    for culprit in culprits.iter_mut().filter(|culprit| culprit.cause != NOT_FINITE) {
        let of = |waiver: &&Waiver| waiver.covers(&culprit.name, &culprit.slot);
        if let Some(waiver) = waivers.iter().find(of) {
            let issue = waiver.issue.as_deref().map_or_else(String::new, |issue| format!(", {issue}"));
            culprit.waived = Some(format!("until {}: {}{issue}", waiver.until, waiver.reason));
        }
    }
}

/// Lets ops at fault pass within the budget; `roles` are those of the culprits, `None` for scalars.
pub(super) fn spend(culprits: &mut [Culprit], roles: &[Option<Role>], budget: Budget) {
    for (amplifies, allowed) in [(false, budget.introduces), (true, budget.amplifies)] {
        let is_of = |role: &Option<Role>| role.is_some_and(|role| (role == Role::Amplifies) == amplifies);
        let open: Vec<usize> = culprits
            .iter()
            .zip(roles)
            .enumerate()
            .filter(|(_, (culprit, role))| is_of(role) && culprit.waived.is_none())
            .map(|(index, _)| index)
            .collect();
        if allowed > 0 && open.len() as u64 <= allowed {
            for index in open {
                culprits[index].waived = Some(format!("within the budget of {allowed}"));
            }
        }
    }
}

/// Returns the state that follows from the findings alone.
pub(super) fn of(failed: bool, unverified: bool, environment: &Environments, policy: &Policy) -> State {
    match (unverified, failed) {
        (true, _) => State::Unverified,
        (false, false) => State::Pass,
        (false, true) if policy.mode == Mode::Golden && !environment.differences.is_empty() => State::Drift,
        (false, true) => State::Regression,
    }
}

/// The fields of an earlier `gate.json` that serve as evidence.
#[derive(Deserialize)]
struct Earlier {
    state: String,
    commit: Option<String>,
    baseline_hash: String,
    environment: EarlierEnvironment,
}

#[derive(Deserialize)]
struct EarlierEnvironment {
    candidate_fingerprint: String,
}

/// Identifies a result for the comparison with earlier results.
pub(super) struct Identity<'a> {
    pub(super) commit: Option<&'a str>,
    pub(super) baseline_hash: &'a str,
    pub(super) environment: &'a Environments,
}

/// Returns descriptions of earlier results of the same commit, baseline and environment that `state` contradicts; and notes on why
/// others are not evidence.
pub(super) fn contradicted(
    state: State,
    evidence: &[impl AsRef<Path>],
    identity: &Identity<'_>,
) -> Result<(Vec<String>, Vec<String>), GateError> {
    let (mut contradicted, mut notes) = (Vec::new(), Vec::new());
    let own = fingerprint(&identity.environment.candidate);
    for path in evidence {
        let path = path.as_ref();
        let path = if path.is_dir() { path.join("gate.json") } else { path.to_path_buf() };
        let text = std::fs::read(&path).map_err(|source| ReadError::io(&path, source))?;
        let earlier: Earlier = serde_json::from_slice(&text)
            .map_err(|error| ReadError::format(&path, format!("is not a gate.json of probe: {error}")))?;
        let other = State::of_word(&earlier.state)
            .ok_or_else(|| ReadError::format(&path, format!("unknown state {:?}", earlier.state)))?;
        let reason = if identity.commit.is_none() || earlier.commit.as_deref() != identity.commit {
            Some("it is from another commit, or an unknown one")
        } else if earlier.baseline_hash != identity.baseline_hash {
            Some("it was compared with another baseline")
        } else if own.is_empty() || earlier.environment.candidate_fingerprint != own {
            Some("it is from another environment, or one that was not recorded")
        } else {
            None
        };
        if let Some(reason) = reason {
            notes.push(format!("{} is no evidence of a flaky result: {reason}", path.display()));
            continue;
        }
        let failed = |state: State| matches!(state, State::Regression | State::Drift);
        if (state == State::Pass && failed(other)) || (failed(state) && other == State::Pass) {
            contradicted.push(format!(
                "{}: {} with the same commit, baseline and environment, {} now",
                path.display(),
                other.name(),
                state.name()
            ));
        }
    }
    Ok((contradicted, notes))
}
