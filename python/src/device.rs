//! Numbers that were computed on a device, and elements of small tensors, fetched for many tensors at once.

use std::sync::{Arc, Mutex, PoisonError};

use probe::dump::{
    Content, Counts, Number, Observation, RecordedStatistics, SKETCH_LANES, Sketch, SketchVersion, TensorRef,
};
use probe::measure;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cuda::{Copies, FromKernel};
use crate::interrupt;
use crate::measure::{Meter, SMALL, is_stored};
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

/// Results of a kernel that have arrived, but were not looked at.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    content: Option<Content>,
    copies: Copies,
    tokens: Vec<Arc<Token>>,
}

impl Arrived {
    /// Reads the results; each token keeps its own, or why there is none.
    pub(crate) fn keep(self) {
        for (token, found) in self.tokens.iter().zip(self.copies.results()) {
            token.keep(found.and_then(|found| {
                match found {
                    FromKernel::Numbers(observation) => Ok(Fetched {
                        observation: Arc::from(observation),
                        bytes: None,
                        elements: Mutex::default(),
                    }),
                    FromKernel::Elements(bytes) => self
                        .content
                        .and_then(|content| measured(content, &bytes, token, measure::observe))
                        .ok_or_else(|| LOST.into()),
                }
            }));
        }
    }
}

/// Fetches what `tokens` stand for, each once. A token keeps what came, or why nothing did; results of a kernel once
/// [`Arrived::keep`] has read them.
pub(crate) fn fetch<'t>(
    py: Python<'_>,
    meter: &Meter,
    tokens: impl Iterator<Item = &'t Arc<Token>>,
) -> PyResult<Arrived> {
    let (mut objects, mut places, mut of_kernel) = (Vec::new(), Vec::new(), Vec::new());
    for token in tokens {
        match token.take() {
            Some(Waiting::Object(object)) => objects.push((token, object)),
            Some(Waiting::Place(place)) => {
                places.push(place);
                of_kernel.push(Arc::clone(token));
            }
            None => {}
        }
    }
    let copies = Copies::fetch(py, places);
    let arrived = Arrived { content: Some(meter.content), copies, tokens: of_kernel };
    let (tokens, objects): (Vec<&Arc<Token>>, Vec<Py<PyAny>>) = objects.into_iter().unzip();
    if tokens.is_empty() {
        return Ok(arrived);
    }
    let answers = interrupt::asked(py, || meter.device.bind(py).call_method1("fetch", (&objects,)))
        .and_then(|answers| answers.extract::<Vec<Option<Answer<'_>>>>());
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => {
            arrived.keep();
            return Err(error);
        }
    };
    for (answer, token) in answers.into_iter().zip(tokens) {
        token.keep(match answer {
            Some(Answer::Numbers(row)) => {
                let observation = Arc::new(observation(row));
                Ok(Fetched { observation, bytes: None, elements: Mutex::default() })
            }
            Some(Answer::Elements(bytes)) => {
                let observe = |row: TensorRef<'_>, content| {
                    py.detach(|| measure::observe_with(&meter.crew, row, content))
                };
                let found = measured(meter.content, bytes.as_bytes(), token, observe);
                found
                    .map(|mut found| {
                        found.elements = Mutex::new(token.with_data.then(|| bytes.clone().unbind()));
                        found
                    })
                    .ok_or_else(|| LOST.into())
            }
            Some(Answer::Nothing(reason)) => Err(reason),
            None => Err(LOST.into()),
        });
    }
    Ok(arrived)
}

/// Measures elements that lie one behind the other; large ones with `observe`. `None` where their type is not known or
/// the last one is not whole.
fn measured(
    content: Content,
    data: &[u8],
    token: &Token,
    observe: impl FnOnce(TensorRef<'_>, Content) -> Observation,
) -> Option<Fetched> {
    let dtype = token.dtype?;
    let (count, rest) = (data.len() / dtype.size(), data.len() % dtype.size());
    let shape = [count];
    let row = TensorRef::strided(data, dtype, &shape, &[1], 0).ok().filter(|_| rest == 0)?;
    let small = is_stored(content, data.len());
    let observation = if small { measure::observe(row, SMALL) } else { observe(row, content) };
    Some(Fetched {
        observation: Arc::new(observation),
        bytes: small.then(|| data.into()),
        elements: Mutex::default(),
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
