//! Identifies tensors for the comparison of two setups: digests of tensors in host memory, and hashes of anything
//! else.
//!
//! Runs without the interpreter lock and on two threads of its own that end with the call: a persistent pool would be
//! copied, dead, into worker processes that fork later.

use probe::dump::{DType, TensorRef};
use probe::measure::{self, Digest, DigestContent, TensorDigest};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use std::fmt::Write;
use std::sync::Mutex;

use crate::measure::short;
use crate::tensor::{Facts, Torch, storage};

/// Threads used for one call.
const THREADS: usize = 2;

/// Calls with fewer bytes in total stay on the calling thread.
const PARALLEL_BYTES: usize = 1 << 20;

/// Most slices of a tensor that are hashed individually.
const MAX_SAMPLES: usize = 65_536;

/// Digests tensors in host memory.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(crate) struct Digester {
    torch: Torch,
    content: DigestContent,
}

/// A tensor that arrives in pieces from a device.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(crate) struct DigestStream {
    torch: Torch,
    dtype: DType,
    /// Boxed: its sums need a larger alignment than the interpreter gives its objects.
    digest: Mutex<Option<Box<Digest>>>,
}

#[pymethods]
impl Digester {
    #[new]
    #[pyo3(signature = (*, sketch = true, unordered = true, casts = true, arrays = None))]
    fn new(
        py: Python<'_>,
        sketch: bool,
        unordered: bool,
        casts: bool,
        arrays: Option<Bound<'_, PyModule>>,
    ) -> PyResult<Self> {
        let torch = arrays.map_or_else(|| Torch::new(py), |arrays| Torch::of(&arrays))?;
        Ok(Self { torch, content: DigestContent { sketch, unordered, casts } })
    }

    /// Returns a dict for each tensor, with the keys of `weights.json`; for an unreadable one, a text with the
    /// reason.
    fn tensors<'py>(
        &self,
        py: Python<'py>,
        tensors: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let held: Vec<Result<Held, String>> =
            tensors.iter().map(|tensor| hold(&self.torch, tensor)).collect();
        let views: Vec<Result<TensorRef<'_>, String>> =
            held.iter().map(|held| held.as_ref().map_err(Clone::clone).and_then(view)).collect();
        let digests = py.detach(|| digests(&views, self.content))?;
        held.iter()
            .zip(digests)
            .map(|(held, digest)| match (held, digest) {
                (Ok(held), Ok(digest)) => Ok(dict(py, held.facts.dtype, &digest)?.into_any()),
                (Err(reason), _) => Ok(reason.into_pyobject(py)?.into_any()),
                (_, Err(reason)) => Ok(reason.into_pyobject(py)?.into_any()),
            })
            .collect()
    }

    /// Hash of each slice along the first dimension; none for a scalar or more than 65,536 slices.
    fn samples(&self, py: Python<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<Option<Vec<String>>> {
        let held = hold(&self.torch, tensor).map_err(PyTypeError::new_err)?;
        let facts = &held.facts;
        let (Some(&count), Some(&stride)) = (facts.shape.first(), facts.strides.first()) else {
            return Ok(None);
        };
        if count > MAX_SAMPLES {
            return Ok(None);
        }
        let whole = view(&held).map_err(PyTypeError::new_err)?;
        let (dtype, bytes) = (whole.dtype(), memory(&held).map_err(PyTypeError::new_err)?);
        let hash = |index: usize| {
            let offset = facts.offset + index * stride;
            let slice =
                TensorRef::strided(bytes, dtype, &facts.shape[1..], &facts.strides[1..], offset).ok()?;
            Some(hex(match slice.contiguous_bytes() {
                Some(bytes) => measure::hash_bytes(bytes),
                None => measure::hash_bytes(&slice.to_bytes()),
            }))
        };
        Ok(py.detach(|| (0..count).map(hash).collect()))
    }

    /// Returns a digest that accepts pieces of tensors of this dtype.
    fn stream(&self, py: Python<'_>, dtype: &str) -> PyResult<DigestStream> {
        let dtype =
            DType::parse(dtype).ok_or_else(|| PyValueError::new_err(format!("{dtype} is not measured")))?;
        Ok(DigestStream {
            torch: Torch::new(py)?,
            dtype,
            digest: Mutex::new(Some(Box::new(Digest::new(dtype, self.content)))),
        })
    }
}

#[pymethods]
impl DigestStream {
    /// Adds the elements of `tensor`, in host memory. Every piece but the last has a multiple of 262,144 elements.
    fn push(&self, py: Python<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let held = hold(&self.torch, tensor).map_err(PyTypeError::new_err)?;
        let view = view(&held).map_err(PyTypeError::new_err)?;
        let mut digest = self.digest.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
        let digest = digest.as_mut().ok_or_else(|| PyValueError::new_err("the digest is finished"))?;
        py.detach(|| in_pool(view.len() * view.dtype().size(), || digest.push(view)))?
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Returns the digest; may be called once.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let digest = self
            .digest
            .lock_py_attached(py)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
            .ok_or_else(|| PyValueError::new_err("the digest is finished"))?;
        dict(py, Some(self.dtype), &digest.finish())
    }
}

