//! Objects that the program passes to operators (tensors, lists, numbers), by the addresses of their CANN handles.
//!
//! A program on `torch_npu` creates these for each call, so nothing is kept while nothing is recorded. Other programs
//! may keep theirs permanently: there they are followed from the start.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::acl::{Status, UNSUPPORTED, real, wrappers};
use crate::{links, notes};

wrappers! {
    CREATE_TENSOR aclCreateTensor;
    DESTROY_TENSOR aclDestroyTensor;
    CREATE_TENSOR_LIST aclCreateTensorList;
    DESTROY_TENSOR_LIST aclDestroyTensorList;
    CREATE_SCALAR aclCreateScalar;
    DESTROY_SCALAR aclDestroyScalar;
    CREATE_SCALAR_LIST aclCreateScalarList;
    DESTROY_SCALAR_LIST aclDestroyScalarList;
    CREATE_INT_ARRAY aclCreateIntArray;
    DESTROY_INT_ARRAY aclDestroyIntArray;
    CREATE_FLOAT_ARRAY aclCreateFloatArray;
    DESTROY_FLOAT_ARRAY aclDestroyFloatArray;
    CREATE_BOOL_ARRAY aclCreateBoolArray;
    DESTROY_BOOL_ARRAY aclDestroyBoolArray;
}

/// A tensor as described to CANN.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tensor {
    pub(crate) sizes: Sizes,
    /// CANN's number of the dtype.
    pub(crate) dtype: i32,
    /// Offset in elements from `data`.
    pub(crate) offset: i64,
    /// CANN's number of the layout.
    pub(crate) format: i32,
    /// Address on the device.
    pub(crate) data: usize,
    /// The handle itself.
    pub(crate) handle: usize,
}

/// Shape, strides and storage of a tensor: one allocation, since programs create tensors for each call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sizes {
    dims: usize,
    /// Shape and strides have one entry per dimension each; the rest is the storage.
    all: Box<[i64]>,
}

impl Sizes {
    /// Without strides, or with a different number of them, elements are in row-major order.
    pub(crate) fn new(shape: &[i64], strides: Option<&[i64]>, storage: &[i64]) -> Self {
        let dims = shape.len();
        let mut all = Vec::with_capacity(2 * dims + storage.len());
        all.extend_from_slice(shape);
        if let Some(strides) = strides.filter(|strides| strides.len() == dims) {
            all.extend_from_slice(strides);
        } else {
            all.resize(2 * dims, 1);
            for axis in (1..dims).rev() {
                all[dims + axis - 1] = all[dims + axis].saturating_mul(shape[axis].max(1));
            }
        }
        all.extend_from_slice(storage);
        Self { dims, all: all.into() }
    }

    pub(crate) fn shape(&self) -> &[i64] {
        &self.all[..self.dims]
    }

    /// Strides in elements, one per dimension.
    pub(crate) fn strides(&self) -> &[i64] {
        &self.all[self.dims..2 * self.dims]
    }

    /// Sizes of its memory, which a private format lays out differently.
    pub(crate) fn storage(&self) -> &[i64] {
        &self.all[2 * self.dims..]
    }
}

/// A number with CANN's number of its dtype.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scalar {
    pub(crate) dtype: i32,
    pub(crate) bytes: [u8; 16],
}

/// Object behind a handle.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Handle {
    Tensor(Arc<Tensor>),
    /// Entries may be empty.
    Tensors(Vec<Option<Arc<Tensor>>>),
    Scalar(Scalar),
    Scalars(Vec<Scalar>),
    Integers(Vec<i64>),
    Reals(Vec<f32>),
    Truths(Vec<bool>),
}

/// True if handles are followed.
static FOLLOWED: AtomicBool = AtomicBool::new(false);

/// Parts of the table, so that threads rarely wait for one another.
const PARTS: usize = 16;

/// Map keyed by address. The program adds and removes an entry at each call, so hashing speed matters; the addresses
/// are its own.
pub(crate) type ByAddress<T> = HashMap<usize, T, foldhash::fast::FixedState>;

static HANDLES: [Mutex<Option<ByAddress<Handle>>>; PARTS] = [const { Mutex::new(None) }; PARTS];

