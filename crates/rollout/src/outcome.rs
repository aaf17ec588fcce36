//! The answer: per step, per sample, and over all.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::align::{Joined, JoinedBy, TokenGap};
use crate::cause::{Cause, Explained, Finding, explain};
use crate::lacking::{Lacking, lacking};
use crate::measure::Measures;
use crate::options::{Precision, RolloutOptions};
use crate::pairs::Pairs;
use crate::passes::Passes;
use crate::read::{Differences, Format, Recorded};
use crate::table::Table;
use probe_read::ReadError;

/// The answer in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutVerdict {
    /// Nothing is larger than rounding explains.
    Agree,
    /// A cause was found.
    Differ,
    /// Something could not be read, or one side lacks it.
    Incomplete,
}

impl RolloutVerdict {
    /// Returns the word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::Differ => "differ",
            Self::Incomplete => "incomplete",
        }
    }
}

/// One step.
#[derive(Debug)]
pub struct StepOutcome {
    /// Training step.
    pub step: u64,
    /// Places of its samples.
    pub samples: Range<usize>,
    /// Differences of all compared tokens.
    pub measures: Measures,
    /// Differences that no bookkeeping explains.
    pub rest: Measures,
    /// Causes, the first to look at first.
    pub findings: Vec<Finding>,
    /// Remarks that are no fault.
    pub notes: Vec<String>,
    /// Samples in order, with how far their sides are apart.
    pub rows: Vec<SampleOutcome>,
    /// The tokens that differ most.
    pub worst: Vec<WorstToken>,
}

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleOutcome {
    /// Place in the table.
    pub sample: usize,
    /// Compared tokens.
    pub tokens: u64,
    /// Mean of |d|.
    pub mean_abs: f64,
    /// Largest |d|.
    pub max_abs: f64,
    /// Position of the largest.
    pub position: Option<u32>,
    /// Mean log-probability in the engine.
    pub rollout: f64,
    /// The same in the trainer.
    pub trainer: f64,
    /// Causes that name this sample.
    pub causes: Vec<Cause>,
}

/// A token that differs much.
#[derive(Debug, Clone, PartialEq)]
pub struct WorstToken {
    /// Place of its sample.
    pub sample: usize,
    /// Position in the sequence.
    pub position: u32,
    /// Its id, unless it was not recorded.
    pub id: Option<u32>,
    /// Log-probability in the engine.
    pub rollout: f32,
    /// Log-probability in the trainer.
    pub trainer: f32,
}

/// Tokens that are listed for each step.
const WORST: usize = 10;

/// Result of a comparison.
#[derive(Debug)]
pub struct RolloutOutcome {
    /// The rollout's path as given.
    pub path: PathBuf,
    /// The trainer's, if there is one.
    pub trainer: Option<PathBuf>,
    /// Formats of the two.
    pub formats: [Option<Format>; 2],
    /// Files that were read.
    pub files: Vec<PathBuf>,
    /// How samples were joined.
    pub joined: JoinedBy,
    /// Both sides of all tokens.
    pub table: Table,
    /// Differences of tokens.
    pub gaps: Vec<TokenGap>,
    /// Samples on the rollout's side alone.
    pub only_rollout: Vec<String>,
    /// Samples on the trainer's side alone.
    pub only_trainer: Vec<String>,
    /// Number format as given.
    pub precision: Option<Precision>,
    /// The steps, ascending.
    pub steps: Vec<StepOutcome>,
    /// Steps and samples that one side lacks.
    pub lacking: Vec<Lacking>,
    /// Differences of probabilities of msprobe, which have no sign and so no cause.
    pub differences: Vec<Differences>,
    /// Things that could not be read.
    pub faults: Vec<String>,
}

/// Explains the steps of a table, in order.
pub(crate) fn steps(joined: &Joined, passes: &Passes, options: &RolloutOptions) -> Vec<StepOutcome> {
    let explained = |(step, samples): (u64, Range<usize>)| {
        let again = &passes.again;
        let again =
            again.iter().find(|again| again.step == step).or(again.first().filter(|_| again.len() == 1));
        let passes = (again, passes.quantized.as_ref());
        StepOutcome::of(step, samples.clone(), explain(joined, samples, passes, options), &joined.table)
    };
    joined.table.steps().into_par_iter().map(explained).collect()
}

impl RolloutOutcome {
    pub(crate) fn of(
        path: &Path,
        joined: Joined,
        formats: [Option<Format>; 2],
        files: Vec<PathBuf>,
        faults: &[ReadError],
        steps: Vec<StepOutcome>,
        options: &RolloutOptions,
    ) -> Self {
        let lacking = lacking(&joined);
        let Joined { table, by, gaps, only_rollout, only_trainer, .. } = joined;
        Self {
            path: path.into(),
            trainer: options.trainer.clone(),
            formats,
            files,
            joined: by,
            table,
            gaps,
            only_rollout,
            only_trainer,
            precision: options.precision,
            steps,
            lacking,
            differences: Vec::new(),
            faults: faults.iter().map(ToString::to_string).collect(),
        }
    }

