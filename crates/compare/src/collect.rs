//! Collects the evidence for a pair of tensors: the data if both sides have it, else the recorded facts. If one side has
//! the data and the other a sketch or a hash, the data is measured as the capture would have measured it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::progress::Progress;
use probe_dump::{Checksum, Content, DType, Slot, TensorData, TensorRecord, TensorStore, Value};
use probe_judge::PartEvidence;
use probe_measure::{self as measure, Evidence, KeptMetrics, Unreadable, compare_recorded};
use probe_pair::PartPair;

/// One side of a pair: the record, and the store of its data.
type StoredTensor<'a> = (&'a TensorRecord, &'a dyn TensorStore);

/// Two tensors that are compared with each other.
type Distinct = (Arc<TensorRecord>, Arc<TensorRecord>);

/// Bytes of late tensors fetched at a time: several rounds of as many large requests as can be in flight, and a small part of the space for
/// copies.
const AHEAD: u64 = 512 << 20;

/// Number of pairs measured together. Small tensors are read with their neighbours in the file, several at a time.
const WINDOW: usize = 4096;

/// Number of elements from which the two sides of a pair are loaded by two threads.
const LARGE: u64 = 1 << 20;

/// Returns the evidence for every pair of slots of a part, by op and slot, and the bytes of tensor data read. A pair of tensors
/// that several slots hold on both sides is measured once.
pub(super) fn of_part(pair: &PartPair, progress: &dyn Progress) -> (PartEvidence, u64) {
    let record = |slot: Option<&'_ Slot>| match slot.map(|slot| &slot.value) {
        Some(Value::Tensor(record)) => Some(Arc::clone(record)),
        _ => None,
    };
    let mut distinct: Vec<Distinct> = Vec::new();
    let mut known = HashMap::new();
    let mut place = |op, slots| {
        let (b, c) = pair.slot(op, slots);
        let both = (record(b)?, record(c)?);
        Some(*known.entry((Arc::as_ptr(&both.0), Arc::as_ptr(&both.1))).or_insert_with(|| {
            distinct.push(both);
            u32::try_from(distinct.len() - 1).unwrap_or(PartEvidence::NOTHING)
        }))
    };
    let places = pair.ops.iter().map(|op| {
        let places = op.slots.iter().map(|slots| place(op, slots).unwrap_or(PartEvidence::NOTHING));
        places.collect::<Vec<_>>()
    });
    let places = places.collect();
    drop(known);
    progress.expect(distinct.len() as u64);
    let bytes = AtomicU64::new(0);
    let (b_store, c_store) = (&*pair.baseline.store, &*pair.candidate.store);
    let measure = |pairs: &[Distinct]| -> Vec<Evidence> {
        let one = |(b, c): &Distinct| {
            let (found, read) = evidence((b, b_store), (c, c_store));
            bytes.fetch_add(read, Ordering::Relaxed);
            progress.advance(1);
            found
        };
        pairs.par_iter().map(one).collect()
    };
    let mut measured: Vec<Evidence> = Vec::with_capacity(distinct.len());
    if b_store.is_late() || c_store.is_late() {
        let mut rest = &*distinct;
        let mut ahead = ahead(&mut rest, b_store, c_store);
        while !ahead.is_empty() {
            // The next pairs are fetched while these are measured.
            let (next, found) = rayon::join(|| self::ahead(&mut rest, b_store, c_store), || measure(ahead));
            measured.extend(found);
            ahead = next;
        }
    } else {
        distinct.chunks(WINDOW).for_each(|pairs| measured.extend(measure(pairs)));
    }
    (PartEvidence::new(measured, places), bytes.into_inner())
}

/// Takes the first pairs of `rest`, and prefetches the data that will be read for them.
fn ahead<'a>(rest: &mut &'a [Distinct], b: &'a dyn TensorStore, c: &'a dyn TensorStore) -> &'a [Distinct] {
    let mut keys: [Vec<&str>; 2] = Default::default();
    let (mut count, mut bytes) = (0, 0_u64);
    for (baseline, candidate) in *rest {
        if bytes >= AHEAD {
            break;
        }
        for (keys, (key, record)) in
            keys.iter_mut().zip(read_of((baseline, b), (candidate, c)).into_iter().zip([baseline, candidate]))
        {
            let size = record.dtype.known().map_or(1, DType::size) as u64;
            bytes = bytes.saturating_add(key.map_or(0, |_| record.len().saturating_mul(size)));
            keys.extend(key);
        }
        count += 1;
    }
    let (taken, left) = rest.split_at(count);
    *rest = left;
    rayon::join(|| b.expect(&keys[0]), || c.expect(&keys[1]));
    taken
}

