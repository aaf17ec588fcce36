//! Numbers that were computed on a device, fetched for many tensors at once.

use std::sync::Arc;

use probe::dump::{Counts, Number, Observation, RecordedStatistics, SKETCH_LANES, Sketch};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// One tensor's numbers as `probe.recorder.device` gives them: whether they are integers or truth values, count and kinds,
/// least, greatest, mean, norm, and the sketch's lanes as little-endian f32.
type Row<'py> = (u8, [u64; 5], Option<[f64; 4]>, Option<[i64; 2]>, Option<Bound<'py, PyBytes>>);

/// Fetches what `tokens` stand for, in their order.
pub(crate) fn fetch(
    py: Python<'_>,
    device: &Py<PyAny>,
    tokens: &[&Py<PyAny>],
) -> PyResult<Vec<Option<Arc<Observation>>>> {
    if tokens.is_empty() {
        return Ok(Vec::new());
    }
    let list: Vec<Bound<'_, PyAny>> = tokens.iter().map(|token| token.bind(py).clone()).collect();
    let rows: Vec<Option<Row<'_>>> = device.bind(py).call_method1("fetch", (list,))?.extract()?;
    Ok(rows.into_iter().map(|row| row.map(|row| Arc::new(observation(row)))).collect())
}

fn observation((kind, counts, floats, integers, sketch): Row<'_>) -> Observation {
    let [elements, zeros, nan, positive_infinite, negative_infinite] = counts;
    let number = |index: usize| match (kind, integers, floats) {
        (1, Some(integers), _) => Some(Number::Int(integers[index])),
        // Beyond the range of i64: the 64 bits of an unsigned number.
        (3, Some(integers), _) => Some(match u64::try_from(integers[index]) {
            Ok(_) => Number::Int(integers[index]),
            Err(_) => Number::UInt(integers[index].cast_unsigned()),
        }),
        (2, Some(integers), _) => Some(Number::Bool(integers[index] != 0)),
        (_, _, Some(floats)) => Some(Number::Float(floats[index])),
        _ => None,
    };
    Observation {
        statistics: RecordedStatistics {
            min: number(0),
            max: number(1),
            mean: floats.map(|floats| floats[2]),
            norm: floats.map(|floats| floats[3]),
        },
        counts: Counts { elements, zeros, nan, positive_infinite, negative_infinite },
        sketch: sketch.as_ref().and_then(|bytes| lanes(bytes.as_bytes())),
        hash: None,
    }
}

fn lanes(bytes: &[u8]) -> Option<Sketch> {
    let mut sketch = Box::new([0.0_f32; SKETCH_LANES]);
    if bytes.len() != SKETCH_LANES * 4 {
        return None;
    }
    for (lane, word) in sketch.iter_mut().zip(bytes.chunks_exact(4)) {
        *lane = f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    }
    Some(Sketch(sketch))
}
