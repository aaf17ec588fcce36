//! The kernel, on every device and stream that it runs on.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use probe::dump::{Counts, Number, Observation, RecordedStatistics, SKETCH_LANES, Sketch, SketchVersion};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use super::batch::{Batch, LANES, NUMBERS, Spec, THREADS, Work};
use super::driver::{Driver, Failed, Function, OnDevice};
use super::stream::{Chunk, Stream, allocated};
use crate::device::LOST;
use crate::interrupt;
use crate::measure::short;
use crate::tensor::Torch;

/// Measures tensors of CUDA devices.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(crate) struct Kernel {
    torch: Torch,
    driver: Driver,
    /// The compiled module.
    image: Vec<u8>,
    sketch: bool,
    /// `allocate(index, bytes)`: memory of a device.
    allocate: Py<PyAny>,
    /// `stream(index)`: address of the current stream of a device.
    stream: Py<PyAny>,
    /// `capturing()`: whether the current stream is being recorded into a graph.
    capturing: Py<PyAny>,
    state: Mutex<State>,
}

/// Resources made so far.
#[derive(Debug, Default)]
struct State {
    /// By the number of the device: the kernel that fills the table of signs, and the one that measures.
    devices: HashMap<i32, (OnDevice, [Function; 2])>,
    /// By the number of the device and the address of the stream.
    streams: HashMap<(i32, usize), Stream>,
    /// Why the kernel is not used any more.
    failed: Option<Failed>,
}

/// Where the results of a tensor will be.
#[derive(Debug)]
pub(crate) struct Place {
    chunk: Arc<Chunk>,
    begin: usize,
    bytes: usize,
    work: Work,
    elements: u64,
}

/// Results of the kernel for one tensor.
#[derive(Debug)]
pub(crate) enum FromKernel {
    Numbers(Box<Observation>),
    /// The elements, in row-major order.
    Elements(Vec<u8>),
}

#[pymethods]
impl Kernel {
    /// `driver` is the driver's library, which is loaded; `image` the compiled module.
    #[new]
    fn new(
        py: Python<'_>,
        driver: PathBuf,
        image: Vec<u8>,
        sketch: bool,
        allocate: Py<PyAny>,
        stream: Py<PyAny>,
        capturing: Py<PyAny>,
    ) -> PyResult<Self> {
        let driver = Driver::new(&driver).ok_or_else(|| {
            PyRuntimeError::new_err(format!("{} is not loaded, or lacks a function", driver.display()))
        })?;
        Ok(Self {
            torch: Torch::new(py)?,
            driver,
            image,
            sketch,
            allocate,
            stream,
            capturing,
            state: Mutex::default(),
        })
    }

    /// Numbers of tensors, for tests and checks: rows as `probe.recorder.device_rows` has them, of those whose elements are copied these, and
    /// None of those that the kernel does not measure. Waits for the device.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        tensors: Vec<Bound<'py, PyAny>>,
        copied: bool,
    ) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
        let specs = tensors.iter().map(|tensor| {
            let facts = self.torch.facts(tensor)?;
            Ok(facts.and_then(|facts| Some((index_of(&facts.device)?, Spec::new(&facts, copied)?))))
        });
        let specs: Vec<Option<(i32, Spec)>> = specs.collect::<PyResult<_>>()?;
        let asked: Vec<(i32, &Spec)> = specs.iter().flatten().map(|(index, spec)| (*index, spec)).collect();
        let places = self
            .observe(py, &asked)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(PyRuntimeError::new_err)?;
        let copies = Copies::fetch(py, places);
        let mut found = copies.results();
        specs
            .iter()
            .map(|spec| {
                if spec.is_none() {
                    return Ok(None);
                }
                let found = found
                    .next()
                    .unwrap_or_else(|| Err("no result".into()))
                    .map_err(PyRuntimeError::new_err)?;
                Ok(Some(match found {
                    FromKernel::Numbers(observation) => row(py, &observation)?,
                    FromKernel::Elements(bytes) => PyBytes::new(py, &bytes).into_any(),
                }))
            })
            .collect()
    }

    /// Starts to measure a tensor and waits for nothing: False where the kernel does not measure it. For timings.
    fn start(&self, py: Python<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        let spec = self
            .torch
            .facts(tensor)?
            .and_then(|facts| Some((index_of(&facts.device)?, Spec::new(&facts, false)?)));
        let Some((index, spec)) = spec else { return Ok(false) };
        for place in self.observe(py, &[(index, &spec)]) {
            place.map_err(PyRuntimeError::new_err)?;
        }
        Ok(true)
    }
}

