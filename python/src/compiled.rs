//! Recognises autograd nodes that run compiled code, whose interior is not recorded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyType;

/// Name that `torch.compile` gives to the node of a compiled function.
const NODE: &str = "CompiledFunctionBackward";

/// Caches the classes of nodes. A node's name is a text that would be created again for every op.
#[derive(Debug, Default)]
pub(crate) struct CompiledNodes {
    /// Address of a class -> the class, to keep its address from being reused, and the answer.
    known: Mutex<HashMap<usize, (Py<PyType>, bool)>>,
}

impl CompiledNodes {
    /// Returns true if `node` runs compiled code.
    pub(crate) fn contain(&self, node: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = node.py();
        let class = node.get_type();
        let mut known = self.known.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        if let Some((_, compiled)) = known.get(&(class.as_ptr() as usize)) {
            return Ok(*compiled);
        }
        let compiled = class.name()?.to_string().starts_with(NODE);
        known.insert(class.as_ptr() as usize, (class.unbind(), compiled));
        Ok(compiled)
    }
}
