//! Outcome of a gate: the state, the cases, and the culprits.

use std::path::PathBuf;

use serde::Serialize;

use super::environment::Environments;
use super::policy::{Effect, Mode, Waiver};
#[cfg(feature = "schema")]
use probe_dump::Word;
use probe_dump::{Exact, OpKind, OpName, by_name, named};
use probe_judge::{Finding, Incomplete};
use probe_measure::Metric;

/// Cause for values that are NaN or infinite.
pub(super) const NOT_FINITE: &str = "non-finite";

named!(State, "state");
named!(Status, "status");
named!(Kind, "kind");

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Every bound holds, and everything required was present.
    Pass,
    /// The commit and the environment are unchanged but the result is not: it changes by itself.
    Flaky,
    /// A bound is broken and the environment differs: the cause is open until the base commit has run in the new
    /// environment.
    Drift,
    /// A bound is broken.
    Regression,
    /// Something required was missing or could not be read: nothing is proved.
    Unverified,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Pass, Self::Flaky, Self::Drift, Self::Regression, Self::Unverified];

    /// Returns the word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Flaky => "flaky",
            Self::Drift => "drift",
            Self::Regression => "regression",
            Self::Unverified => "unverified",
        }
    }
}

/// Status of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Its bounds hold.
    Passed,
    /// A bound is broken here.
    Failed,
    /// It differs because of another case that failed.
    Follows,
    /// It failed, and a waiver lets it pass.
    Waived,
    /// One side has no value that could be judged.
    Unverified,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 5] = [Self::Passed, Self::Failed, Self::Follows, Self::Waived, Self::Unverified];

    /// Returns the word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Follows => "follows",
            Self::Waived => "waived",
            Self::Unverified => "unverified",
        }
    }
}

/// Kind of a case or culprit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An op.
    Op,
    /// A call of a module.
    Module,
    /// A scalar.
    Scalar,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Op, Self::Module, Self::Scalar];

    /// Returns the word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Op => "op",
            Self::Module => "module",
            Self::Scalar => "scalar",
        }
    }

    /// Returns the kind of an op, judging by its name.
    pub(super) fn of(op: &str) -> Self {
        if OpName::parse(op).kind() == OpKind::Module { Self::Module } else { Self::Op }
    }
}

/// One value or module that was checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "GateCase", deny_unknown_fields))]
pub struct Case {
    /// Its kind.
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(feature = "schema", schemars(with = "Word<Kind>"))]
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The step; `None` for a statement about all steps.
    pub step: Option<u64>,
    /// The rank; `None` for scalars.
    pub rank: Option<u32>,
    /// Its status.
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(feature = "schema", schemars(with = "Word<Status>"))]
    pub status: Status,
    /// One-line message; empty if it passed.
    pub message: String,
    /// The evidence, at most five lines; empty if it passed.
    #[serde(skip)]
    pub evidence: Vec<String>,
    /// Largest relative error of its results; `None` if nothing comparable was recorded, and for scalars.
    pub error: Option<Exact>,
}

impl Case {
    /// Creates a case that has passed.
    pub fn passed(kind: Kind, name: impl Into<String>, step: Option<u64>, rank: Option<u32>) -> Self {
        Self {
            kind,
            name: name.into(),
            step,
            rank,
            status: Status::Passed,
            message: String::new(),
            evidence: Vec::new(),
            error: None,
        }
    }

    /// Returns step and rank in words: `step 3 rank 0`, `all steps`.
    pub fn place(&self) -> String {
        match (self.step, self.rank) {
            (Some(step), Some(rank)) => format!("step {step} rank {rank}"),
            (Some(step), None) => format!("step {step}"),
            (None, _) => "all steps".to_owned(),
        }
    }

    /// Creates the case of an op at fault.
    pub(super) fn of_finding(finding: &Finding, kind: Kind) -> Self {
        Self {
            status: Status::Failed,
            message: format!("{}: {}", finding.cause.name(), finding.reason),
            evidence: evidence(finding),
            ..Self::passed(kind, finding.op.clone(), Some(finding.step), Some(finding.rank))
        }
    }
}

/// Returns the evidence of a finding in at most five lines.
fn evidence(finding: &Finding) -> Vec<String> {
    let mut lines = vec![
        format!("value      {} {}", finding.op, finding.slot),
        format!("cause      {}", finding.cause.name()),
        format!("why        {}", finding.reason),
    ];
    lines.extend(finding.module.as_ref().map(|module| format!("module     {module}")));
    lines.extend(finding.source.as_ref().map(|source| format!("source     {source}")));
    lines
}