/// Prefetches the data that will be read for these pairs.
pub(super) fn expect<'a>(
    pairs: impl Iterator<Item = (&'a TensorRecord, &'a TensorRecord)>,
    stores: [&'a dyn TensorStore; 2],
) {
    if !stores.iter().any(|store| store.is_late()) {
        return;
    }
    let keys: Vec<[Option<&str>; 2]> = pairs.map(|(b, c)| read_of((b, stores[0]), (c, stores[1]))).collect();
    for (side, store) in stores.into_iter().enumerate() {
        store.expect(&keys.iter().filter_map(|keys| keys[side]).collect::<Vec<_>>());
    }
}

/// Returns the tensors that [`evidence`] reads for a pair.
fn read_of<'a>((b, b_store): StoredTensor<'a>, (c, c_store): StoredTensor<'a>) -> [Option<&'a str>; 2] {
    if b.layout != c.layout || b.damage.is_some() || c.damage.is_some() {
        return [None, None];
    }
    match (&b.data, &c.data) {
        (Some(_), Some(_)) if b.squeezed_shape() != c.squeezed_shape() => [None, None],
        (Some(key), Some(_)) if c_store.is_late() && same_bytes(b, c) => [Some(key), None],
        (Some(_), Some(key)) if b_store.is_late() && same_bytes(b, c) => [None, Some(key)],
        (Some(b), Some(c)) => [Some(b), Some(c)],
        _ => match (lacking(c, b), lacking(b, c)) {
            (Some((key, _)), _) => [None, Some(key)],
            (None, other) => [other.map(|(key, _)| key), None],
        },
    }
}

/// Returns true if the hashes of two tensors show that they are bit-equal.
fn same_bytes(b: &TensorRecord, c: &TensorRecord) -> bool {
    let hash = |record: &TensorRecord| match record.checksum {
        Some(Checksum::Xxh3(hash)) => Some(hash),
        _ => None,
    };
    hash(b).is_some() && hash(b) == hash(c) && b.shape == c.shape && b.dtype == c.dtype
}

/// Returns the evidence for one pair, and the bytes of tensor data read.
pub(super) fn evidence(baseline: StoredTensor<'_>, candidate: StoredTensor<'_>) -> (Evidence, u64) {
    let (b, c) = (baseline.0, candidate.0);
    let unreadable =
        |baseline, candidate| (Evidence::Unreadable(Box::new(Unreadable { baseline, candidate })), 0);
    if b.layout != c.layout {
        let reason = |record: &TensorRecord| record.layout.as_ref().and(record.note.clone());
        return unreadable(reason(b), reason(c));
    }
    if b.damage.is_some() || c.damage.is_some() {
        return unreadable(b.damage.clone(), c.damage.clone());
    }
    let (Some(b_key), Some(c_key)) = (&b.data, &c.data) else {
        return half(baseline, candidate);
    };
    // Different shapes cannot be compared elementwise, even with equal numbers of elements.
    if b.squeezed_shape() != c.squeezed_shape() {
        return (Evidence::Nothing, 0);
    }
    // If two tensors are equal, the remote one is not fetched: the other is checked against the hash that both have.
    if same_bytes(b, c) {
        let bytes = |data: &TensorData| 2 * data.view().len() * data.dtype().size();
        if candidate.1.is_late()
            && let Ok(data) = load(baseline, b_key)
        {
            return measured(b_key, &data, c_key, &data, bytes(&data));
        }
        if baseline.1.is_late()
            && let Ok(data) = load(candidate, c_key)
        {
            return measured(b_key, &data, c_key, &data, bytes(&data));
        }
    }
    let both = || (load(baseline, b_key), load(candidate, c_key));
    // Checking a large tensor against its hash takes one thread a while.
    let large = b.len().max(c.len()) >= LARGE;
    let loaded =
        if large { rayon::join(|| load(baseline, b_key), || load(candidate, c_key)) } else { both() };
    match loaded {
        (Ok(x), Ok(y)) => {
            let bytes = [x.view(), y.view()].iter().map(|view| view.len() * view.dtype().size()).sum();
            measured(b_key, &x, c_key, &y, bytes)
        }
        (x, y) => unreadable(x.err(), y.err()),
    }
}

