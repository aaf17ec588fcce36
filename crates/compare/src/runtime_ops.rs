//! Names the operators that ran below the op of a finding, if the candidate's operators were also recorded below Python, and the
//! caller of an operator that was itself recorded there.
//!
//! An operator records the op that called it where that was known, which is not the case in the backward pass, nor on threads of the
//! program's own. There the values identify it: an op's results that were not among its inputs match an operator's results that were not
//! among its inputs.

use std::path::Path;

use probe_dump::native::{MANIFEST, RUNTIME_FOLDER};
use probe_dump::{Dump, Op, Rank, TensorRecord};
use probe_files::map::FileAccess;
use probe_judge::Finding;
use probe_pair::PartPair;
use probe_read as read;

/// Maximum number of findings per part that are looked up.
const MAX_FINDINGS: usize = 10;
/// Maximum number of operators named for one op; of more, the first ones are named.
const MAX_NAMED: usize = 8;

/// The dump of operators inside the candidate's dump.
#[derive(Debug)]
pub(super) struct RuntimeOps(Option<Dump>);

impl RuntimeOps {
    /// Opens the operators of the candidate at `path`. If they cannot be read they are treated as absent, because they
    /// only add to an answer.
    pub(super) fn of(path: &Path, access: FileAccess) -> Self {
        let folder = path.join(RUNTIME_FOLDER);
        let there = folder.join(MANIFEST).is_file();
        Self(there.then(|| read::open(&folder, access).ok()).flatten())
    }

    /// Completes `findings`, which belong to `pair`.
    pub(super) fn complete(&self, pair: &PartPair, findings: &mut [Finding]) {
        if findings.is_empty() {
            return;
        }
        let part = self.part(pair);
        for finding in findings.iter_mut().take(MAX_FINDINGS) {
            let own = pair.candidate.ops.iter().find(|op| op.name.as_str() == finding.op);
            finding.caller = own.and_then(|op| op.caller()).map(str::to_owned);
            let operators = part.as_ref().map_or(&[][..], |part| &part.ops);
            let below = operators.iter().filter(|op| op.caller() == Some(&finding.op));
            let mut below: Vec<&Op> = below.take(MAX_NAMED).collect();
            if let (true, Some(own)) = (below.is_empty(), own) {
                below.extend(makers(own, operators));
            }
            finding.below = below.into_iter().map(|op| op.name.as_str().to_owned()).collect();
        }
    }

    fn part(&self, pair: &PartPair) -> Option<Rank> {
        let dump = self.0.as_ref()?;
        let key = dump.parts.iter().find(|key| key.step == pair.step && key.rank.number() == pair.rank)?;
        dump.reader.read(key).ok()
    }
}

/// Maximum difference of mean and norm of one tensor, relative to the norm, between sums computed by a device and by a host. Devices state an error
/// of up to 1e-6.
const SUMS: f64 = 1e-5;

/// Returns the operators that produced the results of `op`, in order. A value that several operators produced is ignored, because
/// one of them belongs to another call.
fn makers<'a>(op: &Op, operators: &'a [Op]) -> Vec<&'a Op> {
    let mut found: Vec<usize> = Vec::new();
    for value in tensors(op, true).filter(|value| tells(value)) {
        if tensors(op, false).any(|given| is_same(given, value)) {
            continue;
        }
        let makes = |operator: &Op| {
            tensors(operator, true).any(|made| is_same(made, value))
                && !tensors(operator, false).any(|given| is_same(given, value))
        };
        let mut all = operators.iter().enumerate().filter(|(_, operator)| makes(operator));
        if let (Some((at, _)), None) = (all.next(), all.next())
            && !found.contains(&at)
        {
            found.push(at);
        }
    }
    found.sort_unstable();
    found.into_iter().take(MAX_NAMED).map(|at| &operators[at]).collect()
}

/// Returns the tensors that an op produced (`made`) or received.
fn tensors(op: &Op, made: bool) -> impl Iterator<Item = &TensorRecord> {
    op.slots.iter().filter(move |slot| slot.side.is_result() == made).filter_map(|slot| slot.value.tensor())
}