/// xxh3-128 of `data` as 32 hexadecimal digits.
#[pyfunction]
pub(crate) fn hash_bytes(data: &[u8]) -> String {
    hex(measure::hash_bytes(data))
}

fn hex(hash: u128) -> String {
    format!("{hash:032x}")
}

/// A tensor in host memory whose storage is held, so that it can be read without the interpreter.
#[derive(Debug)]
struct Held {
    facts: Facts,
    _storage: Py<PyAny>,
}

fn hold(torch: &Torch, tensor: &Bound<'_, PyAny>) -> Result<Held, String> {
    match torch.facts(tensor) {
        Ok(Some(facts)) if facts.on_host => {
            let storage = storage(tensor).map_err(|error| short(&error))?;
            Ok(Held { facts, _storage: storage.unbind() })
        }
        Ok(Some(facts)) => Err(format!("on {}, not in host memory", facts.device)),
        Ok(None) => Err("not a strided tensor".into()),
        Err(error) => Err(short(&error)),
    }
}

/// Returns the memory of a tensor in host memory.
fn memory(held: &Held) -> Result<&[u8], String> {
    let memory = held.facts.memory.as_ref().ok_or("no data")?;
    #[expect(unsafe_code, reason = "memory of a tensor that torch owns")]
    // SAFETY: it was checked to be in host memory, and `held` keeps it alive.
    Ok(unsafe { memory.bytes() })
}

fn view(held: &Held) -> Result<TensorRef<'_>, String> {
    let facts = &held.facts;
    let dtype = facts.dtype.ok_or_else(|| format!("{} is not measured", facts.dtype_name))?;
    TensorRef::strided(memory(held)?, dtype, &facts.shape, &facts.strides, facts.offset)
        .map_err(|_| "its memory is released".to_owned())
}

/// Runs `work` on the threads of this call, or here if there is little to do.
fn in_pool<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    if bytes < PARALLEL_BYTES {
        return Ok(work());
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build();
    let pool = pool.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(pool.install(work))
}

fn digests(
    views: &[Result<TensorRef<'_>, String>],
    content: DigestContent,
) -> PyResult<Vec<Result<TensorDigest, String>>> {
    let size = |view: &TensorRef<'_>| view.len() * view.dtype().size();
    let total = views.iter().flatten().map(size).sum();
    in_pool(total, || {
        let of =
            |view: &Result<TensorRef<'_>, String>| view.clone().map(|view| measure::digest(view, content));
        if total < PARALLEL_BYTES {
            return views.iter().map(of).collect();
        }
        // A thread without a tensor of its own takes over parts of another's.
        views.par_iter().with_max_len(1).map(of).collect()
    })
}

/// Returns the measured keys of `weights.json`.
fn dict<'py>(py: Python<'py>, dtype: Option<DType>, digest: &TensorDigest) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("hash", hex(digest.hash))?;
    if let Some(sum) = digest.unordered {
        result.set_item("unordered_hash", format!("{sum:016x}"))?;
    }
    if !digest.casts.is_empty() {
        let casts = PyDict::new(py);
        for (dtype, hash) in &digest.casts {
            casts.set_item(dtype.name(), hex(*hash))?;
        }
        result.set_item("cast_hashes", casts)?;
    }
    result.set_item("statistics", statistics(py, dtype, digest)?)?;
    if let Some(sketch) = &digest.sketch {
        let mut text = String::with_capacity(2048);
        for lane in sketch.lanes.iter() {
            for byte in lane.to_le_bytes() {
                // Writing to a string cannot fail.
                _ = write!(text, "{byte:02x}");
            }
        }
        result.set_item("sketch", text)?;
    }
    Ok(result)
}

fn statistics<'py>(
    py: Python<'py>,
    dtype: Option<DType>,
    digest: &TensorDigest,
) -> PyResult<Bound<'py, PyDict>> {
    let summary = &digest.summary;
    let result = PyDict::new(py);
    result.set_item("count", summary.count)?;
    if !dtype.is_some_and(DType::is_complex) {
        let values = [("min", summary.min), ("max", summary.max), ("mean", summary.mean)];
        for (name, value) in values {
            if let Some(value) = value {
                result.set_item(name, value)?;
            }
        }
    }
    result.set_item("norm", summary.norm)?;
    result.set_item("nan", summary.nan)?;
    result.set_item("infinite", summary.pos_inf + summary.neg_inf)?;
    Ok(result)
}
