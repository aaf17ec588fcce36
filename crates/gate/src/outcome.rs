//! What a gate found: the state, the cases that it looked at, and what is to blame.

use std::path::PathBuf;

use super::environment::Environments;
use super::policy::{Effect, Mode, Waiver};
use probe_dump::{OpKind, OpName};
use probe_judge::{Finding, Incomplete};
use probe_measure::Metric;

/// Cause of what is NaN or infinite.
pub(super) const NOT_FINITE: &str = "non-finite";

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Every bound holds, and everything that is asked for was there.
    Pass,
    /// The commit and the environment are the same, and the result is not: it changes by itself.
    Flaky,
    /// A bound is broken and the environment is another one: who is to blame is open until the base commit has run in it.
    Drift,
    /// A bound is broken.
    Regression,
    /// Something that is asked for was missing or could not be read: nothing is proved.
    Unverified,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Pass, Self::Flaky, Self::Drift, Self::Regression, Self::Unverified];

    /// The word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Flaky => "flaky",
            Self::Drift => "drift",
            Self::Regression => "regression",
            Self::Unverified => "unverified",
        }
    }

    /// The state called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// What became of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Its bounds hold.
    Passed,
    /// A bound is broken here.
    Failed,
    /// It differs because of another one that failed.
    Follows,
    /// It failed, and a waiver lets it pass.
    Waived,
    /// One side has no value that could be judged.
    Unverified,
}

impl Status {
    /// The word in reports.
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

/// What a case or a culprit is.
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
    /// The word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Op => "op",
            Self::Module => "module",
            Self::Scalar => "scalar",
        }
    }

    /// What an op is, by its name.
    pub(super) fn of(op: &str) -> Self {
        if OpName::parse(op).kind() == OpKind::Module { Self::Module } else { Self::Op }
    }
}

/// One value or module that was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The step; `None` for a statement about all steps.
    pub step: Option<u64>,
    /// The rank; `None` for scalars.
    pub rank: Option<u32>,
    /// What became of it.
    pub status: Status,
    /// In one line; empty where it passed.
    pub message: String,
    /// The evidence, at most five lines; empty where it passed.
    pub evidence: Vec<String>,
    /// Largest relative error of its results; `None` where nothing comparable was recorded, and for scalars.
    pub error: Option<f64>,
}

impl Case {
    /// A case that has passed.
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

    /// Step and rank in words: `step 3 rank 0`, `all steps`.
    pub fn place(&self) -> String {
        match (self.step, self.rank) {
            (Some(step), Some(rank)) => format!("step {step} rank {rank}"),
            (Some(step), None) => format!("step {step}"),
            (None, _) => "all steps".to_owned(),
        }
    }

    /// The case of an op at fault.
    pub(super) fn of_finding(finding: &Finding, kind: Kind) -> Self {
        Self {
            status: Status::Failed,
            message: format!("{}: {}", finding.cause.name(), finding.reason),
            evidence: evidence(finding),
            ..Self::passed(kind, finding.op.clone(), Some(finding.step), Some(finding.rank))
        }
    }
}

/// The evidence of a finding in at most five lines.
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

/// What is to blame.
#[derive(Debug, Clone, PartialEq)]
pub struct Culprit {
    /// What it is.
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
    /// Why, in words.
    pub reason: String,
    /// The baseline's value there; `None` for ops.
    pub baseline: Option<f64>,
    /// The candidate's value there; `None` for ops.
    pub candidate: Option<f64>,
    /// The difference that was judged, as a relative error; `None` where there is none.
    pub error: Option<f64>,
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
    /// The waiver that lets it pass; `None` where there is none.
    pub waived: Option<String>,
}

impl Culprit {
    /// A culprit of an op or module at fault.
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
            error,
            module: finding.module.clone(),
            source: finding.source.clone(),
            stack: finding.stack.clone(),
            places,
            followers,
            waived: None,
        }
    }

    /// Op and slot, or the scalar.
    pub fn title(&self) -> String {
        if self.slot.is_empty() { self.name.clone() } else { format!("{} {}", self.name, self.slot) }
    }

    /// Step and rank in words.
    pub fn place(&self) -> String {
        match (self.step, self.rank) {
            (Some(step), Some(rank)) => format!("step {step}, rank {rank}"),
            (Some(step), None) => format!("step {step}"),
            (None, _) => "all steps".to_owned(),
        }
    }
}

