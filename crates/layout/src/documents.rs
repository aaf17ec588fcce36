//! Packed sequences of which each rank holds chunks of every document: indices that no cut of the whole dimension gives, but that many values have in
//! common. They are read from values of floating-point numbers, and then sought in all others: tokens, labels, what is cut in other dimensions too.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use probe_dump::{DType, Rank, TensorRecord, TensorStore};

use super::infer::{Held, Inferred, NEAR, classes, distance, sizes};
use super::job::Job;
use super::layout::{Among, Cell, Layout};
use super::parts::part_distance;
use super::rows::{found_along, in_ranges};

/// Values of an order that are fewer than this part of the usual one differ from it.
const RARE: usize = 4;

/// Values of which the order is read; it is that of all.
const MOST_READ: usize = 32;

/// Orders of which one is taken for the usual one: the most frequent of those that were read.
const MOST_ORDERS: usize = 4;

/// Indices of a dimension that each rank holds, by its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    size: usize,
    held: Vec<(usize, Vec<usize>)>,
}

impl Order {
    /// Returns what a rank holds of a dimension of `size`, in which the order may come several times.
    fn ranges(&self, rank: usize, size: usize) -> Option<Box<[Range<usize>]>> {
        let (_, held) = self.held.iter().find(|(own, _)| *own == rank)?;
        let starts = (0..size).step_by(self.size);
        let all: Vec<usize> = starts.flat_map(|start| held.iter().map(move |index| start + index)).collect();
        Some(in_ranges(&all))
    }

    /// Returns true if the order may be that of a dimension of these sizes.
    fn fits(&self, whole: usize, local: usize) -> bool {
        let held = self.held.first().map_or(0, |(_, held)| held.len());
        held > 0 && whole.is_multiple_of(self.size) && local * self.size == held * whole
    }

    /// Returns true if it is one that a cut of the whole gives, so that it tells nothing new.
    fn is_plain(&self) -> bool {
        self.held.iter().all(|(_, held)| in_ranges(held).len() == 1)
    }
}

/// Explains values that no cut explains by an order of indices that other values show. Returns whole numbers whose shards are contiguous, where
/// nearly all other values have that order: they are put into it, so that they differ.
pub(crate) fn by_documents(
    jobs: &[Job],
    inferred: &mut [Inferred],
    stores: &[Arc<dyn TensorStore>],
    other: &Rank,
) -> Vec<usize> {
    let far = |found: &Inferred| found.distance.is_none_or(|distance| distance >= NEAR);
    let open: Vec<usize> =
        (0..jobs.len()).filter(|&job| far(&inferred[job]) && !splits(&jobs[job]).is_empty()).collect();
    let read: Vec<usize> =
        open.iter().filter(|&&job| is_float(&jobs[job])).take(MOST_READ).copied().collect();
    let orders: Vec<Order> = read.par_iter().filter_map(|&job| order(&jobs[job], stores, other)).collect();
    let mut counts: BTreeMap<&Order, usize> = BTreeMap::new();
    for order in &orders {
        *counts.entry(order).or_default() += 1;
    }
    let mut counts: Vec<(&Order, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let explained_by =
        |order: &Order, job: usize| in_order(&jobs[job], order, stores, other).filter(|new| !far(new));
    // Values with equal rows (positions, which begin anew in each document) show one of several orders: the right one explains the others too.
    let explains = |order: &Order| read.par_iter().filter(|&&job| explained_by(order, job).is_some()).count();
    let usual = match *counts {
        [] => return Vec::new(),
        [(only, _)] => only,
        [(first, _), ..] => {
            let likely = counts.iter().take(MOST_ORDERS).map(|(order, _)| *order);
            likely.min_by_key(|order| Reverse(explains(order))).unwrap_or(first)
        }
    };
    let explained: Vec<(usize, Inferred)> =
        open.par_iter().filter_map(|&job| Some((job, explained_by(usual, job)?))).collect();
    let count = explained.len();
    for (job, found) in explained {
        inferred[job] = found;
    }
    let contiguous: Vec<usize> =
        (0..jobs.len()).filter(|&job| is_contiguous(&jobs[job], &inferred[job], usual)).collect();
    if contiguous.len() * RARE >= count {
        return Vec::new();
    }
    for &job in &contiguous {
        if let Some(found) = in_order(&jobs[job], usual, stores, other) {
            inferred[job] = found;
        }
    }
    contiguous
}

fn is_float(job: &Job) -> bool {
    job.baseline.as_ref().and_then(|record| record.dtype.known()).is_some_and(DType::is_float)
}

/// Returns the dimensions in which the pieces, all of one size, are smaller than the whole.
fn splits(job: &Job) -> Vec<usize> {
    let Some(baseline) = &job.baseline else { return Vec::new() };
    let (whole, local) = (sizes(baseline), sizes(&job.pieces[0].1));
    if whole.len() != local.len() || job.pieces.iter().any(|(_, record)| sizes(record) != local) {
        return Vec::new();
    }
    (0..whole.len()).filter(|&dimension| local[dimension] != whole[dimension]).collect()
}

/// Returns the pieces and the other run's value, to be read.
fn held<'a>(
    job: &'a Job,
    stores: &'a [Arc<dyn TensorStore>],
    other: &'a Rank,
) -> Option<(Vec<Held<'a>>, Held<'a>)> {
    let of = |(rank, record): &'a (usize, Arc<TensorRecord>)| (&**record, &*stores[*rank]);
    Some((job.pieces.iter().map(of).collect(), (&**job.baseline.as_ref()?, &*other.store)))
}

