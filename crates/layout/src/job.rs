//! Values that are to be explained by a layout.

use std::collections::BTreeMap;
use std::sync::Arc;

use probe_dump::{Rank, TensorRecord, TensorStore};

use super::infer::{self, Held, Inferred};
use super::parts::are_mostly_equal;
use super::pieces;

/// A value that all ranks recorded under one name, and the baseline's under the same.
pub(crate) struct Job {
    /// Place among the ranks, and record.
    pub(crate) pieces: Vec<(usize, Arc<TensorRecord>)>,
    pub(crate) baseline: Option<Arc<TensorRecord>>,
    /// The reason a piece, or the baseline's value, cannot be read; there is no baseline then.
    pub(crate) damage: Option<Box<str>>,
}

/// The values of all ranks, before their layouts are known.
pub(crate) struct Gathered {
    pub(crate) jobs: Vec<Job>,
    /// Job of each value, by the places of op and slot.
    pub(crate) places: BTreeMap<(usize, usize), usize>,
}

/// Returns the distance of the value that an explanation makes to the other run's.
pub(crate) fn measured(job: &Job, found: &Inferred, stores: &[Arc<dyn TensorStore>], other: &Rank) -> f64 {
    let pieces: Vec<Held<'_>> =
        job.pieces.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect();
    let baseline = job.baseline.as_ref().map(|record| (&**record, &*other.store));
    baseline.map_or(f64::INFINITY, |baseline| infer::measured(&pieces, baseline, found))
}

/// Returns true for whole numbers if most elements of the value that an explanation makes are the other run's: choices (of a top-k) of which rounding made
/// some another way.
pub(crate) fn is_mostly_equal(
    job: &Job,
    found: &Inferred,
    stores: &[Arc<dyn TensorStore>],
    other: &Rank,
) -> bool {
    let load = |record: &TensorRecord, store: &dyn TensorStore| store.load(record.data.as_deref()?).ok();
    let whole =
        job.baseline.as_ref().filter(|record| record.dtype.known().is_some_and(|dtype| !dtype.is_float()));
    let made = || {
        let whole = whole?;
        let picked = found.picks.iter().map(|&pick| &job.pieces[pick]);
        let pieces =
            picked.map(|(rank, record)| load(record, &*stores[*rank])).collect::<Option<Vec<_>>>()?;
        Some((load(whole, &*other.store)?, pieces::view(&found.layout, pieces).ok()?))
    };
    made().is_some_and(|(baseline, made)| are_mostly_equal(baseline.view(), made.view()))
}
