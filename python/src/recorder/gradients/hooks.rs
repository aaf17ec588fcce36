//! Objects that torch calls during a backward pass. None of them returns anything, so the pass is not changed.

use std::sync::Arc;

use probe::dump::SlotSide;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::Gradients;
use super::tap::{Arrived, Tap, parameter_slot};

/// Sees the gradients that are about to flow into a node.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(super) struct OutputHook {
    owner: Py<Gradients>,
    tap: Arc<Tap>,
    /// Number of each wanted gradient among the node's, and its path.
    outputs: Vec<(usize, String)>,
}

impl OutputHook {
    pub(super) fn new(owner: &Bound<'_, Gradients>, tap: &Arc<Tap>, outputs: Vec<(usize, String)>) -> Self {
        Self { owner: owner.clone().unbind(), tap: Arc::clone(tap), outputs }
    }
}

#[pymethods]
impl OutputHook {
    fn __call__(&self, gradients: &Bound<'_, PyTuple>) {
        let owner = self.owner.bind(gradients.py());
        watched(owner, || {
            let value = |(number, path): &(usize, String)| {
                Ok((format!("input.{path}"), gradients.get_item(*number)?))
            };
            let values: Vec<Arrived<'_>> = self.outputs.iter().map(value).collect::<PyResult<_>>()?;
            self.tap.arrived(owner, SlotSide::Input, values)
        });
    }
}

/// Sees the gradients that a node has computed.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(super) struct InputHook {
    owner: Py<Gradients>,
    tap: Arc<Tap>,
    /// Number of each wanted gradient among the computed ones, and its path.
    found: Vec<(usize, String)>,
}

impl InputHook {
    pub(super) fn new(owner: &Bound<'_, Gradients>, tap: &Arc<Tap>, found: Vec<(usize, String)>) -> Self {
        Self { owner: owner.clone().unbind(), tap: Arc::clone(tap), found }
    }
}

#[pymethods]
impl InputHook {
    fn __call__(&self, computed: &Bound<'_, PyTuple>, _given: &Bound<'_, PyAny>) {
        let owner = self.owner.bind(computed.py());
        watched(owner, || {
            let mut values: Vec<Arrived<'_>> = Vec::with_capacity(self.found.len());
            for (index, path) in &self.found {
                values.extend(self.tap.part(owner.get(), path, computed.get_item(*index)?)?);
            }
            if values.is_empty() {
                return Ok(());
            }
            self.tap.arrived(owner, SlotSide::Output, values)
        });
    }
}

/// Runs when a gradient has been added to a parameter. Copies of the parameter carry an inert hook.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(crate) struct ParameterHook {
    watch: Option<(Py<Gradients>, Arc<Tap>)>,
    name: String,
}

impl ParameterHook {
    pub(super) fn of(owner: &Bound<'_, Gradients>, tap: &Arc<Tap>, name: String) -> Self {
        Self { watch: Some((owner.clone().unbind(), Arc::clone(tap))), name }
    }
}

#[pymethods]
impl ParameterHook {
    /// An inert one.
    #[new]
    const fn new(name: String) -> Self {
        Self { watch: None, name }
    }

    fn __call__(&self, parameter: &Bound<'_, PyAny>) {
        let Some((owner, tap)) = &self.watch else { return };
        let (py, owner) = (parameter.py(), owner.bind(parameter.py()));
        watched(owner, || {
            let gradient = parameter.getattr(intern!(py, "grad"))?;
            tap.arrived(owner, SlotSide::Gradient, vec![(parameter_slot(&self.name), gradient)])
        });
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&str,)) {
        (PyType::new::<Self>(py), (&self.name,))
    }
}

/// Files the gradients of calls for which no more come.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(super) struct EndOfPass {
    owner: Py<Gradients>,
    pass: i64,
}

impl EndOfPass {
    pub(super) fn new(owner: &Bound<'_, Gradients>, pass: i64) -> Self {
        Self { owner: owner.clone().unbind(), pass }
    }
}

#[pymethods]
impl EndOfPass {
    fn __call__(&self, py: Python<'_>) {
        self.owner.get().end_of_pass(py, self.pass);
    }
}

/// Runs the body of a hook. The modes of the program and of the recorder see nothing of it.
fn watched(owner: &Bound<'_, Gradients>, body: impl FnOnce() -> PyResult<()>) {
    let (gradients, py) = (owner.get(), owner.py());
    gradients.watched(
        py,
        || "gradient".into(),
        || {
            let _guard = gradients.graph.without_functions(py)?;
            body()
        },
    );
}
