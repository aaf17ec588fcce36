//! Values that hold what earlier ones held: positions are made in every layer, and each is read there.

use std::collections::HashMap;

use probe_dump::{OpKind, OpName};
use probe_pair::{Paired, PartPair};

use super::Layouts;

impl Layouts {
    /// Returns keys of their own for values that hold what an earlier one held, and for what reads them before the next is made.
    pub(super) fn made_again(&self, pair: &PartPair) -> HashMap<(usize, usize), u64> {
        let mut found = HashMap::new();
        // How often a value was made up to here, by the key of what it holds.
        let mut times: HashMap<u64, u64> = HashMap::new();
        for (place, op) in pair.ops.iter().enumerate() {
            let held = |(slot, slots): (usize, Paired)| {
                let (held, key) = self.of_one_rank(pair, op, slots)?;
                Some((slot, held.side.is_result(), key))
            };
            let all: Vec<_> = op.slots.iter().enumerate().filter_map(held).collect();
            let is_call = OpName::parse(pair.name(op)).kind() == OpKind::Api;
            let reads = |key: u64| all.iter().any(|(_, is_result, read)| !is_result && *read == key);
            for &(slot, is_result, key) in &all {
                if is_result && is_call && !reads(key) {
                    *times.entry(key).or_default() += 1;
                }
                if let Some(more) = times.get(&key).filter(|times| **times > 1) {
                    found.insert((place, slot), again(key, *more));
                }
            }
        }
        found
    }
}

/// Returns the key of a value that holds what others held.
const fn again(key: u64, times: u64) -> u64 {
    key ^ times.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use probe_dump::{Number, RecordedStatistics, Value};
    use probe_pair::OpPair;

    use super::super::strangers::tests::part;
    use super::*;

    #[test]
    fn a_value_that_is_made_again_has_readers_of_its_own() {
        let mut pair = part("Torch.arange.0.forward", [1.0, 1.0]);
        let numbered = |max: f64| {
            let mut record = pair.baseline.ops[0].slots[0].value.tensor().unwrap().clone();
            let (max, min) = (Some(Number::Float(max)), Some(Number::Float(0.0)));
            record.statistics = RecordedStatistics { max, min, ..RecordedStatistics::default() }.into();
            Value::Tensor(record.into())
        };
        let (positions, scores) = (numbered(7.0), numbered(3.0));
        // Each of two layers makes positions, views them, and makes scores of them.
        let layer = |call: usize| {
            [
                ("Torch.arange", &scores, &positions),
                ("Tensor.view", &positions, &positions),
                ("Torch.cos", &positions, &scores),
            ]
            .map(|(api, read, made)| {
                let mut op = pair.baseline.ops[0].clone();
                op.name = OpName::parse(&format!("{api}.{call}.forward"));
                (op.slots[0].value, op.slots[1].value) = (read.clone(), made.clone());
                op
            })
        };
        let ops: Vec<_> = [layer(0), layer(1)].concat();
        let paired = pair.ops[0].clone();
        pair.ops = (0..ops.len())
            .map(|place| OpPair { ops: Paired::Both(place, place), ..paired.clone() })
            .collect();
        (pair.baseline.ops, pair.candidate.ops) = (ops.clone(), ops);
        let again = Layouts::default().made_again(&pair);
        let of = |place: usize, slot: usize| again.get(&(place, slot)).copied();
        assert_eq!([of(0, 1), of(1, 0), of(1, 1), of(2, 0)], [None; 4]);
        assert!(of(3, 1).is_some() && of(4, 0) == of(3, 1) && of(4, 1) == of(3, 1) && of(5, 0) == of(3, 1));
        assert!(of(5, 1).is_some() && of(5, 1) != of(3, 1));
    }
}
