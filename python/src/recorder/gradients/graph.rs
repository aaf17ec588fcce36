//! The autograd graph: where tensors stand in it, and which of its nodes belong to a call.

use std::collections::{HashMap, HashSet};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::super::state::Hooks;
use super::hooks::EndOfPass;
use crate::tensor::{TensorKind, Torch};

/// A call with more inner nodes than this has no gradients recorded for its inputs; its parts have.
const MAX_NODES: usize = 20_000;

/// Nodes from this number on are not numbered by creation: they accumulate the gradients of leaves.
const NO_SEQUENCE: u64 = 1 << 62;

/// Containers in containers of arguments are entered up to this depth.
const MAX_DEPTH: usize = 4;

/// A node, and which of its results are wanted, by number, with the path of each.
pub(super) type Wanted<'py> = (Bound<'py, PyAny>, Vec<(usize, String)>);

/// Functions of torch for its graph.
#[derive(Debug)]
pub(super) struct Graph {
    /// `torch.is_grad_enabled`
    enabled: Py<PyAny>,
    /// `torch._C._autograd._get_sequence_nr`
    sequence: Py<PyAny>,
    /// `torch._C._current_graph_task_id`: an identifier of the backward pass running on this thread; -1 without one.
    current_pass: Py<PyAny>,
    /// `probe.private.autograd.at_end_of_pass(act)`: raises `RuntimeError` outside a pass.
    at_end_of_pass: Py<PyAny>,
    /// `probe.private.tensors.sum_of(a, b)`
    sum_of: Py<PyAny>,
    /// Context manager: functions and methods are not intercepted.
    without_functions: Py<PyAny>,
}

/// Torch's functions and attributes are not intercepted until this is dropped: the modes of the recorder and of the
/// program would be asked for each attribute of a tensor.
#[derive(Debug)]
pub(super) struct WithoutFunctions<'py>(Bound<'py, PyAny>);

impl Drop for WithoutFunctions<'_> {
    fn drop(&mut self) {
        let none = self.0.py().None();
        // It only resets a flag.
        _ = self.0.call_method1(intern!(self.0.py(), "__exit__"), (&none, &none, &none));
    }
}

impl Graph {
    pub(super) fn of(hooks: &Hooks<'_, '_>) -> PyResult<Self> {
        Ok(Self {
            enabled: hooks.needed("is_grad_enabled")?,
            sequence: hooks.needed("next_sequence")?,
            current_pass: hooks.needed("current_pass")?,
            at_end_of_pass: hooks.needed("at_end_of_pass")?,
            sum_of: hooks.needed("sum_of")?,
            without_functions: hooks.needed("without_functions")?,
        })
    }

    pub(super) fn is_enabled(&self, py: Python<'_>) -> PyResult<bool> {
        self.enabled.bind(py).call0()?.extract()
    }

    pub(super) fn current_pass(&self, py: Python<'_>) -> PyResult<i64> {
        self.current_pass.bind(py).call0()?.extract()
    }

    pub(super) fn at_end_of_pass(&self, py: Python<'_>, act: EndOfPass) -> PyResult<()> {
        self.at_end_of_pass.bind(py).call1((act,)).map(drop)
    }

    pub(super) fn sum<'py>(
        &self,
        one: &Bound<'py, PyAny>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.sum_of.bind(one.py()).call1((one, other))
    }

    pub(super) fn without_functions<'py>(&self, py: Python<'py>) -> PyResult<WithoutFunctions<'py>> {
        let guard = self.without_functions.bind(py).call0()?;
        guard.call_method0(intern!(py, "__enter__"))?;
        Ok(WithoutFunctions(guard))
    }

    /// The place in the graph before a call: nodes from here on are its own.
    pub(super) fn edges(&self, py: Python<'_>) -> PyResult<Edges> {
        let sequence = self.sequence.bind(py).call0()?.extract()?;
        Ok(Edges { sequence, nodes: HashMap::new(), held: Vec::new(), leaves: HashMap::new() })
    }

    /// Returns the nodes of a call whose edges leave it for its inputs. `stack` are the nodes of its results.
    pub(super) fn leaving<'py>(
        mut stack: Vec<Bound<'py, PyAny>>,
        edges: &Edges,
    ) -> PyResult<Vec<Wanted<'py>>> {
        let mut found: Vec<Wanted<'py>> = Vec::new();
        // Held, so that their addresses are not reused.
        let mut held: Vec<Bound<'py, PyAny>> = Vec::new();
        let mut seen: HashSet<usize> = stack.iter().map(|node| node.as_ptr().addr()).collect();
        while let Some(node) = stack.pop() {
            let py = node.py();
            let followers = node.getattr(intern!(py, "next_functions"))?.cast_into::<PyTuple>()?;
            let mut leaving: Vec<(usize, String)> = Vec::new();
            for (index, follower) in followers.iter().enumerate() {
                let follower = follower.cast_into::<PyTuple>()?;
                let (other, number) = (follower.get_item(0)?, follower.get_item(1)?);
                if other.is_none() {
                    continue;
                }
                if let Some(path) = edges.given(&other, number.extract()?) {
                    leaving.push((index, path.to_owned()));
                    continue;
                }
                let sequence: u64 = other.call_method0(intern!(py, "_sequence_nr"))?.extract()?;
                if sequence < NO_SEQUENCE {
                    if sequence >= edges.sequence && seen.insert(other.as_ptr().addr()) {
                        stack.push(other);
                    }
                } else if let Some(path) = edges.leaf(&other)? {
                    leaving.push((index, path.to_owned()));
                }
            }
            if !leaving.is_empty() {
                found.push((node.clone(), leaving));
            }
            held.push(node);
            if seen.len() > MAX_NODES {
                break;
            }
        }
        Ok(found)
    }
}

