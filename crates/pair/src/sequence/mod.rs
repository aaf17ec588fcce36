//! Aligns the ops of two runs that names do not pair: as sequences, anchored by the data.
//!
//! If the same value is read or made at only one place on each side, those two ops belong together. Such
//! places cut the two sequences into gaps, in which more values are unique than in the whole; the remaining
//! gaps are small, and are aligned by the total likeness of their ops. Time and memory grow with the number of
//! ops, not with its square.

mod anchors;
mod facts;
mod gap;

use std::ops::Range;

pub(super) use facts::{Name, Names};
pub use facts::{apart, slot_key, value_key};

use facts::Facts;
use probe_dump::Op;

/// Properties used to find anchors, one after the other, the most reliable first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clue {
    /// A value with the same bits on both sides: weights, data, and values computed equally from them.
    Exact,
    /// A value that is nearly the same.
    Coarse,
    /// Name, shapes and module.
    Place,
    /// A run of this many ops of the same kinds and shapes.
    Run(usize),
    /// Kind and shapes.
    Kind,
}

const CLUES: [Clue; 6] = [Clue::Exact, Clue::Coarse, Clue::Place, Clue::Run(12), Clue::Run(4), Clue::Kind];

/// One side: its ops, and the positions of those to be aligned.
#[derive(Clone, Copy)]
pub(super) struct OpsToAlign<'a> {
    pub(super) ops: &'a [Op],
    pub(super) names: &'a [Name],
    pub(super) free: &'a [usize],
}

impl<'a> OpsToAlign<'a> {
    fn facts(self) -> Vec<Facts<'a>> {
        self.free.iter().map(|&at| Facts::of(&self.ops[at], self.names[at])).collect()
    }
}

/// Returns pairs of positions in the ops of the two sides, in order on both, among the free ops between two
/// pairs.
pub(super) fn align_gap(baseline: OpsToAlign<'_>, candidate: OpsToAlign<'_>) -> Vec<(usize, usize)> {
    let (b, c) = (baseline.facts(), candidate.facts());
    let mut found = Vec::new();
    // A stack instead of recursion: gaps of hostile dumps may nest deeply.
    let mut open: Vec<(Range<usize>, Range<usize>, usize)> = vec![(0..b.len(), 0..c.len(), 0)];
    while let Some((in_b, in_c, clue)) = open.pop() {
        if in_b.is_empty() || in_c.is_empty() {
            continue;
        }
        let Some(&next) = CLUES.get(clue) else {
            found.extend(gap::pairs(&b, in_b, &c, in_c));
            continue;
        };
        let anchors = anchors::find(next, (&b, &in_b), (&c, &in_c));
        if anchors.is_empty() {
            open.push((in_b, in_c, clue + 1));
            continue;
        }
        let (mut from_b, mut from_c) = (in_b.start, in_c.start);
        for &(at_b, at_c) in &anchors {
            open.push((from_b..at_b, from_c..at_c, clue));
            (from_b, from_c) = (at_b + 1, at_c + 1);
        }
        open.push((from_b..in_b.end, from_c..in_c.end, clue));
        found.extend(anchors);
    }
    let mut pairs: Vec<(usize, usize)> =
        found.into_iter().map(|(at_b, at_c)| (baseline.free[at_b], candidate.free[at_c])).collect();
    pairs.sort_unstable();
    pairs
}

/// Returns the longest subsequence of `pairs`, which are sorted by their first halves, that is also sorted by
/// the second, as positions in `pairs`.
pub(super) fn increasing(pairs: &[(usize, usize)]) -> Vec<usize> {
    // Patience sorting: the last pair of the best chain of each length, and the predecessor of each pair in
    // its chain.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (at, &(_, second)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|&end| pairs[end].1 < second);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut chain: Vec<usize> =
        std::iter::successors(ends.last().copied(), |&at| before.get(at).copied().flatten()).collect();
    chain.reverse();
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_chain_in_order_is_kept() {
        let pairs = [(0, 4), (1, 0), (2, 1), (3, 9), (4, 2), (5, 3), (6, 8)];
        let kept: Vec<_> = increasing(&pairs).into_iter().map(|at| pairs[at]).collect();
        assert_eq!(kept, [(1, 0), (2, 1), (4, 2), (5, 3), (6, 8)]);
        assert!(increasing(&[]).is_empty());
    }
}
