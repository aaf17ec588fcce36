//! Fetches what is known of one pair of tensors: the data where both sides have it, else what was recorded. Where one side
//! has the data and the other a sketch or a hash, the data is measured as the capture would have.

use std::sync::Arc;

use crate::dump::{Checksum, Content, TensorData, TensorRecord, TensorStore};
use crate::measure::{self, Evidence, compare_recorded};

/// One side of a pair: what was recorded, and where its data is.
type Side<'a> = (&'a TensorRecord, &'a dyn TensorStore);

/// The evidence for one pair, and the bytes of tensor data it took.
pub(super) fn evidence(baseline: Side<'_>, candidate: Side<'_>) -> (Evidence, u64) {
    let (b, c) = (baseline.0, candidate.0);
    let (Some(b_key), Some(c_key)) = (&b.data, &c.data) else {
        return half(baseline, candidate);
    };
    // Elements of other shapes do not answer one another, however many there are.
    if b.squeezed_shape() != c.squeezed_shape() {
        return (Evidence::Nothing, 0);
    }
    match (load(baseline, b_key), load(candidate, c_key)) {
        (Ok(x), Ok(y)) => {
            let (x, y) = (x.view(), y.view());
            let bytes = x.len() * x.dtype().size() + y.len() * y.dtype().size();
            let measured =
                measure::compare(x, y).map_or(Evidence::Nothing, |metrics| Evidence::Data(Box::new(metrics)));
            (measured, bytes as u64)
        }
        (x, y) => {
            let reason = |loaded: Result<_, Box<str>>| loaded.err();
            (Evidence::Unreadable { baseline: reason(x.map(drop)), candidate: reason(y.map(drop)) }, 0)
        }
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
        sketch: other.sketch.is_some() && record.sketch.is_none(),
        hash: matches!(other.checksum, Some(Checksum::Xxh3(_)))
            && !matches!(record.checksum, Some(Checksum::Xxh3(_))),
    };
    let wanted = content.sketch || content.hash;
    let key = record.data.as_ref().filter(|_| wanted && record.squeezed_shape() == other.squeezed_shape())?;
    let data = load(side, key).ok()?;
    let view = data.view();
    let bytes = view.len() * view.dtype().size();
    let found = measure::observe(view, content);
    let mut record = record.clone();
    record.statistics = found.statistics;
    record.counts = Some(found.counts);
    record.sketch = found.sketch.map(Arc::new);
    record.checksum = found.hash.map(Checksum::Xxh3);
    Some((record, bytes as u64))
}

fn recorded(b: &TensorRecord, c: &TensorRecord) -> Evidence {
    let compared = compare_recorded(b, c);
    let counted = b.counts.is_some() && c.counts.is_some();
    let anything = compared.checksum.is_some()
        || counted
        || [compared.max, compared.min, compared.mean, compared.norm].iter().any(Option::is_some);
    if anything { Evidence::Recorded(Box::new(compared)) } else { Evidence::Nothing }
}

/// Opens a tensor and holds it against its record: a file that was swapped or cut must not pass for the tensor.
fn load((record, store): Side<'_>, key: &str) -> Result<TensorData, Box<str>> {
    let data = store.load(key).map_err(|error| error.to_string().into_boxed_str())?;
    let sizes = |shape: &[usize]| shape.iter().map(|&size| size as u64).collect::<Vec<_>>();
    if sizes(data.shape()) != *record.shape {
        return Err(
            format!("{key}: holds shape {:?}, the index says {:?}", data.shape(), record.shape).into()
        );
    }
    Ok(data)
}
