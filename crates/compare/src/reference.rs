//! A third run, of higher precision, with which both sides are compared.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::collect;
use super::error::CompareError;
use super::request::CompareOptions;
use probe_dump::{Dump, PartKey, Rank, TensorRecord};
use probe_judge::ReferenceErrors;
use probe_measure::{Evidence, Metric};
use probe_pair::{BySlot, Mapping, PartMatch, PartPair, align};

/// The dump of the reference run.
#[derive(Debug)]
pub struct Reference {
    path: PathBuf,
    dump: Dump,
    /// True if the reference and each side have exactly one part: these belong together whatever their numbers.
    alone: bool,
}

/// Errors of a part, by the slots of its pairs; and the reason if the reference could not be read.
#[derive(Debug, Default)]
pub(super) struct OfPart {
    pub(super) errors: BySlot<ReferenceErrors>,
    pub(super) fault: Option<String>,
}

impl Reference {
    /// Opens the dump at `path`. It must contain some of `matches`, the parts being compared, unless that is empty. `total` is the number of
    /// parts in the whole comparison.
    ///
    /// # Errors
    /// [`CompareError`] when it cannot be opened, or cannot serve as reference for the runs compared.
    pub fn open(
        path: &Path,
        matches: &[PartMatch],
        total: usize,
        options: &CompareOptions,
    ) -> Result<Self, CompareError> {
        let dump = options.open(path)?;
        let alone = dump.parts.len() == 1 && total == 1;
        let reference = Self { path: path.into(), dump, alone };
        if !matches.is_empty() && !matches.iter().any(|part| reference.key(part).is_some()) {
            let reason = "shares no step and rank with the runs compared; capture the same steps".to_owned();
            return Err(CompareError::Reference { path: path.into(), reason });
        }
        Ok(reference)
    }

    fn key(&self, part: &PartMatch) -> Option<&PartKey> {
        let place = |key: &PartKey| (key.step, key.rank.number());
        let mut same = self.dump.parts.iter().filter(|key| place(key) == place(&part.baseline));
        let only = || self.dump.parts.first().filter(|_| self.alone);
        same.next().or_else(only)
    }

    /// Measures both sides of a part. Parts and values that the reference lacks have no errors.
    pub(super) fn errors(&self, part: &PartMatch, pair: &PartPair, options: &CompareOptions) -> OfPart {
        let Some(key) = self.key(part) else { return OfPart::default() };
        let at = |reason: String| {
            format!("reference {} step {} {}: {reason}", self.path.display(), key.step, key.rank)
        };
        let mut rank = match self.dump.reader.read(key) {
            Ok(rank) => rank,
            Err(fault) => return OfPart { errors: BySlot::default(), fault: Some(at(fault.to_string())) },
        };
        options.request.level.retain(&mut rank.ops);
        let (baseline, candidate) = rayon::join(
            || against(&rank, &pair.baseline, &Mapping::default()),
            || against(&rank, &pair.candidate, &options.mapping),
        );
        let unreadable = [&baseline, &candidate].into_iter().find_map(|side| side.unreadable.clone());
        let fault = rank.faults.first().map(ToString::to_string).or(unreadable).map(at);
        let errors = pair.ops.iter().map(|op| {
            let slots = op.slots.iter().map(|slots| ReferenceErrors {
                baseline: baseline.error(op.ops.baseline(), slots.baseline()),
                candidate: candidate.error(op.ops.candidate(), slots.candidate()),
            });
            slots.collect::<Vec<_>>()
        });
        OfPart { errors: errors.collect(), fault }
    }
}

/// Errors of one side relative to the reference, by its own ops and slots.
struct SideErrors {
    errors: Vec<Vec<Option<f64>>>,
    unreadable: Option<String>,
}

impl SideErrors {
    fn error(&self, op: Option<usize>, slot: Option<usize>) -> Option<f64> {
        *self.errors.get(op?)?.get(slot?)?
    }
}

fn against(reference: &Rank, side: &Rank, mapping: &Mapping) -> SideErrors {
    let pairs = align(reference, side, mapping).ops;
    let values = pairs.iter().flat_map(|pair| {
        let ops = pair.ops.baseline().zip(pair.ops.candidate());
        let slots = ops.into_iter().flat_map(|ops| pair.slots.iter().map(move |slots| (ops, slots)));
        slots.filter_map(|((of_reference, of_side), slots)| {
            let (r, s) = (slots.baseline()?, slots.candidate()?);
            let r = reference.ops.get(of_reference)?.slots.get(r)?.value.tensor()?;
            let record = side.ops.get(of_side)?.slots.get(s)?.value.tensor()?;
            Some(((of_side, s), r, record))
        })
    });
    let values: Vec<((usize, usize), &TensorRecord, &TensorRecord)> = values.collect();
    collect::expect(values.iter().map(|(_, r, record)| (*r, *record)), [&*reference.store, &*side.store]);
    let measured: Vec<((usize, usize), Evidence)> = values
        .par_iter()
        .map(|&(place, r, record)| {
            (place, collect::evidence((r, &*reference.store), (record, &*side.store)).0)
        })
        .collect();
    let mut errors: Vec<Vec<Option<f64>>> = side.ops.iter().map(|op| vec![None; op.slots.len()]).collect();
    let mut unreadable = None;
    for ((op, slot), evidence) in measured {
        if let Evidence::Unreadable(why) = &evidence
            && let Some(reason) = &why.baseline
        {
            unreadable.get_or_insert_with(|| format!("{} could not be read: {reason}", side.ops[op].name));
        }
        errors[op][slot] = evidence.metric(Metric::RelL2).filter(|error| error.is_finite());
    }
    SideErrors { errors, unreadable }
}
