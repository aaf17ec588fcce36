//! Reruns both sides of a failed gate, recording little, to find the op and the cause.

use std::path::Path;

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::confirm;
use crate::cli::narrow::{Place, Rerun, Trail, Trusted, UNCONFIRMED};
use crate::dump::NumberSet;
use crate::files::map::FileAccess;
use crate::gate::policy::{Effect, Mode};
use crate::gate::{Culprit, GateOutcome, Kind, MovedBy, State, sketches};
use crate::report::command::typed;

/// Subfolder for the dumps, in the folder of the reports.
const FOLDER: &str = "narrow";

// Not a doc comment, which would become part of the help text.
#[derive(Debug, Args)]
pub(super) struct NarrowOptions {
    /// If the gate fails, run again and record only the ops of the first bad module, to name the op; its calls are replayed, where the
    /// Python package finds torch and the baseline has its data. With --baseline-cmd, also tell whether the commit or the environment
    /// moved the numbers.
    #[arg(long, requires = "candidate_cmd")]
    narrow: bool,

    /// Shell command that runs the candidate again.
    #[arg(long, value_name = "COMMAND", requires = "narrow")]
    candidate_cmd: Option<String>,

    /// Shell command that runs the base commit; without it, the candidate is compared with the baseline's dump or sketches.
    #[arg(long, value_name = "COMMAND", requires = "narrow")]
    baseline_cmd: Option<String>,

    /// Steps to record if only a scalar is off [default: that step and the one before it].
    #[arg(long, value_name = "STEPS", requires = "narrow")]
    narrow_steps: Option<String>,
}

impl NarrowOptions {
    /// Returns true if the outcome calls for a rerun.
    fn is_due(&self, outcome: &GateOutcome) -> bool {
        self.narrow && outcome.to_blame().next().is_some()
    }

    /// Rejects early any configuration that could not name an op.
    pub(super) fn check(&self, outcome: &GateOutcome) -> anyhow::Result<()> {
        let side = &outcome.baseline;
        if self.narrow && self.baseline_cmd.is_none() && side.dump.is_none() && side.sketches.is_none() {
            bail!(
                "--narrow has nothing to compare the ops with: give --baseline-cmd, a dump as the baseline, or a baseline with sketches \
                 (`probe baseline save --sketches`)"
            );
        }
        Ok(())
    }
}

/// Narrows the first culprit of a failed gate down to an op. Errors on the way become a note: the gate's answer stands without it.
pub(super) fn narrow(
    options: &NarrowOptions,
    outcome: &mut GateOutcome,
    on_drift: Effect,
    folder: Option<&Path>,
    quiet: bool,
) {
    if !options.is_due(outcome) {
        return;
    }
    if let Err(error) = attempt(options, outcome, on_drift, folder, quiet) {
        outcome.notes.insert(0, format!("not narrowed down: {error:#}"));
    }
}