/// Positions of a call's inputs in the autograd graph before it runs.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(crate) struct Edges {
    sequence: u64,
    /// (address of a node, number of its output) -> path of the first input that is this output.
    nodes: HashMap<(usize, u32), String>,
    /// The nodes: while they live, their addresses are not reused.
    held: Vec<Py<PyAny>>,
    /// Identity of a leaf tensor -> path.
    leaves: HashMap<usize, String>,
}

impl Edges {
    /// Adds an input that requires a gradient.
    pub(super) fn add(&mut self, path: &str, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = tensor.py();
        let node = tensor.getattr(intern!(py, "grad_fn"))?;
        if node.is_none() {
            self.leaves.entry(tensor.as_ptr().addr()).or_insert_with(|| path.to_owned());
        } else {
            let number = tensor.getattr(intern!(py, "output_nr"))?.extract()?;
            self.nodes.entry((node.as_ptr().addr(), number)).or_insert_with(|| path.to_owned());
            self.held.push(node.unbind());
        }
        Ok(())
    }

    /// Returns the path of the input that is this output of a node.
    pub(super) fn given(&self, node: &Bound<'_, PyAny>, number: u32) -> Option<&str> {
        self.nodes.get(&(node.as_ptr().addr(), number)).map(String::as_str)
    }

    /// Returns the path of the input whose gradient this node accumulates.
    fn leaf(&self, node: &Bound<'_, PyAny>) -> PyResult<Option<&str>> {
        let py = node.py();
        if self.leaves.is_empty()
            || node.call_method0(intern!(py, "name"))?.cast_into::<PyString>()?
                != "torch::autograd::AccumulateGrad"
        {
            return Ok(None);
        }
        let variable = node.getattr(intern!(py, "variable"))?;
        Ok(self.leaves.get(&variable.as_ptr().addr()).map(String::as_str))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.leaves.is_empty()
    }
}

/// Returns true if a tensor requires a gradient.
pub(super) fn wants_gradient(torch: &Torch, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    if torch.is_outside_graph(tensor) {
        return Ok(false);
    }
    tensor.getattr(intern!(tensor.py(), "requires_grad"))?.extract()
}

/// Returns the node that computed a tensor, and the number of the output that it is; None for one that no node
/// computed.
pub(super) fn gradient_node<'py>(
    torch: &Torch,
    tensor: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyAny>, u32)>> {
    if torch.is_outside_graph(tensor) {
        return Ok(None);
    }
    let py = tensor.py();
    let node = tensor.getattr(intern!(py, "grad_fn"))?;
    if node.is_none() {
        return Ok(None);
    }
    Ok(Some((node, tensor.getattr(intern!(py, "output_nr"))?.extract()?)))
}

/// Returns true for what results of several tensors are in.
pub(super) fn is_list(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>()
}

/// Calls `act` with the path and the tensor for each tensor in positional and keyword arguments.
pub(super) fn each_tensor<'py>(
    torch: &Torch,
    args: &Bound<'py, PyAny>,
    kwargs: Option<&Bound<'py, PyDict>>,
    act: &mut impl FnMut(&str, &Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    within(torch, args, &mut String::new(), MAX_DEPTH + 1, act)?;
    kwargs.map_or(Ok(()), |kwargs| within(torch, kwargs, &mut String::new(), MAX_DEPTH + 1, act))
}

/// The same for the items of a container; `path` is that of the container.
fn within<'py>(
    torch: &Torch,
    container: &Bound<'py, PyAny>,
    path: &mut String,
    depth: usize,
    act: &mut impl FnMut(&str, &Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    let length = path.len();
    let mut item = |key: &str, item: &Bound<'py, PyAny>| {
        if item.is_none() {
            return Ok(());
        }
        path.truncate(length);
        if length > 0 {
            path.push('.');
        }
        path.push_str(key);
        let is_container = is_list(item) || item.is_instance_of::<PyDict>();
        if is_container {
            return if depth > 0 { within(torch, item, path, depth - 1, act) } else { Ok(()) };
        }
        if torch.kind(item) == TensorKind::No { Ok(()) } else { act(path, item) }
    };
    let outcome = if let Ok(map) = container.cast::<PyDict>() {
        map.iter().try_for_each(|(key, value)| item(&key.str()?.to_string(), &value))
    } else if let Ok(items) = container.cast::<PyTuple>() {
        items.iter().enumerate().try_for_each(|(index, value)| item(&index.to_string(), &value))
    } else if let Ok(items) = container.cast::<PyList>() {
        items.iter().enumerate().try_for_each(|(index, value)| item(&index.to_string(), &value))
    } else {
        Ok(())
    };
    path.truncate(length);
    outcome
}
