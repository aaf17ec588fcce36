//! Log-probabilities of a trainer against those of the engine that sampled the tokens: in reinforcement learning both compute the
//! same numbers and do not agree. This crate says how far apart they are, and why.
//!
//! [`read`] makes tables of files of several frameworks, [`align`] finds which token is which, [`measure`] computes what the field
//! watches, [`cause`] names what makes the two differ, [`outcome`] is the answer. [`mod@write`] writes tables of tokens; other reports are
//! made elsewhere.

pub mod align;
pub mod cause;
mod lacking;
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

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use lacking::Lacking;
pub use options::{Precision, RolloutOptions};
pub use outcome::{RolloutOutcome, RolloutVerdict};

use align::{Joined, JoinedBy};
use passes::Passes;
use probe_read::ReadError;
use read::{Format, Recorded};
use table::{COUNTED, Side, Table};

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
    let Read { joined, formats, files, mut faults } = match &options.trainer {
        None => {
            let recorded = read::open(rollout, Side::Rollout)?;
            if !recorded.differences.is_empty() {
                let outcome = RolloutOutcome::of_differences(rollout, recorded).about_something()?;
                let made = beside(&outcome.table);
                return Ok((outcome, made));
            }
            of_one(rollout, recorded)?
        }
        Some(trainer) => of_two(rollout, trainer)?,
    };
    check_values(rollout, &joined.table)?;
    let (passes, unread) = Passes::of(&joined, options)?;
    faults.extend(unread);
    let (steps, made) = rayon::join(|| outcome::steps(&joined, &passes, options), || beside(&joined.table));
    let outcome = RolloutOutcome::of(rollout, joined, formats, files, &faults, steps, options);
    Ok((outcome.about_something()?, made))
}

/// Refuses values that are no logarithms of probabilities: losses, which are minus these, and probabilities themselves. Rounding may
/// leave a logarithm a little above 0.
fn check_values(path: &Path, table: &Table) -> Result<(), ReadError> {
    const ROUNDED: f32 = 0.1;
    let tokens = &table.tokens;
    for (side, values) in [(Side::Rollout, &tokens.rollout), (Side::Trainer, &tokens.trainer)] {
        let flag = COUNTED | side.flag();
        let counted = || values.iter().zip(&tokens.flags).filter(|(_, flags)| **flags & flag == flag);
        let (all, above) = (counted().count(), counted().filter(|(value, _)| **value > ROUNDED).count());
        if 2 * above > all {
            return Err(ReadError::usage(
                path,
                format!(
                    "{above} of {all} values of the {} are above 0, where no log-probability is; give log-probabilities instead of losses or probabilities",
                    side.name()
                ),
            ));
        }
    }
    Ok(())
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
    if ![Side::Rollout, Side::Trainer].into_iter().all(|side| recorded.table.has(side)) {
        return Err(ReadError::usage(
            rollout,
            "holds log-probabilities of one side; give the file of the other as a second argument",
        ));
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
    let steps = [&ours.table, &theirs.table].map(|table| table.steps().into_iter().map(|(step, _)| step));
    let [our_steps, their_steps] = steps.map(Iterator::collect::<BTreeSet<u64>>);
    let joined = Joined::of_two(ours.table, theirs.table);
    let apart = our_steps.is_disjoint(&their_steps) && our_steps.len().max(their_steps.len()) > 1;
    if apart && joined.by == JoinedBy::Places {
        let list =
            |steps: &BTreeSet<u64>| steps.iter().take(3).map(u64::to_string).collect::<Vec<_>>().join(", ");
        let (ours, theirs) = (list(&our_steps), list(&their_steps));
        return Err(ReadError::usage(
            trainer,
            format!(
                "shares no step with the rollout, and no tokens: it has {theirs}, the rollout {ours}; record both of one step"
            ),
        ));
    }
    if joined.table.samples.is_empty() {
        return Err(ReadError::usage(
            trainer,
            "shares no sample with the rollout: neither names nor token ids are equal; record both of one step",
        ));
    }
    Ok(Read { joined, formats, files, faults })
}
