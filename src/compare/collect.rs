//! Fetches what is known of one pair of tensors: the data where both sides have it, else what was recorded. Where one side
//! has the data and the other a sketch or a hash, the data is measured as the capture would have.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::Progress;
use crate::dump::{Checksum, Content, Slot, TensorData, TensorRecord, TensorStore, Value};
use crate::measure::{self, Evidence, Unreadable, compare_recorded};
use crate::pair::PartPair;

/// One side of a pair: what was recorded, and where its data is.
type Side<'a> = (&'a TensorRecord, &'a dyn TensorStore);

/// Elements of a tensor whose two sides are fetched by two threads.
const LARGE: u64 = 1 << 20;

/// What is known of every pair of slots of a part, by op and slot, and the bytes of tensor data it took. Two tensors that several
/// slots hold on both sides are measured once.
pub(super) fn of_part(pair: &PartPair, progress: &dyn Progress) -> (Vec<Vec<Evidence>>, u64) {
    let record = |slot: Option<&'_ Slot>| match slot.map(|slot| &slot.value) {
        Some(Value::Tensor(record)) => Some(Arc::clone(record)),
        _ => None,
    };
    let mut distinct: Vec<(Arc<TensorRecord>, Arc<TensorRecord>)> = Vec::new();
    let mut known = HashMap::new();
    let mut place = |op, slots| {
        let (b, c) = pair.slot(op, slots);
        let both = (record(b)?, record(c)?);
        Some(*known.entry((Arc::as_ptr(&both.0), Arc::as_ptr(&both.1))).or_insert_with(|| {
            distinct.push(both);
            distinct.len() - 1
        }))
    };
    let places: Vec<Vec<Option<usize>>> =
        pair.ops.iter().map(|op| op.slots.iter().map(|&slots| place(op, slots)).collect()).collect();
    drop(known);
    progress.expect(distinct.len() as u64);
    let bytes = AtomicU64::new(0);
    let measured: Vec<Evidence> = distinct
        .par_iter()
        .map(|(b, c)| {
            let (found, read) = evidence((b, &*pair.baseline.store), (c, &*pair.candidate.store));
            bytes.fetch_add(read, Ordering::Relaxed);
            progress.advance(1);
            found
        })
        .collect();
    let of = |place: &Option<usize>| place.map_or(Evidence::Nothing, |place| measured[place].clone());
    (places.iter().map(|op| op.iter().map(of).collect()).collect(), bytes.into_inner())
}

/// The evidence for one pair, and the bytes of tensor data it took.
pub(super) fn evidence(baseline: Side<'_>, candidate: Side<'_>) -> (Evidence, u64) {
    let (b, c) = (baseline.0, candidate.0);
    let unreadable =
        |baseline, candidate| (Evidence::Unreadable(Box::new(Unreadable { baseline, candidate })), 0);
    if b.layout != c.layout {
        let reason = |record: &TensorRecord| record.layout.as_ref().and(record.note.clone());
        return unreadable(reason(b), reason(c));
    }
    let (Some(b_key), Some(c_key)) = (&b.data, &c.data) else {
        return half(baseline, candidate);
    };
    if b.damage.is_some() || c.damage.is_some() {
        return unreadable(b.damage.clone(), c.damage.clone());
    }
    // Elements of other shapes do not answer one another, however many there are.
    if b.squeezed_shape() != c.squeezed_shape() {
        return (Evidence::Nothing, 0);
    }
    let both = || (load(baseline, b_key), load(candidate, c_key));
    // To hold a large tensor against its hash takes one thread a while.
    let large = b.len().max(c.len()) >= LARGE;
    let loaded =
        if large { rayon::join(|| load(baseline, b_key), || load(candidate, c_key)) } else { both() };
    match loaded {
        (Ok(x), Ok(y)) => {
            let measured = measure::compare(x.view(), y.view());
            let [x_fault, y_fault] = [(&x, b_key), (&y, c_key)]
                .map(|(data, key)| data.fault().map(|fault| format!("{key}: {fault}").into_boxed_str()));
            if x_fault.is_some() || y_fault.is_some() {
                return unreadable(x_fault, y_fault);
            }
            let bytes: usize = [x.view(), y.view()].iter().map(|view| view.len() * view.dtype().size()).sum();
            let evidence = measured.map_or(Evidence::Nothing, |metrics| Evidence::Data(Arc::new(metrics)));
            (evidence, bytes as u64)
        }
        (x, y) => unreadable(x.err(), y.err()),
    }
}

/// What was recorded, where at most one side has its data.
fn half(baseline: Side<'_>, candidate: Side<'_>) -> (Evidence, u64) {
    let (b, c) = (baseline.0, candidate.0);
    if let Some((measured, bytes)) = measured_like(candidate, b) {
        return (recorded(b, &measured), bytes);
    }
    if let Some((measured, bytes)) = measured_like(baseline, c) {
        return (recorded(&measured, c), bytes);
    }
    (recorded(b, c), 0)
}

/// The record of `side` with what `other` has and it lacks, measured from its data. `None` where there is nothing to gain, or
/// the data cannot be read: what was recorded is compared then.
fn measured_like(side: Side<'_>, other: &TensorRecord) -> Option<(TensorRecord, u64)> {
    let (record, _) = side;
    let content = Content {
        sketch: other.sketch.as_ref().filter(|_| record.sketch.is_none()).map(|sketch| sketch.version),
        hash: matches!(other.checksum, Some(Checksum::Xxh3(_)))
            && !matches!(record.checksum, Some(Checksum::Xxh3(_))),
    };
    let statistics = record.statistics.is_empty() && record.counts.is_none() && !other.statistics.is_empty();
    let wanted = content.sketch.is_some() || content.hash || statistics;
    let key = record.data.as_ref().filter(|_| wanted && record.squeezed_shape() == other.squeezed_shape())?;
    let data = load(side, key).ok()?;
    let view = data.view();
    let bytes = view.len() * view.dtype().size();
    let found = measure::observe(view, content);
    if data.fault().is_some() {
        return None;
    }
    let mut record = record.clone();
    record.statistics = found.statistics;
    record.counts = Some(found.counts.into());
    record.sum_error = None;
    record.sketch = found.sketch.map(Arc::new).or(record.sketch);
    record.checksum = found.hash.map(Checksum::Xxh3).or(record.checksum);
    Some((record, bytes as u64))
}

fn recorded(b: &TensorRecord, c: &TensorRecord) -> Evidence {
    let compared = compare_recorded(b, c);
    let counted = b.counts.is_some() && c.counts.is_some();
    let anything = compared.checksum.is_some()
        || counted
        || [compared.max, compared.min, compared.mean, compared.norm].iter().any(Option::is_some);
    if anything { Evidence::Recorded(Arc::new(compared)) } else { Evidence::Nothing }
}

/// Opens a tensor and holds it against its record: a file that was swapped or cut must not pass for the tensor.
pub(super) fn load((record, store): Side<'_>, key: &str) -> Result<TensorData, Box<str>> {
    let data = store.load(key).map_err(|error| error.to_string().into_boxed_str())?;
    let sizes = |shape: &[usize]| shape.iter().map(|&size| size as u64).collect::<Vec<_>>();
    if sizes(data.shape()) != *record.shape {
        return Err(
            format!("{key}: holds shape {:?}, the index says {:?}", data.shape(), record.shape).into()
        );
    }
    Ok(data)
}