    pub(crate) fn of_differences(path: &Path, recorded: Recorded) -> Self {
        let Recorded { differences, format, files, faults, .. } = recorded;
        Self {
            path: path.into(),
            trainer: None,
            formats: [format, None],
            files,
            joined: JoinedBy::File,
            table: Table::default(),
            gaps: Vec::new(),
            only_rollout: Vec::new(),
            only_trainer: Vec::new(),
            precision: None,
            steps: Vec::new(),
            lacking: Vec::new(),
            differences,
            faults: faults.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the answer.
    pub fn verdict(&self) -> RolloutVerdict {
        let differs = self.steps.iter().any(|step| !step.findings.is_empty())
            || self.differences.iter().any(Differences::differ);
        match (self.faults.is_empty() && self.lacking.is_empty(), differs) {
            (false, _) => RolloutVerdict::Incomplete,
            (true, true) => RolloutVerdict::Differ,
            (true, false) => RolloutVerdict::Agree,
        }
    }

    /// Returns the causes of all steps, the one to look at first, with the first step of each and the number of steps that have it.
    pub fn causes(&self) -> Vec<(Cause, u64, usize)> {
        let mut found: BTreeMap<usize, (Cause, u64, usize)> = BTreeMap::new();
        for step in &self.steps {
            for finding in &step.findings {
                let place =
                    Cause::ALL.iter().position(|cause| *cause == finding.cause).unwrap_or(Cause::ALL.len());
                found.entry(place).or_insert((finding.cause, step.step, 0)).2 += 1;
            }
        }
        found.into_values().collect()
    }

    /// Returns the number of compared tokens.
    pub fn tokens(&self) -> u64 {
        let differences = self.differences.iter().map(Differences::tokens);
        self.steps.iter().map(|step| step.measures.tokens).chain(differences).sum()
    }

    /// Returns what was not compared: files that could not be read, then what one side lacks.
    pub fn incomplete(&self) -> Vec<String> {
        self.faults.iter().cloned().chain(self.lacking.iter().map(ToString::to_string)).collect()
    }

    /// Refuses an answer that is about nothing.
    pub(crate) fn about_something(self) -> Result<Self, ReadError> {
        if self.tokens() > 0 || self.steps.iter().any(|step| !step.findings.is_empty()) {
            return Ok(self);
        }
        let lacking = self.lacking.first().map_or_else(
            || "no token is in the loss on both sides; check the mask".to_owned(),
            ToString::to_string,
        );
        Err(ReadError::usage(&self.path, format!("nothing was compared: {lacking}")))
    }
}

impl StepOutcome {
    fn of(step: u64, samples: Range<usize>, explained: Explained, table: &Table) -> Self {
        let Explained { findings, notes, measures, rest, pairs } = explained;
        let rows = pairs
            .rows
            .par_iter()
            .map(|row| {
                let (g, p) = pairs.row(row);
                let each = || g.iter().zip(p).map(|(g, p)| (p - g).abs());
                let worst = each().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
                let count = g.len().max(1) as f64;
                let mean = |values: &[f32]| values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
                let causes = findings.iter().filter(|finding| finding.samples.contains(&row.sample));
                SampleOutcome {
                    sample: row.sample,
                    tokens: g.len() as u64,
                    mean_abs: pairs.error(row),
                    max_abs: worst.map_or(0.0, |worst| f64::from(worst.1)),
                    position: worst.map(|(at, _)| table.tokens.positions[pairs.place[row.range.start + at]]),
                    rollout: mean(g),
                    trainer: mean(p),
                    causes: causes.map(|finding| finding.cause).collect(),
                }
            })
            .collect();
        let worst = worst(&pairs, table);
        Self { step, samples, measures, rest, findings, notes, rows, worst }
    }
}

/// Returns the tokens with the largest differences.
fn worst(pairs: &Pairs, table: &Table) -> Vec<WorstToken> {
    let size = |at: &usize| (pairs.p[*at] - pairs.g[*at]).abs();
    let mut largest: Vec<usize> = Vec::with_capacity(WORST + 1);
    for at in 0..pairs.len() {
        if largest.len() == WORST && largest.last().is_some_and(|last| size(last) >= size(&at)) {
            continue;
        }
        let place = largest.partition_point(|other| size(other) >= size(&at));
        largest.insert(place, at);
        largest.truncate(WORST);
    }
    let token = |at: usize| {
        let place = pairs.place[at];
        let row = pairs.rows.partition_point(|row| row.range.end <= at);
        let id = table.tokens.ids[place];
        WorstToken {
            sample: pairs.rows[row].sample,
            position: table.tokens.positions[place],
            id: (id != crate::table::NO_ID).then_some(id),
            rollout: pairs.g[at],
            trainer: pairs.p[at],
        }
    };
    largest.into_iter().map(token).collect()
}
