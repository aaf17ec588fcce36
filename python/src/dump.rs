//! Reads dumps of any format for the package, which runs their calls again.
//!
//! Names, plain values and bytes cross the boundary; the readers of the crate `read` have checked all of them.

use std::path::PathBuf;

use probe::dump::{self, Number, Op, Scalar, Slot, SlotSide, Value};
use probe::files::map::FileAccess;
use pyo3::exceptions::{PyIndexError, PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyList};

/// Elements that are copied at a time.
const GATHERED: usize = 1 << 20;

/// An opened dump.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(crate) struct Dump(dump::Dump);

/// The ops of one rank in one step.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(crate) struct Part(dump::Rank);

#[pymethods]
impl Dump {
    /// Opens what lies at `path`. Raises `ValueError` if that is no dump.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| probe::read::open(&path, FileAccess::Map));
        opened.map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    #[getter]
    fn format(&self) -> &'static str {
        self.0.format
    }

    /// Step and rank of each part, in order.
    #[getter]
    fn parts(&self) -> Vec<(u64, u32)> {
        self.0.parts.iter().map(|key| (key.step, key.rank.number())).collect()
    }

    /// Things that could not be read at all, a line each.
    #[getter]
    fn faults(&self) -> Vec<String> {
        self.0.faults.iter().map(ToString::to_string).collect()
    }

    /// Facts about the set-up of the run, as far as the format has them.
    #[getter]
    fn environment(&self) -> Vec<(String, String)> {
        self.0.environment.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Reads a part. Raises `ValueError` if nothing of it can be used.
    fn read(&self, py: Python<'_>, index: usize) -> PyResult<Part> {
        let key = self.0.parts.get(index).ok_or_else(|| PyIndexError::new_err(index))?;
        let read = py.detach(|| self.0.reader.read(key));
        read.map(Part).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

#[pymethods]
impl Part {
    /// Names of the ops in execution order.
    #[getter]
    fn ops(&self) -> Vec<&str> {
        self.0.ops.iter().map(|op| op.name.as_str()).collect()
    }

    #[getter]
    fn level(&self) -> &str {
        &self.0.level
    }

    /// Things of this part that could not be read, a line each.
    #[getter]
    fn faults(&self) -> Vec<String> {
        self.0.faults.iter().map(ToString::to_string).collect()
    }

    /// Returns the slots of an op, a dict each.
    fn slots<'py>(&self, py: Python<'py>, op: usize) -> PyResult<Bound<'py, PyList>> {
        let slots = self.op(op)?.slots.iter().map(|slot| described(py, slot));
        PyList::new(py, slots.collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the module call that an op ran in, whether it ended in an exception, and whether it sums products.
    fn facts(&self, op: usize) -> PyResult<(Option<&str>, bool, bool)> {
        let op = self.op(op)?;
        Ok((op.parent.as_deref(), op.raised, probe::judge::multiplies(op)))
    }

    /// Returns the call stack of an op, or of its forward call; innermost frame first.
    fn stack(&self, op: usize) -> PyResult<Vec<&str>> {
        let found = probe::judge::stack_of_op(&self.0, self.op(op)?);
        Ok(found.into_iter().flat_map(|stack| stack.iter().map(|frame| &**frame)).collect())
    }

    /// Returns dtype, shape and row-major bytes of a tensor by its key. Raises `KeyError` with the reason if it cannot be read.
    fn tensor<'py>(
        &self,
        py: Python<'py>,
        key: &str,
    ) -> PyResult<(&'static str, Vec<usize>, Bound<'py, PyByteArray>)> {
        let unreadable = |reason: String| PyKeyError::new_err(reason);
        let data = py.detach(|| self.0.store.load(key)).map_err(|error| unreadable(error.to_string()))?;
        let view = data.view();
        let size = view.dtype().size();
        let bytes = PyByteArray::new_with(py, view.len() * size, |out| {
            py.detach(|| {
                for (at, block) in out.chunks_mut(GATHERED * size).enumerate() {
                    let from = at * GATHERED;
                    view.gather(from..from + block.len() / size, block);
                }
            });
            Ok(())
        })?;
        match data.fault() {
            Some(reason) => Err(unreadable(reason)),
            None => Ok((view.dtype().torch_name(), view.shape().to_vec(), bytes)),
        }
    }
}

impl Part {
    fn op(&self, index: usize) -> PyResult<&Op> {
        self.0.ops.get(index).ok_or_else(|| PyIndexError::new_err(index))
    }
}

/// Returns the facts of a slot that the package needs.
fn described<'py>(py: Python<'py>, slot: &Slot) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("path", &*slot.path)?;
    found.set_item(
        "side",
        match slot.side {
            SlotSide::Input => "input",
            SlotSide::Parameter => "parameter",
            SlotSide::Output => "output",
            SlotSide::Gradient => "gradient",
        },
    )?;
    match &slot.value {
        Value::Tensor(record) => {
            found.set_item("kind", "tensor")?;
            found.set_item("dtype", record.dtype.to_string())?;
            found.set_item("shape", record.shape.to_vec())?;
            found.set_item("strides", record.strides.as_deref())?;
            found.set_item("device", record.device.as_deref())?;
            found.set_item("requires_grad", record.requires_grad)?;
            found.set_item("placement", record.placement.as_deref())?;
            found.set_item("key", record.data.as_deref())?;
            found.set_item("identity", slot.identity.map(dump::SeenAs::number))?;
            let ends = [record.statistics.min(), record.statistics.max()];
            found.set_item("range", ends.map(|end| end.map(Number::as_f64)))?;
        }
        Value::Scalar(scalar) => plain(&found, scalar)?,
        Value::None => found.set_item("kind", "none")?,
        Value::Unsupported => found.set_item("kind", "unsupported")?,
    }
    Ok(found)
}

/// Adds a value that is not a tensor.
fn plain(found: &Bound<'_, PyDict>, scalar: &Scalar) -> PyResult<()> {
    match scalar {
        Scalar::Number(number) => {
            found.set_item("kind", "number")?;
            match *number {
                Number::Int(value) => found.set_item("value", value),
                Number::UInt(value) => found.set_item("value", value),
                Number::Float(value) => found.set_item("value", value),
                Number::Bool(value) => found.set_item("value", value),
            }
        }
        Scalar::Text(text) => {
            found.set_item("kind", "text")?;
            found.set_item("value", &**text)
        }
        Scalar::Device(text) => {
            found.set_item("kind", "device")?;
            found.set_item("value", &**text)
        }
        Scalar::Printed(printed) => {
            found.set_item("kind", "printed")?;
            found.set_item("type", &*printed.kind)?;
            found.set_item("value", &*printed.text)
        }
    }
}
