//! Torch's C interface, which describes a tensor in a fraction of the time that Python's attributes take.
//!
//! Compiled models are built on this interface (`torch/csrc/inductor/aoti_torch/c/shim.h`, from torch 2.2), and torch
//! promises not to change its functions. They write a line to the terminal if they fail, so they are only called
//! where they cannot: the caller knows that the tensor has a storage and sizes.

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;

use probe::dump::{ALL_DTYPES, DType};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule};

use super::interior::Inside;
use super::symbols::Library;

/// A pointer to torch's `Tensor`, which is just a pointer to the object whose address is `tensor._cdata`.
type Handle = *const usize;

/// Writes an answer; returns 0 on success.
type Ask<T> = unsafe extern "C" fn(Handle, *mut T) -> i32;

/// Returns the number of a constant.
type Constant = unsafe extern "C" fn() -> i32;

/// Functions of torch, and its numbers for some constants.
#[derive(Debug)]
pub(crate) struct Shim {
    dtype: Ask<i32>,
    device_type: Ask<i32>,
    /// Index of a device among those of its type.
    device_index: Option<Ask<i32>>,
    dim: Ask<i64>,
    sizes: Ask<*const i64>,
    strides: Ask<*const i64>,
    storage_offset: Ask<i64>,
    storage_size: Ask<i64>,
    data_ptr: Ask<*mut c_void>,
    /// Device type numbers of the host and of CUDA.
    host: i32,
    cuda: Option<i32>,
    /// Dtypes whose bytes can be measured, and torch's numbers for them.
    dtypes: Vec<(i32, DType)>,
}

/// Layout of a tensor's elements in its storage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<usize>,
    /// In elements, from the start of the storage.
    pub(crate) offset: usize,
    /// Address of the first element.
    pub(crate) first: usize,
    /// Size of the storage in bytes.
    pub(crate) bytes: usize,
}

impl Shim {
    /// Returns None if torch has no such interface, or one that differs from this description.
    pub(crate) fn new(py: Python<'_>) -> Option<Self> {
        let torch = py.import(intern!(py, "torch")).ok()?;
        let folder: PathBuf = torch.getattr(intern!(py, "__file__")).ok()?.extract().ok()?;
        let library = ["libtorch_cpu.so", "libtorch_cpu.dylib"]
            .iter()
            .find_map(|name| Library::loaded(&folder.with_file_name("lib").join(name)))?;
        if !handles_are_tensors(&torch)? {
            return None;
        }
        let dtypes = ALL_DTYPES.into_iter().filter_map(|dtype| {
            let name = CString::new(format!("aoti_torch_dtype_{}", dtype.name())).ok()?;
            Some((constant(&library, &name)?, dtype))
        });
        Some(Self {
            dtype: question(&library, c"aoti_torch_get_dtype")?,
            device_type: question(&library, c"aoti_torch_get_device_type")?,
            device_index: question(&library, c"aoti_torch_get_device_index"),
            dim: question(&library, c"aoti_torch_get_dim")?,
            sizes: question(&library, c"aoti_torch_get_sizes")?,
            strides: question(&library, c"aoti_torch_get_strides")?,
            storage_offset: question(&library, c"aoti_torch_get_storage_offset")?,
            storage_size: question(&library, c"aoti_torch_get_storage_size")?,
            data_ptr: question(&library, c"aoti_torch_get_data_ptr")?,
            host: constant(&library, c"aoti_torch_device_type_cpu")?,
            cuda: constant(&library, c"aoti_torch_device_type_cuda"),
            dtypes: dtypes.collect(),
        })
    }

    /// Returns the dtype of a tensor in host memory or on a CUDA device, and the index of that device; None for other
    /// tensors and unmeasured dtypes.
    pub(crate) fn dtype(&self, tensor: Inside<'_>) -> Option<(DType, Option<i32>)> {
        let device = match ask(tensor, self.device_type, 0)? {
            host if host == self.host => None,
            cuda if Some(cuda) == self.cuda => Some(ask(tensor, self.device_index?, -1)?),
            _ => return None,
        };
        let number = ask(tensor, self.dtype, 0)?;
        self.dtypes.iter().find_map(|&(known, dtype)| (known == number).then_some((dtype, device)))
    }

