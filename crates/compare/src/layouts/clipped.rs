//! Gradients that ranks scaled by factors of their own: clipped by another norm than that of the whole model.

use std::collections::BTreeMap;

use probe_dump::{Op, Phase};
use probe_layout::{Holding, Piece, part_factor};
use probe_pair::{Paired, PartPair};

use super::Layouts;
use super::explain::is_whole;
use crate::collect::load;

/// Deviation up to which factors are one, and one is no factor.
const SAME: f64 = 0.01;

/// Deviation up to which the factors of a rank's parameters are one: rounding of gradients in bfloat16.
const SPREAD: f64 = 0.03;

/// Least number of parameters of a rank whose gradients have one factor.
const LEAST_PARAMETERS: usize = 3;

/// Parameters of each rank that are asked.
const MOST_PARAMETERS: usize = 24;

impl Layouts {
    /// Says that each rank's gradients are multiples of what they should be, by one factor for all parameters, if an op behind the backward pass is
    /// at fault.
    pub(super) fn clipped(&self, pair: &PartPair, order: usize) -> Option<String> {
        let is = |place: &usize, what: &dyn Fn(&Op) -> bool| {
            let (b, c) = pair.op(&pair.ops[*place]);
            b.or(c).is_some_and(what)
        };
        let backward = |op: &Op| matches!(op.name.phase(), Phase::Backward | Phase::ParameterGradient);
        if (order..pair.ops.len()).any(|place| is(&place, &backward)) {
            return None;
        }
        let step = |op: &Op| op.name.as_str().starts_with("Optimizer.");
        let both = |place: &usize| matches!(pair.ops[*place].ops, Paired::Both(..));
        let place = (0..pair.ops.len()).filter(both).find(|place| is(place, &step))?;
        told(&self.factors(pair, place))
    }

    /// Returns the factors of each rank's gradients, as an optimizer reads them; none for those that are no multiples.
    fn factors(&self, pair: &PartPair, place: usize) -> BTreeMap<u32, Vec<Option<f64>>> {
        let mut found: BTreeMap<u32, Vec<Option<f64>>> = BTreeMap::new();
        let op = &pair.ops[place];
        for slots in op.slots.iter() {
            let (Some(b), Some(c)) = pair.slot(op, slots) else { continue };
            let spread = self.place(op, slots).and_then(|place| self.spread.get(&place));
            let Some(spread) = spread.filter(|_| b.path.starts_with("input.grad.")) else { continue };
            let asks = |rank: &u32| found.get(rank).is_none_or(|factors| factors.len() < MOST_PARAMETERS);
            // What all ranks hold alike has no factor of a rank.
            let is_of_some = |piece: &&Piece| piece.ranks.len() < self.ranks.len();
            let pieces = spread.pieces.iter().filter(|piece| piece.holding == Holding::Part);
            let pieces = pieces.filter(is_of_some);
            let pieces: Vec<_> = pieces.filter(|piece| piece.ranks.iter().any(asks)).collect();
            let (Some(b), Some(c)) = (b.value.tensor(), c.value.tensor()) else { continue };
            let (Some(b_key), Some(c_key)) = (&b.data, &c.data) else { continue };
            if pieces.is_empty() {
                continue;
            }
            let x = load((b, &*pair.baseline.store), b_key);
            let y = load((c, &*pair.candidate.store), c_key);
            let (Ok(x), Ok(y)) = (x, y) else { continue };
            let (one, many) = if self.of_baseline { (&y, &x) } else { (&x, &y) };
            for piece in pieces {
                let factor = part_factor(one.view(), many.view(), &piece.cell);
                for rank in &piece.ranks {
                    found.entry(*rank).or_default().push(factor);
                }
            }
        }
        found
    }
}

/// Formats the factors of all ranks; `None` if a rank has several, or if all are 1 or what a wrong reduction leaves.
fn told(factors: &BTreeMap<u32, Vec<Option<f64>>>) -> Option<String> {
    let of_rank = |(rank, factors): (&u32, &Vec<Option<f64>>)| {
        let known: Vec<f64> = factors.iter().copied().flatten().collect();
        let least = known.iter().copied().fold(f64::INFINITY, f64::min);
        let most = known.iter().copied().fold(0.0, f64::max);
        // Rounding hides the factor of gradients that cancel.
        let enough = known.len() >= LEAST_PARAMETERS && 2 * known.len() >= factors.len();
        let one = enough && least > 0.0 && most / least < 1.0 + SPREAD;
        one.then_some((*rank, f64::midpoint(least, most)))
    };
    let ranks: Vec<(u32, f64)> = factors.iter().map(of_rank).collect::<Option<_>>()?;
    let is_one = |factor: f64| (factor - 1.0).abs() < SAME;
    let of_reduction = |factor: f64| is_whole(factor) || is_whole(1.0 / factor);
    if ranks.is_empty() || ranks.iter().all(|(_, factor)| is_one(*factor)) {
        return None;
    }
    let (_, first) = ranks[0];
    if ranks.iter().all(|(_, factor)| (factor / first - 1.0).abs() < SAME) {
        let norm = 1.0 / first;
        return (!of_reduction(first)).then(|| {
            format!(
                "all gradients are {first:.3} times what they should be: clipped by {norm:.3} times the norm"
            )
        });
    }
    let each: Vec<String> =
        ranks.iter().map(|(rank, factor)| format!("rank {rank}'s {factor:.3} times")).collect();
    Some(format!(
        "each rank clips by its own norm: all gradients are multiples of what they should be, {}",
        each.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(ranks: &[&[f64]]) -> Option<String> {
        let of = |factors: &&[f64]| factors.iter().map(|factor| Some(*factor)).collect();
        told(&(0..).zip(ranks.iter().map(of)).collect())
    }

    #[test]
    fn one_factor_of_each_rank_for_all_parameters_is_that_of_clipping() {
        let own = said(&[&[1.25, 1.251, 1.249], &[1.5, 1.5, 1.5]]).unwrap();
        assert!(own.starts_with("each rank clips by its own norm"), "{own}");
        assert!(own.ends_with("rank 0's 1.250 times, rank 1's 1.500 times"), "{own}");
        let all = said(&[&[0.8; 3], &[0.8; 3]]).unwrap();
        assert!(all.ends_with("clipped by 1.250 times the norm"), "{all}");
        // No factor, several on one rank, too few parameters, and those of reductions.
        for ranks in [[[1.0; 3], [1.002; 3]], [[1.25, 1.4, 1.25], [1.5; 3]], [[2.0; 3]; 2], [[0.5; 3]; 2]] {
            assert_eq!(said(&[&ranks[0], &ranks[1]]), None);
        }
        assert_eq!(said(&[&[1.25, 1.25], &[1.5, 1.5]]), None);
        let of = |factors: &[Option<f64>]| told(&BTreeMap::from([(0, factors.to_vec())]));
        assert!(of(&[Some(1.3), Some(1.3), None, Some(1.3)]).is_some());
        assert_eq!(of(&[Some(1.3), Some(1.3), Some(1.3), None, None, None, None]), None);
    }
}
