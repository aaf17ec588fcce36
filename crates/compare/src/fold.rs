//! Accumulates the parts of a comparison. The answer is computed from it once, at the end, independent of the order of the parts and of
//! the number of pieces they were folded in.

use super::error::CompareError;
use super::pipeline::DonePart;
use probe_dump::{Dump, LevelFilter, PartKey, Rank};
use probe_judge::{Incomplete, RunInfo, RunJudge, RunVerdict, Summary, Verdict};

/// Reasons that an error names, of parts that could not be compared.
const NAMED: usize = 3;

/// Step and rank.
pub type Place = (u64, u32);

/// The parts compared so far.
#[derive(Debug, Default)]
pub struct Fold {
    /// Judgements so far.
    pub run: RunJudge,
    /// Amounts read from baseline and candidate.
    pub sides: [SideFold; 2],
    /// The first part, in order, that the options forbid to compare, and the reason.
    pub refused: Option<(Place, String)>,
}

/// Amounts read from one side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SideFold {
    /// Number of ops in all parts.
    pub ops: u64,
    /// Place, task and level of the first part.
    pub first: Option<(Place, String, String)>,
}

impl SideFold {
    fn add(&mut self, place: Place, rank: &Rank) {
        self.absorb(Self {
            ops: rank.ops.len() as u64,
            first: Some((place, rank.task.to_string(), rank.level.to_string())),
        });
    }

    fn absorb(&mut self, other: Self) {
        self.ops += other.ops;
        self.first = self.first.take().into_iter().chain(other.first).min();
    }
}

/// A side as a whole, with the head of the report and a flag that tells if the selection left anything of it.
#[derive(Debug, Clone)]
pub struct SideInfo {
    /// The head of the report.
    pub info: RunInfo,
    /// True if the selection left a part.
    pub selected: bool,
}

impl SideInfo {
    pub(super) fn of(dump: &Dump, selected: impl Fn(&PartKey) -> bool) -> Self {
        let sorted = |mut numbers: Vec<u64>| {
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        let mut ranks: Vec<u32> = dump.parts.iter().map(|key| key.rank.number()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let info = RunInfo {
            path: dump.path.display().to_string(),
            format: dump.format.to_owned(),
            steps: sorted(dump.parts.iter().map(|key| key.step).collect()),
            ranks,
            ..RunInfo::default()
        };
        Self { info, selected: dump.parts.iter().any(selected) }
    }
}

impl Fold {
    /// Adds the parts of another piece of the same comparison.
    pub fn absorb(&mut self, other: Self) {
        self.run.absorb(other.run);
        for (side, more) in self.sides.iter_mut().zip(other.sides) {
            side.absorb(more);
        }
        self.refused = self.refused.take().into_iter().chain(other.refused).min();
    }

    /// Adds a part: its judgement, and the values that could not be read.
    pub(super) fn add(&mut self, done: &DonePart) {
        let pair = &done.pair;
        let place = (pair.step, pair.rank);
        self.sides[0].add(place, &pair.baseline);
        self.sides[1].add(place, &pair.candidate);
        self.run.add(pair.step, pair.rank, &done.judged);
        let of_all = done.layouts.is_of_all_ranks();
        self.run.ranks_as_one |= of_all;
        let rank = if of_all { String::new() } else { format!(" rank {}", pair.rank) };
        let named = format!("step {}{rank}", pair.step);
        let mut incomplete = |reason: String| self.run.add_incomplete_part(place, named.clone(), reason);
        for fault in pair.baseline.faults.iter().chain(&pair.candidate.faults) {
            incomplete(fault.to_string());
        }
        if let Some(fault) = &done.reference_fault {
            incomplete(fault.clone());
        }
        for (op, judged) in pair.ops.iter().zip(done.judged.slots.iter()) {
            for (slots, slot) in op.slots.iter().zip(judged) {
                if slot.verdict == Verdict::Unreadable {
                    let (b, c) = pair.slot(op, slots);
                    let path = b.or(c).map_or("", |slot| &*slot.path);
                    let at = format!("{named} {} {path}", pair.name(op));
                    self.run.add_incomplete_part(place, at, slot.reason.to_string());
                }
            }
        }
    }

    /// Computes the answer.
    ///
    /// # Errors
    /// [`CompareError::Nothing`] when no op, or no value, was present on both sides.
    pub fn finish(
        self,
        sides: [SideInfo; 2],
        level: LevelFilter,
        seconds: f64,
    ) -> Result<Summary, CompareError> {
        let mut sides = sides;
        for (side, fold) in sides.iter_mut().zip(self.sides) {
            side.info.ops = fold.ops;
            if let Some((_, task, level)) = fold.first {
                (side.info.task, side.info.level) = (task, level);
            }
        }
        if self.run.ops_paired() == 0 {
            return Err(nothing_compared(self.run, &sides, level));
        }
        let [baseline, candidate] = sides.map(|side| side.info);
        let summary = self.run.finish(baseline, candidate, seconds);
        if summary.verdict == RunVerdict::Agree && summary.counts.compared() == 0 {
            let reason = format!(
                "the ops present on both sides ({}) hold no value that both recorded",
                summary.counts.ops_paired
            );
            return Err(CompareError::Nothing { reason });
        }
        Ok(summary)
    }
}

/// Explains why no op was compared: something could not be read, the selection left nothing, or no names match.
fn nothing_compared(run: RunJudge, sides: &[SideInfo; 2], level: LevelFilter) -> CompareError {
    let summary = run.finish(RunInfo::default(), RunInfo::default(), 0.0);
    let missing = sides.iter().find(|side| side.info.ops == 0);
    let reason = match (&*summary.incomplete, missing) {
        (incomplete @ [_, ..], Some(_)) => reasons(incomplete),
        ([], Some(SideInfo { info, selected: false })) => {
            format!(
                "{}: --step and --rank select nothing; it has steps {:?} and ranks {:?}",
                info.path, info.steps, info.ranks
            )
        }
        ([], Some(SideInfo { info, .. })) if level != LevelFilter::All => {
            format!("{}: holds no op of --level {level}; try --level all", info.path)
        }
        ([], Some(SideInfo { info, .. })) => {
            format!("{}: holds no op; the capture recorded nothing, capture it again", info.path)
        }
        (_, None) => {
            let [SideInfo { info: b, .. }, SideInfo { info: c, .. }] = sides;
            format!(
                "the {} ops of {} and the {} of {} share no name; are these dumps of the same model and level?",
                b.ops, b.path, c.ops, c.path
            )
        }
    };
    CompareError::Nothing { reason }
}

/// Returns why parts could not be compared, in one line: a file that is damaged may be named behind a step that one side lacks.
fn reasons(incomplete: &[Incomplete]) -> String {
    let first: Vec<String> = incomplete
        .iter()
        .take(NAMED)
        .map(|Incomplete { place, reason }| format!("{place}: {reason}"))
        .collect();
    let more = match incomplete.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("{}{more}", first.join("; "))
}