/// What moved the numbers, where running the base commit in the new environment has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MovedBy {
    /// The base commit gives other numbers than the commit under test.
    Commit,
    /// The base commit gives the numbers of the commit under test, not those of the baseline: what moved them is not this commit.
    Environment,
}

impl MovedBy {
    /// The word in reports.
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
    /// What was given.
    pub paths: Vec<PathBuf>,
    /// What it is, in words.
    pub format: String,
    /// Points of scalars in it.
    pub points: usize,
    /// Steps that have scalars or values.
    pub steps: usize,
    /// The commit, where known.
    pub commit: Option<String>,
    /// The dump among what was given.
    pub dump: Option<PathBuf>,
    /// The file with sketches of every op that a baseline names, where it is there.
    pub sketches: Option<PathBuf>,
}

/// Everything that a gate found.
#[derive(Debug, Clone)]
pub struct GateOutcome {
    /// The answer.
    pub state: State,
    /// What the answer does to the exit code where the commit is not to blame.
    pub effect: Effect,
    /// How the baseline was made.
    pub mode: Mode,
    /// The trusted side.
    pub baseline: SideInfo,
    /// The side under test.
    pub candidate: SideInfo,
    /// What is to blame, the first cause first; those that are waived last.
    pub culprits: Vec<Culprit>,
    /// Everything that was looked at.
    pub cases: Vec<Case>,
    /// What was missing or could not be read.
    pub unverified: Vec<Incomplete>,
    /// Set-ups of both sides.
    pub environment: Environments,
    /// Statements about the whole.
    pub notes: Vec<String>,
    /// Earlier results of the same commit and environment that this one contradicts.
    pub evidence: Vec<String>,
    /// How the first culprit was narrowed down to an op by running both sides again, a line for each comparison; empty where that was not done.
    pub narrowed: Vec<String>,
    /// What moved the numbers; `None` where it was not asked, or could not be told.
    pub moved_by: Option<MovedBy>,
    /// The command that shows more.
    pub next: String,
    /// File of the policy; `None` for the default.
    pub policy: Option<PathBuf>,
    /// What identifies the content of the baseline.
    pub baseline_hash: String,
    /// The candidate's scalars, for the history.
    pub scalars: super::import::Scalars,
    /// Wall time, in seconds.
    pub seconds: f64,
}

impl GateOutcome {
    /// Culprits that no waiver lets pass.
    pub fn to_blame(&self) -> impl Iterator<Item = &Culprit> {
        self.culprits.iter().filter(|culprit| culprit.waived.is_none())
    }

    /// What the process returns: 0 where nothing fails, 1 where a bound is broken, 3 where nothing is proved.
    pub const fn exit_code(&self) -> u8 {
        match (self.state, self.effect) {
            (State::Pass, _) | (State::Drift | State::Flaky, Effect::Neutral) => 0,
            (State::Regression, _) | (State::Drift | State::Flaky, Effect::Fail) => 1,
            (State::Unverified, _) => 3,
        }
    }

    /// Takes in what running both sides again has found: the op at fault takes the place of the module that it makes bad, and goes before scalars.
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
        // The same module as before, with a source line now.
        self.cases
            .retain(|other| (&other.name, other.step, other.rank) != (&case.name, case.step, case.rank));
        self.cases.insert(0, case);
        self.culprits.insert(0, culprit);
    }

    /// Tells drift from regressions: what moved the numbers was found by running the base commit in the candidate's environment. `on_drift` is what
    /// the policy says of drift.
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

    /// Marks cases that failed and that a waiver is for, but for those of what is not finite.
    pub(super) fn waive_cases(&mut self, waivers: &[Waiver]) {
        for case in self.cases.iter_mut().filter(|case| case.status == Status::Failed) {
            // The mean of a scalar goes by its name.
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

    /// Cases with this status.
    pub fn count(&self, status: Status) -> usize {
        self.cases.iter().filter(|case| case.status == status).count()
    }
}
