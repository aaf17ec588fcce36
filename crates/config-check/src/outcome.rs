//! What a check found: rows, parts, and the answer.

use super::pack::{DeviceKind, Origin, Pack, mask_text};
use super::pair::DevicePair;
use super::part::{Part, Verdict};

/// Longest value in a row, in characters.
const MAX_VALUE: usize = 500;

/// Longest reason or advice, in characters.
const MAX_REASON: usize = 2000;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    /// What it is: name of a variable, package, tensor.
    pub key: String,
    /// The step it belongs to, where it belongs to one.
    pub step: Option<u64>,
    /// The ranks it was found on; empty where it belongs to none, or to the only one there is.
    pub ranks: Vec<u32>,
    /// The baseline's value; `None` where it was not recorded.
    pub baseline: Option<String>,
    /// The candidate's value; `None` where it was not recorded.
    pub candidate: Option<String>,
    /// What was decided.
    pub verdict: Verdict,
    /// Why it was decided so, and why it matters; may be empty for a match.
    pub reason: String,
    /// What to do; empty where nothing is to be done.
    pub action: String,
}

impl Row {
    /// Cuts what is too long, and removes what slipped through as a secret.
    pub(super) fn made_safe(mut self) -> Self {
        self.key = safe(&self.key, MAX_VALUE);
        self.baseline = self.baseline.as_deref().map(|text| safe(text, MAX_VALUE));
        self.candidate = self.candidate.as_deref().map(|text| safe(text, MAX_VALUE));
        self.reason = safe(&self.reason, MAX_REASON);
        self.action = safe(&self.action, MAX_REASON);
        self
    }
}

fn safe(text: &str, most: usize) -> String {
    let text = mask_text(text);
    // No character is shorter than a byte.
    if text.len() <= most {
        return text.into_owned();
    }
    let length = text.chars().count();
    if length <= most {
        return text.into_owned();
    }
    let kept: String = text.chars().take(most).collect();
    format!("{kept}... [cut, {length} characters in all]")
}

/// What was found in one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOutcome {
    /// Which part.
    pub part: Part,
    /// The worst verdict of its rows; [`Verdict::Unknown`] where there are none.
    pub verdict: Verdict,
    /// Everything that was looked at.
    pub rows: Vec<Row>,
}

impl PartOutcome {
    /// The outcome that `rows` make.
    pub(super) fn of(part: Part, rows: Vec<Row>) -> Self {
        let rows: Vec<Row> = rows.into_iter().map(Row::made_safe).collect();
        let verdict = rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Unknown);
        Self { part, verdict, rows }
    }

    /// Rows with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Whether nothing in it counts as a difference.
    pub fn passes(&self) -> bool {
        self.verdict != Verdict::Diff
    }
}

/// The answer of a whole check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckVerdict {
    /// Nothing differs that can change numerics.
    Match,
    /// Something does.
    Diff,
    /// Something could not be read, so there may be more than was found.
    Incomplete,
}

impl CheckVerdict {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Diff => "diff",
            Self::Incomplete => "incomplete",
        }
    }
}

/// One of the two packs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackInfo {
    /// Path as it was given.
    pub path: String,
    /// Who wrote it.
    pub origin: Origin,
    /// What it ran on, where known.
    pub device: Option<DeviceKind>,
    /// Steps in it.
    pub steps: Vec<u64>,
    /// Ranks in it.
    pub ranks: Vec<u32>,
}

impl PackInfo {
    pub(super) fn of(pack: &Pack, device: Option<DeviceKind>) -> Self {
        Self {
            path: pack.path.display().to_string(),
            origin: pack.origin,
            device,
            steps: pack.steps().into_iter().collect(),
            ranks: pack.ranks.keys().copied().collect(),
        }
    }
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Pack and member.
    pub place: String,
    /// Why, and the repair where there is one.
    pub reason: String,
}

/// Everything that a check found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The answer; decides the exit code.
    pub verdict: CheckVerdict,
    /// Kinds of device.
    pub pair: DevicePair,
    /// The parts, in the order of [`Part::ALL`]; every part is there.
    pub parts: Vec<PartOutcome>,
    /// What could not be read.
    pub incomplete: Vec<Unreadable>,
    /// The trusted run.
    pub baseline: PackInfo,
    /// The run under test.
    pub candidate: PackInfo,
    /// Whether `unknown` counts as a difference.
    pub strict: bool,
    /// Wall time, in seconds.
    pub seconds: f64,
}

impl Outcome {
    /// Rows with this verdict, all parts together.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.parts.iter().map(|part| part.count(verdict)).sum()
    }

    /// The part called `part`.
    pub fn part(&self, part: Part) -> Option<&PartOutcome> {
        self.parts.iter().find(|outcome| outcome.part == part)
    }
}