impl Kernel {
    fn state(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the kernel is not used any more, if it is not.
    pub(crate) fn broken(&self, py: Python<'_>) -> Option<String> {
        self.state(py).failed.clone()
    }

    /// Starts to measure tensors, each with the number of its device, in the current streams. Where the results of each will be, in their
    /// order, or why there will be none.
    pub(crate) fn observe(&self, py: Python<'_>, asked: &[(i32, &Spec)]) -> Vec<Result<Place, String>> {
        let mut found: Vec<Result<Place, String>> = Vec::with_capacity(asked.len());
        while let Some(&(index, _)) = asked.get(found.len()) {
            let rest = asked.get(found.len()..).unwrap_or_default();
            let run = rest.iter().take_while(|(other, _)| *other == index).count();
            let specs: Vec<&Spec> = rest.iter().take(run).map(|(_, spec)| *spec).collect();
            match self.started(py, index, &specs) {
                Ok(places) => found.extend(places.into_iter().map(Ok)),
                Err(reason) => found.extend(specs.iter().map(|_| Err(reason.clone()))),
            }
        }
        found
    }

    /// The same of one device.
    fn started(&self, py: Python<'_>, index: i32, specs: &[&Spec]) -> Result<Vec<Place>, String> {
        let captures = interrupt::asked(py, || self.capturing.bind(py).call0()?.extract::<bool>());
        if captures.map_err(|error| short(&error))? {
            return Err("the device is recording a graph".into());
        }
        let stream = interrupt::asked(py, || self.stream.bind(py).call1((index,))?.extract::<usize>());
        let stream = stream.map_err(|error| short(&error))?;
        let mut state = self.state(py);
        if let Some(reason) = &state.failed {
            return Err(reason.clone());
        }
        match self.launched(py, &mut state, (index, stream), specs) {
            Ok(Ok(places)) => Ok(places),
            Ok(Err(reason)) => {
                state.failed = Some(reason.clone());
                Err(reason)
            }
            // Memory, for the most part: there may be some the next time.
            Err(error) => Err(short(&error)),
        }
    }

    fn launched(
        &self,
        py: Python<'_>,
        state: &mut State,
        (index, stream): (i32, usize),
        specs: &[&Spec],
    ) -> PyResult<Result<Vec<Place>, Failed>> {
        let allocate = |py: Python<'_>, bytes: usize| allocated(py, &self.allocate, index, bytes);
        let State { devices, streams, .. } = state;
        let (device, [fill, measure]) = if let Some(&known) = devices.get(&index) {
            known
        } else {
            let made = self
                .driver
                .on_device(index)
                .and_then(|device| Ok((device, device.load(&self.image, ["probe_signs", "probe_measure"])?)));
            match made {
                Ok(made) => *devices.entry(index).or_insert(made),
                Err(reason) => return Ok(Err(reason)),
            }
        };
        let here = match streams.entry((index, stream)) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                match Stream::new(py, device, fill, stream, &allocate)? {
                    Ok(made) => new.insert(made),
                    Err(reason) => return Ok(Err(reason)),
                }
            }
        };
        let mut places = Vec::with_capacity(specs.len());
        let mut batch = Batch::new(here.tables(), self.sketch);
        for spec in specs {
            let bytes = spec.room(self.sketch);
            let (chunk, begin) = here.room(py, bytes, &allocate)?;
            let row = chunk.address() + begin as u64;
            if !batch.add(spec, row) {
                if let Err(reason) = launch(&device, measure, stream, &batch) {
                    return Ok(Err(reason));
                }
                batch = Batch::new(here.tables(), self.sketch);
                batch.add(spec, row);
            }
            places.push(Place { chunk, begin, bytes, work: spec.work, elements: spec.elements() });
        }
        Ok(launch(&device, measure, stream, &batch).map(|()| places))
    }
}

fn launch(device: &OnDevice, function: Function, stream: usize, batch: &Batch) -> Result<(), Failed> {
    #[expect(unsafe_code, reason = "a kernel runs on memory that it is given")]
    // SAFETY: tables and results are kept by the stream, whose launches come one after the other; tensors are the program's, which gives their
    // memory to nobody before what is in the stream has run, as with its own operations.
    unsafe {
        device.launch(function, batch.blocks(), THREADS, stream, batch)
    }
}

/// The number in the name of a device.
pub(crate) fn index_of(device: &str) -> Option<i32> {
    device.split_once(':').map_or(Some(0), |(_, index)| index.parse().ok())
}

/// Memory of chunks, copied to the host.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    chunks: Vec<Result<Vec<u8>, Failed>>,
    spots: Vec<Spot>,
}

/// Where the results of a tensor are in the copies.
#[derive(Debug)]
struct Spot {
    chunk: usize,
    begin: usize,
    bytes: usize,
    work: Work,
    elements: u64,
}

