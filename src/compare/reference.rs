//! A third run, of higher precision, against which both sides are measured.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::{CompareError, CompareOptions, collect};
use crate::dump::{Dump, PartKey, Rank};
use crate::judge::ReferenceErrors;
use crate::measure::{Evidence, Metric};
use crate::pair::{Mapping, PartMatch, PartPair, align};

/// The dump of the reference run.
#[derive(Debug)]
pub(crate) struct Reference {
    path: PathBuf,
    dump: Dump,
    /// It has one part, as each side has: these belong together whatever their numbers.
    alone: bool,
}

/// Errors of a part, by op and slot of its pairs; and what could not be read of the reference.
#[derive(Debug, Default)]
pub(super) struct OfPart {
    pub(super) errors: Vec<Vec<ReferenceErrors>>,
    pub(super) fault: Option<String>,
}

impl Reference {
    /// Opens the dump at `path`. Of `matches`, the parts that are compared, it has to have some, unless there are none. `total` is their number
    /// in the whole comparison.
    pub(crate) fn open(
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

    /// Measures both sides of a part. A part that the reference lacks has no errors, nor has a value.
    pub(super) fn errors(&self, part: &PartMatch, pair: &PartPair, options: &CompareOptions) -> OfPart {
        let Some(key) = self.key(part) else { return OfPart::default() };
        let at = |reason: String| {
            format!("reference {} step {} {}: {reason}", self.path.display(), key.step, key.rank)
        };
        let mut rank = match self.dump.reader.read(key) {
            Ok(rank) => rank,
            Err(fault) => return OfPart { errors: Vec::new(), fault: Some(at(fault.to_string())) },
        };
        options.level.retain(&mut rank.ops);
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
            slots.collect()
        });
        OfPart { errors: errors.collect(), fault }
    }
}

/// Errors of one side against the reference, by its own ops and slots.
struct Side {
    errors: Vec<Vec<Option<f64>>>,
    unreadable: Option<String>,
}

impl Side {
    fn error(&self, op: Option<usize>, slot: Option<usize>) -> Option<f64> {
        *self.errors.get(op?)?.get(slot?)?
    }
}

fn against(reference: &Rank, side: &Rank, mapping: &Mapping) -> Side {
    let pairs = align(reference, side, mapping).ops;
    let both = pairs.par_iter().filter_map(|pair| {
        let (of_reference, of_side) = (pair.ops.baseline()?, pair.ops.candidate()?);
        let slots = pair.slots.iter().filter_map(|slots| {
            let (r, s) = (slots.baseline()?, slots.candidate()?);
            let r = reference.ops.get(of_reference)?.slots.get(r)?.value.tensor()?;
            let record = side.ops.get(of_side)?.slots.get(s)?.value.tensor()?;
            let (evidence, _) = collect::evidence((r, &*reference.store), (record, &*side.store));
            Some((s, evidence))
        });
        Some((of_side, slots.collect::<Vec<_>>()))
    });
    let measured: Vec<(usize, Vec<(usize, Evidence)>)> = both.collect();
    let mut errors: Vec<Vec<Option<f64>>> = side.ops.iter().map(|op| vec![None; op.slots.len()]).collect();
    let mut unreadable = None;
    for (op, slots) in measured {
        for (slot, evidence) in slots {
            if let Evidence::Unreadable(why) = &evidence
                && let Some(reason) = &why.baseline
            {
                unreadable
                    .get_or_insert_with(|| format!("{} could not be read: {reason}", side.ops[op].name));
            }
            errors[op][slot] = evidence.metric(Metric::RelL2).filter(|error| error.is_finite());
        }
    }
    Side { errors, unreadable }
}
