//! Log-probabilities of a trainer against those of the engine that sampled the tokens: in reinforcement learning both compute the
//! same numbers and do not agree. This crate says how far apart they are, and why.
//!
//! [`read`] makes tables of files of several frameworks, [`align`] finds which token is which, [`measure`] computes what the field
//! watches, [`cause`] names what makes the two differ, [`outcome`] is the answer. [`mod@write`] writes tables of tokens; other reports are
//! made elsewhere.

pub mod align;
pub mod cause;
pub mod measure;
mod options;
pub mod outcome;
mod pairs;
mod passes;
pub mod read;
pub mod routes;
mod sequence;
pub mod table;
pub mod write;

use std::path::{Path, PathBuf};

pub use options::{Precision, RolloutOptions};
pub use outcome::{RolloutOutcome, RolloutVerdict};

use align::Joined;
use passes::Passes;
use probe_read::ReadError;
use read::{Format, Recorded};
use table::{Side, Table};

/// Compares the log-probabilities in `rollout`, a file or a folder, with those of the trainer.
///
/// # Errors
/// [`ReadError`] when a side cannot be read at all, when one file is given and holds one side, or when no sample is on both sides.
pub fn compare(rollout: &Path, options: &RolloutOptions) -> Result<RolloutOutcome, ReadError> {
    compare_beside(rollout, options, |_| ()).map(|(outcome, ())| outcome)
}

/// Does the same, and gives the joined tokens to `beside` while their differences are explained: they are complete before the answer is.
///
/// # Errors
/// Those of [`compare`].
pub fn compare_beside<T: Send>(
    rollout: &Path,
    options: &RolloutOptions,
    beside: impl FnOnce(&Table) -> T + Send,
) -> Result<(RolloutOutcome, T), ReadError> {
    let Read { joined, formats, files, faults } = match &options.trainer {
        None => {
            let recorded = read::open(rollout, Side::Rollout)?;
            if !recorded.differences.is_empty() {
                let outcome = RolloutOutcome::of_differences(rollout, recorded);
                let made = beside(&outcome.table);
                return Ok((outcome, made));
            }
            of_one(rollout, recorded)?
        }
        Some(trainer) => of_two(rollout, trainer)?,
    };
    let passes = Passes::of(&joined, options)?;
    let (steps, made) = rayon::join(|| outcome::steps(&joined, &passes, options), || beside(&joined.table));
    Ok((RolloutOutcome::of(rollout, joined, formats, files, &faults, steps, options), made))
}

/// What the files hold, joined.
struct Read {
    joined: Joined,
    formats: [Option<Format>; 2],
    files: Vec<PathBuf>,
    faults: Vec<ReadError>,
}

/// Takes a file, or a folder, that holds both sides.
fn of_one(rollout: &Path, recorded: Recorded) -> Result<Read, ReadError> {
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
    Ok(Read { joined: Joined::of_one(table), formats: [format, None], files, faults })
}

/// Reads and joins two sides.
fn of_two(rollout: &Path, trainer: &Path) -> Result<Read, ReadError> {
    let (ours, theirs) =
        rayon::join(|| read::open(rollout, Side::Rollout), || read::open(trainer, Side::Trainer));
    let (ours, theirs) = (ours?, theirs?);
    for (recorded, path, side) in [(&ours, rollout, Side::Rollout), (&theirs, trainer, Side::Trainer)] {
        if !recorded.differences.is_empty() {
            return Err(ReadError::usage(path, "holds differences of both sides already; give it alone"));
        }
        if !recorded.table.has(side) {
            return Err(ReadError::usage(path, format!("holds no log-probabilities of the {}", side.name())));
        }
    }
    let formats = [ours.format, theirs.format];
    let (mut files, mut faults) = (ours.files, ours.faults);
    files.extend(theirs.files);
    faults.extend(theirs.faults);
    let joined = Joined::of_two(ours.table, theirs.table);
    if joined.table.samples.is_empty() {
        return Err(ReadError::usage(
            trainer,
            "shares no sample with the rollout: neither names nor token ids are equal; record both of one step",
        ));
    }
    Ok(Read { joined, formats, files, faults })
}
