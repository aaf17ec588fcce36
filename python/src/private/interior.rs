//! Reads some attributes of a tensor directly from torch's memory.
//!
//! An attribute takes a thousand instructions, most of them for Python, and nine are needed for each tensor of an op.
//! A word of memory takes one. The positions of the words are not guaranteed: they are searched when a recording
//! begins, in tensors with known answers. If one of them is not found, or found twice, none is used.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyByteArray, PyDict};

/// Size of a word in bytes.
const WORD: usize = size_of::<usize>();

/// Words that every torch tensor has behind `_cdata`: 192 bytes or more since torch 2.0.
const TENSOR_WORDS: usize = 24;

/// Bytes that every torch storage has behind `_cdata`.
const STORAGE_BYTES: usize = 64;

/// Bytes of a write counter: its reference count, and the count.
const COUNTER_BYTES: usize = 24;

/// Offsets from the start of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interior {
    /// `_cdata`, in the Python object of a tensor; the next four are offsets in the memory it points to.
    cdata: usize,
    /// The dispatch key set, 64 bits: identifies the kind of tensor.
    keys: usize,
    /// Address of the storage, which is the storage's `_cdata`.
    storage: usize,
    /// Autograd metadata of the tensor; 0 if there is none.
    autograd: usize,
    /// Address of the write counter, which views share; 0 if writes are not counted (inference mode).
    counter: usize,
    /// The count, in the counter: 32 bits.
    count: usize,
    /// True if the storage may be moved, in the storage: one byte.
    resizable: usize,
}

/// A plain tensor, while it is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inside<'a> {
    interior: &'a Interior,
    cdata: usize,
    _tensor: PhantomData<&'a PyAny>,
}

impl Interior {
    /// Finds the offsets. None if tensors are not laid out as described above.
    pub(crate) fn find(py: Python<'_>) -> Option<Self> {
        let samples = Samples::new(py).ok()?;
        let object_words = samples.object_bytes / WORD;
        let cdata = samples.word(object_words, |at, tensor| word(tensor.object, at) == tensor.cdata)?;
        let keys = samples.word(TENSOR_WORDS, |at, tensor| word(tensor.cdata, at) == tensor.keys)?;
        let storage = samples.word(TENSOR_WORDS, |at, tensor| word(tensor.cdata, at) == tensor.storage)?;
        // Views created by torch have something there whether or not they need gradients.
        let autograd = samples.word(TENSOR_WORDS, |at, tensor| {
            tensor.is_view || (word(tensor.cdata, at) != 0) == tensor.requires_grad
        })?;
        let [whole, view, others @ ..] = samples.tensors.as_slice() else { return None };
        let counter = only((0..TENSOR_WORDS).map(|at| at * WORD).filter(|&at| {
            let address = word(whole.cdata, at);
            let is_shared = word(view.cdata, at) == address && at != storage;
            let differs = others.iter().all(|other| word(other.cdata, at) != address);
            is_shared && differs && address != 0 && address.is_multiple_of(WORD)
        }))?;
        let address = word(whole.cdata, counter);
        let mut counts: Vec<usize> = (0..COUNTER_BYTES).step_by(size_of::<u32>()).collect();
        for writes in 0..3 {
            let counted: u32 = whole.tensor.getattr(intern!(py, "_version")).ok()?.extract().ok()?;
            if counted != writes {
                return None;
            }
            counts.retain(|&at| half_word(address, at) == counted);
            whole.tensor.call_method0(intern!(py, "zero_")).ok()?;
        }
        let count = only(counts.into_iter())?;
        let resizable = only((0..STORAGE_BYTES).filter(|&at| {
            samples.tensors.iter().all(|tensor| byte(tensor.storage, at) == u8::from(tensor.resizable))
        }))?;
        Some(Self { cdata, keys, storage, autograd, counter, count, resizable })
    }

    /// Returns the inside of a tensor whose class is `torch.Tensor` or `Parameter`.
    pub(crate) fn of<'a>(&'a self, tensor: &'a Bound<'_, PyAny>) -> Option<Inside<'a>> {
        let cdata = word(tensor.as_ptr().addr(), self.cdata);
        (cdata != 0).then_some(Inside { interior: self, cdata, _tensor: PhantomData })
    }
}

impl Inside<'_> {
    /// `_cdata`
    pub(crate) const fn cdata(self) -> usize {
        self.cdata
    }

    /// Key set of the tensor: whether it has a storage, is negated, conjugated, nested, wrapped, on the host.
    pub(crate) fn keys(self) -> usize {
        word(self.cdata, self.interior.keys)
    }

    /// `untyped_storage()._cdata`, for a tensor that has a storage.
    pub(crate) fn storage(self) -> usize {
        word(self.cdata, self.interior.storage)
    }

    /// Returns true if the tensor may need gradients; if false, it does not.
    pub(crate) fn may_require_grad(self) -> bool {
        word(self.cdata, self.interior.autograd) != 0
    }

    /// `_version`, or -1 if torch keeps no count.
    pub(crate) fn version(self) -> i64 {
        match word(self.cdata, self.interior.counter) {
            0 => -1,
            counter => half_word(counter, self.interior.count).into(),
        }
    }

    /// `untyped_storage().resizable()`, for a tensor that has a storage.
    pub(crate) fn is_resizable(self) -> bool {
        byte(self.storage(), self.interior.resizable) != 0
    }
}

