//! Runs a gate.

use std::path::{Path, PathBuf};
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::GateError;
use super::baseline::Baseline;
use super::compared::{self, Compared};
use super::environment::Environments;
use super::options::GateOptions;
use super::outcome::{Culprit, GateOutcome, State};
use super::policy::{Effect, Policy};
use super::side::{SideContent, Values};
use super::{scalars, state};
use probe_compare::Progress;
use probe_dump::NumberSet;
use probe_judge::{Incomplete, Role};

/// Compares the candidate with the baseline. Runs on the current rayon pool.
///
/// # Errors
/// [`GateError`] when a side cannot be read, the policy does not fit, or settings that must be the same differ.
pub fn gate(
    policy: &Policy,
    options: &GateOptions,
    progress: &dyn Progress,
) -> Result<GateOutcome, GateError> {
    let started = Instant::now();
    let (mut baseline, mut candidate) = open(options)?;
    let environment = Environments::of(
        std::mem::take(&mut baseline.environment),
        std::mem::take(&mut candidate.environment),
        &policy.environment,
    );
    forbid(&environment)?;
    let judged = scalars::judge(&baseline.scalars, &candidate.scalars, policy);
    let mut compared = compared::values(&mut baseline, &mut candidate, policy, options, progress)?;
    fits(policy, &baseline, &compared)?;
    let culprits = culprits(&mut compared, judged.culprits, policy, &candidate);

    let mut notes: Vec<String> = baseline.notes.drain(..).chain(candidate.notes.drain(..)).collect();
    notes.extend(judged.notes);
    notes.extend(compared.notes);
    let mut unverified = Vec::new();
    demand(policy, &baseline, &candidate, &mut unverified);
    let expected = judged.expected + compared.expected;
    let missing: Vec<Incomplete> = judged.missing.into_iter().chain(compared.missing).collect();
    let found = Found { expected, paired: judged.paired + compared.paired, least: policy.require.min_pairs };
    found.tell(missing, &mut unverified, &mut notes);
    unverified.extend(judged.undefined);
    unverified.extend(compared.incomplete);
    unverified.extend(baseline.incomplete.drain(..).chain(candidate.incomplete.drain(..)));
    if expected == 0 && unverified.is_empty() {
        return Err(GateError::Usage(nothing(&baseline, &candidate)));
    }
    let failed = culprits.iter().any(|culprit| culprit.waived.is_none());
    let mut outcome = GateOutcome {
        state: state::of(failed, !unverified.is_empty(), &environment, policy),
        effect: Effect::Fail,
        mode: policy.mode,
        baseline_hash: content_hash(&options.baseline),
        baseline: baseline.info,
        candidate: candidate.info,
        culprits,
        cases: compared.cases.into_iter().chain(judged.cases).collect(),
        unverified,
        environment,
        notes,
        evidence: Vec::new(),
        narrowed: Vec::new(),
        moved_by: None,
        next: next(options, compared.sharp),
        policy: policy.path.clone(),
        scalars: candidate.scalars,
        seconds: 0.0,
    };
    settle(&mut outcome, policy, options)?;
    outcome.seconds = started.elapsed().as_secs_f64();
    Ok(outcome)
}

fn open(options: &GateOptions) -> Result<(SideContent, SideContent), GateError> {
    let baseline =
        SideContent::open(&options.baseline, options.baseline_environment.as_deref(), options.access)?;
    let mut candidate =
        SideContent::open(&options.candidate, options.candidate_environment.as_deref(), options.access)?;
    candidate.info.commit = options.commit.clone().or(candidate.info.commit);
    Ok((baseline, candidate))
}

