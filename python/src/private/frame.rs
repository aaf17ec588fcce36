//! Frames of the interpreter. Programs are dozens of frames deep, and every op walks them all: reading attributes
//! took longer than everything else in naming an op.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

use super::symbols::Library;

type Back = unsafe extern "C" fn(*mut ffi::PyFrameObject) -> *mut ffi::PyFrameObject;
type LastInstruction = unsafe extern "C" fn(*mut ffi::PyFrameObject) -> c_int;

/// Reads frames.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Public functions of `CPython` that are not part of its stable interface: `PyFrame_GetBack` (3.9) and
    /// `PyFrame_GetLasti` (3.11). None if the interpreter lacks them or quick ways are disabled; then the attributes
    /// are read.
    functions: Option<(Back, LastInstruction)>,
}

impl Frames {
    /// With `quick`, looks the functions up.
    pub(crate) fn new(quick: bool) -> Self {
        if !quick {
            return Self { functions: None };
        }
        let interpreter = Library::global();
        #[expect(unsafe_code, reason = "functions that are found by name")]
        // SAFETY: the signature in the documentation of CPython, unchanged since the function was introduced.
        let back = unsafe { interpreter.function(c"PyFrame_GetBack") };
        #[expect(unsafe_code, reason = "functions that are found by name")]
        // SAFETY: as above.
        let last = unsafe { interpreter.function(c"PyFrame_GetLasti") };
        let functions: Option<(Back, LastInstruction)> = back.zip(last);
        Self { functions }
    }

    /// Returns true if frames are read the quick way.
    pub(crate) const fn is_quick(&self) -> bool {
        self.functions.is_some()
    }

    /// Returns the frame of the calling Python function.
    pub(crate) fn current(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
        #[expect(unsafe_code, reason = "no safe binding")]
        // SAFETY: `py` proves that the interpreter is held.
        let frame = unsafe { ffi::PyEval_GetFrame() };
        #[expect(unsafe_code, reason = "no safe binding")]
        // SAFETY: a borrowed reference, or null where no Python code runs.
        unsafe {
            Bound::from_borrowed_ptr_or_opt(py, frame.cast())
        }
    }

    /// Returns the frame that called `frame`.
    pub(crate) fn back<'py>(&self, frame: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = frame.py();
        let Some((back, _)) = self.functions else {
            let back = frame.getattr(intern!(py, "f_back"))?;
            return Ok((!back.is_none()).then_some(back));
        };
        #[expect(unsafe_code, reason = "no safe binding")]
        // SAFETY: `frame` is a frame, and `Bound` proves that the interpreter is held.
        let back = unsafe { back(frame.as_ptr().cast()) };
        #[expect(unsafe_code, reason = "no safe binding")]
        // SAFETY: a new reference, or null for the outermost frame.
        Ok(unsafe { Bound::from_owned_ptr_or_opt(py, back.cast()) })
    }

    /// Returns the code that `frame` runs.
    pub(crate) fn code<'py>(frame: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        #[expect(unsafe_code, reason = "no safe binding")]
        // SAFETY: `frame` is a frame, and `Bound` proves that the interpreter is held.
        let code = unsafe { ffi::PyFrame_GetCode(frame.as_ptr().cast()) };
        #[expect(unsafe_code, reason = "no safe binding")]
        // SAFETY: a new reference.
        unsafe {
            Bound::from_owned_ptr_or_err(frame.py(), code.cast())
        }
    }

    /// Returns the position of `frame` in its code.
    pub(crate) fn last_instruction(&self, frame: &Bound<'_, PyAny>) -> PyResult<i64> {
        let Some((_, last)) = self.functions else {
            return frame.getattr(intern!(frame.py(), "f_lasti"))?.extract();
        };
        #[expect(unsafe_code, reason = "no safe binding")]
        // SAFETY: `frame` is a frame, and `Bound` proves that the interpreter is held.
        Ok(unsafe { last(frame.as_ptr().cast()) }.into())
    }
}