impl Copies {
    /// Fetches the results for `places`; waits for the device. Those of one chunk come in one copy.
    pub(crate) fn fetch(py: Python<'_>, places: Vec<Place>) -> Self {
        let mut known: HashMap<*const Chunk, usize> = HashMap::new();
        let mut chunks: Vec<(Arc<Chunk>, usize)> = Vec::new();
        let mut spots = Vec::with_capacity(places.len());
        for Place { chunk, begin, bytes, work, elements } in places {
            let number = *known.entry(Arc::as_ptr(&chunk)).or_insert_with(|| {
                chunks.push((chunk, 0));
                chunks.len() - 1
            });
            if let Some((_, end)) = chunks.get_mut(number) {
                *end = (*end).max(begin + bytes);
            }
            spots.push(Spot { chunk: number, begin, bytes, work, elements });
        }
        let copied = |(chunk, end): &(Arc<Chunk>, usize)| {
            chunk.device.synchronize()?;
            #[expect(unsafe_code, reason = "memory of a device")]
            // SAFETY: they are of the chunk's memory, and what writes to them has run.
            unsafe {
                chunk.device.fetch(chunk.address(), *end)
            }
        };
        Self { chunks: py.detach(|| chunks.iter().map(copied).collect()), spots }
    }

    /// Reads the results, in the order of the places.
    pub(crate) fn results(&self) -> impl Iterator<Item = Result<FromKernel, String>> {
        self.spots.iter().map(|spot| {
            let lost = || String::from(LOST);
            let copy = self.chunks.get(spot.chunk).ok_or_else(lost)?.as_ref().map_err(Failed::clone)?;
            let bytes = copy.get(spot.begin..spot.begin + spot.bytes).ok_or_else(lost)?;
            Ok(match spot.work {
                Work::Copy(_) => FromKernel::Elements(bytes.to_vec()),
                Work::Measure(_) => FromKernel::Numbers(Box::new(observation(spot.elements, bytes))),
            })
        })
    }
}

/// Reads the kernel's output for a tensor: numbers, and behind them the lanes, if there are any.
fn observation(elements: u64, bytes: &[u8]) -> Observation {
    let word = |index: usize| {
        bytes
            .get(8 * index..8 * index + 8)
            .and_then(|word| word.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    };
    let [sum, squares, least, greatest] = [0, 1, 2, 3].map(|index| f64::from_bits(word(index)));
    let [zeros, nan, positive_infinite, negative_infinite, sentinels] = [4, 5, 6, 7, 8].map(word);
    let finite = elements.saturating_sub(nan + positive_infinite + negative_infinite);
    let summed = finite.saturating_sub(sentinels);
    // No zero is negative: a comparison takes both for one.
    let extreme = |number: f64| (finite > 0).then_some(Number::Float(number + 0.0));
    let lanes = bytes.get(NUMBERS..NUMBERS + 4 * LANES).map(|bytes| {
        let mut lanes = Box::new([0.0_f32; SKETCH_LANES]);
        for (lane, word) in lanes.iter_mut().zip(bytes.as_chunks().0) {
            *lane = f32::from_le_bytes(*word);
        }
        Sketch { lanes, version: SketchVersion::CURRENT }
    });
    Observation {
        statistics: RecordedStatistics {
            min: extreme(least),
            max: extreme(greatest),
            mean: (summed > 0).then(|| sum / summed as f64),
            norm: (finite > 0).then(|| squares.sqrt()),
        },
        // To look for the extremes is not worth the memory that it takes.
        places: None,
        counts: Counts {
            elements,
            zeros,
            nan,
            positive_infinite,
            negative_infinite,
            sentinels: Some(sentinels),
        },
        sketch: lanes,
        hash: None,
        // Summed in binary64.
        sum_error: None,
    }
}

/// As `probe.recorder.device_rows` has it.
fn row<'py>(py: Python<'py>, observation: &Observation) -> PyResult<Bound<'py, PyAny>> {
    let Observation { statistics, counts, sketch, .. } = observation;
    let float = |number: &Option<Number>| match number {
        Some(Number::Float(number)) => Some(*number),
        _ => None,
    };
    let counts = [
        counts.elements,
        counts.zeros,
        counts.nan,
        counts.positive_infinite,
        counts.negative_infinite,
        counts.sentinels.unwrap_or(0),
    ];
    let floats = [float(&statistics.min), float(&statistics.max), statistics.mean, statistics.norm];
    let lanes = sketch.as_ref().map(|sketch| {
        PyBytes::new(py, &sketch.lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect::<Vec<u8>>())
    });
    Ok((0, counts.to_vec(), floats.to_vec(), py.None(), py.None(), lanes).into_pyobject(py)?.into_any())
}
