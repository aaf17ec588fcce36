//! How much an op magnifies relative noise in what it is given: a quotient where its divisor is small, a mean where what it
//! averages cancels.

use super::Walk;
use crate::dump::{Number, Op};
use crate::measure::Evidence;

/// Ops that divide, element by element, and the position of the divisor.
const DIVIDING: [(&str, &str); 8] = [
    ("addcdiv", "input.2"),
    ("div", "input.1"),
    ("divide", "input.1"),
    ("true_divide", "input.1"),
    ("truediv", "input.1"),
    ("itruediv", "input.1"),
    ("reciprocal", "input.0"),
    ("rsqrt", "input.0"),
];

/// Optimizers in one op: they divide by a root that is not among their arguments.
const FUSED: [&str; 5] = ["adam", "adamw", "lamb", "rmsprop", "adagrad"];

/// Ops that average, and the result that is a mean of their first input.
const AVERAGING: [(&str, &str); 9] = [
    ("mean", "output.0"),
    ("sum", "output.0"),
    ("var_mean", "output.1"),
    ("std_mean", "output.1"),
    ("native_layer_norm", "output.1"),
    ("native_group_norm", "output.1"),
    ("native_batch_norm", "output.1"),
    ("cudnn_batch_norm", "output.1"),
    ("miopen_batch_norm", "output.1"),
];

impl Walk<'_> {
    /// Largest factor by which relative noise (in l2) of the inputs may grow in a result. 1 for ops that are not known to
    /// magnify it.
    pub(super) fn magnification(&self, position: usize, op: &Op, slot: usize) -> f64 {
        self.of_quotient(position, op).max(self.of_mean(position, op, slot))
    }

    /// Root mean square of what is averaged over that of the means. An error common to all elements of a mean, which is
    /// the worst, passes whole.
    fn of_mean(&self, position: usize, op: &Op, slot: usize) -> f64 {
        let api = op.name.api().trim_matches('_');
        let op_pair = &self.pair.ops[position];
        let tensor = |slot: usize| {
            let found = self.pair.slot(op_pair, op_pair.slots[slot]).0?;
            Some((&*found.path, found.value.tensor()?.len().max(1) as f64))
        };
        let Some((path, results)) = tensor(slot) else { return 1.0 };
        if !AVERAGING.contains(&(api, path)) {
            return 1.0;
        }
        let averaged = (0..op_pair.slots.len()).find_map(|slot| {
            let (path, elements) = tensor(slot)?;
            (path == "input.0").then_some((slot, elements))
        });
        let Some((given, elements)) = averaged else { return 1.0 };
        let terms = if api == "sum" { elements / results } else { 1.0 };
        let mean = self.norm(position, slot) / terms / results.sqrt();
        let factor = self.norm(position, given) / elements.sqrt() / mean;
        if factor > 1.0 { factor } else { 1.0 }
    }

    /// Largest factor by which relative noise (in l2) of the inputs may grow in an op that divides: the root mean square
    /// of the divisor over its smallest element. 1 for other ops and where the divisor's signs are mixed; infinite for
    /// fused optimizers.
    fn of_quotient(&self, position: usize, op: &Op) -> f64 {
        let api = op.name.api().trim_matches('_').trim_start_matches("foreach_");
        if api.split('_').any(|word| FUSED.contains(&word)) {
            return f64::INFINITY;
        }
        let Some((_, divisor)) = DIVIDING.iter().find(|(name, _)| *name == api) else { return 1.0 };
        let op_pair = &self.pair.ops[position];
        let mut largest = 1.0_f64;
        for (index, &slots) in op_pair.slots.iter().enumerate() {
            let Some(slot) = self.pair.slot(op_pair, slots).0 else { continue };
            let rest = slot.path.strip_prefix(divisor);
            let (true, Some(tensor)) =
                (rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')), slot.value.tensor())
            else {
                continue;
            };
            let recorded = &tensor.statistics;
            let (min, max) = match self.evidence_of(position, index) {
                Some(Evidence::Data(metrics)) => (metrics.baseline.min, metrics.baseline.max),
                _ => (recorded.min.map(Number::as_f64), recorded.max.map(Number::as_f64)),
            };
            let (Some(min), Some(max)) = (min, max) else { continue };
            let smallest = if min > 0.0 { min } else { -max };
            if smallest > 0.0 {
                let rms = self.norm(position, index) / (tensor.len().max(1) as f64).sqrt();
                largest = largest.max(rms / smallest);
            }
        }
        largest
    }
}
