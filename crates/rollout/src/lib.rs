//! Log-probabilities of a trainer against those of the engine that sampled the tokens: in reinforcement learning both compute the
//! same numbers and do not agree. This crate says how far apart they are, and why.
//!
//! [`read`] makes tables of files of several frameworks, [`align`] finds which token is which, [`measure`] computes what the field
//! watches, [`cause`] names what makes the two differ, [`outcome`] is the answer. [`mod@write`] writes tables of tokens; other reports are
//! made elsewhere.

pub mod align;
pub mod cause;
pub mod measure;
pub mod outcome;
mod pairs;
pub mod read;
pub mod routes;
mod sequence;
pub mod table;
pub mod write;

use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use outcome::{RolloutOutcome, RolloutVerdict};

use align::Joined;
use probe_read::ReadError;
use read::Recorded;
use table::Side;

/// Number format that both sides compute in. It bounds what rounding explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// IEEE binary32.
    Float32,
    /// IEEE binary16.
    Float16,
    /// Upper half of a binary32.
    Bfloat16,
}

impl Precision {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Float32, Self::Float16, Self::Bfloat16];

    /// Returns the word used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
        }
    }

    /// Returns the mean of |d| up to which rounding explains a difference.
    ///
    /// In bfloat16, sound pairs gave 0.014 to 0.0185, and miles warns from 0.03. In float32, sound pairs gave 1.3e-6, and one stale
    /// step at a learning rate of 1e-6 gave 3e-4. The bound for float16 is that of bfloat16 over 8, as three more bits make it.
    pub const fn bound(self) -> f64 {
        match self {
            Self::Float32 => 1e-4,
            Self::Float16 => 0.03 / 8.0,
            Self::Bfloat16 => 0.03,
        }
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|precision| precision.name() == text)
            .ok_or_else(|| format!("unknown number format {text:?}; choose from float32, float16, bfloat16"))
    }
}

/// Options of a comparison.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RolloutOptions {
    /// The trainer's file or folder; `None` if the rollout's holds both sides.
    pub trainer: Option<PathBuf>,
    /// A second pass of the trainer over the same tokens, which shows its own noise.
    pub again: Option<PathBuf>,
    /// A pass of the trainer with weights quantised as the engine's, which shows if that is the cause.
    pub quantized: Option<PathBuf>,
    /// Number format of both sides; bfloat16 is assumed if none is given.
    pub precision: Option<Precision>,
}

/// Compares the log-probabilities in `rollout`, a file or a folder, with those of the trainer.
///
/// # Errors
/// [`ReadError`] when a side cannot be read at all, when one file is given and holds one side, or when no sample is on both sides.
pub fn compare(rollout: &Path, options: &RolloutOptions) -> Result<RolloutOutcome, ReadError> {
    let Some(trainer) = &options.trainer else {
        let recorded = read::open(rollout, Side::Rollout)?;
        if !recorded.differences.is_empty() {
            return Ok(RolloutOutcome::of_differences(rollout, recorded));
        }
        for side in [Side::Rollout, Side::Trainer] {
            if !recorded.table.has(side) {
                return Err(ReadError::usage(
                    rollout,
                    format!(
                        "holds no log-probabilities of the {}; give its file as a second argument",
                        side.name()
                    ),
                ));
            }
        }
        let Recorded { table, format, files, faults, .. } = recorded;
        let joined = Joined::of_one(table);
        let passes = Passes::of(&joined, options)?;
        return Ok(RolloutOutcome::of(rollout, joined, [format, None], files, &faults, &passes, options));
    };
    let (ours, theirs) =
        rayon::join(|| read::open(rollout, Side::Rollout), || read::open(trainer, Side::Trainer));
    let (mut ours, theirs) = (ours?, theirs?);
    for (recorded, path, side) in [(&ours, rollout, Side::Rollout), (&theirs, &**trainer, Side::Trainer)] {
        if !recorded.differences.is_empty() {
            return Err(ReadError::usage(path, "holds differences of both sides already; give it alone"));
        }
        if !recorded.table.has(side) {
            return Err(ReadError::usage(path, format!("holds no log-probabilities of the {}", side.name())));
        }
    }
    let formats = [ours.format, theirs.format];
    let mut files = std::mem::take(&mut ours.files);
    files.extend(theirs.files);
    ours.faults.extend(theirs.faults);
    let joined = Joined::of_two(ours.table, theirs.table);
    if joined.table.samples.is_empty() {
        return Err(ReadError::usage(
            &**trainer,
            "shares no sample with the rollout: neither names nor token ids are equal; record both of one step",
        ));
    }
    let passes = Passes::of(&joined, options)?;
    Ok(RolloutOutcome::of(rollout, joined, formats, files, &ours.faults, &passes, options))
}

/// Other passes of the trainer over the same tokens.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    /// How far a second pass is from the first, by step.
    pub(crate) again: Vec<cause::Again>,
    /// A pass with quantised weights, joined with the first.
    pub(crate) quantized: Option<table::Table>,
}

impl Passes {
    fn of(joined: &Joined, options: &RolloutOptions) -> Result<Self, ReadError> {
        let table = |path: &PathBuf| second_pass(joined, path);
        let again = options.again.as_ref().map(table).transpose()?;
        let quantized = options.quantized.as_ref().map(table).transpose()?;
        Ok(Self { again: again.as_ref().map(distances).unwrap_or_default(), quantized })
    }
}

/// Returns the trainer's values of a first pass, in place of the rollout's, and those of a second.
fn second_pass(joined: &Joined, path: &Path) -> Result<table::Table, ReadError> {
    let second = read::open(path, Side::Trainer)?;
    let mut first = joined.table.clone();
    // The first pass takes the place of the rollout, so that the two are joined as two sides are.
    std::mem::swap(&mut first.tokens.rollout, &mut first.tokens.trainer);
    for flags in &mut first.tokens.flags {
        let scored = *flags & table::TRAINER != 0;
        *flags = (*flags & table::COUNTED) | if scored { table::ROLLOUT } else { 0 };
    }
    Ok(Joined::of_two(first, second.table).table)
}

/// Returns how far two passes are from each other, by step.
fn distances(both: &table::Table) -> Vec<cause::Again> {
    let of = |(step, samples)| {
        let pairs = pairs::Pairs::of(both, samples);
        let measures = measure::Measures::of(&pairs.g, &pairs.p);
        cause::Again { step, mean_abs: measures.mean_abs, tokens: measures.tokens }
    };
    outcome::steps(both).into_iter().map(of).collect()
}
