//! Weights that stages share, where both runs have stages: each stage has a term of the gradient, and what the optimizer reads is their sum.

use probe_dump::Slot;
use probe_judge::{Cause, Finding};
use probe_measure as measure;
use probe_pair::{OpPair, Paired, PartPair};

use super::partial::group;
use super::{Layouts, in_words, values};

/// Largest relative error of a sum of terms: beyond the rounding of bfloat16, far below that of one term alone.
const NEAR: f64 = 0.05;

/// Least part of a gradient that one term alone lacks.
const LACKS: f64 = 0.15;

impl Layouts {
    /// Says that an optimizer reads the terms of a gradient where the other run has their sum: that of a weight which the first and the last stage
    /// have under two names.
    pub(super) fn not_shared(&self, pair: &PartPair, finding: &Finding) -> Option<String> {
        let op = pair.ops.get(finding.order).filter(|_| finding.cause == Cause::Gradient)?;
        let of_gradient = |slots: &Paired| {
            let (b, c) = pair.slot(op, *slots);
            Some((*slots, b?, c?)).filter(|(_, b, _)| b.path.starts_with("input.grad."))
        };
        let gradients: Vec<_> = op.slots.iter().filter_map(|slots| of_gradient(&slots)).collect();
        let found = gradients.iter().find(|(_, b, _)| *b.path == *finding.slot)?;
        let whole = |(_, b, c): &(Paired, &Slot, &Slot)| [numbers(pair, b, true), numbers(pair, c, false)];
        let [Some(b), Some(c)] = whole(found) else { return None };
        let shape = |slot: &Slot| slot.value.tensor().map(|record| record.shape.clone());
        gradients.iter().filter(|other| other.1.path != found.1.path).find_map(|other| {
            if shape(other.1) != shape(found.1) {
                return None;
            }
            let [Some(other_b), Some(other_c)] = whole(other) else { return None };
            // Either run may be the one that lacks the sum.
            let lacks = |sum: [&[f64]; 2], terms: [&[f64]; 2]| {
                let added: Vec<f64> = terms[0].iter().zip(terms[1]).map(|(a, b)| a + b).collect();
                distance(sum[0], sum[1]) < NEAR
                    && distance(sum[0], &added) < NEAR
                    && distance(sum[0], terms[0]) > LACKS
            };
            let said = lacks([&b, &other_b], [&c, &other_c]) || lacks([&c, &other_c], [&b, &other_b]);
            said.then(|| {
                let ranks = self.ranks_of(op, [found.0, other.0]);
                let name = |slot: &Slot| slot.path.trim_start_matches("input.grad.").to_owned();
                format!(
                    "gradient of {}, which is {} as well: each of {} holds a partial sum; the all-reduce over {} is missing",
                    name(found.1),
                    name(other.1),
                    in_words(&ranks),
                    group(&self.groups, &ranks)
                )
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
    use std::sync::Arc;

    use probe_dump::{
        DType, OpName, ReadError, RecordedDType, SlotSide, TensorData, TensorRecord, TensorStore, Value,
    };
    use probe_pair::SlotPairs;

    use super::super::partial;
    use super::super::strangers::tests::part;
    use super::*;

    /// Holds one number under each name.
    struct Numbers([f32; 2]);

    impl TensorStore for Numbers {
        fn load(&self, key: &str) -> Result<TensorData, ReadError> {
            let number = self.0[key.parse::<usize>().unwrap()];
            TensorData::contiguous(Arc::new(number.to_le_bytes().to_vec()), 0..4, DType::F32, [1].into())
                .map_err(|error| ReadError::format("value", error.to_string()))
        }
    }

    #[test]
    fn terms_of_a_gradient_in_place_of_its_sum_are_told_with_both_names() {
        let said = |baseline: [f32; 2], candidate: [f32; 2]| {
            let mut pair = part("Optimizer.SGD.step.0", [1.0, 1.0]);
            for (rank, of) in [(&mut pair.baseline, baseline), (&mut pair.candidate, candidate)] {
                let gradient = |(at, name): (usize, &str)| {
                    let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), [1].into());
                    record.data = Some(at.to_string().as_str().into());
                    Slot::new(format!("input.grad.{name}"), SlotSide::Input, Value::Tensor(record.into()))
                };
                rank.ops[0].name = OpName::parse("Optimizer.SGD.step.0");
                rank.ops[0].slots = [(0, "embed.weight"), (1, "head.weight")].map(gradient).into();
                rank.store = Arc::new(Numbers(of));
            }
            pair.ops[0].slots = SlotPairs::in_order(2);
            let slot = pair.baseline.ops[0].slots[0].clone();
            let found = partial::finding(&pair, 0, &slot, Cause::Gradient);
            Layouts { ranks: vec![0, 1], ..Layouts::default() }.not_shared(&pair, &found)
        };
        let lacks = said([3.0, 3.0], [1.0, 2.0]).unwrap();
        assert!(
            lacks.starts_with("gradient of embed.weight, which is head.weight as well: each of"),
            "{lacks}"
        );
        assert_eq!(said([1.0, 2.0], [3.0, 3.0]), Some(lacks), "the baseline lacks the sum");
        assert_eq!(said([3.0, 3.0], [1.0, 1.0]), None, "they do not add up");
        assert_eq!(said([3.0, 2.0], [1.0, 2.0]), None, "two weights");
        assert_eq!(said([3.0, 3.0], [2.9, 0.1]), None, "one term is all of it");
    }
}
