//! Fetches what is known of one pair of tensors: the data where both sides have it, else what was recorded.

use crate::dump::{TensorData, TensorRecord, TensorStore};
use crate::measure::{self, Evidence, compare_recorded};

/// One side of a pair: what was recorded, and where its data is.
type Side<'a> = (&'a TensorRecord, &'a dyn TensorStore);

/// The evidence for one pair, and the bytes of tensor data it took.
pub(super) fn evidence(baseline: Side<'_>, candidate: Side<'_>) -> (Evidence, u64) {
    let (b, c) = (baseline.0, candidate.0);
    let (Some(b_key), Some(c_key)) = (&b.data, &c.data) else {
        return (recorded(b, c), 0);
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

fn recorded(b: &TensorRecord, c: &TensorRecord) -> Evidence {
    let compared = compare_recorded(b, c);
    let anything = compared.checksum.is_some()
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