/// Reads the order from a value that is cut in one dimension.
fn order(job: &Job, stores: &[Arc<dyn TensorStore>], other: &Rank) -> Option<Order> {
    let &[dimension] = &*splits(job) else { return None };
    let (pieces, baseline) = held(job, stores, other)?;
    // Ranks that hold the same are one.
    let classes = classes(&pieces);
    let first: Vec<Held<'_>> = classes.iter().map(|class| pieces[class[0]]).collect();
    let found = found_along(&first, baseline, dimension, 1.0)?;
    let of = |piece: usize| classes.iter().position(|class| class.contains(&piece));
    let held = (0..pieces.len()).map(|piece| Some((job.pieces[piece].0, found[of(piece)?].clone())));
    let order = Order { size: sizes(baseline.0)[dimension], held: held.collect::<Option<_>>()? };
    (!order.is_plain()).then_some(order)
}

/// Lays the pieces of a value out in an order. In other dimensions, shards are contiguous; content tells which one a rank holds.
fn in_order(job: &Job, order: &Order, stores: &[Arc<dyn TensorStore>], other: &Rank) -> Option<Inferred> {
    let (whole, local) = (sizes(job.baseline.as_ref()?), sizes(&job.pieces[0].1));
    let splits = splits(job);
    let (pieces, baseline) = held(job, stores, other)?;
    let load = |(record, store): &Held<'_>| store.load(record.data.as_deref()?).ok();
    let value = load(&baseline)?;
    let fitting = splits.iter().filter(|&&dimension| order.fits(whole[dimension], local[dimension]));
    let found = fitting.filter_map(|&dimension| {
        let mut cells = Vec::new();
        for (piece, (rank, _)) in pieces.iter().zip(&job.pieces) {
            let own = Cell::whole(&whole).with(dimension, order.ranges(*rank, whole[dimension])?);
            let others = splits.iter().filter(|&&other| other != dimension);
            let tiles = others.fold(vec![own], |tiles, &other| {
                let shards = (0..whole[other]).step_by(local[other]);
                let shard = |start: usize| std::iter::once(start..start + local[other]).collect();
                let shards: Vec<Box<[Range<usize>]>> = shards.map(shard).collect();
                let of = |tile: &Cell| -> Vec<Cell> {
                    shards.iter().map(|shard| tile.clone().with(other, shard.clone())).collect()
                };
                tiles.iter().flat_map(of).collect()
            });
            let data = load(piece)?;
            let off = |tile: &Cell| part_distance(value.view(), tile, data.view(), true);
            cells.push(tiles.into_iter().min_by(|a, b| off(a).total_cmp(&off(b)))?);
        }
        nearest(&pieces, baseline, &whole, &cells)
    });
    found.min_by(|a, b| {
        let distance = |found: &Inferred| found.distance.unwrap_or(f64::INFINITY);
        distance(a).total_cmp(&distance(b))
    })
}

/// Returns the nearest explanation of pieces that are these cells: replicas, or terms of a sum.
fn nearest(pieces: &[Held<'_>], baseline: Held<'_>, shape: &[usize], cells: &[Cell]) -> Option<Inferred> {
    let of = |among| {
        let layout = Layout { shape: shape.into(), cells: cells.into(), among };
        let picks = (0..pieces.len()).collect();
        let mut found =
            Inferred { layout, picks, odd: Vec::new(), distance: None, by_content: false, of_term: false };
        found.distance = Some(distance(pieces, baseline, &found));
        found
    };
    let several = cells.iter().enumerate().any(|(place, cell)| cells[..place].contains(cell));
    let ways = [Among::Replicas, Among::Sum(1)].into_iter().take(1 + usize::from(several));
    ways.map(of).min_by(|a, b| {
        let distance = |found: &Inferred| found.distance.unwrap_or(f64::INFINITY);
        distance(a).total_cmp(&distance(b))
    })
}

/// Returns true for whole numbers of which ranks hold contiguous shards in a dimension of the order's size.
fn is_contiguous(job: &Job, found: &Inferred, order: &Order) -> bool {
    let near = found.by_content && found.distance.is_some_and(|distance| distance < NEAR);
    if !near || is_float(job) || found.layout.among != Among::Replicas {
        return false;
    }
    let &[dimension] = &*splits(job) else { return false };
    let (whole, local) = (found.layout.shape[dimension], sizes(&job.pieces[0].1)[dimension]);
    let contiguous = |cell: &Cell| cell.dimensions()[dimension].len() * order.size == whole;
    order.fits(whole, local) && found.layout.cells.iter().all(contiguous)
}
