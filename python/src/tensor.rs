//! Facts about a torch tensor that need no op: dtype, layout, place in memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use probe::dump::DType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyModule, PyString, PyTuple, PyType};

use crate::private::{Inside, Interior, Layout, Shim, are_quick_ways_taken};

/// Classes and constants of torch, looked up once.
#[derive(Debug)]
pub(crate) struct Torch {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    /// Address of a `torch.dtype` object -> its name and, if its bytes can be measured, its dtype.
    dtypes: HashMap<usize, (String, Option<DType>)>,
    quick: Option<Quick>,
    /// `torch.strided`
    strided: Py<PyAny>,
    pub(crate) dtype_class: Py<PyType>,
    pub(crate) device_class: Py<PyType>,
    pub(crate) size_class: Py<PyType>,
}

/// The quicker way to read a tensor.
#[derive(Debug)]
struct Quick {
    shim: Shim,
    interior: Interior,
    /// Key sets of the few kinds of plain tensors seen, and whether this way agrees with their attributes.
    kinds: Mutex<Vec<(usize, bool)>>,
}

/// Kind of a Python object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorKind {
    /// `torch.Tensor` itself or a `Parameter`: the fast path.
    Plain,
    /// A subclass: its contents are not what its own data pointer says.
    Subclass,
    /// Not a tensor.
    No,
}

/// A strided tensor, as far as it is known without reading its elements.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) dtype_name: Cow<'static, str>,
    /// `None` for dtypes whose bytes cannot be measured.
    pub(crate) dtype: Option<DType>,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<usize>,
    /// In elements, from the start of the storage.
    pub(crate) offset: usize,
    pub(crate) requires_grad: bool,
    pub(crate) device: Cow<'static, str>,
    pub(crate) on_host: bool,
    /// Memory of the storage, if the tensor has one. Valid while someone holds the storage, or the tensor and the
    /// interpreter.
    pub(crate) memory: Option<Memory>,
    /// None if not read yet.
    pub(crate) marks: Option<Marks>,
}

/// Identifies a tensor that is seen again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Address of torch's storage, which identifies it as long as anyone holds it, weakly or not.
    pub(crate) storage: usize,
    /// Number of writes to the tensor's memory; negative if torch keeps no count (inference mode).
    pub(crate) version: i64,
    /// False if others write to this memory without torch counting it: `numpy` arrays, other processes. Torch may not
    /// move such memory.
    pub(crate) is_torchs_alone: bool,
}

/// Location of a storage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// 0 if nothing is allocated.
    pub(crate) address: usize,
    pub(crate) size: usize,
}

impl Memory {
    /// Returns the bytes. The program may write to them from another thread while they are read: then the
    /// measurements are useless, as those of the program's own op would be.
    ///
    /// # Safety
    /// The memory is the host's, and its owner is held for as long as the bytes are used.
    #[expect(unsafe_code, reason = "memory that torch owns")]
    pub(crate) const unsafe fn bytes<'a>(&self) -> &'a [u8] {
        if self.address == 0 || self.size == 0 {
            return &[];
        }
        // SAFETY: torch guarantees that a storage has `size` bytes from `address`; the caller guarantees that it is
        // still there.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.size) }
    }
}

/// Sizes and strides of the elements in some order, with dimensions merged if one continues where the other ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

impl Order {
    /// Row-major order of the tensor; equal for a tensor and a reshaped view of it.
    pub(crate) fn of_rows(facts: &Facts) -> Self {
        Self::joined(facts.shape.iter().copied().zip(facts.strides.iter().copied()))
    }

    /// Order in memory; equal for a tensor and its transposed view.
    pub(crate) fn of_memory(facts: &Facts) -> Self {
        if facts.strides.is_sorted_by(|outer, inner| outer > inner) {
            return Self::of_rows(facts);
        }
        let mut dims: Vec<(usize, usize)> =
            facts.shape.iter().copied().zip(facts.strides.iter().copied()).collect();
        dims.sort_by_key(|&(size, stride)| std::cmp::Reverse((stride, size)));
        Self::joined(dims.into_iter())
    }

