//! The pieces of a global value that ranks hold.

use std::sync::Arc;

use rayon::prelude::*;

use probe_dump::TensorStore;

use super::infer::{Held, Inferred, NEAR, classes};
use super::job::Job;
use super::layout::{Among, Cell};

/// The way in which a piece belongs to the global value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// It is that part of the value.
    Part,
    /// It should be, and differs from what the other ranks and the other run hold.
    Odd,
    /// It is one of several values that are still to be combined.
    Term(Among),
    /// Nothing tells how it belongs to the value.
    Unexplained,
}

/// Ranks that hold the same of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The ranks, in order.
    pub ranks: Vec<u32>,
    /// The part of the value.
    pub cell: Cell,
    /// The way in which it belongs to the value.
    pub holding: Holding,
}

/// A value, spread over ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// Sizes of the global value.
    pub shape: Box<[usize]>,
    /// The pieces that the ranks hold.
    pub pieces: Vec<Piece>,
}

/// Returns what the ranks hold of each value, in the order of the first rank of each piece. `numbers` are those of the ranks.
pub(crate) fn of_jobs(
    jobs: &[Job],
    inferred: &[Inferred],
    stores: &[Arc<dyn TensorStore>],
    numbers: &[u32],
) -> Vec<Arc<Spread>> {
    let one = |(job, found): (&Job, &Inferred)| {
        let held: Vec<Held<'_>> =
            job.pieces.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect();
        let ranks: Vec<u32> = job.pieces.iter().map(|(rank, _)| numbers[*rank]).collect();
        Spread { shape: found.layout.shape.clone(), pieces: pieces(&held, found, &ranks) }.into()
    };
    jobs.par_iter().zip(inferred).map(one).collect()
}

fn pieces(held: &[Held<'_>], found: &Inferred, ranks: &[u32]) -> Vec<Piece> {
    let classes = classes(held);
    let class_of = |piece: usize| classes.iter().position(|class| class.contains(&piece));
    // Replicas are not picked, except for one of them.
    let pick_of = |piece: usize| {
        let own = found.picks.iter().position(|&pick| pick == piece);
        own.or_else(|| found.picks.iter().position(|&pick| class_of(pick) == class_of(piece)))
    };
    let near = found.distance.is_some_and(|distance| distance < NEAR);
    let unexplained = classes.len() > 1
        && found.layout.among == Among::Replicas
        && found.layout.is_whole()
        && found.odd.is_empty()
        && !near;
    let mut all: Vec<(Option<usize>, Piece)> = Vec::new();
    for (place, &number) in ranks.iter().enumerate() {
        let whole = || Cell::whole(&found.layout.shape);
        let cell = pick_of(place).and_then(|pick| found.layout.cells.get(pick)).cloned();
        let holding = match found.layout.among {
            _ if found.odd.contains(&place) => Holding::Odd,
            _ if unexplained => Holding::Unexplained,
            Among::Sum(_) if found.of_term => Holding::Part,
            Among::Replicas => Holding::Part,
            among => Holding::Term(among),
        };
        let cell = cell.unwrap_or_else(whole);
        // Equal terms are one of the sum; of parts, the layout says which are equal.
        let class = class_of(place).filter(|_| holding != Holding::Part);
        let same = |(of, piece): &&mut (Option<usize>, Piece)| {
            *of == class && piece.cell == cell && piece.holding == holding
        };
        match all.iter_mut().find(same) {
            Some((_, piece)) => piece.ranks.push(number),
            None => all.push((class, Piece { ranks: vec![number], cell, holding })),
        }
    }
    all.into_iter().map(|(_, piece)| piece).collect()
}
