//! Exceptions that are meant for the program and come while the recorder asks Python something: Ctrl-C, `sys.exit` in a handler of a
//! signal. They are no fault of what was asked, and the program gets them as soon as the recorder is left.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;

thread_local! {
    /// What came while this thread was in the recorder, the last of them.
    static CAME: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The answer to a question that may be asked twice: it is, where an exception that is meant for the program came in between.
pub(crate) fn asked<T>(py: Python<'_>, question: impl Fn() -> PyResult<T>) -> PyResult<T> {
    match question() {
        Err(error) if kept(py, &error) => question(),
        answer => answer,
    }
}

/// Keeps an exception that ends here for the program, if it is meant for that.
pub(crate) fn kept(py: Python<'_>, error: &PyErr) -> bool {
    let is_meant = !error.is_instance_of::<PyException>(py) && is_main_thread(py).unwrap_or(false);
    if is_meant {
        CAME.set(Some(error.clone_ref(py)));
    }
    is_meant
}

/// Has the interpreter raise what was kept, as it would have been: before the next instruction of the program.
#[expect(unsafe_code, reason = "the interpreter's own queue")]
pub(crate) fn hand_over() {
    let Some(error) = CAME.take() else { return };
    let error = Box::into_raw(Box::new(error));
    // SAFETY: the interpreter calls `raise` with what it is given here, once.
    if unsafe { pyo3::ffi::Py_AddPendingCall(Some(raise), error.cast()) } != 0 {
        // Its queue is full: later.
        // SAFETY: it is the box from above, which the interpreter has not taken.
        CAME.set(Some(*unsafe { Box::from_raw(error) }));
    }
}

/// Raises the exception behind `error`, a `Box<PyErr>` that is given up.
#[expect(unsafe_code, reason = "called by the interpreter")]
extern "C" fn raise(error: *mut c_void) -> c_int {
    // SAFETY: [`hand_over`] made it of a box, and the interpreter comes once.
    let error: Box<PyErr> = unsafe { Box::from_raw(error.cast()) };
    Python::attach(|py| error.restore(py));
    -1
}

/// Exceptions of signals come to no other thread, and those that come to others are not raised in this one.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let [main, current] = [intern!(py, "main_thread"), intern!(py, "current_thread")];
    Ok(threading.call_method0(main)?.is(&threading.call_method0(current)?))
}