    /// Returns true if the memory order of the elements differs from row-major order.
    pub(crate) fn is_permuted(facts: &Facts) -> bool {
        !facts.strides.is_sorted_by(|outer, inner| outer > inner)
            && Self::of_memory(facts) != Self::of_rows(facts)
    }

    fn joined(dims: impl ExactSizeIterator<Item = (usize, usize)>) -> Self {
        let (mut shape, mut strides): (Vec<usize>, Vec<usize>) =
            (Vec::with_capacity(dims.len()), Vec::with_capacity(dims.len()));
        for (size, stride) in dims {
            if size == 1 {
                continue;
            }
            match (shape.last_mut(), strides.last_mut()) {
                (Some(outer), Some(step))
                    if *step == stride.saturating_mul(size) && size > 0 && *outer > 0 =>
                {
                    *outer *= size;
                    *step = stride;
                }
                _ => {
                    shape.push(size);
                    strides.push(stride);
                }
            }
        }
        Self { shape, strides }
    }
}

/// Returns the storage of a tensor.
pub(crate) fn storage<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    tensor.call_method0(intern!(tensor.py(), "untyped_storage"))
}

impl Marks {
    /// Reads the marks from the attributes of a tensor.
    pub(crate) fn of(tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = tensor.py();
        let storage = storage(tensor)?;
        let version = tensor.getattr(intern!(py, "_version")).and_then(|version| version.extract());
        let resizable =
            storage.call_method0(intern!(py, "resizable")).and_then(|resizable| resizable.extract());
        Ok(Self {
            storage: storage.getattr(intern!(py, "_cdata"))?.extract()?,
            version: version.unwrap_or(-1),
            is_torchs_alone: resizable.unwrap_or(false),
        })
    }
}

impl Quick {
    /// Returns None if this version of torch has no such way, or quick ways are disabled.
    fn new(py: Python<'_>) -> Option<Self> {
        if !are_quick_ways_taken(py) {
            return None;
        }
        Some(Self { shim: Shim::new(py)?, interior: Interior::find(py)?, kinds: Mutex::default() })
    }

    /// Returns the inside of a plain tensor of a kind known to be readable this way.
    fn known<'a>(&'a self, tensor: &'a Bound<'_, PyAny>) -> Option<Inside<'a>> {
        let inside = self.interior.of(tensor)?;
        (self.kind(inside.keys()) == Some(true)).then_some(inside)
    }

    fn kind(&self, keys: usize) -> Option<bool> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().find_map(|&(known, agrees)| (known == keys).then_some(agrees))
    }

    /// Reads a plain tensor. None if its attributes have to be read.
    fn facts(&self, torch: &Torch, tensor: &Bound<'_, PyAny>) -> PyResult<Option<Facts>> {
        let Some(inside) = self.interior.of(tensor) else { return Ok(None) };
        let Some(dtype) = self.shim.dtype(inside) else { return Ok(None) };
        match self.kind(inside.keys()) {
            Some(false) => return Ok(None),
            Some(true) => {}
            None => {
                let agrees = self.agrees(torch, tensor, inside, dtype).unwrap_or(false);
                self.kinds.lock().unwrap_or_else(PoisonError::into_inner).push((inside.keys(), agrees));
                if !agrees {
                    return Ok(None);
                }
            }
        }
        self.read(tensor, inside, dtype)
    }

    /// Returns true if both ways agree.
    fn agrees(
        &self,
        torch: &Torch,
        tensor: &Bound<'_, PyAny>,
        inside: Inside<'_>,
        dtype: (DType, Option<i32>),
    ) -> PyResult<bool> {
        // Only strided tensors with a storage may be read the quick way.
        let Some(facts) = torch.by_attributes(tensor)? else { return Ok(false) };
        let facts = Facts { marks: Some(Marks::of(tensor)?), ..facts };
        Ok(facts.memory.is_some() && self.read(tensor, inside, dtype)? == Some(facts))
    }

    fn read(
        &self,
        tensor: &Bound<'_, PyAny>,
        inside: Inside<'_>,
        (dtype, device): (DType, Option<i32>),
    ) -> PyResult<Option<Facts>> {
        let Some(Layout { shape, strides, offset, first, bytes }) = self.shim.layout(inside) else {
            return Ok(None);
        };
        let requires_grad =
            inside.may_require_grad() && tensor.getattr(intern!(tensor.py(), "requires_grad"))?.extract()?;
        let address = first.saturating_sub(offset.saturating_mul(dtype.size()));
        Ok(Some(Facts {
            dtype_name: dtype.torch_name().into(),
            dtype: Some(dtype),
            shape,
            strides,
            offset,
            requires_grad,
            device: device.map_or("cpu".into(), |index| match index {
                // The most common index.
                0 => "cuda:0".into(),
                _ => format!("cuda:{index}").into(),
            }),
            on_host: device.is_none(),
            memory: Some(Memory { address, size: bytes }),
            marks: Some(Marks {
                storage: inside.storage(),
                version: inside.version(),
                is_torchs_alone: inside.is_resizable(),
            }),
        }))
    }
}