/// Returns true if a value is recognizable; constants are not, because they are produced everywhere.
fn tells(value: &TensorRecord) -> bool {
    let range = (value.statistics.min(), value.statistics.max());
    matches!(range, (Some(min), Some(max)) if min.as_f64() < max.as_f64())
        && value.statistics.norm().is_some()
}

/// Returns true if two records describe the same elements, possibly in different shapes.
fn is_same(one: &TensorRecord, other: &TensorRecord) -> bool {
    let bits = |record: &TensorRecord| {
        let counts = record.counts.as_deref()?;
        let of = |number: Option<probe_dump::Number>| number.map(|number| number.as_f64().to_bits());
        let range = (of(record.statistics.min())?, of(record.statistics.max())?);
        let others = (counts.zeros, counts.nan, counts.positive_infinite, counts.negative_infinite);
        Some((counts.elements, range, others))
    };
    let sums = |record: &TensorRecord| Some((record.statistics.norm()?, record.statistics.mean()?));
    let (Some((norm, mean)), Some((other_norm, other_mean))) = (sums(one), sums(other)) else { return false };
    let of_means = norm / (one.len().max(1) as f64).sqrt();
    one.dtype == other.dtype
        && bits(one).is_some_and(|bits_of_one| Some(bits_of_one) == bits(other))
        && (norm - other_norm).abs() <= SUMS * norm
        && (mean - other_mean).abs() <= SUMS * of_means
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use probe_dump::{
        Counts, DType, Number, OpName, RecordedDType, RecordedStatistics, Slot, SlotSide, Value,
    };

    /// Returns a tensor whose statistics follow from `seed`, summed with this relative error.
    fn tensor(seed: f64, error: f64, shape: &[u64]) -> Value {
        let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), shape.into());
        record.counts = Some(Counts { elements: shape.iter().product(), ..Counts::default() }.into());
        record.statistics = RecordedStatistics {
            min: Some(Number::Float(-seed)),
            max: Some(Number::Float(seed)),
            mean: Some(seed / 100.0 * (1.0 + error)),
            norm: Some(seed * 3.0 * (1.0 + error)),
        }
        .into();
        Value::Tensor(Arc::new(record))
    }

    fn op(name: &str, given: &[Value], made: &[Value]) -> Op {
        let mut op = Op::new(OpName::parse(name));
        for (side, values) in [(SlotSide::Input, given), (SlotSide::Output, made)] {
            op.slots.extend(values.iter().map(|value| Slot::new("slot", side, value.clone())));
        }
        op
    }

    fn names(op: &Op, operators: &[Op]) -> Vec<String> {
        makers(op, operators).iter().map(|op| op.name.as_str().to_owned()).collect()
    }

    #[test]
    fn an_operator_is_known_by_what_it_alone_made() {
        let value = |seed| tensor(seed, 0.0, &[4, 16]);
        let own = op("Functional.gelu.1.backward", &[value(1.0)], &[tensor(2.0, 3e-7, &[64])]);
        let maker = op("Aclnn.GeluBackward.0.forward", &[value(1.0), value(7.0)], &[value(2.0)]);
        let copy = op("Aclnn.InplaceCopy.0.forward", &[value(2.0)], &[value(2.0)]);
        let other = op("Aclnn.Mul.0.forward", &[value(1.0)], &[tensor(2.0, 1e-3, &[4, 16])]);
        let all = [other.clone(), maker.clone(), copy.clone()];
        assert_eq!(names(&own, &all), ["Aclnn.GeluBackward.0.forward"]);
        // Another operator also produced it: a call that was recomputed.
        let again = op("Aclnn.GeluBackward.1.forward", &[value(1.0)], &[value(2.0)]);
        assert_eq!(names(&own, &[maker, again]), Vec::<String>::new());
        // An op has not produced its own inputs, and a constant identifies nobody.
        let passes = op("Tensor.__add__.0.backward", &[value(2.0)], &[value(2.0)]);
        assert_eq!(names(&passes, &all), Vec::<String>::new());
        let constant = op("Functional.relu.0.backward", &[], &[value(0.0)]);
        let zeros = op("Aclnn.InplaceZero.0.forward", &[], &[value(0.0)]);
        assert_eq!(names(&constant, &[zeros]), Vec::<String>::new());
        assert_eq!(names(&own, &[copy, other]), Vec::<String>::new());
    }
}
