//! Backward values: the gradients of a call's own inputs and outputs, and those of parameters.
//!
//! The gradient of an output is seen before the node that created the output runs. The gradient of an input is the
//! call's own contribution to it, taken from the nodes *inside* the call whose edges leave it. So a tensor read by
//! several calls has a gradient for each of them, and the graph is not changed: hooks only observe.

mod graph;
mod hooks;
mod tap;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::state::Hooks;
use super::{Recorder, lock};
use crate::call::Call;
use crate::interrupt;
use crate::measure::short;
use graph::{Edges, Graph, Wanted, each_tensor, gradient_node, wants_gradient};
use hooks::{EndOfPass, InputHook, OutputHook};
use tap::{Subject, Tap};

pub(crate) use hooks::ParameterHook;

/// Gradients that have arrived in part, in the order in which their first one came.
type Started = BTreeMap<u64, Arc<Tap>>;

/// Watches the backward passes of recorded calls.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(crate) struct Gradients {
    core: Py<Recorder>,
    graph: Graph,
    /// Backward pass -> what has begun to arrive in it.
    started: Mutex<HashMap<i64, Started>>,
    /// Number of the next that begins to arrive.
    next: AtomicU64,
}

#[pymethods]
impl Gradients {
    /// `functions` are those that [`Graph`] names.
    #[new]
    fn new(core: Py<Recorder>, functions: &Bound<'_, PyDict>) -> PyResult<Self> {
        let graph = Graph::of(&Hooks(functions))?;
        Ok(Self { core, graph, started: Mutex::default(), next: AtomicU64::new(0) })
    }

    /// Notes where the inputs of a call come from. None if nothing can flow back through it.
    ///
    /// A module may contain parameters, so gradients flow into it even if none leave it.
    #[pyo3(signature = (call, args, kwargs, module=false))]
    fn before(
        &self,
        call: &Bound<'_, Call>,
        args: &Bound<'_, PyAny>,
        kwargs: &Bound<'_, PyDict>,
        module: bool,
    ) -> Option<Edges> {
        let py = call.py();
        let name = call.try_borrow().ok()?.record.name.clone();
        self.watched(py, || format!("gradients of {name}"), || self.edges(&name, args, kwargs, module))?
    }

    /// Watches the gradients that flow into a call's outputs and out of its inputs.
    fn after(
        slf: &Bound<'_, Self>,
        call: &Bound<'_, Call>,
        edges: &Bound<'_, Edges>,
        result: &Bound<'_, PyAny>,
    ) {
        let Ok(call) = call.try_borrow() else { return };
        let watch = || Self::watch(slf, &call, edges.get(), result);
        slf.get().watched(slf.py(), || format!("gradients of {}", call.record.name), watch);
    }

    /// Files the gradients of calls that will not receive all of theirs; with `cut`, because the program has ended.
    #[pyo3(signature = (cut=false))]
    fn flush(&self, py: Python<'_>, cut: bool) {
        let started = std::mem::take(&mut *lock(py, &self.started));
        let mut passes: Vec<Started> = started.into_values().collect();
        passes.sort_unstable_by_key(|taps| taps.keys().next().copied());
        self.finish(py, passes.into_iter().flat_map(Started::into_values), cut);
    }

    /// Returns a hook for each of a module's own parameters, to be called when its gradient has been added to it. They
    /// are recorded each time all of them have arrived, as gradients of `stem`.
    fn parameters(slf: &Bound<'_, Self>, stem: &str, names: Vec<String>) -> Vec<ParameterHook> {
        let tap = Arc::new(Tap::new(Subject::of_parameters(stem, &names)));
        let hook = |name| ParameterHook::of(slf, &tap, name);
        names.into_iter().map(hook).collect()
    }
}

