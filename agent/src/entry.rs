//! Entry of intercepted calls: stubs, and the table of the functions behind them.
//!
//! The stubs are part of the library's code, so none is ever written: memory is never writable and executable at
//! once, and kernels that forbid run-time code generation have nothing to forbid. [`instead`] hands out a stub when
//! the program looks up a function; there are [`STUBS`], and lookups beyond that get the function itself, which is
//! counted.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::notes::Count;
use crate::roles::{self, Roles};
use crate::symbols::{self, Address};
use crate::{notes, wrappers};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::INTEGERS;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::INTEGERS;

/// Most functions that can be intercepted: two for each operator. CANN 8.3 has about 1,000 operators, of which
/// `torch_npu` looks up 903.
pub(crate) const STUBS: usize = 4096;
/// Size of a stub in bytes.
const STUB: usize = 16;

/// Nonzero if calls are observed: sends them through [`before`](crate::call::before).
pub(crate) static WATCHING: AtomicU8 = AtomicU8::new(0);

/// Target of a stub. The assembly code reads the first word, and depends on the size.
#[repr(C, align(32))]
#[derive(Debug)]
pub(crate) struct Slot {
    real: AtomicPtr<c_void>,
    function: AtomicPtr<Function>,
}

/// A CANN function that a stub represents.
#[derive(Debug)]
pub(crate) struct Function {
    /// Name of the operator, without `aclnn`.
    pub(crate) operator: Box<str>,
    /// True if this is the first of the operator's two functions, which receives the arguments.
    pub(crate) plans: bool,
    /// Roles of its parameters, if known.
    pub(crate) roles: Option<&'static Roles>,
    /// Number of its argument words without the last two, as seen in the last call; `usize::MAX` before.
    pub(crate) words: AtomicUsize,
    /// True if a call was seen whose arguments match the table, which confirms the signature.
    pub(crate) fits: AtomicBool,
    /// Launches that were checked for changes to parameters that are only read.
    pub(crate) checked: AtomicU8,
    /// True if a parameter changed that the table lists as only read.
    pub(crate) distrusted: AtomicBool,
}

impl Slot {
    const fn empty() -> Self {
        Self { real: AtomicPtr::new(std::ptr::null_mut()), function: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the function of this stub; `None` before it was handed out.
    pub(crate) fn function(&self) -> Option<&'static Function> {
        let function = self.function.load(Ordering::Acquire);
        // SAFETY: set once, to a box that is never freed.
        unsafe { function.as_ref() }
    }
}

/// The table, in the order of the stubs.
pub(crate) struct Slots(UnsafeCell<[Slot; STUBS]>);

// SAFETY: its cells are atomics; the cell around them only keeps the table in writable memory.
unsafe impl Sync for Slots {}

pub(crate) static SLOTS: Slots = Slots(UnsafeCell::new([const { Slot::empty() }; STUBS]));

impl Slots {
    fn get(&self, index: usize) -> Option<&Slot> {
        // SAFETY: nothing creates a unique reference to the table.
        unsafe { &*self.0.get() }.get(index)
    }
}

/// Stubs handed out, by their function: two names may share one function.
static GIVEN: Mutex<Option<Given>> = Mutex::new(None);

/// Number of the stub, by name and address of a function.
type Given = HashMap<(Box<str>, usize), usize>;

unsafe extern "C" {
    /// The first stub. Must not be called from here.
    safe static probe_agent_stubs: u8;
}

/// Returns the address of the stub with this number.
fn stub(index: usize) -> Address {
    (&raw const probe_agent_stubs).wrapping_add(index * STUB).cast_mut().cast()
}

/// Returns true if an address is that of a stub.
pub(crate) fn is_stub(address: Address) -> bool {
    (stub(0)..stub(STUBS)).contains(&address)
}

/// Returns the operators for which a stub was handed out.
pub(crate) fn operators() -> Vec<&'static Function> {
    let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = given.as_ref().map_or(0, HashMap::len);
    (0..count).filter_map(|index| SLOTS.get(index)?.function()).filter(|function| function.plans).collect()
}

/// Returns the stub for a function of an operator; the function itself if none is left.
pub(crate) fn stand_in_front(name: &str, real: Address) -> Address {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    if let Some(&index) = given.get(&(Box::from(name), real.addr())) {
        return stub(index);
    }
    let index = given.len();
    let Some(slot) = SLOTS.get(index) else {
        notes::count(Count::WithoutStub, name);
        return real;
    };
    let short = name.strip_prefix("aclnn").unwrap_or(name);
    let (operator, plans) =
        short.strip_suffix("GetWorkspaceSize").map_or((short, false), |operator| (operator, true));
    let function = Function {
        operator: operator.into(),
        plans,
        roles: roles::of(operator),
        words: AtomicUsize::new(usize::MAX),
        fits: AtomicBool::new(false),
        checked: AtomicU8::new(0),
        distrusted: AtomicBool::new(false),
    };
    slot.function.store(Box::into_raw(Box::new(function)), Ordering::Release);
    slot.real.store(real, Ordering::Release);
    given.insert((name.into(), real.addr()), index);
    stub(index)
}

/// Returns our answer to `dlsym`; null if the real one should answer.
pub(crate) extern "C" fn instead(handle: Address, name: *const c_char) -> Address {
    let find = |handle, name: &CStr| symbols::lookup(handle, name);
    notes::guarded("dlsym", || replacement(handle, name, find)).unwrap_or(std::ptr::null_mut())
}

/// The same for `dlvsym`.
pub(crate) extern "C" fn instead_of_version(
    handle: Address,
    name: *const c_char,
    version: *const c_char,
) -> Address {
    // SAFETY: a requested version is a zero-terminated text.
    let find = |handle, name: &CStr| unsafe { symbols::lookup_version(handle, name, version) };
    notes::guarded("dlvsym", || replacement(handle, name, find)).unwrap_or(std::ptr::null_mut())
}

fn replacement(
    handle: Address,
    name: *const c_char,
    find: impl Fn(Address, &CStr) -> Option<Address>,
) -> Address {
    let nothing = std::ptr::null_mut();
    symbols::find_real();
    if name.is_null() || handle == libc::RTLD_NEXT {
        // "The next one" depends on the caller, which only the real function can determine.
        return nothing;
    }
    // SAFETY: a looked-up name is a zero-terminated text.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    if ![b"acl".as_slice(), b"PTA", b"Can"].iter().any(|start| bytes.starts_with(start)) {
        return nothing;
    }
    let Ok(text) = name.to_str() else { return nothing };
    if let Some(wrapper) = wrappers::of(text) {
        return match find(handle, name) {
            // Our own function, which the program sees among the libraries that were loaded first.
            Some(real) if real == wrapper.ours => wrapper.if_there(),
            Some(real) => wrapper.in_front_of(real),
            None => nothing,
        };
    }
    if !text.starts_with("aclnn") {
        return nothing;
    }
    match find(handle, name) {
        Some(real) if is_stub(real) => real,
        Some(real) => stand_in_front(text, real),
        None => nothing,
    }
}

/// Finds functions by name like the C library's own `dlsym`, except for intercepted ones.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn dlsym() {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("endbr64", "jmp probe_agent_dlsym");
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("hint #34", "b probe_agent_dlsym");
}

/// Like [`dlsym`], for a given version.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn dlvsym() {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("endbr64", "jmp probe_agent_dlvsym");
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("hint #34", "b probe_agent_dlvsym");
}
