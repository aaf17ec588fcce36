//! Stubs that stand in front of functions of CANN, and the table of these functions.
//!
//! The stubs are part of the library's code, so none is ever written: memory is never writable and executable at
//! once, and kernels that forbid run-time code generation have nothing to forbid. [`stand_in_front`] hands out a stub
//! for a function; there are [`STUBS`], and functions beyond that are not replaced, which is counted.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::notes::{self, Count};
use crate::roles::{self, Roles};
use crate::symbols::Address;

/// Most functions that can be intercepted: two for each operator. CANN 8.3 has about 1,000 operators, of which
/// `torch_npu` looks up 903.
pub(crate) const STUBS: usize = 4096;
/// Size of a stub in bytes.
const STUB: usize = 16;

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
