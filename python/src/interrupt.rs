//! Exceptions meant for the program that arrive while the recorder calls Python: Ctrl-C, `sys.exit` in a signal
//! handler. They are not failures of that call, and the program receives them as soon as the recorder returns.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;

thread_local! {
    /// The last exception that arrived while this thread was in the recorder.
    static CAME: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Calls `question`, which may run twice, again if an exception meant for the program interrupted it.
pub(crate) fn asked<T>(py: Python<'_>, question: impl Fn() -> PyResult<T>) -> PyResult<T> {
    match question() {
        Err(error) if kept(py, &error) => question(),
        answer => answer,
    }
}

/// Keeps an exception for the program if it is meant for it.
pub(crate) fn kept(py: Python<'_>, error: &PyErr) -> bool {
    let is_meant = !error.is_instance_of::<PyException>(py) && is_main_thread(py).unwrap_or(false);
    if is_meant {
        CAME.set(Some(error.clone_ref(py)));
    }
    is_meant
}

/// Makes the interpreter raise the kept exception as it would have been: before the next instruction of the program.
#[expect(unsafe_code, reason = "the interpreter's own queue")]
pub(crate) fn hand_over() {
    let Some(error) = CAME.take() else { return };
    let error = Box::into_raw(Box::new(error));
    // SAFETY: the interpreter calls `raise` with this pointer, once.
    if unsafe { pyo3::ffi::Py_AddPendingCall(Some(raise), error.cast()) } != 0 {
        // Its queue is full: try later.
        // SAFETY: it is the box from above, which the interpreter has not taken.
        CAME.set(Some(*unsafe { Box::from_raw(error) }));
    }
}

/// Raises the exception behind `error`, a `Box<PyErr>` that is consumed.
#[expect(unsafe_code, reason = "called by the interpreter")]
extern "C" fn raise(error: *mut c_void) -> c_int {
    // SAFETY: [`hand_over`] created the pointer from a box, and the interpreter calls this once.
    let error: Box<PyErr> = unsafe { Box::from_raw(error.cast()) };
    Python::attach(|py| error.restore(py));
    -1
}

/// Signal exceptions reach only the main thread; those that reach other threads are not raised in this one.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let [main, current] = [intern!(py, "main_thread"), intern!(py, "current_thread")];
    Ok(threading.call_method0(main)?.is(&threading.call_method0(current)?))
}
