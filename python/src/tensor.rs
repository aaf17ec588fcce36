//! What can be read off a torch tensor without running an op: type, layout, place in memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use probe::dump::DType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyString, PyTuple, PyType};

use crate::private::{Inside, Interior, Layout, Shim, are_quick_ways_taken};

/// Classes and constants of torch, looked up once.
#[derive(Debug)]
pub(crate) struct Torch {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    /// Address of a `torch.dtype` object -> its name and, where its bytes can be measured, its type.
    dtypes: HashMap<usize, (String, Option<DType>)>,
    quick: Option<Quick>,
    /// `torch.strided`
    strided: Py<PyAny>,
    pub(crate) dtype_class: Py<PyType>,
    pub(crate) device_class: Py<PyType>,
    pub(crate) size_class: Py<PyType>,
}

/// The quicker way to what a tensor is.
#[derive(Debug)]
struct Quick {
    shim: Shim,
    interior: Interior,
    /// Keys of plain tensors that were met, few, and whether this way says of them what their attributes say.
    kinds: Mutex<Vec<(usize, bool)>>,
}

/// How a Python object is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorKind {
    /// `torch.Tensor` itself or a `Parameter`: the fast path.
    Plain,
    /// A subclass: what it holds is not what its own data pointer says.
    Subclass,
    /// Not a tensor.
    No,
}

/// A strided tensor, as far as it can be known without reading it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) dtype_name: Cow<'static, str>,
    /// `None` for types whose bytes cannot be measured.
    pub(crate) dtype: Option<DType>,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<usize>,
    /// In elements, from the start of the storage.
    pub(crate) offset: usize,
    pub(crate) requires_grad: bool,
    pub(crate) device: Cow<'static, str>,
    pub(crate) on_host: bool,
    /// Memory of the storage, if the tensor has one. Valid while somebody holds the storage, or the tensor and the
    /// interpreter.
    pub(crate) memory: Option<Memory>,
    /// None where nobody has looked yet.
    pub(crate) marks: Option<Marks>,
}

/// What a tensor is known again by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Address of torch's storage, which stands for it as long as anyone holds it, weakly or not.
    pub(crate) storage: usize,
    /// How often the tensor's memory was written to; below 0 where torch keeps no count (inference mode).
    pub(crate) version: i64,
    /// False where others write to this memory without torch counting it: arrays of `numpy`, other processes. Torch may not
    /// move such memory.
    pub(crate) is_torchs_alone: bool,
}

/// Where a storage lies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// 0 where nothing is allocated.
    pub(crate) address: usize,
    pub(crate) size: usize,
}

impl Memory {
    /// The bytes. The program may write to them from another thread while they are read: then the numbers are of no use, as
    /// those of the program's own op would be.
    ///
    /// # Safety
    /// The memory is the host's, and what keeps it alive is held for as long as the bytes are used.
    #[expect(unsafe_code, reason = "memory that torch owns")]
    pub(crate) const unsafe fn bytes<'a>(&self) -> &'a [u8] {
        if self.address == 0 || self.size == 0 {
            return &[];
        }
        // SAFETY: torch says that a storage has `size` bytes from `address`; the caller says that it is still there.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.size) }
    }
}

/// Sizes and strides of the elements in an order, with dimensions joined where one goes on where the other ends.
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

    /// Whether elements come in another order in memory than in rows.
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

/// The storage of a tensor.
pub(crate) fn storage<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    tensor.call_method0(intern!(tensor.py(), "untyped_storage"))
}

impl Marks {
    /// By the attributes of a tensor.
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
    /// None where this version of torch has no such way, or none is to be taken.
    fn new(py: Python<'_>) -> Option<Self> {
        if !are_quick_ways_taken(py) {
            return None;
        }
        Some(Self { shim: Shim::new(py)?, interior: Interior::find(py)?, kinds: Mutex::default() })
    }

