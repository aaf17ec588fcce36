//! Results of a check: rows, parts, and the overall verdict.

use super::pack::{DeviceKind, Origin, Pack, mask_text};
use super::pair::DevicePair;
use super::part::{Part, Verdict};

/// Longest value in a row, in characters.
const MAX_VALUE: usize = 500;

/// Longest reason or advice, in characters.
const MAX_REASON: usize = 2000;

/// One compared item.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    /// Name of the variable, package, tensor or setting.
    pub key: String,
    /// The step it belongs to, if any.
    pub step: Option<u64>,
    /// The ranks it was found on; empty if it belongs to no rank, or to the only one.
    pub ranks: Vec<u32>,
    /// The baseline's value; `None` if not recorded.
    pub baseline: Option<String>,
    /// The candidate's value; `None` if not recorded.
    pub candidate: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// Reason for the verdict and why it matters; may be empty for a match.
    pub reason: String,
    /// Advice; empty if there is nothing to do.
    pub action: String,
}

impl Row {
    /// Truncates long texts and masks any secret that slipped through.
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
    // A character takes at least one byte.
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

/// Result for one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOutcome {
    /// The part.
    pub part: Part,
    /// The worst verdict of its rows; [`Verdict::Unknown`] if there are none.
    pub verdict: Verdict,
    /// All compared items.
    pub rows: Vec<Row>,
}

impl PartOutcome {
    /// Builds the outcome of `part` from its rows.
    pub(super) fn of(part: Part, rows: Vec<Row>) -> Self {
        let rows: Vec<Row> = rows.into_iter().map(Row::made_safe).collect();
        let verdict = rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Unknown);
        Self { part, verdict, rows }
    }

    /// Returns the number of rows with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Returns true if the part does not count as different.
    pub fn passes(&self) -> bool {
        self.verdict != Verdict::Diff
    }
}

/// Verdict of a whole check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckVerdict {
    /// Nothing differs that can change numerics.
    Match,
    /// Something differs that can change numerics.
    Diff,
    /// Something could not be read, so there may be further differences.
    Incomplete,
}

impl CheckVerdict {
    /// Returns its name.
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
    /// Path as given.
    pub path: String,
    /// The tool that wrote it.
    pub origin: Origin,
    /// Kind of device it ran on, if known.
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
    /// The reason, and the repair if there is one.
    pub reason: String,
}

/// Complete result of a check.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The verdict; decides the exit code.
    pub verdict: CheckVerdict,
    /// Kinds of device.
    pub pair: DevicePair,
    /// All parts, in the order of [`Part::ALL`].
    pub parts: Vec<PartOutcome>,
    /// Parts of the packs that could not be read.
    pub incomplete: Vec<Unreadable>,
    /// The trusted run.
    pub baseline: PackInfo,
    /// The run under test.
    pub candidate: PackInfo,
    /// True if `unknown` counts as a difference.
    pub strict: bool,
    /// Wall time, in seconds.
    pub seconds: f64,
}

impl Outcome {
    /// Returns the number of rows with this verdict in all parts.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.parts.iter().map(|part| part.count(verdict)).sum()
    }

    /// Returns the outcome of `part`.
    pub fn part(&self, part: Part) -> Option<&PartOutcome> {
        self.parts.iter().find(|outcome| outcome.part == part)
    }
}