/// Tensors with known answers.
struct Samples<'py> {
    /// A tensor, a view of it, and others.
    tensors: Vec<Sample<'py>>,
    /// Size of the Python object of a tensor.
    object_bytes: usize,
}

struct Sample<'py> {
    tensor: Bound<'py, PyAny>,
    object: usize,
    cdata: usize,
    keys: usize,
    storage: usize,
    resizable: bool,
    requires_grad: bool,
    is_view: bool,
}

impl<'py> Samples<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let torch = py.import(intern!(py, "torch"))?;
        let on_host = |dtype: &str| -> PyResult<Bound<'py, PyDict>> {
            let options = [("device", "cpu")].into_py_dict(py)?;
            options.set_item("dtype", torch.getattr(dtype)?)?;
            Ok(options)
        };
        let empty = |sizes: (usize, usize), dtype: &str| {
            torch.call_method(intern!(py, "empty"), (sizes,), Some(&on_host(dtype)?))
        };
        let whole = empty((3, 4), "float32")?;
        let view = whole.call_method0("t")?;
        let wanted = empty((1, 2), "bfloat16")?.call_method1("requires_grad_", (true,))?;
        let conjugated = empty((2, 2), "complex64")?.call_method0("conj")?;
        let negated = torch.call_method1("_neg_view", (empty((5, 1), "float64")?,))?;
        let bytes = [("dtype", torch.getattr("uint8")?)].into_py_dict(py)?;
        let borrowed = |size: usize| {
            torch.call_method(
                intern!(py, "frombuffer"),
                (PyByteArray::new(py, &vec![1; size]),),
                Some(&bytes),
            )
        };
        let parameter = torch.getattr("nn")?.getattr("Parameter")?.call1((empty((2, 3), "float32")?,))?;
        let samples = [
            whole,
            view,
            empty((7, 1), "int64")?,
            wanted,
            parameter,
            conjugated,
            negated,
            borrowed(16)?,
            borrowed(100)?,
        ];
        Ok(Self {
            tensors: samples.into_iter().map(Sample::new).collect::<PyResult<_>>()?,
            object_bytes: torch.getattr("Tensor")?.getattr("__basicsize__")?.extract()?,
        })
    }

    /// Returns the offset of the only one of `count` words for which `agrees` holds in every sample.
    fn word(&self, count: usize, agrees: impl Fn(usize, &Sample<'_>) -> bool) -> Option<usize> {
        let everywhere = |&at: &usize| self.tensors.iter().all(|tensor| agrees(at, tensor));
        only((0..count).map(|word| word * WORD).filter(everywhere))
    }
}

impl<'py> Sample<'py> {
    fn new(tensor: Bound<'py, PyAny>) -> PyResult<Self> {
        let py = tensor.py();
        let keys =
            py.import(intern!(py, "torch"))?.getattr("_C")?.call_method1("_dispatch_keys", (&tensor,))?;
        let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
        Ok(Self {
            object: tensor.as_ptr().addr(),
            cdata: tensor.getattr(intern!(py, "_cdata"))?.extract()?,
            keys: keys.call_method0("raw_repr")?.extract()?,
            storage: storage.getattr(intern!(py, "_cdata"))?.extract()?,
            resizable: storage.call_method0(intern!(py, "resizable"))?.extract()?,
            requires_grad: tensor.getattr(intern!(py, "requires_grad"))?.extract()?,
            is_view: tensor.call_method0("_is_view")?.extract()?,
            tensor,
        })
    }
}

/// Returns the item of an iterator that has exactly one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

// Another thread may write to this memory, so all of it is read atomically.

/// Reads the word `at` bytes into the memory at `object`: a live, word-aligned object longer than that.
fn word(object: usize, at: usize) -> usize {
    #[expect(unsafe_code, reason = "memory of a library")]
    // SAFETY: only called within the sizes named in this file, for objects that are held; `at` is a multiple of a
    // word.
    unsafe { AtomicUsize::from_ptr((object + at) as *mut usize) }.load(Ordering::Relaxed)
}

/// Reads 32 bits, like [`word`].
fn half_word(object: usize, at: usize) -> u32 {
    #[expect(unsafe_code, reason = "memory of a library")]
    // SAFETY: as in `word`; `at` is a multiple of 4.
    unsafe { AtomicU32::from_ptr((object + at) as *mut u32) }.load(Ordering::Relaxed)
}

/// Reads 8 bits, like [`word`].
fn byte(object: usize, at: usize) -> u8 {
    #[expect(unsafe_code, reason = "memory of a library")]
    // SAFETY: as in `word`.
    unsafe { AtomicU8::from_ptr((object + at) as *mut u8) }.load(Ordering::Relaxed)
}