    /// Returns the layout of a tensor that has a storage and is not nested.
    pub(crate) fn layout(&self, tensor: Inside<'_>) -> Option<Layout> {
        let count = usize::try_from(ask(tensor, self.dim, 0)?).ok()?;
        let none = std::ptr::null();
        let (sizes, strides) = (ask(tensor, self.sizes, none)?, ask(tensor, self.strides, none)?);
        Some(Layout {
            shape: numbers(sizes, count)?,
            strides: numbers(strides, count)?,
            offset: ask(tensor, self.storage_offset, 0)?.try_into().ok()?,
            first: ask(tensor, self.data_ptr, std::ptr::null_mut())?.addr(),
            bytes: ask(tensor, self.storage_size, 0)?.try_into().ok()?,
        })
    }
}

fn ask<T: Copy>(tensor: Inside<'_>, question: Ask<T>, mut answer: T) -> Option<T> {
    let cdata = tensor.cdata();
    #[expect(unsafe_code, reason = "a function of a library")]
    // SAFETY: `cdata` is the address of an object behind a tensor that the caller holds, so a pointer to it is a
    // handle, which is borrowed; `T` is the type that the function writes.
    let failed = unsafe { question(&raw const cdata, &raw mut answer) };
    (failed == 0).then_some(answer)
}

/// Returns true if handles are as described at [`Handle`]; torch does not guarantee that, so one created by torch is
/// inspected.
fn handles_are_tensors(torch: &Bound<'_, PyAny>) -> Option<bool> {
    let py = torch.py();
    let on_host = [("device", "cpu")].into_py_dict(py).ok()?;
    let tensor = torch.call_method(intern!(py, "empty"), (0,), Some(&on_host)).ok()?;
    let make = torch.getattr(intern!(py, "_C")).ok()?.getattr(intern!(py, "_aoti")).ok()?;
    let capsule = make.call_method1(intern!(py, "unsafe_alloc_void_ptr_from_tensor"), (&tensor,)).ok()?;
    let cdata: usize = tensor.getattr(intern!(py, "_cdata")).ok()?.extract().ok()?;
    let capsule = capsule.cast_into::<PyCapsule>().ok()?;
    #[expect(unsafe_code, reason = "no safe binding for a capsule without a name")]
    // SAFETY: it is a capsule, and `Bound` proves that the interpreter is held. Null on failure.
    let handle = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) } as Handle;
    if handle.is_null() {
        // A capsule with a name, about which nothing is known; the interpreter holds an exception about it.
        drop(PyErr::take(py));
        return Some(false);
    }
    // If it were the address itself, it would not point to a pointer to it.
    if handle as usize == cdata || !handle.is_aligned() {
        return Some(false);
    }
    #[expect(unsafe_code, reason = "memory of a library")]
    // SAFETY: a handle just created by torch points to an object of at least a pointer's size, and is aligned.
    let target = unsafe { handle.read() };
    // Releases the handle.
    let free = make.call_method1(intern!(py, "alloc_tensor_by_stealing_from_void_ptr"), (capsule,));
    free.is_ok().then_some(target == cdata)
}

fn question<T>(library: &Library, name: &CStr) -> Option<Ask<T>> {
    #[expect(unsafe_code, reason = "functions that are found by name")]
    // SAFETY: the header gives this signature for all queries, whose answers have the types named in `Shim`.
    unsafe {
        library.function::<Ask<T>>(name)
    }
}

fn constant(library: &Library, name: &CStr) -> Option<i32> {
    #[expect(unsafe_code, reason = "functions that are found by name")]
    // SAFETY: the header gives this signature for all constants.
    let constant = unsafe { library.function::<Constant>(name) }?;
    #[expect(unsafe_code, reason = "a function of a library")]
    // SAFETY: it has no preconditions.
    Some(unsafe { constant() })
}

/// Copies sizes or strides, none of which is negative.
fn numbers(first: *const i64, count: usize) -> Option<Vec<usize>> {
    if count == 0 {
        return Some(Vec::new());
    }
    if first.is_null() {
        return None;
    }
    #[expect(unsafe_code, reason = "memory of a library")]
    // SAFETY: torch keeps as many sizes and strides as a tensor has dimensions until the tensor is changed, and
    // holding the interpreter prevents changes meanwhile.
    let numbers = unsafe { std::slice::from_raw_parts(first, count) };
    numbers.iter().map(|&number| usize::try_from(number).ok()).collect()
}