fn attempt(
    options: &NarrowOptions,
    outcome: &mut GateOutcome,
    on_drift: Effect,
    folder: Option<&Path>,
    quiet: bool,
) -> anyhow::Result<()> {
    let candidate = options.candidate_cmd.as_deref().context("--candidate-cmd is missing")?;
    let temporary = tempfile::tempdir().context("a temporary folder")?;
    let kept = folder.map(|folder| folder.join(FOLDER));
    let dumps = kept.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(dumps).with_context(|| dumps.display().to_string())?;
    let unpacked;
    let from_sketches = options.baseline_cmd.is_none() && outcome.baseline.dump.is_none();
    let baseline = match (&options.baseline_cmd, &outcome.baseline.dump, &outcome.baseline.sketches) {
        (Some(command), ..) => Trusted::Command(command),
        (None, Some(dump), _) => Trusted::Dump(dump),
        (None, None, Some(sketches)) => {
            unpacked = sketches::open(sketches, FileAccess::Map)?;
            Trusted::Dump(unpacked.path())
        }
        (None, None, None) => bail!("nothing to compare the ops with"),
    };
    let value = outcome.to_blame().find(|culprit| culprit.kind != Kind::Scalar);
    if let Some(op) = value.filter(|culprit| culprit.kind == Kind::Op && culprit.source.is_some())
        && outcome.state != State::Drift
    {
        let known = format!("{} is already an op; nothing was run again", op.name);
        outcome.narrowed = vec![known, replayed_as_given(outcome, op, quiet)];
        return Ok(());
    }
    let ranks = value.and_then(|culprit| culprit.rank).map(|rank| rank.to_string());
    let rerun = Rerun::new(baseline, candidate, ranks.as_deref(), dumps, quiet);
    // Checking if the base commit gives different numbers requires the whole step.
    let drifted = outcome.state == State::Drift && options.baseline_cmd.is_some();
    let replays = confirm::is_possible();
    let trail = match value.and_then(place) {
        Some(place) if drifted => rerun.narrow(&place.steps, replays)?,
        Some(place) => rerun.narrow_in(place, replays)?,
        None => rerun.narrow(&steps(options, outcome), replays)?,
    };
    drop(rerun);
    let answer = trail.answer();
    let finding = answer.summary.first_divergence.as_ref();
    let mut lines = trail.lines();
    if finding.is_some() && !replays {
        lines.push(format!("{UNCONFIRMED}: {}", confirm::NEEDS));
    }
    outcome.narrow(finding, finding.map_or(0, |finding| finding.followers), lines);
    let both_commits = options.baseline_cmd.is_some() && outcome.mode == Mode::Golden;
    if let Some(moved_by) = moved_by(&trail, drifted).filter(|_| both_commits) {
        outcome.settle(moved_by, on_drift);
    }
    // Sketches were unpacked into a folder that no longer exists then.
    if finding.is_some() && kept.is_some() && !from_sketches {
        let [baseline, candidate] = answer.dumps.each_ref().map(|dump| typed(&dump.display().to_string()));
        outcome.next = format!("probe compare {baseline} {candidate} -v");
    }
    Ok(())
}

/// Returns what moved the numbers, if the reruns of both commits show it.
fn moved_by(trail: &Trail, drifted: bool) -> Option<MovedBy> {
    if trail.differs() {
        Some(MovedBy::Commit)
    } else {
        (drifted || trail.equal()).then_some(MovedBy::Environment)
    }
}

/// Replays the calls of the dumps that the gate was given, and says what that shows of an op.
fn replayed_as_given(outcome: &GateOutcome, op: &Culprit, quiet: bool) -> String {
    let nothing = || format!("{UNCONFIRMED}: the gate was given no data of it on both sides");
    let (Some(baseline), Some(candidate)) = (&outcome.baseline.dump, &outcome.candidate.dump) else {
        return nothing();
    };
    let (Some(step), Some(rank)) = (op.step, op.rank) else { return nothing() };
    let steps = NumberSet::of([step]);
    let scope = confirm::Scope { sides: [baseline, candidate], steps: Some(&steps), ranks: None };
    match scope.replay(quiet) {
        Ok(replayed) => {
            replayed.said(step, rank, &op.name).map_or_else(nothing, |said| format!("{}: {said}", op.name))
        }
        Err(error) => format!("{UNCONFIRMED}: {error:#}"),
    }
}

/// Returns the place of a culprit.
fn place(culprit: &Culprit) -> Option<Place> {
    Some(Place::of(culprit.step?, &culprit.name, culprit.module.as_deref()))
}

/// Returns the steps to record if only scalars are off: the cause of a loss change lies in its own step, or in the backward pass and the
/// update before it.
fn steps(options: &NarrowOptions, outcome: &GateOutcome) -> String {
    if let Some(steps) = &options.narrow_steps {
        return steps.clone();
    }
    match outcome.to_blame().find_map(|culprit| culprit.step) {
        Some(0) => "0".to_owned(),
        Some(step) => format!("{}-{step}", step - 1),
        None => outcome
            .scalars
            .values()
            .filter_map(|series| series.keys().next())
            .min()
            .map_or_else(|| "0".to_owned(), ToString::to_string),
    }
}