fn part(handle: usize) -> MutexGuard<'static, Option<ByAddress<Handle>>> {
    // Addresses are multiples of 16.
    HANDLES[handle / 16 % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts or stops following handles. Everything is forgotten on stopping: CANN will reuse the addresses.
pub(crate) fn follow(on: bool) {
    if FOLLOWED.swap(on, Ordering::AcqRel) && !on {
        for part in &HANDLES {
            *part.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

pub(crate) fn is_followed() -> bool {
    FOLLOWED.load(Ordering::Relaxed)
}

/// Returns the object behind an argument word of a call.
pub(crate) fn find(word: u64) -> Option<Handle> {
    let handle = usize::try_from(word).ok()?;
    if handle < 4096 {
        return None;
    }
    part(handle).as_ref()?.get(&handle).cloned()
}

fn made(handle: *mut c_void, make: impl FnOnce() -> Handle) -> *mut c_void {
    if is_followed() && !handle.is_null() {
        part(handle.addr()).get_or_insert_default().insert(handle.addr(), make());
    }
    handle
}

fn gone(handle: *const c_void) {
    if is_followed()
        && let Some(known) = part(handle.addr()).as_mut()
    {
        known.remove(&handle.addr());
    }
}

/// Returns the `count` values at an address; none if it is null.
///
/// # Safety
/// This many values lie there for as long as the result is used, as CANN itself requires during a call.
unsafe fn slice_at<'a, T>(values: *const T, count: u64) -> &'a [T] {
    let count = usize::try_from(count).unwrap_or(0);
    if values.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller vouches.
    unsafe { std::slice::from_raw_parts(values, count) }
}

type CreateTensor = unsafe extern "C" fn(
    *const i64,
    u64,
    i32,
    *const i64,
    i64,
    i32,
    *const i64,
    u64,
    *mut c_void,
) -> *mut c_void;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclCreateTensor(
    shape: *const i64,
    dims: u64,
    dtype: i32,
    strides: *const i64,
    offset: i64,
    format: i32,
    storage: *const i64,
    storage_dims: u64,
    data: *mut c_void,
) -> *mut c_void {
    if is_followed() {
        // A program that creates tensors is about to call operators, and may have loaded libraries since.
        notes::guarded("aclCreateTensor", links::look);
    }
    let Some(real) = real!(CREATE_TENSOR as CreateTensor) else { return std::ptr::null_mut() };
    // SAFETY: the program's own call, as it made it.
    let handle = unsafe { real(shape, dims, dtype, strides, offset, format, storage, storage_dims, data) };
    made(handle, || {
        // SAFETY: CANN has just read as many.
        let (shape, storage) = unsafe { (slice_at(shape, dims), slice_at(storage, storage_dims)) };
        // SAFETY: as above.
        let strides = (!strides.is_null()).then(|| unsafe { slice_at(strides, dims) });
        Handle::Tensor(Arc::new(Tensor {
            sizes: Sizes::new(shape, strides, storage),
            dtype,
            offset,
            format,
            data: data.addr(),
            handle: handle.addr(),
        }))
    })
}

type Destroy = unsafe extern "C" fn(*const c_void) -> Status;

/// Functions that release a handle.
macro_rules! destroy {
    ($($name:ident $wrapper:ident;)*) => {
        $(#[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(handle: *const c_void) -> Status {
            gone(handle);
            let Some(real) = real!($wrapper as Destroy) else { return UNSUPPORTED };
            // SAFETY: the program's own call, as it made it.
            unsafe { real(handle) }
        })*
    };
}

destroy! {
    aclDestroyTensor DESTROY_TENSOR;
    aclDestroyTensorList DESTROY_TENSOR_LIST;
    aclDestroyScalar DESTROY_SCALAR;
    aclDestroyScalarList DESTROY_SCALAR_LIST;
    aclDestroyIntArray DESTROY_INT_ARRAY;
    aclDestroyFloatArray DESTROY_FLOAT_ARRAY;
    aclDestroyBoolArray DESTROY_BOOL_ARRAY;
}

type CreateList = unsafe extern "C" fn(*const *const c_void, u64) -> *mut c_void;

/// Removes handles that go into a list: the list owns them from now on.
///
/// # Safety
/// This many handles lie at `items`.
unsafe fn taken(items: *const *const c_void, count: u64) -> Vec<Option<Handle>> {
    if !is_followed() {
        return Vec::new();
    }
    // SAFETY: as the caller vouches.
    let items = unsafe { slice_at(items, count) };
    let take = |item: &*const c_void| part(item.addr()).as_mut()?.remove(&item.addr());
    items.iter().map(take).collect()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclCreateTensorList(items: *const *const c_void, count: u64) -> *mut c_void {
    let Some(real) = real!(CREATE_TENSOR_LIST as CreateList) else { return std::ptr::null_mut() };
    // SAFETY: CANN will read as many.
    let held = unsafe { taken(items, count) };
    // SAFETY: the program's own call, as it made it.
    let list = unsafe { real(items, count) };
    made(list, || {
        let tensor = |handle| match handle {
            Some(Handle::Tensor(tensor)) => Some(tensor),
            _ => None,
        };
        Handle::Tensors(held.into_iter().map(tensor).collect())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclCreateScalarList(items: *const *const c_void, count: u64) -> *mut c_void {
    let Some(real) = real!(CREATE_SCALAR_LIST as CreateList) else { return std::ptr::null_mut() };
    // SAFETY: CANN will read as many.
    let held = unsafe { taken(items, count) };
    // SAFETY: the program's own call, as it made it.
    let list = unsafe { real(items, count) };
    made(list, || {
        let scalar = |handle| match handle {
            Some(Handle::Scalar(scalar)) => Some(scalar),
            _ => None,
        };
        Handle::Scalars(held.into_iter().filter_map(scalar).collect())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclCreateScalar(value: *const c_void, dtype: i32) -> *mut c_void {
    type Create = unsafe extern "C" fn(*const c_void, i32) -> *mut c_void;
    let Some(real) = real!(CREATE_SCALAR as Create) else { return std::ptr::null_mut() };
    // SAFETY: the program's own call, as it made it.
    let handle = unsafe { real(value, dtype) };
    made(handle, || {
        let mut bytes = [0; 16];
        let size = acl_size(dtype).unwrap_or(0).min(16);
        // SAFETY: CANN has just read a value of this dtype there.
        let there = unsafe { slice_at(value.cast::<u8>(), size as u64) };
        bytes[..there.len()].copy_from_slice(there);
        Handle::Scalar(Scalar { dtype, bytes })
    })
}

/// Functions that create a list of plain values.
macro_rules! array {
    ($($name:ident $wrapper:ident $kind:ty, $make:expr;)*) => {
        $(#[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(values: *const $kind, count: u64) -> *mut c_void {
            type Create = unsafe extern "C" fn(*const $kind, u64) -> *mut c_void;
            let Some(real) = real!($wrapper as Create) else { return std::ptr::null_mut() };
            // SAFETY: the program's own call, as it made it.
            let handle = unsafe { real(values, count) };
            // SAFETY: CANN has just read as many.
            made(handle, || $make(unsafe { slice_at(values, count) }))
        })*
    };
}

array! {
    aclCreateIntArray CREATE_INT_ARRAY i64, |values: &[i64]| Handle::Integers(values.to_vec());
    aclCreateFloatArray CREATE_FLOAT_ARRAY f32, |values: &[f32]| Handle::Reals(values.to_vec());
    aclCreateBoolArray CREATE_BOOL_ARRAY u8, |bytes: &[u8]| Handle::Truths(bytes.iter().map(|&byte| byte != 0).collect());
}

/// Returns the bytes of an element by CANN's number of the dtype; `None` for dtypes of less than a byte and for
/// unknown ones.
pub(crate) const fn acl_size(dtype: i32) -> Option<usize> {
    Some(match dtype {
        2 | 4 | 12 | 34..=37 => 1,
        1 | 6 | 7 | 27 => 2,
        0 | 3 | 8 => 4,
        9 | 10 | 11 | 16 => 8,
        17 => 16,
        _ => return None,
    })
}

/// Returns true if CANN's functions exist at all, and so whether there is a device to record.
pub(crate) fn can_be_made() -> bool {
    CREATE_TENSOR.real().is_some()
}