/// An op, module or scalar to blame.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "GateCulprit", deny_unknown_fields))]
pub struct Culprit {
    /// Its kind.
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(feature = "schema", schemars(with = "Word<Kind>"))]
    pub kind: Kind,
    /// Name of the op, module call or scalar.
    pub name: String,
    /// Path of the slot that shows the fault; empty for scalars.
    pub slot: String,
    /// The first step that shows it; `None` for a statement about all steps.
    pub step: Option<u64>,
    /// The first rank that shows it; `None` for scalars.
    pub rank: Option<u32>,
    /// Kind of fault: a cause of `probe compare`, or `bound`, `bias`, `non-finite` for scalars.
    pub cause: &'static str,
    /// The reason in words.
    pub reason: String,
    /// The baseline's value there; `None` for ops.
    pub baseline: Option<Exact>,
    /// The candidate's value there; `None` for ops.
    pub candidate: Option<Exact>,
    /// The difference that was judged, as a relative error; `None` if there is none.
    pub error: Option<Exact>,
    /// Path of the module it belongs to.
    pub module: Option<String>,
    /// Source line as `file:line`.
    pub source: Option<String>,
    /// Call stack, innermost first.
    pub stack: Vec<String>,
    /// Steps, or steps and ranks, that show it.
    pub places: u64,
    /// Ops that differ because of it.
    pub followers: u64,
    /// The waiver that lets it pass; `None` if there is none.
    pub waived: Option<String>,
}

impl Culprit {
    /// Creates the culprit for an op or module at fault.
    pub fn of_finding(finding: &Finding, kind: Kind, places: u64, followers: u64) -> Self {
        let error =
            finding.metrics.iter().find(|(metric, _)| *metric == Metric::RelL2).and_then(|(_, value)| *value);
        Self {
            kind,
            name: finding.op.clone(),
            slot: finding.slot.clone(),
            step: Some(finding.step),
            rank: Some(finding.rank),
            cause: finding.cause.name(),
            reason: finding.reason.clone(),
            baseline: None,
            candidate: None,
            error: error.map(Exact),
            module: finding.module.clone(),
            source: finding.source.clone(),
            stack: finding.stack.clone(),
            places,
            followers,
            waived: None,
        }
    }

    /// Returns op and slot, or the scalar.
    pub fn title(&self) -> String {
        if self.slot.is_empty() { self.name.clone() } else { format!("{} {}", self.name, self.slot) }
    }

    /// Returns step and rank in words.
    pub fn place(&self) -> String {
        match (self.step, self.rank) {
            (Some(step), Some(rank)) => format!("step {step}, rank {rank}"),
            (Some(step), None) => format!("step {step}"),
            (None, _) => "all steps".to_owned(),
        }
    }
}

/// Cause of moved numbers, as determined by running the base commit in the new environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MovedBy {
    /// The base commit gives different numbers from the commit under test.
    Commit,
    /// The base commit gives the numbers of the commit under test, not those of the baseline: this commit did not move them.
    Environment,
}

impl MovedBy {
    /// Returns the word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Environment => "environment",
        }
    }
}

/// One of the two sides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SideInfo {
    /// Paths as given.
    pub paths: Vec<PathBuf>,
    /// Format in words.
    pub format: String,
    /// Points of scalars in it.
    pub points: usize,
    /// Steps that have scalars or values.
    pub steps: usize,
    /// The commit, if known.
    pub commit: Option<String>,
    /// The dump among the paths given.
    pub dump: Option<PathBuf>,
    /// The file with sketches of every op that a baseline names, if it exists.
    pub sketches: Option<PathBuf>,
}

