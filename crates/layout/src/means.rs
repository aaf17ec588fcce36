//! Gradients that are a multiple of what they are in one run: each rank's own term of a mean, or each micro-batch's.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use probe_dump::{Op, OpKind, Phase, Rank, TensorStore};

use super::infer::{self, Inferred, NEAR, NEARER};
use super::job::{Gathered, Job, measured};
use super::layout::{Among, Layout};

/// Gradients that are asked for a common factor.
const SOME: usize = 24;

impl Gathered {
    /// Returns the gradients that optimizers read: what becomes of them is no term of a mean any more.
    pub(crate) fn read_by_optimizers(&self, ops: &[Op]) -> HashSet<usize> {
        let read = |place: usize, slot: usize| {
            let op = &ops[place];
            op.name.as_str().starts_with("Optimizer.") && op.slots[slot].path.starts_with("input.grad.")
        };
        self.places.iter().filter(|((place, slot), _)| read(*place, *slot)).map(|(_, job)| *job).collect()
    }

    /// Returns the number of micro-batches, if gradients are as many times too large and the optimizer got the right ones: the schedule divides them
    /// at the end. Otherwise 1.
    pub(crate) fn micro_batches(
        &self,
        ops: &[Op],
        (used, inferred): (&HashSet<usize>, &[Inferred]),
        stores: &[Arc<dyn TensorStore>],
        other: &Rank,
    ) -> u32 {
        let forward = |op: &&Op| op.name.kind() == OpKind::Module && op.name.phase() == Phase::Forward;
        // A module may be called several times for each micro-batch.
        let mut calls: HashMap<&str, u32> = HashMap::new();
        for op in ops.iter().filter(forward) {
            *calls.entry(op.name.module_path().unwrap_or_default()).or_default() += 1;
        }
        let terms = calls.into_values().min().unwrap_or(1);
        let mut some: Vec<usize> = used.iter().copied().collect();
        some.sort_unstable();
        some.truncate(SOME);
        let near = |job: &&usize| measured(&self.jobs[**job], &inferred[**job], stores, other) < NEAR;
        let divided = !some.is_empty() && some.iter().filter(near).count() * 5 >= some.len() * 4;
        if divided { terms.max(1) } else { 1 }
    }
}

/// Returns the number of terms of the mean that the loss is over data-parallel ranks; 1 if it is none.
pub(crate) fn mean_of(ops: &[Op], places: &BTreeMap<(usize, usize), usize>, inferred: &[Inferred]) -> u32 {
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
            share_of_mean(&jobs[job], &mut found, (terms, 1), stores, other);
            found.of_term
        };
        let fit = sharded.iter().take(SOME).filter(one).count();
        fit >= 3 && fit * 5 >= sharded.len().min(SOME) * 4
    };
    (2..=ranks).filter(|terms| ranks.is_multiple_of(*terms)).find(|&terms| fits(terms)).unwrap_or(1)
}

/// Takes the gradients of a term of a mean for what they are of the mean. Each rank's are those of its own loss, and `terms` times as large; those
/// of each micro-batch are `micro` times as large.
pub(crate) fn share_of_mean(
    job: &Job,
    found: &mut Inferred,
    (terms, micro): (u32, u32),
    stores: &[Arc<dyn TensorStore>],
    other: &Rank,
) {
    // What all ranks hold whole is reduced; an expert's rank has the tokens of all.
    let reduced = found.layout.is_whole() && job.pieces.len() == stores.len();
    if job.baseline.is_none() || (reduced && micro == 1) {
        return;
    }
    let partition = found.layout.partition();
    let each = u32::try_from(partition.iter().filter(|&&first| first == partition[0]).count()).unwrap_or(1);
    let means =
        if reduced { BTreeSet::from([1]) } else { BTreeSet::from([1, terms, terms.saturating_mul(each)]) };
    let shares = means.iter().flat_map(|mean| [*mean, mean.saturating_mul(micro)]).filter(|share| *share > 1);
    let own = match found.layout.among {
        Among::Replicas => 1,
        // Of extremes there are no means.
        Among::Max | Among::Min => return,
        // The data-parallel mean may be in it already.
        Among::Sum(share) => share,
    };
    let shares: BTreeSet<u32> =
        shares.chain([own.saturating_mul(micro)]).filter(|share| *share > 1).collect();
    let most = NEARER * found.distance.unwrap_or_else(|| measured(job, found, stores, other));
    let ways = shares.into_iter().flat_map(|share| {
        let one = Inferred {
            layout: Layout { among: Among::Sum(share), ..found.layout.clone() },
            of_term: true,
            ..found.clone()
        };
        // Of replicas that differ, one stands for all; as terms, all count. Experts of several ranks have unequal numbers of tokens.
        let count = job.pieces.len();
        let of_one_shape =
            || job.pieces.iter().all(|(_, record)| *infer::sizes(record) == *found.layout.shape);
        let whole = found.layout.is_whole() && found.picks.len() == 1 && count > 1 && of_one_shape();
        let all = whole.then(|| Inferred {
            layout: Layout::same(&found.layout.shape, count, Among::Sum(share)),
            picks: (0..count).collect(),
            odd: Vec::new(),
            ..one.clone()
        });
        [Some(one), all].into_iter().flatten()
    });
    let ways =
        ways.map(|way| (measured(job, &way, stores, other), way)).filter(|(distance, _)| *distance < most);
    if let Some((distance, way)) = ways.min_by(|a, b| a.0.total_cmp(&b.0)) {
        *found = Inferred { distance: Some(distance), ..way };
    }
}
