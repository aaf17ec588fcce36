//! Steps and samples that one side has no log-probability of, so that nothing was compared there.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use crate::align::{GapKind, Joined};
use crate::table::{COUNTED, ROLLOUT, Sample, Side, TRAINER, Table};

/// Names of samples that are told.
const SHOWN: usize = 3;

/// A step, or some samples of one, that a side lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// Training step.
    pub step: u64,
    /// The side that has nothing of it.
    pub side: Side,
    /// Names of the samples; empty for the whole step.
    pub samples: Vec<Box<str>>,
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, side, samples } = self;
        write!(f, "step {step}: the {} has no log-probabilities of ", side.name())?;
        if samples.is_empty() {
            f.write_str("it")?;
        } else {
            f.write_str(if samples.len() == 1 { "sample " } else { "samples " })?;
            f.write_str(&samples.iter().take(SHOWN).map(|name| &**name).collect::<Vec<_>>().join(", "))?;
        }
        if samples.len() > SHOWN {
            write!(f, " and {} more", samples.len() - SHOWN)?;
        }
        f.write_str("; not compared")
    }
}

/// Returns what a side lacks, by step. A sample counts whose tokens in the loss have no value of one side, unless its tokens are other
/// ones: that is a finding.
pub(crate) fn lacking(joined: &Joined) -> Vec<Lacking> {
    let other = joined.gaps.iter().filter(|gap| gap.kind != GapKind::End).map(|gap| gap.sample);
    let other: HashSet<usize> = other.collect();
    let whole = |(step, side): &(u64, Side)| Lacking { step: *step, side: *side, samples: Vec::new() };
    let mut all: Vec<Lacking> = joined.alone.iter().map(whole).collect();
    for (step, range) in joined.table.steps() {
        let mut samples: BTreeMap<u8, (Side, Vec<Box<str>>)> = BTreeMap::new();
        for place in range.clone().filter(|place| !other.contains(place)) {
            let sample = &joined.table.samples[place];
            if let Some(side) = side_without(&joined.table, sample) {
                samples.entry(side.flag()).or_insert((side, Vec::new())).1.push(sample.name.clone());
            }
        }
        for (side, samples) in samples.into_values() {
            let samples = if samples.len() == range.len() { Vec::new() } else { samples };
            all.push(Lacking { step, side, samples });
        }
    }
    all.sort_by_key(|lacking| lacking.step);
    all
}

/// Returns the side that has no value of any token in the loss, if the other has some.
fn side_without(table: &Table, sample: &Sample) -> Option<Side> {
    let flags = table.tokens.flags.get(sample.range.clone())?;
    let seen = flags.iter().filter(|flags| **flags & COUNTED != 0).fold(0, |seen, flags| seen | flags);
    match (seen & ROLLOUT != 0, seen & TRAINER != 0) {
        (true, false) => Some(Side::Trainer),
        (false, true) => Some(Side::Rollout),
        _ => None,
    }
}
