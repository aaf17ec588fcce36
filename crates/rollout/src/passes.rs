//! Other passes of the trainer over the tokens of a pair.

use std::path::{Path, PathBuf};

use crate::align::Joined;
use crate::cause::Again;
use crate::measure::Measures;
use crate::options::RolloutOptions;
use crate::pairs::Pairs;
use crate::read;
use crate::table::{COUNTED, ROLLOUT, Side, TRAINER, Table};
use probe_read::ReadError;

/// Other passes of the trainer over the same tokens.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    /// How far a second pass is from the first, by step.
    pub(crate) again: Vec<Again>,
    /// A pass with quantised weights, joined with the first.
    pub(crate) quantized: Option<Table>,
}

impl Passes {
    /// Reads the passes. Files of theirs that could not be read are returned as well.
    pub(crate) fn of(joined: &Joined, options: &RolloutOptions) -> Result<(Self, Vec<ReadError>), ReadError> {
        let mut unread = Vec::new();
        let mut table = |path: &PathBuf| second_pass(joined, path, &mut unread);
        let again = options.again.as_ref().map(&mut table).transpose()?;
        let quantized = options.quantized.as_ref().map(&mut table).transpose()?;
        Ok((Self { again: again.as_ref().map(distances).unwrap_or_default(), quantized }, unread))
    }
}

/// Returns the trainer's values of a first pass, in place of the rollout's, and those of a second.
fn second_pass(joined: &Joined, path: &Path, unread: &mut Vec<ReadError>) -> Result<Table, ReadError> {
    let second = read::open(path, Side::Trainer)?;
    let mut first = joined.table.clone();
    // The first pass takes the place of the rollout, so that the two are joined as two sides are.
    std::mem::swap(&mut first.tokens.rollout, &mut first.tokens.trainer);
    for flags in &mut first.tokens.flags {
        let scored = *flags & TRAINER != 0;
        *flags = (*flags & COUNTED) | if scored { ROLLOUT } else { 0 };
    }
    unread.extend(second.faults);
    let both = Joined::of_two(first, second.table).table;
    if both.samples.is_empty() {
        let message =
            "shares no sample with the pair: neither names nor token ids are equal; score the same batch";
        return Err(ReadError::usage(path, message));
    }
    Ok(both)
}

/// Returns how far two passes are from each other, by step.
fn distances(both: &Table) -> Vec<Again> {
    let of = |(step, samples)| {
        let pairs = Pairs::of(both, samples);
        let measures = Measures::of(&pairs.g, &pairs.p);
        Again { step, mean_abs: measures.mean_abs, median_abs: measures.median_abs, tokens: measures.tokens }
    };
    both.steps().into_iter().map(of).collect()
}