/// Returns the culprits among values and scalars: with their places in the source, those that the policy lets pass last.
fn culprits(
    compared: &mut Compared,
    scalars: Vec<Culprit>,
    policy: &Policy,
    candidate: &SideContent,
) -> Vec<Culprit> {
    let mut roles: Vec<Option<Role>> = std::mem::take(&mut compared.roles);
    roles.resize(roles.len() + scalars.len(), None);
    let mut culprits = std::mem::take(&mut compared.culprits);
    culprits.extend(scalars);
    candidate.locate(&mut culprits);
    state::waive(&mut culprits, &policy.waivers);
    state::spend(&mut culprits, &roles, policy.budget);
    culprits.sort_by_key(|culprit| culprit.waived.is_some());
    culprits
}

/// Values of the baseline that were looked for in the candidate.
#[derive(Debug, Clone, Copy)]
struct Found {
    expected: usize,
    paired: usize,
    /// Least share of them that the policy asks for.
    least: f64,
}

impl Found {
    /// Lists the missing values: as unverified if they are more than the policy allows, else as notes.
    fn tell(self, missing: Vec<Incomplete>, unverified: &mut Vec<Incomplete>, notes: &mut Vec<String>) {
        let Self { expected, paired, least } = self;
        let share = if expected == 0 { 1.0 } else { paired as f64 / expected as f64 };
        if share >= least {
            notes.extend(missing.into_iter().map(|entry| format!("{}: {}", entry.place, entry.reason)));
            return;
        }
        if least < 1.0 {
            let reason = format!(
                "{paired} of {expected} values were found, a share of {share:.4}; the policy asks for {least}"
            );
            unverified.push(Incomplete { place: "values of the baseline".into(), reason });
        }
        unverified.extend(missing);
    }
}

/// Completes an outcome whose culprits are known: waivers, earlier runs of the same commit that contradict it, and what
/// the policy makes of its state.
fn settle(outcome: &mut GateOutcome, policy: &Policy, options: &GateOptions) -> Result<(), GateError> {
    outcome.waive_cases(&policy.waivers);
    let identity = state::Identity {
        commit: outcome.candidate.commit.as_deref(),
        baseline_hash: &outcome.baseline_hash,
        environment: &outcome.environment,
    };
    let (evidence, said) = state::contradicted(outcome.state, &options.evidence, &identity)?;
    outcome.notes.extend(said);
    if !evidence.is_empty() {
        outcome.state = State::Flaky;
        outcome.evidence = evidence;
    }
    outcome.effect = match outcome.state {
        State::Drift => policy.on_drift,
        State::Flaky => policy.on_flaky,
        _ => Effect::Fail,
    };
    if outcome.state == State::Regression
        && policy.mode == super::policy::Mode::Golden
        && !outcome.environment.is_known()
    {
        outcome.notes.push(
            "the set-up of one side was not recorded, so drift cannot be distinguished from a regression; give --environment PACK.zip to \
             `probe baseline` and `probe gate`"
                .into(),
        );
    }
    Ok(())
}

/// Returns an error if settings that must be the same differ, because the runs are then incomparable.
fn forbid(environment: &Environments) -> Result<(), GateError> {
    let said: Vec<String> = environment
        .forbidden()
        .map(|difference| {
            let value = |value: &Option<String>| value.clone().unwrap_or_default();
            format!(
                "{} is {} in the baseline and {} in the candidate",
                difference.name,
                value(&difference.baseline),
                value(&difference.candidate)
            )
        })
        .collect();
    if said.is_empty() { Ok(()) } else { Err(GateError::NotComparable(said.join("; "))) }
}

