//! CANN's functions that capture, replay and release graphs, as far as this library intercepts them.

use std::ffi::c_void;

use super::captures::{self, group, update};
use super::{begin_replay, forget, keep};
use crate::acl::{Status, UNSUPPORTED, real, wrappers};
use crate::device::Stream;
use crate::notes;

wrappers! {
    CAPTURE_BEGIN aclmdlRICaptureBegin;
    CAPTURE_END aclmdlRICaptureEnd;
    EXECUTE_ASYNC aclmdlRIExecuteAsync;
    EXECUTE aclmdlRIExecute;
    DESTROY aclmdlRIDestroy;
    GROUP_BEGIN aclmdlRICaptureTaskGrpBegin;
    GROUP_END aclmdlRICaptureTaskGrpEnd;
    UPDATE_BEGIN aclmdlRICaptureTaskUpdateBegin;
    UPDATE_END aclmdlRICaptureTaskUpdateEnd;
}

fn stream(handle: *mut c_void) -> Stream {
    Stream(handle.addr() as u64)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRICaptureBegin(origin: *mut c_void, mode: i32) -> Status {
    type Begin = unsafe extern "C" fn(*mut c_void, i32) -> Status;
    let Some(real) = real!(CAPTURE_BEGIN as Begin) else { return UNSUPPORTED };
    let recorded = captures::announce();
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(origin, mode) };
    notes::guarded("aclmdlRICaptureBegin", || captures::begun(stream(origin), status == 0, recorded));
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRICaptureEnd(origin: *mut c_void, graph: *mut *mut c_void) -> Status {
    type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> Status;
    let Some(real) = real!(CAPTURE_END as End) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(origin, graph) };
    notes::guarded("aclmdlRICaptureEnd", || {
        let made = (status == 0 && !graph.is_null()).then(|| {
            // SAFETY: CANN has just written a handle there.
            unsafe { graph.read() }.addr()
        });
        // The capture is over even if it failed.
        let captured = captures::ended(stream(origin), made.is_some());
        if let (Some(handle), Some(captured)) = (made, captured) {
            keep(handle, captured);
        }
    });
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRIExecuteAsync(graph: *mut c_void, on: *mut c_void) -> Status {
    type Execute = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;
    let Some(real) = real!(EXECUTE_ASYNC as Execute) else { return UNSUPPORTED };
    let running = notes::guarded("a replay", || begin_replay(graph.addr(), Some(stream(on)))).flatten();
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(graph, on) };
    if let Some(running) = running.filter(|_| status == 0) {
        notes::guarded("a replay", || running.end(Some(stream(on))));
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRIExecute(graph: *mut c_void, timeout: i32) -> Status {
    type Execute = unsafe extern "C" fn(*mut c_void, i32) -> Status;
    let Some(real) = real!(EXECUTE as Execute) else { return UNSUPPORTED };
    let running = notes::guarded("a replay", || begin_replay(graph.addr(), None)).flatten();
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(graph, timeout) };
    if let Some(running) = running.filter(|_| status == 0) {
        notes::guarded("a replay", || running.end(None));
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRIDestroy(graph: *mut c_void) -> Status {
    type Destroy = unsafe extern "C" fn(*mut c_void) -> Status;
    let Some(real) = real!(DESTROY as Destroy) else { return UNSUPPORTED };
    // Must precede CANN's reuse of the handle.
    notes::guarded("aclmdlRIDestroy", || forget(graph.addr()));
    // SAFETY: the program's own call, as it made it.
    unsafe { real(graph) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRICaptureTaskGrpBegin(on: *mut c_void) -> Status {
    type Begin = unsafe extern "C" fn(*mut c_void) -> Status;
    let Some(real) = real!(GROUP_BEGIN as Begin) else { return UNSUPPORTED };
    notes::guarded("aclmdlRICaptureTaskGrpBegin", || group(stream(on), true));
    // SAFETY: the program's own call, as it made it.
    unsafe { real(on) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRICaptureTaskGrpEnd(
    on: *mut c_void,
    handle: *mut *mut c_void,
) -> Status {
    type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> Status;
    let Some(real) = real!(GROUP_END as End) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(on, handle) };
    notes::guarded("aclmdlRICaptureTaskGrpEnd", || group(stream(on), false));
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRICaptureTaskUpdateBegin(
    on: *mut c_void,
    handle: *mut c_void,
) -> Status {
    type Begin = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;
    let Some(real) = real!(UPDATE_BEGIN as Begin) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(on, handle) };
    notes::guarded("aclmdlRICaptureTaskUpdateBegin", || update(stream(on), status == 0));
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn aclmdlRICaptureTaskUpdateEnd(on: *mut c_void) -> Status {
    type End = unsafe extern "C" fn(*mut c_void) -> Status;
    let Some(real) = real!(UPDATE_END as End) else { return UNSUPPORTED };
    // SAFETY: the program's own call, as it made it.
    let status = unsafe { real(on) };
    notes::guarded("aclmdlRICaptureTaskUpdateEnd", || update(stream(on), false));
    status
}
