//! Parts of the recorder: its questions to Python, and the exception that it saw last.

use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyModule};

/// Python functions that the recorder calls.
#[derive(Debug)]
pub(super) struct Questions {
    /// `torch._C._current_autograd_node`
    pub(super) autograd_node: Py<PyAny>,
    /// `torch._C._autograd._get_sequence_nr`
    pub(super) sequence: Py<PyAny>,
    /// `probe.private.checkpoints.region(frame)`: identity of a checkpointed region.
    pub(super) region: Py<PyAny>,
    /// `probe.recorder.naming.describe_op(func)`: facts about a dispatcher op, as [`OpInfo::new`] takes them.
    pub(super) describe_op: Py<PyAny>,
    /// `probe.recorder.collectives.wait(result)`: waits until a collective has written its results.
    pub(super) wait: Py<PyAny>,
    /// `(name, scope) -> bool`: true if the user's patterns let an op through. None if there are no patterns.
    pub(super) wants: Option<Py<PyAny>>,
    /// `(name, scope) -> bool`: true if the data of an op is written whatever the task. None if it never is.
    pub(super) stores: Option<Py<PyAny>>,
}

impl Questions {
    pub(super) fn of(hooks: &Hooks<'_, '_>) -> PyResult<Self> {
        Ok(Self {
            autograd_node: hooks.needed("autograd_node")?,
            sequence: hooks.needed("sequence")?,
            region: hooks.needed("region")?,
            describe_op: hooks.needed("describe_op")?,
            wait: hooks.needed("wait")?,
            wants: hooks.wanted("wants"),
            stores: hooks.wanted("stores"),
        })
    }
}

/// Functions and other objects that Python passes to the recorder, by name.
pub(super) struct Hooks<'a, 'py>(pub(super) &'a Bound<'py, PyDict>);

impl<'py> Hooks<'_, 'py> {
    pub(super) fn needed(&self, name: &str) -> PyResult<Py<PyAny>> {
        let hook = self.0.get_item(name)?.map(Bound::unbind);
        hook.ok_or_else(|| PyValueError::new_err(format!("no hook {name:?}")))
    }

    /// Returns a hook; `None` if it is missing or Python's None.
    pub(super) fn wanted(&self, name: &str) -> Option<Py<PyAny>> {
        self.0.get_item(name).ok().flatten().filter(|hook| !hook.is_none()).map(Bound::unbind)
    }

    /// Returns code objects, each with a flag.
    pub(super) fn codes(&self, name: &str) -> PyResult<Vec<(Py<PyAny>, bool)>> {
        Ok(self.0.get_item(name)?.map(|codes| codes.extract()).transpose()?.unwrap_or_default())
    }

    /// Returns the module of the tensors, if they are not torch's.
    pub(super) fn arrays(&self) -> PyResult<Option<Bound<'py, PyModule>>> {
        Ok(self.0.get_item("arrays")?.map(Bound::cast_into).transpose()?)
    }
}

/// An exception that ended a call.
#[derive(Debug)]
pub(super) struct Raised {
    /// Name of the innermost call that it ended.
    pub(super) op: String,
    /// Identity of the exception. It is not kept alive: it references frames, and those reference tensors.
    pub(super) error: usize,
    /// Type and first line.
    pub(super) text: String,
    /// Number of calls that had returned by then.
    pub(super) returned: u64,
}

/// Locks without a wait that holds Python's lock.
pub(super) fn lock<'a, T>(py: Python<'_>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    mutex.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner)
}
