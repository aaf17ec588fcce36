//! Graphs (`torch.npu.NPUGraph`, aclgraph): what is launched while one is captured does not run then, but with every replay.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::acl::{Status, UNSUPPORTED, real};
use crate::control;
use crate::device::Stream;
use crate::notes::{self, Count};
use crate::symbols::{self, Address};

/// Captures that are under way.
static CAPTURES: AtomicI64 = AtomicI64::new(0);

/// Whether what is put into this stream becomes part of a graph.
pub(crate) fn is_capturing(stream: Stream) -> bool {
    type Info = unsafe extern "C" fn(u64, *mut i32, *mut *mut c_void) -> Status;
    /// CANN's number for a capture that goes on.
    const ACTIVE: i32 = 1;

    if CAPTURES.load(Ordering::Acquire) <= 0 {
        return false;
    }
    let Some(found) = symbols::of_cann(c"aclmdlRICaptureGetInfo") else { return true };
    let (mut status, mut graph) = (0, std::ptr::null_mut());
    // SAFETY: the address of CANN's function of this name, whose signature is public; it writes a number and a handle.
    let told =
        unsafe { std::mem::transmute::<Address, Info>(found)(stream.0, &raw mut status, &raw mut graph) };
    told != 0 || status == ACTIVE
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRICaptureBegin(stream: *mut c_void, mode: i32) -> Status {
    type Begin = unsafe extern "C" fn(*mut c_void, i32) -> Status;
    let Some(real) = real!(CAPTURE_BEGIN as Begin) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(stream, mode) };
    if status == 0 {
        CAPTURES.fetch_add(1, Ordering::AcqRel);
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRICaptureEnd(stream: *mut c_void, graph: *mut *mut c_void) -> Status {
    type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> Status;
    let Some(real) = real!(CAPTURE_END as End) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(stream, graph) };
    // It is over also where it failed.
    _ = CAPTURES.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count > 0).then_some(count - 1));
    status
}

/// Says that a graph runs whose operators are not seen.
fn replayed() {
    if control::is_recording() {
        notes::count(Count::Replayed, "a graph ran in a step that is being recorded");
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRIExecuteAsync(graph: *mut c_void, stream: *mut c_void) -> Status {
    type Execute = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;
    replayed();
    let Some(real) = real!(EXECUTE_ASYNC as Execute) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    unsafe { real(graph, stream) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRIExecute(graph: *mut c_void, timeout: i32) -> Status {
    type Execute = unsafe extern "C" fn(*mut c_void, i32) -> Status;
    replayed();
    let Some(real) = real!(EXECUTE as Execute) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    unsafe { real(graph, timeout) }
}
