//! Values whose parts lie in another order: rows that were routed, and what was gathered from zigzag shards in the order of the ranks.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use probe_dump::{Op, Phase, Rank, TensorStore};

use super::cuts::gathered_zigzag;
use super::infer::{Held, Inferred, NEAR};
use super::job::{Gathered, Job, measured};
use super::layout::{Among, Cell, Layout};
use super::rows;

impl Gathered {
    /// Finds replicas that were gathered from zigzag shards, in the order of the ranks, by ops that compute the right results of them.
    pub(crate) fn gathered(
        &self,
        ops: &[Op],
        inferred: &mut [Inferred],
        stores: &[Arc<dyn TensorStore>],
        other: &Rank,
    ) {
        let near = |found: &Inferred| found.distance.is_some_and(|distance| distance < NEAR);
        let slots = |place: usize, results: bool| {
            let of =
                ops[place].slots.iter().enumerate().filter(move |(_, slot)| slot.side.is_result() == results);
            of.filter_map(move |(slot, _)| self.places.get(&(place, slot)).copied())
        };
        let backward = (0..ops.len()).filter(|&place| ops[place].name.phase() == Phase::Backward);
        let gradients: BTreeSet<usize> = backward.flat_map(|place| slots(place, true)).collect();
        let right: Vec<usize> = (0..ops.len())
            .filter(|&place| {
                slots(place, true).count() > 0 && slots(place, true).all(|job| near(&inferred[job]))
            })
            .collect();
        let read: BTreeSet<usize> = right.iter().flat_map(|&place| slots(place, false)).collect();
        for job in read.union(&gradients).copied() {
            let (held, found) = (&self.jobs[job], &inferred[job]);
            let Some(baseline) = held.baseline.as_ref().filter(|_| held.pieces.len() > 1) else { continue };
            if baseline.checksum == held.pieces[found.picks[0]].1.checksum
                || measured(held, found, stores, other) < NEAR
            {
                continue;
            }
            // Of shards, in dimensions that are not cut.
            let whole = |dimension: usize| {
                let size = found.layout.shape[dimension];
                let held = |cell: &Cell| {
                    cell.dimensions()[dimension].iter().map(ExactSizeIterator::len).sum::<usize>()
                };
                found.layout.cells.iter().all(|cell| held(cell) == size)
            };
            let orders = gathered_zigzag(&found.layout.shape, held.pieces.len());
            let orders = orders.into_iter().filter(|(dimension, _)| whole(*dimension));
            let sum = if gradients.contains(&job) { Among::Sum(1) } else { found.layout.among };
            let ways = orders.flat_map(|order| [(order.clone(), found.layout.among), (order, sum)]);
            let ordered = ways.into_iter().find_map(|((dimension, ranges), among)| {
                let mut ordered = found.clone();
                let cells = found.layout.cells.iter().cloned();
                ordered.layout.cells = cells.map(|cell| cell.with(dimension, ranges.clone())).collect();
                ordered.layout.among = among;
                let distance = measured(held, &ordered, stores, other);
                ordered.distance = Some(distance);
                (distance < NEAR).then_some(ordered)
            });
            if let Some(ordered) = ordered {
                inferred[job] = ordered;
            }
        }
    }
}

/// Explains values that no cut explains by the order of their rows: first those whose rows show it, then those that have as many. Returns all of them.
pub(crate) fn by_rows(
    jobs: &[Job],
    inferred: &mut [Inferred],
    stores: &[Arc<dyn TensorStore>],
    other: &Rank,
    split: bool,
) -> HashSet<usize> {
    let far = |found: &Inferred| found.distance.is_none_or(|distance| distance >= NEAR);
    let open = |job: &Job| {
        let whole = job.baseline.as_ref().map(|baseline| &baseline.shape);
        let alone = split && job.pieces.len() == 1;
        alone || job.pieces.iter().any(|(_, record)| Some(&record.shape) != whole)
    };
    let explain = |job: &Job, others: Option<&[Layout]>| {
        let pieces: Vec<Held<'_>> =
            job.pieces.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect();
        let baseline = job.baseline.as_ref().map(|record| (&**record, &*other.store))?;
        match others {
            None => rows::matched(&pieces, baseline),
            Some(others) => rows::as_others(&pieces, baseline, others),
        }
    };
    let unexplained = |found: &Inferred, job: &Job| far(found) && open(job);
    let seen: Vec<Option<Inferred>> = jobs
        .par_iter()
        .zip(&*inferred)
        .map(|(job, found)| if unexplained(found, job) { explain(job, None) } else { None })
        .collect();
    let rows_of = |cell: &Cell| cell.dimensions().first().cloned();
    let same_rows = |a: &Layout, b: &Layout| a.cells.iter().map(rows_of).eq(b.cells.iter().map(rows_of));
    let mut orders: Vec<Layout> = Vec::new();
    for found in seen.iter().flatten() {
        if !orders.iter().any(|other| same_rows(other, &found.layout)) {
            orders.push(found.layout.clone());
        }
    }
    let explained =
        jobs.par_iter().zip(inferred).zip(seen).enumerate().filter_map(|(number, ((job, found), seen))| {
            let of_others = || {
                let alike = unexplained(found, job).then(|| explain(job, Some(&orders)))??;
                (alike.distance < found.distance.or(Some(f64::INFINITY))).then_some(alike)
            };
            *found = seen.or_else(of_others)?;
            Some(number)
        });
    explained.collect()
}