impl Torch {
    /// Reads torch's own tensors, the quick way if there is one.
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        let mut found = Self::of(&py.import("torch")?)?;
        found.quick = Quick::new(py).filter(|quick| found.agrees(py, quick).unwrap_or(false));
        Ok(found)
    }

    /// Reads the tensors of a module that has torch's classes and element types under their names, by their
    /// attributes: `probe.mindspore.arrays`, where torch may be absent.
    pub(crate) fn of(torch: &Bound<'_, PyModule>) -> PyResult<Self> {
        let class =
            |name: &str| -> PyResult<Py<PyType>> { Ok(torch.getattr(name)?.cast_into::<PyType>()?.unbind()) };
        let dtype_class = class("dtype")?;
        let mut dtypes = HashMap::new();
        for (_, value) in torch.dict().iter() {
            if value.is_instance(dtype_class.bind(torch.py()))? {
                let name = value.str()?.to_string();
                let known = DType::parse(&name);
                dtypes.insert(value.as_ptr() as usize, (name, known));
            }
        }
        let parameter = torch.getattr("nn")?.getattr("Parameter")?.cast_into::<PyType>()?.unbind();
        Ok(Self {
            tensor: class("Tensor")?,
            parameter,
            dtypes,
            quick: None,
            strided: torch.getattr("strided")?.unbind(),
            dtype_class,
            device_class: class("device")?,
            size_class: class("Size")?,
        })
    }

    /// Returns true if both ways to read a tensor agree on one that is laid out unusually.
    fn agrees(&self, py: Python<'_>, quick: &Quick) -> PyResult<bool> {
        let options = [("device", "cpu")].into_py_dict(py)?;
        let whole = py.import("torch")?.call_method("empty", (4, 5, 6), Some(&options))?;
        let view =
            whole.call_method1("narrow", (0, 1, 3))?.call_method1("select", (1, 2))?.call_method0("t")?;
        // The first of its kind, so both ways are compared.
        Ok(quick.facts(self, &view)?.is_some())
    }

    /// Returns true if tensors in host memory are read past their attributes.
    pub(crate) const fn is_quick(&self) -> bool {
        self.quick.is_some()
    }

    pub(crate) fn kind(&self, value: &Bound<'_, PyAny>) -> TensorKind {
        let py = value.py();
        let class = value.get_type();
        if self.is_plain(&class) {
            TensorKind::Plain
        } else if class.is_subclass(self.tensor.bind(py)).unwrap_or(false) {
            TensorKind::Subclass
        } else {
            TensorKind::No
        }
    }

    /// Returns true if this is the class of distributed tensors.
    pub(crate) fn is_distributed(&self, class: &Bound<'_, PyAny>) -> bool {
        let named = |class: &Bound<'_, PyType>| class.name().is_ok_and(|name| name == "DTensor");
        class.cast::<PyType>().is_ok_and(|class| !self.is_plain(class) && named(class))
    }

    fn is_plain(&self, class: &Bound<'_, PyType>) -> bool {
        class.is(&self.tensor) || class.is(&self.parameter)
    }

    /// Reads a plain tensor. `Ok(None)` if it has no strided layout of its own (sparse, nested, a wrapper of a
    /// function transform) or its values are stored conjugated or negated: then the slow path handles it.
    pub(crate) fn facts(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<Facts>> {
        if let Some(quick) = &self.quick
            && self.is_plain(&tensor.get_type())
            && let Some(facts) = quick.facts(self, tensor)?
        {
            return Ok(Some(facts));
        }
        self.by_attributes(tensor)
    }

    /// Returns the identity of a tensor's storage; see [`Marks::storage`].
    pub(crate) fn storage(&self, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        let quick = self.quick.as_ref().filter(|_| self.is_plain(&tensor.get_type()));
        match quick.and_then(|quick| quick.known(tensor)) {
            Some(inside) => Ok(inside.storage()),
            None => Ok(Marks::of(tensor)?.storage),
        }
    }

    /// Returns true if it is known without asking that a tensor neither requires a gradient nor has a node.
    pub(crate) fn is_outside_graph(&self, tensor: &Bound<'_, PyAny>) -> bool {
        let quick = self.quick.as_ref().filter(|_| self.is_plain(&tensor.get_type()));
        quick.and_then(|quick| quick.known(tensor)).is_some_and(|inside| !inside.may_require_grad())
    }

    /// Reads any tensor, slowly.
    fn by_attributes(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<Facts>> {
        let py = tensor.py();
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        let (dtype_name, known) = match self.dtypes.get(&(dtype.as_ptr() as usize)) {
            Some((name, known)) => (name.clone().into(), *known),
            None => (dtype.str()?.to_string().into(), None),
        };
        if !tensor.getattr(intern!(py, "layout"))?.is(&self.strided)
            // Quantised dtypes are not measured.
            || (known.is_none() && tensor.getattr(intern!(py, "is_quantized"))?.extract()?)
            || known.map_or(Ok(false), |dtype| is_flipped(tensor, dtype))?
        {
            return Ok(None);
        }
        let shape: Vec<usize> = tensor.getattr(intern!(py, "shape"))?.cast_into::<PyTuple>()?.extract()?;
        let strides: Vec<usize> =
            tensor.call_method0(intern!(py, "stride"))?.cast_into::<PyTuple>()?.extract()?;
        let on_host: bool = tensor.getattr(intern!(py, "is_cpu"))?.extract()?;
        let device = if on_host {
            "cpu".into()
        } else {
            tensor.getattr(intern!(py, "device"))?.str()?.to_string().into()
        };
        let is_meta = !on_host && tensor.getattr(intern!(py, "is_meta"))?.extract::<bool>()?;
        let memory = if is_meta {
            None
        } else {
            let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
            Some(Memory {
                address: storage.call_method0(intern!(py, "data_ptr"))?.extract()?,
                size: storage.call_method0(intern!(py, "nbytes"))?.extract()?,
            })
        };
        Ok(Some(Facts {
            dtype_name,
            dtype: known,
            shape,
            strides,
            offset: tensor.call_method0(intern!(py, "storage_offset"))?.extract()?,
            requires_grad: tensor.getattr(intern!(py, "requires_grad"))?.extract()?,
            device,
            on_host,
            memory,
            marks: None,
        }))
    }
}

/// Returns true if a tensor's values differ from its memory: they are conjugated or negated when read.
fn is_flipped(tensor: &Bound<'_, PyAny>, dtype: DType) -> PyResult<bool> {
    let py = tensor.py();
    let is = |question| -> PyResult<bool> { tensor.call_method0(question)?.extract() };
    Ok((dtype.is_float() || dtype.is_complex()) && is(intern!(py, "is_neg"))?
        || dtype.is_complex() && is(intern!(py, "is_conj"))?)
}

/// Returns the text of a Python string, or None.
pub(crate) fn text(value: &Bound<'_, PyAny>) -> Option<String> {
    value.cast::<PyString>().ok().and_then(|text| text.extract().ok())
}
