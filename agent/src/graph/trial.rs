//! Checks, before the program's first capture, that the device accepts copies to the host in a graph: if it refused
//! one in the middle of a capture, the program would lose the capture.

use std::ffi::{CStr, c_void};

use super::functions::{CAPTURE_BEGIN, CAPTURE_END, DESTROY, EXECUTE_ASYNC};
use crate::acl::{Status, real};
use crate::device::{Runtime, Stream};
use crate::symbols::{self, Address};

/// Number of copied bytes.
const BYTES: usize = 64;
/// CANN's number of the capture mode that restricts nobody.
const RELAXED: i32 = 2;

type Make = unsafe extern "C" fn(*mut *mut c_void) -> Status;
type Give = unsafe extern "C" fn(*mut c_void) -> Status;
type Allocate = unsafe extern "C" fn(*mut *mut c_void, usize, i32) -> Status;
type Set = unsafe extern "C" fn(*mut c_void, usize, i32, usize, u64) -> Status;
type Begin = unsafe extern "C" fn(*mut c_void, i32) -> Status;
type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> Status;
type Execute = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;

fn find(name: &CStr) -> Result<Address, String> {
    symbols::of_cann(name).ok_or_else(|| format!("CANN has no {}", name.to_string_lossy()))
}

/// Returns a CANN function, with the type given by its headers.
macro_rules! function {
    ($kind:ty, $name:literal) => {{
        let found = find($name)?;
        // SAFETY: the address of CANN's function of this name, whose signature is public.
        unsafe { std::mem::transmute::<Address, $kind>(found) }
    }};
}

/// Checks the status of a CANN call; `what` names it in the error.
fn ask(what: &str, status: Status) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("in the agent's own trial, {what} returns {status}")) }
}

/// Captures a copy to pinned memory at `target`, and replays it twice.
///
/// # Errors
/// Returns a message if CANN refuses, or does something else.
pub(super) fn run(runtime: &Runtime, target: usize) -> Result<(), String> {
    let (make_stream, give_stream) =
        (function!(Make, c"aclrtCreateStream"), function!(Give, c"aclrtDestroyStream"));
    let (allocate, give) = (function!(Allocate, c"aclrtMalloc"), function!(Give, c"aclrtFree"));
    let (mut stream, mut source) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: it writes a handle.
    ask("aclrtCreateStream", unsafe { make_stream(&raw mut stream) })?;
    // SAFETY: it writes an address.
    let mut found = ask("aclrtMalloc", unsafe { allocate(&raw mut source, BYTES, 0) });
    if found.is_ok() {
        found = replay(runtime, stream, source, target);
        // SAFETY: memory allocated here, with which the device is done: `replay` has waited for it.
        unsafe { give(source) };
    }
    // SAFETY: a stream created here.
    unsafe { give_stream(stream) };
    found
}

fn replay(runtime: &Runtime, stream: *mut c_void, source: *mut c_void, target: usize) -> Result<(), String> {
    let set = function!(Set, c"aclrtMemsetAsync");
    let finish = function!(Give, c"aclrtSynchronizeStream");
    let missing = |name: &str| format!("CANN has no {name}");
    let begin = real!(CAPTURE_BEGIN as Begin).ok_or_else(|| missing("aclmdlRICaptureBegin"))?;
    let end = real!(CAPTURE_END as End).ok_or_else(|| missing("aclmdlRICaptureEnd"))?;
    let execute = real!(EXECUTE_ASYNC as Execute).ok_or_else(|| missing("aclmdlRIExecuteAsync"))?;
    let destroy = real!(DESTROY as Give).ok_or_else(|| missing("aclmdlRIDestroy"))?;
    let number = Stream(stream.addr() as u64);
    // SAFETY: pinned memory of this many bytes, which nobody else uses yet.
    let content = || unsafe { (target as *const [u8; BYTES]).read_volatile() };
    // SAFETY: as above.
    unsafe { (target as *mut [u8; BYTES]).write_volatile([0; BYTES]) };
    // SAFETY: a stream that nothing else goes into.
    ask("aclmdlRICaptureBegin", unsafe { begin(stream, RELAXED) })?;
    // SAFETY: as above; the target stays.
    let copied =
        ask("aclrtMemcpyAsync", unsafe { runtime.copy(target as *mut u8, source.addr(), BYTES, number) });
    let mut graph = std::ptr::null_mut();
    // SAFETY: it writes a handle.
    let ended = ask("aclmdlRICaptureEnd", unsafe { end(stream, &raw mut graph) });
    copied.and(ended)?;
    let mut tried = Ok(());
    for byte in [0xa5_u8, 0x5a] {
        // SAFETY: device memory of this many bytes.
        let asked = ask("aclrtMemsetAsync", unsafe { set(source, BYTES, byte.into(), BYTES, number.0) })
            // SAFETY: the graph captured here, on its own stream.
            .and_then(|()| ask("aclmdlRIExecuteAsync", unsafe { execute(graph, stream) }))
            // SAFETY: as above.
            .and_then(|()| ask("aclrtSynchronizeStream", unsafe { finish(stream) }));
        let as_it_should = || {
            if content() == [byte; BYTES] {
                Ok(())
            } else {
                Err("in the agent's own trial, a copy in a graph does not return what the device holds"
                    .to_owned())
            }
        };
        tried = tried.and(asked.and_then(|()| as_it_should()));
    }
    // SAFETY: the graph captured here, which has run.
    ask("aclmdlRIDestroy", unsafe { destroy(graph) }).and(tried)
}
