//! Numbers that were computed on a device, and elements of small tensors, fetched for many tensors at once.

use std::sync::{Arc, Mutex, PoisonError};

use probe::dump::{
    Counts, Number, Observation, RecordedStatistics, SKETCH_LANES, Sketch, SketchVersion, TensorRef,
};
use probe::measure;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cuda::{self, FromKernel, Place};
use crate::interrupt;
use crate::measure::{Meter, SMALL};
use crate::token::{Token, Waiting};

/// One tensor's numbers as `probe.recorder.device_rows` gives them: whether they are integers or truth values, count and kinds,
/// least, greatest, mean, norm, how far sums may be off, and the sketch's lanes as little-endian f32.
type Row<'py> = (u8, [u64; 6], [Option<f64>; 4], Option<[i64; 2]>, Option<f64>, Option<Bound<'py, PyBytes>>);

/// Answer of a device for one tensor.
#[derive(FromPyObject)]
enum Answer<'py> {
    /// The elements of a small one, in row-major order.
    Elements(Bound<'py, PyBytes>),
    Numbers(Row<'py>),
    /// Why there is nothing.
    Nothing(String),
}

/// The remark on a tensor whose numbers did not arrive.
pub(crate) const LOST: &str = "not fetched from the device";

/// Numbers and elements of a tensor that was on a device.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) observation: Arc<Observation>,
    /// The elements of a small one, in place of a sketch.
    pub(crate) bytes: Option<Arc<[u8]>>,
    /// The elements of one whose data is to be written, until it is.
    elements: Mutex<Option<Py<PyBytes>>>,
}

impl Fetched {
    /// The elements that are to be written, in row-major order, if that was not done yet.
    pub(crate) fn take_elements(&self) -> Option<Py<PyBytes>> {
        self.elements.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Fetches what `tokens` stand for, each once. A token keeps what came, or why nothing did.
pub(crate) fn fetch<'t>(
    py: Python<'_>,
    meter: &Meter,
    tokens: impl Iterator<Item = &'t Token>,
) -> PyResult<()> {
    let (mut objects, mut places) = (Vec::new(), Vec::new());
    for token in tokens {
        match token.take() {
            Some(Waiting::Object(object)) => objects.push((token, object)),
            Some(Waiting::Place(place)) => places.push((token, place)),
            None => {}
        }
    }
    of_kernel(py, meter, places);
    let (tokens, objects): (Vec<&Token>, Vec<Py<PyAny>>) = objects.into_iter().unzip();
    if tokens.is_empty() {
        return Ok(());
    }
    let answers: Vec<Option<Answer<'_>>> =
        interrupt::asked(py, || meter.device.bind(py).call_method1("fetch", (&objects,)))?.extract()?;
    for (answer, token) in answers.into_iter().zip(tokens) {
        token.keep(match answer {
            Some(Answer::Numbers(row)) => {
                let observation = Arc::new(observation(row));
                Ok(Fetched { observation, bytes: None, elements: Mutex::default() })
            }
            Some(Answer::Elements(bytes)) => {
                let with_data = token.with_data.then(|| bytes.clone().unbind());
                measured(py, meter, bytes.as_bytes(), token, with_data).ok_or_else(|| LOST.into())
            }
            Some(Answer::Nothing(reason)) => Err(reason),
            None => Err(LOST.into()),
        });
    }
    Ok(())
}

/// Fetches the results of a kernel.
fn of_kernel(py: Python<'_>, meter: &Meter, places: Vec<(&Token, Place)>) {
    let (tokens, places): (Vec<&Token>, Vec<Place>) = places.into_iter().unzip();
    if places.is_empty() {
        return;
    }
    for (token, found) in tokens.into_iter().zip(cuda::fetch(py, &places)) {
        token.keep(found.and_then(|found| match found {
            FromKernel::Numbers(observation) => {
                Ok(Fetched { observation: Arc::from(observation), bytes: None, elements: Mutex::default() })
            }
            FromKernel::Elements(bytes) => {
                measured(py, meter, &bytes, token, None).ok_or_else(|| LOST.into())
            }
        }));
    }
}

/// Measures elements that lie one behind the other; `elements` are the same, where they are to be written. `None` where their type is not
/// known or the last one is not whole.
fn measured(
    py: Python<'_>,
    meter: &Meter,
    data: &[u8],
    token: &Token,
    elements: Option<Py<PyBytes>>,
) -> Option<Fetched> {
    let dtype = token.dtype?;
    let (count, rest) = (data.len() / dtype.size(), data.len() % dtype.size());
    let shape = [count];
    let row = TensorRef::strided(data, dtype, &shape, &[1], 0).ok().filter(|_| rest == 0)?;
    let small = meter.stores(data.len());
    let observation = if small {
        measure::observe(row, SMALL)
    } else {
        py.detach(|| measure::observe_with(&meter.crew, row, meter.content))
    };
    Some(Fetched {
        observation: Arc::new(observation),
        bytes: small.then(|| data.into()),
        elements: Mutex::new(elements),
    })
}

fn observation((kind, counts, floats, integers, sum_error, sketch): Row<'_>) -> Observation {
    let [elements, zeros, nan, positive_infinite, negative_infinite, sentinels] = counts;
    let number = |index: usize| match (kind, integers) {
        (1, Some(integers)) => Some(Number::Int(integers[index])),
        // Beyond the range of i64: the 64 bits of an unsigned number.
        (3, Some(integers)) => Some(match u64::try_from(integers[index]) {
            Ok(_) => Number::Int(integers[index]),
            Err(_) => Number::UInt(integers[index].cast_unsigned()),
        }),
        (2, Some(integers)) => Some(Number::Bool(integers[index] != 0)),
        _ => floats[index].map(Number::Float),
    };
    Observation {
        statistics: RecordedStatistics { min: number(0), max: number(1), mean: floats[2], norm: floats[3] },
        // To look for the extremes would take more launches.
        places: None,
        counts: Counts {
            elements,
            zeros,
            nan,
            positive_infinite,
            negative_infinite,
            sentinels: Some(sentinels),
        },
        sketch: sketch.as_ref().and_then(|bytes| lanes(bytes.as_bytes())),
        hash: None,
        sum_error,
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
    Some(Sketch { lanes: sketch, version: SketchVersion::CURRENT })
}
