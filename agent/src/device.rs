//! The subset of CANN's runtime that recording needs: copies, events, pinned memory.

use std::ffi::{CStr, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::acl::Status;
use crate::symbols::{self, Address};

/// A stream of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stream(pub(crate) u64);

/// An event recorded in a stream.
#[derive(Debug)]
pub(crate) struct Event(usize);

/// The context of a thread, which identifies its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context(usize);

/// Flag for events that can be waited for.
const EVENT_SYNC: u32 = 1;
const DEVICE_TO_HOST: i32 = 2;

type Copy = unsafe extern "C" fn(*mut c_void, usize, *const c_void, usize, i32, u64) -> Status;
type MakeEvent = unsafe extern "C" fn(*mut usize, u32) -> Status;
type RecordEvent = unsafe extern "C" fn(usize, u64) -> Status;
type WaitEvent = unsafe extern "C" fn(usize) -> Status;
type MakePinned = unsafe extern "C" fn(*mut *mut c_void, usize) -> Status;
type GetContext = unsafe extern "C" fn(*mut usize) -> Status;
type SetContext = unsafe extern "C" fn(usize) -> Status;
type Finish = unsafe extern "C" fn() -> Status;
type GetDevice = unsafe extern "C" fn(*mut i32) -> Status;

/// Functions of the runtime.
#[derive(Debug)]
pub(crate) struct Runtime {
    copy: Copy,
    make_event: MakeEvent,
    record_event: RecordEvent,
    wait_event: WaitEvent,
    make_pinned: MakePinned,
    get_context: GetContext,
    set_context: SetContext,
    get_device: GetDevice,
    finish: Finish,
    events: Mutex<Vec<Event>>,
}

fn find(names: &[&CStr]) -> Result<Address, String> {
    let first = names.first().map_or("", |name| name.to_str().unwrap_or(""));
    names.iter().find_map(|name| symbols::of_cann(name)).ok_or_else(|| format!("CANN has no {first}"))
}

/// Returns a function of the runtime, with the type given by CANN's headers.
macro_rules! function {
    ($kind:ty, $($name:literal),+) => {{
        let found = find(&[$($name),+])?;
        // SAFETY: the address of CANN's function of this name, whose signature is public.
        unsafe { std::mem::transmute::<Address, $kind>(found) }
    }};
}

impl Runtime {
    /// Returns the runtime of this process, or the name of the missing function.
    pub(crate) fn get() -> Result<&'static Self, &'static str> {
        static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
        RUNTIME.get_or_init(Self::find).as_ref().map_err(String::as_str)
    }

    fn find() -> Result<Self, String> {
        Ok(Self {
            copy: function!(Copy, c"aclrtMemcpyAsync"),
            make_event: function!(MakeEvent, c"aclrtCreateEventExWithFlag", c"aclrtCreateEventWithFlag"),
            record_event: function!(RecordEvent, c"aclrtRecordEvent"),
            wait_event: function!(WaitEvent, c"aclrtSynchronizeEvent"),
            make_pinned: function!(MakePinned, c"aclrtMallocHost"),
            get_context: function!(GetContext, c"aclrtGetCurrentContext"),
            set_context: function!(SetContext, c"aclrtSetCurrentContext"),
            get_device: function!(GetDevice, c"aclrtGetDevice"),
            finish: function!(Finish, c"aclrtSynchronizeDevice"),
            events: Mutex::default(),
        })
    }

    /// Allocates memory that devices write to while the host goes on; never freed.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<*mut u8, Status> {
        let mut address = std::ptr::null_mut();
        // SAFETY: it writes an address.
        let status = unsafe { (self.make_pinned)(&raw mut address, bytes) };
        if status == 0 && !address.is_null() { Ok(address.cast()) } else { Err(status) }
    }

    /// Copies from the device once the stream reaches this point.
    ///
    /// # Safety
    /// `bytes` may be written to `target` until the stream has reached that point.
    pub(crate) unsafe fn copy(&self, target: *mut u8, source: usize, bytes: usize, stream: Stream) -> Status {
        // SAFETY: as the caller vouches; CANN checks the source.
        unsafe { (self.copy)(target.cast(), bytes, source as *const c_void, bytes, DEVICE_TO_HOST, stream.0) }
    }

    /// Records an event in a stream.
    pub(crate) fn mark(&self, stream: Stream) -> Result<Event, Status> {
        let kept = self.events.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let event = if let Some(event) = kept {
            event
        } else {
            let mut event = 0;
            // SAFETY: it writes a handle.
            match unsafe { (self.make_event)(&raw mut event, EVENT_SYNC) } {
                0 => Event(event),
                status => return Err(status),
            }
        };
        // SAFETY: an event of this runtime, and the program's own stream.
        match unsafe { (self.record_event)(event.0, stream.0) } {
            0 => Ok(event),
            status => Err(status),
        }
    }

    /// Waits until a stream has reached the event, which is then reused.
    pub(crate) fn wait(&self, event: Event) -> Status {
        // SAFETY: an event of this runtime.
        let status = unsafe { (self.wait_event)(event.0) };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        status
    }

    /// Waits until the device of this thread has finished all work.
    pub(crate) fn finish(&self) -> Status {
        // SAFETY: no preconditions.
        unsafe { (self.finish)() }
    }

    /// Returns the context of this thread.
    pub(crate) fn context(&self) -> Context {
        let mut context = 0;
        // SAFETY: it writes a handle; a thread without one leaves 0.
        unsafe { (self.get_context)(&raw mut context) };
        Context(context)
    }

    /// Makes this thread work for another thread's device from now on.
    pub(crate) fn enter(&self, context: Context) {
        if context.0 != 0 {
            // SAFETY: a context of this runtime.
            unsafe { (self.set_context)(context.0) };
        }
    }

    /// Returns the device number of this thread.
    pub(crate) fn device(&self) -> i32 {
        let mut device = 0;
        // SAFETY: it writes a number.
        unsafe { (self.get_device)(&raw mut device) };
        device
    }
}

/// Returns CANN's name of the hardware; empty if it does not tell.
pub(crate) fn name() -> String {
    type Name = unsafe extern "C" fn() -> *const std::ffi::c_char;
    let Some(found) = symbols::of_cann(c"aclrtGetSocName") else { return String::new() };
    // SAFETY: the address of CANN's function of this name, whose signature is public.
    let name = unsafe { std::mem::transmute::<Address, Name>(found)() };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a text that CANN keeps.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Returns the name for messages.
pub(crate) fn named() -> String {
    match name() {
        name if name.is_empty() => "a device without a name".to_owned(),
        name => name,
    }
}

/// Returns the number of devices visible to this process.
pub(crate) fn count() -> u32 {
    type Count = unsafe extern "C" fn(*mut u32) -> Status;
    let Some(found) = symbols::of_cann(c"aclrtGetDeviceCount") else { return 0 };
    let mut count = 0;
    // SAFETY: the address of CANN's function of this name, whose signature is public; it writes a number.
    unsafe { std::mem::transmute::<Address, Count>(found)(&raw mut count) };
    count
}

// Events and contexts are plain numbers to this library; CANN lets any thread use them.
