//! Gradients that are a multiple of what they are in one run: each rank's own term of a mean, or each micro-batch's.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use probe_dump::{Op, OpKind, Phase, Rank, TensorStore};

use super::infer::{self, Held, Inferred, NEAR, NEARER};
use super::job::{Gathered, Job, measured};
use super::layout::Among;

/// Gradients that are asked for a common factor.
const SOME: usize = 24;

impl Gathered {
    /// Takes gradients that are as many times too large as there are micro-batches for those of the mean, if the optimizer got the right ones: the
    /// schedule divides them at the end.
    pub(crate) fn micro_batches(
        &self,
        ops: &[Op],
        inferred: &mut [Inferred],
        gradients: &HashSet<usize>,
        stores: &[Arc<dyn TensorStore>],
        other: &Rank,
    ) {
        let forward = |op: &&Op| op.name.kind() == OpKind::Module && op.name.phase() == Phase::Forward;
        // A module may be called several times for each micro-batch.
        let mut calls: HashMap<&str, u32> = HashMap::new();
        for op in ops.iter().filter(forward) {
            *calls.entry(op.name.module_path().unwrap_or_default()).or_default() += 1;
        }
        let terms = calls.into_values().min().unwrap_or(1);
        let optimizer = |place: usize, slot: usize| {
            let op = &ops[place];
            op.name.as_str().starts_with("Optimizer.") && op.slots[slot].path.starts_with("input.grad.")
        };
        let used =
            self.places.iter().filter(|((place, slot), _)| optimizer(*place, *slot)).map(|(_, job)| *job);
        let mut used: Vec<usize> = used.collect();
        used.sort_unstable();
        used.truncate(SOME);
        let near = |job: &&usize| measured(&self.jobs[**job], &inferred[**job], stores, other) < NEAR;
        if terms < 2 || used.is_empty() || used.iter().filter(near).count() * 5 < used.len() * 4 {
            return;
        }
        let found = inferred
            .par_iter_mut()
            .enumerate()
            .filter(|(job, _)| gradients.contains(job) && !used.contains(job));
        found.for_each(|(job, found)| {
            let mut shared = found.clone();
            shared.layout.among = match found.layout.among {
                Among::Replicas => Among::Sum(terms),
                Among::Sum(share) => Among::Sum(share.saturating_mul(terms)),
            };
            shared.of_term = true;
            let distance = measured(&self.jobs[job], &shared, stores, other);
            if distance < NEARER * measured(&self.jobs[job], found, stores, other) {
                shared.distance = Some(distance);
                *found = shared;
            }
        });
    }
}

/// Returns the number of terms of the mean that the loss is over data-parallel ranks; 1 if it is none.
pub(crate) fn mean_of(ops: &[Op], places: &HashMap<(usize, usize), usize>, inferred: &[Inferred]) -> u32 {
    let share = |((place, slot), job): (&(usize, usize), &usize)| {
        let result = ops[*place].name.phase() == Phase::Forward && ops[*place].slots[*slot].side.is_result();
        match inferred[*job].layout.among {
            Among::Sum(share) if result && inferred[*job].layout.shape.is_empty() => Some(share),
            _ => None,
        }
    };
    places.iter().filter_map(share).max().unwrap_or(1)
}

/// Returns the factor that all sharded gradients share, of which nearly all are the other run's but for it; 1 if they share none. The loss, which
/// tells it otherwise, may not have been recorded.
pub(crate) fn common_factor(
    jobs: &[Job],
    inferred: &[Inferred],
    backward: &HashSet<usize>,
    stores: &[Arc<dyn TensorStore>],
    other: &Rank,
) -> u32 {
    let off = |job: &&usize| {
        let found = &inferred[**job];
        !found.layout.is_whole() && found.distance.is_some_and(f64::is_finite)
    };
    let mut sharded: Vec<usize> = backward.iter().filter(off).copied().collect();
    sharded.sort_unstable();
    let ranks = u32::try_from(stores.len()).unwrap_or(1);
    let fits = |terms: u32| {
        let one = |&&job: &&usize| {
            let mut found = inferred[job].clone();
            share_of_mean(&jobs[job], &mut found, terms, stores, other);
            found.of_term
        };
        let fit = sharded.iter().take(SOME).filter(one).count();
        fit >= 3 && fit * 5 >= sharded.len().min(SOME) * 4
    };
    (2..=ranks).filter(|terms| ranks.is_multiple_of(*terms)).find(|&terms| fits(terms)).unwrap_or(1)
}

/// Takes the gradients of a term of a mean for what they are of the mean: each rank's are those of its own loss, and `terms` times as large.
pub(crate) fn share_of_mean(
    job: &Job,
    found: &mut Inferred,
    terms: u32,
    stores: &[Arc<dyn TensorStore>],
    other: &Rank,
) {
    // What all ranks hold whole is reduced; an expert's rank has the tokens of all.
    if found.layout.is_whole() && job.pieces.len() == stores.len() {
        return;
    }
    let pieces: Vec<Held<'_>> =
        job.pieces.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect();
    let Some(baseline) = job.baseline.as_ref().map(|record| (&**record, &*other.store)) else { return };
    let partition = found.layout.partition();
    let each = u32::try_from(partition.iter().filter(|&&first| first == partition[0]).count()).unwrap_or(1);
    for share in BTreeSet::from([terms, terms.saturating_mul(each)]) {
        let mut shared = found.clone();
        (shared.layout.among, shared.of_term) = (Among::Sum(share), true);
        let distance = infer::distance(&pieces, baseline, &shared);
        if distance < NEARER * found.distance.unwrap_or(f64::INFINITY) {
            shared.distance = Some(distance);
            *found = shared;
        }
    }
}
