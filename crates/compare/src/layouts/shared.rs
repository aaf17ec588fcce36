//! Weights that stages share, where both runs have stages: each stage has a term of the gradient, and what the optimizer reads is their sum.

use probe_dump::{Checksum, Slot};
use probe_judge::{Cause, Finding};
use probe_measure as measure;
use probe_pair::{OpPair, Paired, PartPair};

use super::partial::group;
use super::{Layouts, in_words, values};

/// Largest relative error of a sum of terms: beyond the rounding of bfloat16, far below that of one term alone.
const NEAR: f64 = 0.05;

/// Least part of a gradient that one term alone lacks.
const LACKS: f64 = 0.15;

/// Most gradients that are asked, of those that differ.
const MOST: usize = 8;

/// A gradient as an optimizer reads it on both sides.
#[derive(Clone, Copy)]
struct Gradient<'p> {
    slots: Paired,
    b: &'p Slot,
    c: &'p Slot,
}

impl Layouts {
    /// Returns the first gradient of which an optimizer reads a term where the other run has the sum: that of a weight which the first and the last
    /// stage have under two names.
    pub(super) fn not_shared<'p>(
        &self,
        pair: &'p PartPair,
        finding: &Finding,
    ) -> Option<(usize, &'p str, String)> {
        if !matches!(finding.cause, Cause::Gradient | Cause::Optimizer) {
            return None;
        }
        let is_step =
            |op: &OpPair| matches!(op.ops, Paired::Both(..)) && pair.name(op).starts_with("Optimizer.");
        let steps = pair.ops.iter().enumerate().filter(|(_, op)| is_step(op));
        steps.into_iter().find_map(|(order, op)| {
            let gradients: Vec<Gradient<'p>> =
                op.slots.iter().filter_map(|slots| Gradient::of(pair, op, slots)).collect();
            let differing = gradients.iter().filter(|of| of.checksums().is_none_or(|[b, c]| b != c));
            differing.take(MOST).find_map(|found| {
                let others = gradients.iter().filter(|other| other.b.path != found.b.path);
                let other = others.into_iter().find(|other| found.is_term_beside(other, pair))?;
                let ranks = self.ranks_of(op, [found.slots, other.slots]);
                let said = format!(
                    "gradient of {}, which is {} as well: each of {} holds a partial sum; the all-reduce over {} is missing",
                    found.parameter(),
                    other.parameter(),
                    in_words(&ranks),
                    group(&self.groups, &ranks)
                );
                Some((order, &*found.b.path, said))
            })
        })
    }

    /// Returns the ranks that hold any of these values.
    fn ranks_of(&self, op: &OpPair, slots: [Paired; 2]) -> Vec<u32> {
        let places = slots.into_iter().filter_map(|slots| self.place(op, slots));
        let pieces = places.filter_map(|place| self.spread.get(&place)).flat_map(|spread| &spread.pieces);
        let mut ranks: Vec<u32> = pieces.flat_map(|piece| piece.ranks.iter().copied()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

impl<'p> Gradient<'p> {
    fn of(pair: &'p PartPair, op: &OpPair, slots: Paired) -> Option<Self> {
        let (b, c) = pair.slot(op, slots);
        Some(Self { slots, b: b?, c: c? }).filter(|of| of.b.path.starts_with("input.grad."))
    }

    fn parameter(&self) -> &'p str {
        self.b.path.trim_start_matches("input.grad.")
    }

    fn checksums(&self) -> Option<[&'p Checksum; 2]> {
        Some([self.b.value.tensor()?.checksum.as_ref()?, self.c.value.tensor()?.checksum.as_ref()?])
    }

    /// Returns true if one run has the sum of two gradients for both of them, and the other has its terms.
    fn is_term_beside(&self, other: &Self, pair: &PartPair) -> bool {
        let sizes =
            |of: &Self| Some((of.b.value.tensor()?.shape.clone(), of.c.value.tensor()?.shape.clone()));
        let norm = |slot: &Slot| slot.value.tensor()?.statistics.norm();
        let near = |a: &Slot, b: &Slot| matches!((norm(a), norm(b)), (Some(a), Some(b)) if (a - b).abs() <= NEAR * a);
        // The one that has the sum has it twice.
        if sizes(self) != sizes(other) || !(near(self.b, other.b) || near(self.c, other.c)) {
            return false;
        }
        let whole = |of: &Self| Some([numbers(pair, of.b, true)?, numbers(pair, of.c, false)?]);
        let (Some([b, c]), Some([other_b, other_c])) = (whole(self), whole(other)) else { return false };
        let lacks = |sum: [&[f64]; 2], terms: [&[f64]; 2]| {
            let added: Vec<f64> = terms[0].iter().zip(terms[1]).map(|(a, b)| a + b).collect();
            // Terms that are equal are two sums, and the other run's are twice these.
            distance(sum[0], sum[1]) < NEAR
                && distance(sum[0], &added) < NEAR
                && distance(sum[0], terms[0]) > LACKS
                && distance(terms[0], terms[1]) > LACKS
        };
        lacks([&b, &other_b], [&c, &other_c]) || lacks([&c, &other_c], [&b, &other_b])
    }
}

fn numbers(pair: &PartPair, slot: &Slot, of_baseline: bool) -> Option<Vec<f64>> {
    let side = if of_baseline { &pair.baseline } else { &pair.candidate };
    let data = values::tensor(slot.value.tensor()?, &*side.store)?;
    Some(measure::numbers(data.dtype(), &data.view().to_bytes()))
}

/// Returns the norm of the difference of two values, relative to that of the first.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let square = |sum: f64, by: f64| by.mul_add(by, sum);
    let off = a.iter().zip(b).map(|(a, b)| a - b).fold(0.0, square);
    (off / a.iter().copied().fold(0.0, square)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::partial;
    use super::super::tests::part_of;
    use super::*;

    #[test]
    fn terms_of_a_gradient_in_place_of_its_sum_are_told_with_both_names() {
        let said = |baseline: [f32; 2], candidate: [f32; 2]| {
            let values = |of: [f32; 2]| of.map(|of| (vec![1], vec![of])).to_vec();
            let paths = ["input.grad.embed.weight", "input.grad.head.weight"];
            let pair = part_of("Optimizer.SGD.step.0", &paths, [values(baseline), values(candidate)]);
            let slot = pair.baseline.ops[0].slots[0].clone();
            let found = partial::finding(&pair, 0, &slot, Cause::Gradient);
            let found = Layouts { ranks: vec![0, 1], ..Layouts::default() }.not_shared(&pair, &found);
            found.map(|(order, slot, said)| (order, slot.to_owned(), said))
        };
        let (order, slot, lacks) = said([3.0, 3.0], [1.0, 2.0]).unwrap();
        assert_eq!((order, slot.as_str()), (0, "input.grad.embed.weight"));
        assert!(
            lacks.starts_with("gradient of embed.weight, which is head.weight as well: each of"),
            "{lacks}"
        );
        assert_eq!(said([1.0, 2.0], [3.0, 3.0]), Some((order, slot, lacks)), "the baseline lacks the sum");
        assert_eq!(said([3.0, 3.0], [1.0, 1.0]), None, "they do not add up");
        assert_eq!(said([3.0, 2.0], [1.0, 2.0]), None, "two weights");
        assert_eq!(said([1.0, 1.0], [2.0, 2.0]), None, "twice what it should be");
    }
}