/// Measures two tensors that take `bytes` bytes together.
fn measured(b_key: &str, x: &TensorData, c_key: &str, y: &TensorData, bytes: usize) -> (Evidence, u64) {
    let measured = measure::compare(x.view(), y.view());
    let fault =
        |key: &str, data: &TensorData| data.fault().map(|fault| format!("{key}: {fault}").into_boxed_str());
    let (baseline, candidate) = (fault(b_key, x), fault(c_key, y));
    if baseline.is_some() || candidate.is_some() {
        return (Evidence::Unreadable(Box::new(Unreadable { baseline, candidate })), 0);
    }
    let evidence = measured.map_or(Evidence::Nothing, |metrics| Evidence::Data(KeptMetrics::from(&metrics)));
    (evidence, bytes as u64)
}

/// Returns the recorded evidence if at most one side has its data.
fn half(baseline: StoredTensor<'_>, candidate: StoredTensor<'_>) -> (Evidence, u64) {
    let (b, c) = (baseline.0, candidate.0);
    if let Some((measured, bytes)) = measured_like(candidate, b) {
        return (recorded(b, &measured), bytes);
    }
    if let Some((measured, bytes)) = measured_like(baseline, c) {
        return (recorded(&measured, c), bytes);
    }
    (recorded(b, c), 0)
}

/// Returns the tensor of `record` to measure in order to match the content of `other`, and the content that is missing. `None` if measuring would
/// add nothing.
fn lacking<'a>(record: &'a TensorRecord, other: &TensorRecord) -> Option<(&'a str, Content)> {
    let content = Content {
        sketch: other.sketch.as_ref().filter(|_| record.sketch.is_none()).map(|sketch| sketch.version),
        hash: matches!(other.checksum, Some(Checksum::Xxh3(_)))
            && !matches!(record.checksum, Some(Checksum::Xxh3(_))),
    };
    let statistics = record.statistics.is_empty() && record.counts.is_none() && !other.statistics.is_empty();
    let wanted = content.sketch.is_some() || content.hash || statistics;
    let key = record.data.as_ref().filter(|_| wanted && record.squeezed_shape() == other.squeezed_shape())?;
    Some((key, content))
}

/// Returns the record of `side`, completed with everything that `other` has and it lacks, measured from its data. `None` if
/// measuring would add nothing or the data cannot be read; the recorded facts are compared in that case.
fn measured_like(side: StoredTensor<'_>, other: &TensorRecord) -> Option<(TensorRecord, u64)> {
    let (record, _) = side;
    let (key, content) = lacking(record, other)?;
    let data = load(side, key).ok()?;
    let view = data.view();
    let bytes = view.len() * view.dtype().size();
    let found = measure::observe(view, content);
    if data.fault().is_some() {
        return None;
    }
    let mut record = record.clone();
    (record.statistics, record.places) = (found.statistics.into(), found.places);
    record.counts = Some(found.counts.into());
    record.sum_error = None;
    record.sketch = found.sketch.map(Arc::new).or(record.sketch);
    record.checksum = found.hash.map(Checksum::of_hash).or(record.checksum);
    Some((record, bytes as u64))
}

fn recorded(b: &TensorRecord, c: &TensorRecord) -> Evidence {
    let compared = compare_recorded(b, c);
    let counted = b.counts.is_some() && c.counts.is_some();
    let anything = compared.checksum.is_some()
        || counted
        || [compared.max, compared.min, compared.mean, compared.norm]
            .iter()
            .any(|found| found.get().is_some());
    if anything { Evidence::Recorded(Box::new(compared)) } else { Evidence::Nothing }
}

/// Loads a tensor and checks it against its record: a file that was swapped or truncated must not pass for the tensor.
pub(super) fn load((record, store): StoredTensor<'_>, key: &str) -> Result<TensorData, Box<str>> {
    let data = store.load(key).map_err(|error| error.to_string().into_boxed_str())?;
    let sizes = |shape: &[usize]| shape.iter().map(|&size| size as u64).collect::<Vec<_>>();
    if sizes(data.shape()) != *record.shape {
        return Err(
            format!("{key}: holds shape {:?}, the index says {:?}", data.shape(), record.shape).into()
        );
    }
    Ok(data)
}