impl Gradients {
    /// Runs the body of an entry; a fault is counted, with the text of `what` before it.
    fn watched<T>(
        &self,
        py: Python<'_>,
        what: impl FnOnce() -> String,
        body: impl FnOnce() -> PyResult<T>,
    ) -> Option<T> {
        let core = self.core.get();
        core.guarded(py, || match body() {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                interrupt::kept(py, &error);
                core.count_fault(py, || format!("{}: {}", what(), short(&error)));
                Ok(None)
            }
        })
    }

    fn edges(
        &self,
        name: &str,
        args: &Bound<'_, PyAny>,
        kwargs: &Bound<'_, PyDict>,
        module: bool,
    ) -> PyResult<Option<Edges>> {
        let py = args.py();
        if name.ends_with(".backward") || !self.graph.is_enabled(py)? {
            return Ok(None);
        }
        let torch = &self.core.get().meter.torch;
        let mut edges = module.then(|| self.graph.edges(py)).transpose()?;
        each_tensor(torch, args, Some(kwargs), &mut |path, tensor| {
            if wants_gradient(torch, tensor)? {
                let edges = match &mut edges {
                    Some(edges) => edges,
                    None => edges.insert(self.graph.edges(py)?),
                };
                edges.add(path, tensor)?;
            }
            Ok(())
        })?;
        Ok(edges)
    }

    fn watch(slf: &Bound<'_, Self>, call: &Call, edges: &Edges, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        let begins = this.begins(edges, result)?;
        if begins.is_empty() {
            return Ok(());
        }
        let nodes: Vec<Bound<'_, PyAny>> = begins.iter().map(|(node, _)| node.clone()).collect();
        // Without inputs no gradient leaves the call, however large it is inside.
        let leaves = if edges.is_empty() { Vec::new() } else { Graph::leaving(nodes, edges)? };
        let mut tap = Tap::new(Subject::of_call(&call.record));
        for (_, path) in begins.iter().flat_map(|(_, outputs)| outputs) {
            tap.expect(path);
        }
        for (_, path) in leaves.iter().flat_map(|(_, found)| found) {
            tap.expect_part(path);
        }
        let tap = Arc::new(tap);
        for (node, outputs) in begins {
            let hook = OutputHook::new(slf, &tap, outputs);
            node.call_method1(intern!(py, "register_prehook"), (hook,))?;
        }
        for (node, found) in leaves {
            let hook = InputHook::new(slf, &tap, found);
            node.call_method1(intern!(py, "register_hook"), (hook,))?;
        }
        Ok(())
    }

    /// Returns the nodes that have computed the results of a call, each once: all results of one function share a node.
    fn begins<'py>(&self, edges: &Edges, result: &Bound<'py, PyAny>) -> PyResult<Vec<Wanted<'py>>> {
        let torch = &self.core.get().meter.torch;
        let mut begins: Vec<Wanted<'py>> = Vec::new();
        let single = PyTuple::new(result.py(), [result])?;
        let results = if graph::is_list(result) { result } else { single.as_any() };
        each_tensor(torch, results, None, &mut |path, tensor| {
            let Some((node, number)) = gradient_node(torch, tensor)? else { return Ok(()) };
            // A node that is both an input and an output of the call did nothing in it.
            if edges.given(&node, number).is_none() {
                let found = (number as usize, path.to_owned());
                match begins.iter_mut().find(|(known, _)| known.is(&node)) {
                    Some((_, outputs)) => outputs.push(found),
                    None => begins.push((node, vec![found])),
                }
            }
            Ok(())
        })?;
        Ok(begins)
    }

    /// Notes that a first gradient of `tap` has arrived: any still missing at the end of this backward pass will not
    /// come. Returns the pass, since other threads may be in different ones, and the place of the tap among those that
    /// have begun in it.
    fn start(slf: &Bound<'_, Self>, tap: &Arc<Tap>) -> PyResult<(i64, u64)> {
        let (this, py) = (slf.get(), slf.py());
        let pass = this.graph.current_pass(py)?;
        let place = this.next.fetch_add(1, Ordering::Relaxed);
        let is_first = {
            let mut started = lock(py, &this.started);
            let is_first = !started.contains_key(&pass);
            started.entry(pass).or_default().insert(place, Arc::clone(tap));
            is_first
        };
        if is_first {
            match this.graph.at_end_of_pass(py, EndOfPass::new(slf, pass)) {
                // Not inside a backward pass: the end of the step files it.
                Err(error) if error.is_instance_of::<PyRuntimeError>(py) => {}
                queued => queued?,
            }
        }
        Ok((pass, place))
    }

    /// Removes a tap that has all its gradients.
    fn done(&self, py: Python<'_>, (pass, place): (i64, u64)) {
        if let Some(taps) = lock(py, &self.started).get_mut(&pass) {
            taps.remove(&place);
        }
    }

    /// Files what has begun to arrive in a pass that ends.
    fn end_of_pass(&self, py: Python<'_>, pass: i64) {
        let taps = lock(py, &self.started).remove(&pass).unwrap_or_default();
        self.finish(py, taps.into_values(), false);
    }

    fn finish(&self, py: Python<'_>, taps: impl Iterator<Item = Arc<Tap>>, cut: bool) {
        let core = self.core.get();
        core.guarded(py, || {
            taps.for_each(|tap| tap.finish(core, py, cut));
            Ok(None::<()>)
        });
    }
}
