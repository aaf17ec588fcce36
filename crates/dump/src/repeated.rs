//! Deduplicates records and texts that occur many times in a part.
//!
//! The next op reads what the previous one produced, so most tensors of a step are recorded by several slots, and nearly every
//! op has a slot `input.0`. Deduplicated, a part of 100,000 ops takes a third of the memory.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use super::{Checksum, Counts, Number, SlotName, SlotSide, TensorMetadata, TensorRecord};

/// Returns the existing record or text if it has an equal one.
#[derive(Debug, Default)]
pub struct Repeated {
    /// The last record of each key: a tensor is usually seen again soon.
    records: HashMap<u64, Arc<TensorRecord>>,
    /// The last metadata of each key.
    metadata: HashMap<u64, Arc<TensorMetadata>>,
    texts: HashSet<Arc<str>>,
    /// Names of slots by path, one per side.
    names: HashMap<Box<str>, [Option<Arc<SlotName>>; 4]>,
    counts: HashSet<Arc<Counts>>,
}

impl Repeated {
    /// Returns the record, shared with slots that recorded the same; otherwise at least its metadata and counts are shared.
    pub fn record(&mut self, mut record: TensorRecord) -> Arc<TensorRecord> {
        let kind = metadata_key(&record.metadata);
        let key = key(kind, &record);
        if let Some(known) = self.records.get(&key).filter(|known| ***known == record) {
            return known.clone();
        }
        record.metadata = last(&mut self.metadata, kind, record.metadata);
        record.counts = record.counts.map(|counts| shared(&mut self.counts, counts));
        let record = Arc::new(record);
        self.records.insert(key, record.clone());
        record
    }

    /// Returns the name of a slot, shared with equal ones.
    pub fn name(&mut self, path: &str, side: SlotSide) -> Arc<SlotName> {
        if let Some(Some(known)) = self.names.get(path).map(|sides| &sides[side as usize]) {
            return known.clone();
        }
        let name = Arc::new(SlotName { path: path.into(), side });
        self.names.entry(path.into()).or_default()[side as usize] = Some(name.clone());
        name
    }

    /// Returns the text, shared with equal ones.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        shared(&mut self.texts, text)
    }
}

/// Returns the equal value in `known`, after adding it if there is none.
pub fn shared<T, V, S>(known: &mut HashSet<Arc<T>, S>, value: V) -> Arc<T>
where
    S: BuildHasher,
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

/// Returns the value that `known` holds under the key if it equals `value`; otherwise stores and returns
/// `value`.
fn last<T: PartialEq>(known: &mut HashMap<u64, Arc<T>>, key: u64, value: Arc<T>) -> Arc<T> {
    let held = known.entry(key).or_insert_with(|| value.clone());
    if **held != *value {
        *held = value;
    }
    held.clone()
}

/// Returns a key that is equal for equal metadata.
fn metadata_key(metadata: &TensorMetadata) -> u64 {
    let TensorMetadata {
        dtype,
        shape,
        strides,
        device,
        requires_grad,
        placement,
        layout,
        sum_error,
        note,
        damage,
    } = metadata;
    let mut hasher = DefaultHasher::new();
    (dtype, shape, strides, device, requires_grad).hash(&mut hasher);
    (placement, layout, note, damage).hash(&mut hasher);
    sum_error.map(f64::to_bits).hash(&mut hasher);
    hasher.finish()
}

/// Returns a key that is equal for equal records whose metadata has the key `kind`. Records with colliding
/// keys are not shared.
fn key(kind: u64, record: &TensorRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, &record.data).hash(&mut hasher);
    if let Some(Checksum::Xxh3(hash)) = record.checksum {
        hasher.write_u128(hash.bits());
    }
    let statistics = &record.statistics;
    let extremes = [statistics.max(), statistics.min()].map(|number| number.map(Number::as_f64));
    for number in extremes.into_iter().chain([statistics.mean(), statistics.norm()]) {
        // Equality of NaNs and of signed zeros does not depend on their bits.
        hasher
            .write_u64(number.filter(|number| !number.is_nan()).map_or(0, |number| (number + 0.0).to_bits()));
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, RecordedDType, RecordedStatistics};

    fn record(max: f64, note: Option<&str>) -> TensorRecord {
        let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), [2, 3].into());
        record.statistics =
            RecordedStatistics { max: Some(Number::Float(max)), ..record.statistics.get() }.into();
        record.note = note.map(Into::into);
        record
    }

    #[test]
    fn equal_records_are_one_and_others_share_their_metadata() {
        let mut repeated = Repeated::default();
        let first = repeated.record(record(1.0, None));
        assert!(Arc::ptr_eq(&first, &repeated.record(record(1.0, None))));
        for (other, alike) in
            [(record(2.0, None), true), (record(1.0, Some("beyond the byte budget")), false)]
        {
            let shared = repeated.record(other.clone());
            assert!(!Arc::ptr_eq(&first, &shared));
            assert_eq!(*shared, other);
            assert_eq!(Arc::ptr_eq(&first.metadata, &shared.metadata), alike);
        }
        // NaN is not known to be the same.
        let (a, b) = (repeated.record(record(f64::NAN, None)), repeated.record(record(f64::NAN, None)));
        assert!(!Arc::ptr_eq(&a, &b));
        let name = repeated.name("input.0", SlotSide::Input);
        assert!(Arc::ptr_eq(&name, &repeated.name("input.0", SlotSide::Input)));
        assert!(!Arc::ptr_eq(&name, &repeated.name("input.0", SlotSide::Parameter)));
        assert!(Arc::ptr_eq(&repeated.text("a.b"), &repeated.text("a.b")));
    }
}
