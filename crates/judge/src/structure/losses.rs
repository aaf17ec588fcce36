//! Losses among the values that a difference reaches: where the backward pass begins, and those made in parts.

use super::converging::Agreement;
use crate::ops::Kind;

impl Agreement<'_, '_> {
    /// Returns true for a loss that differs: all that reads it are ops that make a constant of its shape, with which the
    /// backward pass begins.
    pub(super) fn begins_backward(&self, position: usize, readers: &[usize], led: f64) -> bool {
        let is_shaped = |reader: &usize| self.flow.nodes[*reader].traits.kind == Kind::Shaped;
        let differs = |reader: &usize| {
            let mut given = self.flow.facts(*reader).take(1);
            given.any(|fact| fact.is_float && !self.is_near(fact, led))
        };
        let is_loss = !readers.is_empty() && readers.iter().all(is_shaped);
        is_loss && readers.iter().any(differs) && !self.is_of_parts(position)
    }

    /// Returns true for a number that the calls of one side make in parts: the loss of a batch is the sum of those of its
    /// micro-batches, or their mean.
    pub(super) fn is_of_parts(&self, position: usize) -> bool {
        let node = &self.flow.nodes[position];
        let number = |side: usize, op: usize| {
            let mut made = self.sides(op, true).into_iter().filter(|(of, ..)| *of == side);
            let (record, others) = (made.next()?.2.value.tensor()?, made.next());
            let value = record.statistics.max()?.as_f64();
            (others.is_none() && record.len() == 1 && value.is_finite()).then_some(value)
        };
        let alike = |other: usize| {
            let unpaired = &self.flow.nodes[other];
            !unpaired.is_paired && unpaired.base == node.base && self.readers(other).is_empty()
        };
        (0..2).any(|side| {
            let Some(whole) = number(1 - side, position) else { return false };
            let others = (0..self.flow.nodes.len()).filter(|&other| alike(other));
            let parts: Vec<f64> = number(side, position)
                .into_iter()
                .chain(others.filter_map(|other| number(side, other)))
                .collect();
            let sum: f64 = parts.iter().sum();
            let bound = self.bound(0.0) * parts.iter().fold(whole.abs(), |all, part| all.max(part.abs()));
            let is_near = |made: f64| (made - whole).abs() <= bound;
            parts.len() > 1 && (is_near(sum) || is_near(sum / parts.len() as f64))
        })
    }
}