/// Everything that a gate found.
#[derive(Debug, Clone)]
pub struct GateOutcome {
    /// The answer.
    pub state: State,
    /// Effect of the state on the exit code if the commit is not to blame.
    pub effect: Effect,
    /// Mode in which the baseline was made.
    pub mode: Mode,
    /// The trusted side.
    pub baseline: SideInfo,
    /// The side under test.
    pub candidate: SideInfo,
    /// Culprits, the first cause first; waived ones last.
    pub culprits: Vec<Culprit>,
    /// Everything that was checked.
    pub cases: Vec<Case>,
    /// Everything that was missing or could not be read.
    pub unverified: Vec<Incomplete>,
    /// Environments of both sides.
    pub environment: Environments,
    /// Statements about the whole.
    pub notes: Vec<String>,
    /// Earlier results of the same commit and environment that this result contradicts.
    pub evidence: Vec<String>,
    /// Steps of narrowing the first culprit down to an op by running both sides again, one line per comparison; empty if not done.
    pub narrowed: Vec<String>,
    /// Cause of moved numbers; `None` if not requested or not determined.
    pub moved_by: Option<MovedBy>,
    /// The command that shows more.
    pub next: String,
    /// File of the policy; `None` for the default.
    pub policy: Option<PathBuf>,
    /// Identifier of the content of the baseline.
    pub baseline_hash: String,
    /// The candidate's scalars, for the history.
    pub scalars: super::import::Scalars,
    /// Wall time, in seconds.
    pub seconds: f64,
}

impl GateOutcome {
    /// Returns the culprits that no waiver lets pass.
    pub fn to_blame(&self) -> impl Iterator<Item = &Culprit> {
        self.culprits.iter().filter(|culprit| culprit.waived.is_none())
    }

    /// Returns the exit code: 0 if nothing fails, 1 if a bound is broken, 3 if nothing is proved.
    pub const fn exit_code(&self) -> u8 {
        match (self.state, self.effect) {
            (State::Pass, _) | (State::Drift | State::Flaky, Effect::Neutral) => 0,
            (State::Regression, _) | (State::Drift | State::Flaky, Effect::Fail) => 1,
            (State::Unverified, _) => 3,
        }
    }

    /// Adds the findings of running both sides again: the op at fault replaces the module that it corrupts, and precedes scalars.
    pub fn narrow(&mut self, finding: Option<&Finding>, followers: u64, lines: Vec<String>) {
        self.narrowed = lines;
        let Some(finding) = finding else { return };
        let kind = Kind::of(&finding.op);
        let mut culprit = Culprit::of_finding(finding, kind, 1, followers);
        let bad = self
            .culprits
            .iter()
            .position(|other| other.kind != Kind::Scalar && other.waived.is_none())
            .map(|place| self.culprits.remove(place));
        if let Some(bad) = bad {
            culprit.places = bad.places;
            culprit.followers = culprit.followers.max(bad.followers);
            for case in
                self.cases.iter_mut().filter(|case| case.name == bad.name && case.status == Status::Failed)
            {
                case.status = Status::Follows;
                case.message = format!("differs because of {}", culprit.name);
            }
        }
        let case = Case::of_finding(finding, kind);
        // The same module as before, now with a source line.
        self.cases
            .retain(|other| (&other.name, other.step, other.rank) != (&case.name, case.step, case.rank));
        self.cases.insert(0, case);
        self.culprits.insert(0, culprit);
    }

    /// Distinguishes drift from regressions: `moved_by` was determined by running the base commit in the candidate's environment. `on_drift` is the
    /// policy's effect of drift.
    pub fn settle(&mut self, moved_by: MovedBy, on_drift: Effect) {
        self.moved_by = Some(moved_by);
        match (moved_by, self.state) {
            (MovedBy::Commit, State::Drift) => {
                self.state = State::Regression;
                self.effect = Effect::Fail;
            }
            (MovedBy::Environment, State::Regression) => {
                self.state = State::Drift;
                self.effect = on_drift;
            }
            _ => {}
        }
    }

    /// Marks failed cases that a waiver covers, except those that are not finite.
    pub(super) fn waive_cases(&mut self, waivers: &[Waiver]) {
        for case in self.cases.iter_mut().filter(|case| case.status == Status::Failed) {
            // The mean of a scalar is matched under the scalar's name.
            let name = case.name.strip_suffix(" bias").unwrap_or(&case.name);
            let is_finite = |culprit: &Culprit| culprit.cause != NOT_FINITE || culprit.name != name;
            if !self.culprits.iter().all(is_finite) {
                continue;
            }
            if let Some(waiver) = waivers.iter().find(|waiver| waiver.covers(name, "")) {
                case.status = Status::Waived;
                case.message = format!("waived until {}: {}", waiver.until, case.message);
            }
        }
    }

    /// Counts the cases with this status.
    pub fn count(&self, status: Status) -> usize {
        self.cases.iter().filter(|case| case.status == status).count()
    }
}
