//! Terms of a sum to which each rank has added the bias: the reduction in front of it was left out. Where no bias was recorded, it is what all rows of the
//! sum have in common beyond the other run's.

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;

use probe_dump::{Op, OpKind, Rank, Slot, TensorData, TensorRecord, TensorStore};
use probe_measure::numbers;

use super::infer::{Held, Inferred, NEAR, NEARER, classes};
use super::job::Gathered;
use super::layout::{Among, Layout};
use super::pieces;
use super::remark::Remark;

/// Fewest rows that tell a bias that was not recorded: noise hardly has one vector in all of them.
const FEWEST_ROWS: usize = 4;

/// Most elements of a value that is taken apart.
const MOST: usize = 1 << 24;

/// Returns remarks on results that no layout explains, and that are the other run's when they are added up without all biases but one.
pub(crate) fn partial_with_bias(
    gathered: &Gathered,
    ops: &[Op],
    inferred: &[Inferred],
    (stores, other): (&[Arc<dyn TensorStore>], &Rank),
    ranks: &[u32],
) -> HashMap<usize, Remark> {
    let biases = |place: usize| {
        let slots = (0..ops[place].slots.len()).filter(move |&slot| is_bias(&ops[place].slots[slot]));
        slots.filter_map(move |slot| gathered.jobs[*gathered.places.get(&(place, slot))?].baseline.as_ref())
    };
    let unexplained = |job: usize| {
        gathered.jobs[job].pieces.len() > 1 && inferred[job].distance.is_some_and(|distance| distance >= NEAR)
    };
    let open: Vec<(usize, Option<&TensorRecord>)> = gathered
        .places
        .iter()
        .filter(|((place, slot), job)| ops[*place].slots[*slot].side.is_result() && unexplained(**job))
        .map(|((place, _), &job)| (job, ops[*place].name.kind(), biases(*place).next()))
        .filter(|(_, kind, bias)| bias.is_some() || *kind == OpKind::Module)
        .map(|(job, _, bias)| (job, bias.map(|bias| &**bias)))
        .collect();
    let told = open.par_iter().filter_map(|&(job, bias)| {
        let (pieces, found) = (&gathered.jobs[job].pieces, &inferred[job]);
        let (layout, picks) = terms(gathered, job, found, stores);
        let first = layout.cells.first()?;
        let of_first = picks.iter().zip(&layout.cells).filter(|(_, cell)| *cell == first);
        let of_first: Vec<_> = of_first.map(|(&pick, _)| &pieces[pick]).collect();
        let summed: Vec<u32> = of_first.iter().map(|(rank, _)| ranks[*rank]).collect();
        // Terms are equal on no two ranks: what was reduced is.
        let held: Vec<Held<'_>> =
            of_first.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect();
        if classes(&held).len() < 2 {
            return None;
        }
        let distance = distance(gathered, job, (&layout, &picks), bias, summed.len(), (stores, other))?;
        (summed.len() > 1 && distance < NEAR && distance < NEARER * found.distance?)
            .then_some((job, Remark::Partial(summed, Among::Sum(1))))
    });
    told.collect()
}

/// Returns the layout in which all pieces are terms, and which pieces make it.
fn terms(
    gathered: &Gathered,
    job: usize,
    found: &Inferred,
    stores: &[Arc<dyn TensorStore>],
) -> (Layout, Vec<usize>) {
    if !found.layout.is_whole() {
        return (Layout { among: Among::Sum(1), ..found.layout.clone() }, found.picks.clone());
    }
    let pieces = &gathered.jobs[job].pieces;
    let held: Vec<Held<'_>> = pieces.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect();
    let picks: Vec<usize> = classes(&held).iter().map(|class| class[0]).collect();
    (Layout::same(&found.layout.shape, picks.len(), Among::Sum(1)), picks)
}

/// Returns the distance to the other run's value of the sum of terms without all biases but one; of an unknown one, if the sum has all.
fn distance(
    gathered: &Gathered,
    job: usize,
    (layout, picks): (&Layout, &[usize]),
    bias: Option<&TensorRecord>,
    terms: usize,
    (stores, other): (&[Arc<dyn TensorStore>], &Rank),
) -> Option<f64> {
    let whole = gathered.jobs[job].baseline.as_ref()?;
    let is_row = |bias: &TensorRecord| bias.shape.len() == 1 && bias.shape.last() == whole.shape.last();
    let fits = bias.is_none_or(is_row) && whole.len() <= MOST as u64;
    let load = |record: &TensorRecord, store: &dyn TensorStore| store.load(record.data.as_deref()?).ok();
    let pieces = picks.iter().map(|&pick| {
        let (rank, record) = &gathered.jobs[job].pieces[pick];
        load(record, &*stores[*rank])
    });
    let made = pieces::view(layout, pieces.collect::<Option<Vec<_>>>().filter(|_| fits)?).ok()?;
    let numbers = |of: &TensorData| numbers(of.dtype(), &of.view().to_bytes());
    let width = usize::try_from(*whole.shape.last()?).ok()?;
    let more = terms.saturating_sub(1) as f64;
    let (made, whole) = (numbers(&made), numbers(&load(whole, &*other.store)?));
    let bias = match bias {
        Some(bias) => numbers(&load(bias, &*other.store)?),
        None => in_common(&made, &whole, width)?.iter().map(|common| common / more).collect(),
    };
    let off: f64 = made
        .iter()
        .zip(&whole)
        .zip(bias.iter().cycle())
        .map(|((made, whole), bias)| (made - more * bias - whole).powi(2))
        .sum();
    let norm: f64 = whole.iter().map(|whole| whole * whole).sum();
    (norm > 0.0).then(|| (off / norm).sqrt())
}

/// Returns the mean of the rows of a difference.
fn in_common(made: &[f64], whole: &[f64], width: usize) -> Option<Vec<f64>> {
    let rows = made.len().checked_div(width).filter(|rows| *rows >= FEWEST_ROWS)?;
    let mut means = vec![0.0; width];
    for (made, whole) in made.chunks(width).zip(whole.chunks(width)) {
        for (mean, (made, whole)) in means.iter_mut().zip(made.iter().zip(whole)) {
            *mean += (made - whole) / rows as f64;
        }
    }
    Some(means)
}

fn is_bias(slot: &Slot) -> bool {
    !slot.side.is_result() && (slot.path.contains("bias") || &*slot.path == "input.2")
}