    /// The inside of a plain tensor that is known to be of a kind that can be read this way.
    fn known<'a>(&'a self, tensor: &'a Bound<'_, PyAny>) -> Option<Inside<'a>> {
        let inside = self.interior.of(tensor)?;
        (self.kind(inside.keys()) == Some(true)).then_some(inside)
    }

    fn kind(&self, keys: usize) -> Option<bool> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().find_map(|&(known, agrees)| (known == keys).then_some(agrees))
    }

    /// Reads a plain tensor. None where its attributes have to be read.
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

    /// Whether both ways say the same.
    fn agrees(
        &self,
        torch: &Torch,
        tensor: &Bound<'_, PyAny>,
        inside: Inside<'_>,
        dtype: (DType, Option<i32>),
    ) -> PyResult<bool> {
        // Only what is strided and has a storage may be read the quick way.
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
                // The most of them.
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
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        let torch = py.import("torch")?;
        let class =
            |name: &str| -> PyResult<Py<PyType>> { Ok(torch.getattr(name)?.cast_into::<PyType>()?.unbind()) };
        let dtype_class = class("dtype")?;
        let mut dtypes = HashMap::new();
        for (_, value) in torch.dict().iter() {
            if value.is_instance(dtype_class.bind(py))? {
                let name = value.str()?.to_string();
                let known = DType::parse(&name);
                dtypes.insert(value.as_ptr() as usize, (name, known));
            }
        }
        let parameter = torch.getattr("nn")?.getattr("Parameter")?.cast_into::<PyType>()?.unbind();
        let mut found = Self {
            tensor: class("Tensor")?,
            parameter,
            dtypes,
            quick: None,
            strided: torch.getattr("strided")?.unbind(),
            dtype_class,
            device_class: class("device")?,
            size_class: class("Size")?,
        };
        found.quick = Quick::new(py).filter(|quick| found.agrees(py, quick).unwrap_or(false));
        Ok(found)
    }

    /// Whether both ways to read a tensor say the same of one that is laid out unusually.
    fn agrees(&self, py: Python<'_>, quick: &Quick) -> PyResult<bool> {
        let options = [("device", "cpu")].into_py_dict(py)?;
        let whole = py.import("torch")?.call_method("empty", (4, 5, 6), Some(&options))?;
        let view =
            whole.call_method1("narrow", (0, 1, 3))?.call_method1("select", (1, 2))?.call_method0("t")?;
        // The first of its kind.
        Ok(quick.facts(self, &view)?.is_some())
    }

    /// Whether tensors in host memory are read past their attributes.
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

    /// Whether this is the class of distributed tensors.
    pub(crate) fn is_distributed(&self, class: &Bound<'_, PyAny>) -> bool {
        let named = |class: &Bound<'_, PyType>| class.name().is_ok_and(|name| name == "DTensor");
        class.cast::<PyType>().is_ok_and(|class| !self.is_plain(class) && named(class))
    }

    fn is_plain(&self, class: &Bound<'_, PyType>) -> bool {
        class.is(&self.tensor) || class.is(&self.parameter)
    }

    /// Reads a plain tensor. `Ok(None)` when it has no strided layout of its own (sparse, nested, a wrapper of a
    /// function transform) or its values are stored conjugated or negated: then the slow path looks at it.
    pub(crate) fn facts(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<Facts>> {
        if let Some(quick) = &self.quick
            && self.is_plain(&tensor.get_type())
            && let Some(facts) = quick.facts(self, tensor)?
        {
            return Ok(Some(facts));
        }
        self.by_attributes(tensor)
    }

    /// What stands for the storage of a tensor; see [`Marks::storage`].
    pub(crate) fn storage(&self, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        let quick = self.quick.as_ref().filter(|_| self.is_plain(&tensor.get_type()));
        match quick.and_then(|quick| quick.known(tensor)) {
            Some(inside) => Ok(inside.storage()),
            None => Ok(Marks::of(tensor)?.storage),
        }
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
            // Quantised types are none that are measured.
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

/// Whether the values of a tensor are others than its memory says: to be conjugated or negated when they are read.
fn is_flipped(tensor: &Bound<'_, PyAny>, dtype: DType) -> PyResult<bool> {
    let py = tensor.py();
    let is = |question| -> PyResult<bool> { tensor.call_method0(question)?.extract() };
    Ok((dtype.is_float() || dtype.is_complex()) && is(intern!(py, "is_neg"))?
        || dtype.is_complex() && is(intern!(py, "is_conj"))?)
}

/// Text of a Python string, or nothing.
pub(crate) fn text(value: &Bound<'_, PyAny>) -> Option<String> {
    value.cast::<PyString>().ok().and_then(|text| text.extract().ok())
}
