//! Records and texts that a part holds many times, kept once.
//!
//! What one op makes the next one reads, so that most tensors of a step are recorded by several slots, and nearly every op has a
//! slot `input.0`. A part of 100,000 ops takes a third of the memory that way.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use super::{Checksum, Counts, Number, TensorRecord};

/// Gives out the record or text that it already has, where it has an equal one.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    /// The last record of each key: the same tensor is mostly seen again soon.
    records: HashMap<u64, Arc<TensorRecord>>,
    texts: HashSet<Arc<str>>,
    sizes: HashSet<Arc<[u64]>>,
    steps: HashSet<Arc<[i64]>>,
    counts: HashSet<Arc<Counts>>,
}

impl Repeated {
    /// The record, shared with the slots that recorded the same.
    pub(crate) fn record(&mut self, record: Arc<TensorRecord>) -> Arc<TensorRecord> {
        let key = key(&record);
        if let Some(known) = self.records.get(&key).filter(|known| **known == record) {
            return known.clone();
        }
        self.records.insert(key, record.clone());
        record
    }

    /// The text, shared with its equals.
    pub(crate) fn text(&mut self, text: &str) -> Arc<str> {
        shared(&mut self.texts, text)
    }

    /// The shape, shared with its equals.
    pub(crate) fn sizes(&mut self, sizes: Vec<u64>) -> Arc<[u64]> {
        shared(&mut self.sizes, sizes)
    }

    /// The strides, shared with their equals.
    pub(crate) fn steps(&mut self, steps: Vec<i64>) -> Arc<[i64]> {
        shared(&mut self.steps, steps)
    }

    /// The counts, shared with their equals: those of tensors of one shape without zeros.
    pub(crate) fn counts(&mut self, counts: Counts) -> Arc<Counts> {
        shared(&mut self.counts, counts)
    }
}

/// The value that `known` has, which takes it in where it has none.
pub(crate) fn shared<T, V>(known: &mut HashSet<Arc<T>>, value: V) -> Arc<T>
where
    T: ?Sized + Eq + Hash,
    V: Borrow<T> + Into<Arc<T>>,
{
    if let Some(known) = known.get(value.borrow()) {
        return known.clone();
    }
    let value: Arc<T> = value.into();
    known.insert(value.clone());
    value
}

/// Equal for equal records. Those that only this makes alike do not share.
fn key(record: &TensorRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    record.shape.hash(&mut hasher);
    record.data.hash(&mut hasher);
    if let Some(Checksum::Xxh3(hash)) = record.checksum {
        hasher.write_u128(hash);
    }
    let statistics = &record.statistics;
    let extremes = [statistics.max, statistics.min].map(|number| number.map(Number::as_f64));
    for number in extremes.into_iter().chain([statistics.mean, statistics.norm]) {
        // NaN and the signs of zero are equal or not whatever their bits.
        hasher
            .write_u64(number.filter(|number| !number.is_nan()).map_or(0, |number| (number + 0.0).to_bits()));
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::{DType, RecordedDType};

    fn record(max: f64, note: Option<&str>) -> Arc<TensorRecord> {
        let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), [2, 3].into());
        record.statistics.max = Some(Number::Float(max));
        record.note = note.map(Into::into);
        record.into()
    }

    #[test]
    fn equal_records_are_one_and_others_are_not() {
        let mut repeated = Repeated::default();
        let first = repeated.record(record(1.0, None));
        assert!(Arc::ptr_eq(&first, &repeated.record(record(1.0, None))));
        for other in [record(2.0, None), record(1.0, Some("beyond the byte budget"))] {
            let shared = repeated.record(other.clone());
            assert!(!Arc::ptr_eq(&first, &shared));
            assert_eq!(shared, other);
        }
        // NaN is not known to be the same.
        let (a, b) = (repeated.record(record(f64::NAN, None)), repeated.record(record(f64::NAN, None)));
        assert!(!Arc::ptr_eq(&a, &b));
        assert!(Arc::ptr_eq(&repeated.text("input.0"), &repeated.text("input.0")));
    }
}