/// Checks that every pattern of the policy matches something; one that matches nothing is misspelt or obsolete.
fn fits(policy: &Policy, baseline: &SideContent, compared: &Compared) -> Result<(), GateError> {
    let wrong = |message: String| GateError::Policy { path: policy.path.clone(), message };
    for rule in &policy.scalars {
        if !baseline.scalars.keys().any(|name| rule.pattern.matches(name)) {
            let names: Vec<&str> = baseline.scalars.keys().take(8).map(String::as_str).collect();
            let there = if names.is_empty() {
                "the baseline has no scalars".to_owned()
            } else {
                format!("it has {}", names.join(", "))
            };
            return Err(wrong(format!(
                "[[scalar]] name = {:?} matches no scalar of the baseline; {there}",
                rule.pattern.text()
            )));
        }
    }
    for (rule, used) in policy.values.iter().zip(&compared.used_rules) {
        if !used {
            return Err(wrong(format!("[[value]] pattern = {:?} matches no value", rule.pattern())));
        }
    }
    if let Some(name) = &compared.without_rule {
        return Err(wrong(format!("{name} has no [[value]]; add one for it, or end with pattern = \"*\"")));
    }
    for (waiver, used) in policy.waivers.iter().zip(&compared.used_waivers) {
        if !used && !baseline.scalars.keys().any(|name| waiver.pattern.matches(name)) {
            return Err(wrong(format!(
                "[[waive]] pattern = {:?} matches nothing; remove it",
                waiver.pattern.text()
            )));
        }
    }
    Ok(())
}

/// Checks the steps and ranks that the policy names: both ends of each range must exist on both sides.
fn demand(
    policy: &Policy,
    baseline: &SideContent,
    candidate: &SideContent,
    unverified: &mut Vec<Incomplete>,
) {
    let ends = |set: &NumberSet| -> Vec<u64> {
        set.ranges().iter().flat_map(|range| [*range.start(), *range.end()]).collect()
    };
    for (word, side) in [("baseline", baseline), ("candidate", candidate)] {
        if let Some(set) = &policy.require.steps {
            let steps = side.steps();
            let mut wanted = ends(set);
            wanted.dedup();
            for step in wanted.into_iter().filter(|step| !steps.contains(step)) {
                let last = steps
                    .last()
                    .map_or_else(|| "it has none".to_owned(), |last| format!("its last one is {last}"));
                unverified.push(Incomplete {
                    place: format!("step {step}"),
                    reason: format!("the {word} does not have it; {last}"),
                });
            }
        }
        let ranks: std::collections::BTreeSet<u64> =
            side.parts().into_iter().map(|(_, rank)| rank.into()).collect();
        if let Some(set) = &policy.require.ranks
            && !ranks.is_empty()
        {
            let mut wanted = ends(set);
            wanted.dedup();
            for rank in wanted.into_iter().filter(|rank| !ranks.contains(rank)) {
                unverified.push(Incomplete {
                    place: format!("rank {rank}"),
                    reason: format!("the {word} does not have it"),
                });
            }
        }
    }
}

/// Returns the command that shows more than the gate does.
fn next(options: &GateOptions, sharp: bool) -> String {
    let path = |paths: &[PathBuf]| paths.first().map_or_else(String::new, |path| path.display().to_string());
    let (baseline, candidate) = (path(&options.baseline), path(&options.candidate));
    if sharp {
        format!("probe compare {baseline} {candidate} -v")
    } else {
        format!("probe baseline diff {baseline} {candidate}")
    }
}

fn nothing(baseline: &SideContent, candidate: &SideContent) -> String {
    let what = |side: &SideContent| {
        let values = match &side.values {
            Values::None => 0,
            Values::Lines(_) | Values::Dump(_) => side.parts().len(),
        };
        format!("{} scalars and {values} steps of values", side.scalars.len())
    };
    format!(
        "nothing was gated: the baseline has {}, the candidate {}; they need something in common that the policy gates",
        what(baseline),
        what(candidate)
    )
}

/// Returns the identifier of the content of a side's files: 16 digits of SHA-256; empty if one of them is a folder.
fn content_hash(paths: &[PathBuf]) -> String {
    let mut hash = Sha256::new();
    for path in paths {
        let content = |path: &Path| {
            // The history of a baseline does not affect the gate.
            Baseline::read(path)
                .map(|baseline| Baseline { provenance: Vec::new(), ..baseline }.to_text().into_bytes())
                .ok()
        };
        let Some(bytes) = content(path).or_else(|| std::fs::read(path).ok()) else { return String::new() };
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(&bytes);
    }
    super::hexadecimal(&hash.finalize(), 8)
}
