//! Ops that belong together because a clue occurs at only one place on each side.

use std::collections::HashMap;
use std::ops::Range;

use super::facts::Facts;
use super::gap::RENAMED;
use super::{Clue, increasing};

/// Occurrences of a clue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Once(usize),
    Often,
}

/// Returns pairs of positions inside the two gaps, in order on both sides.
pub(super) fn find(
    clue: Clue,
    (b, in_b): (&[Facts<'_>], &Range<usize>),
    (c, in_c): (&[Facts<'_>], &Range<usize>),
) -> Vec<(usize, usize)> {
    let (on_b, on_c) = (places(clue, b, in_b), places(clue, c, in_c));
    // An op may have several values that are found on the other side: the majority decides.
    let mut votes: HashMap<(usize, usize), usize> = HashMap::new();
    for (key, seen) in &on_b {
        if let (Seen::Once(at_b), Some(Seen::Once(at_c))) = (*seen, on_c.get(key).copied()) {
            *votes.entry((at_b, at_c)).or_default() += 1;
        }
    }
    let mut ranked: Vec<((usize, usize), usize)> = votes.into_iter().collect();
    ranked.sort_unstable_by_key(|&(pair, votes)| (pair.0, std::cmp::Reverse(votes), pair.1));
    ranked.dedup_by_key(|(pair, _)| pair.0);
    let belong = |(at_b, at_c): &(usize, usize)| {
        let (b, c) = (&b[*at_b], &c[*at_c]);
        b.name.stem == c.name.stem || (b.name.kin == c.name.kin && b.likeness(c) >= RENAMED)
    };
    let pairs: Vec<(usize, usize)> = ranked.into_iter().map(|(pair, _)| pair).filter(belong).collect();
    increasing(&pairs).into_iter().map(|at| pairs[at]).collect()
}

fn places(clue: Clue, facts: &[Facts<'_>], gap: &Range<usize>) -> HashMap<u64, Seen> {
    let mut places = HashMap::new();
    let mut see = |key: u64, at: usize| {
        let entry = places.entry(key).or_insert(Seen::Once(at));
        if *entry != Seen::Once(at) {
            *entry = Seen::Often;
        }
    };
    match clue {
        Clue::Exact | Clue::Coarse => {
            for at in gap.clone() {
                facts[at].values(clue == Clue::Exact).for_each(|key| see(key, at));
            }
        }
        Clue::Place => gap.clone().for_each(|at| see(facts[at].place, at)),
        Clue::Kind => gap.clone().for_each(|at| see(facts[at].form, at)),
        Clue::Run(length) => {
            for (at, run) in facts[gap.clone()].windows(length).enumerate() {
                // Any good ordered hash of the forms.
                let key = run.iter().fold(0_u64, |key, facts| {
                    (key.rotate_left(5) ^ facts.form).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                });
                see(key, gap.start + at);
            }
        }
    }
    places
}
