//! The gradients of one call, or of the parameters of a module, while they arrive.

use std::sync::{Arc, Mutex};

use probe::capture::OpRecord;
use probe::dump::SlotSide;
use pyo3::prelude::*;

use super::super::{Recorder, lock};
use super::Gradients;
use crate::call::Call;
use crate::flatten::Style;
use crate::names::Region;

/// A slot, and the gradient that arrived for it: a tensor or None.
pub(super) type Arrived<'py> = (String, Bound<'py, PyAny>);

/// The call that gradients belong to.
#[derive(Debug)]
pub(super) enum Subject {
    /// A call: its backward pass, which is recorded once. A second pass through the same graph is not recorded again:
    /// its name would be taken.
    Call { name: String, scope: Option<String>, stack: Option<u32>, recomputed: bool },
    /// Parameters of a module, each time all of them have arrived: the key by which such times are counted, and the
    /// slots.
    Parameters { key: String, slots: Vec<String> },
}

impl Subject {
    pub(super) fn of_call(record: &OpRecord) -> Self {
        let name = &record.name;
        let name = if name.starts_with("Module.") {
            name.replace(".forward", ".backward")
        } else {
            format!("{}backward", name.strip_suffix("forward").unwrap_or(name))
        };
        Self::Call { name, scope: record.scope.clone(), stack: record.stack, recomputed: record.recomputed }
    }

    pub(super) fn of_parameters(stem: &str, names: &[String]) -> Self {
        let slots = names.iter().map(|name| parameter_slot(name)).collect();
        Self::Parameters { key: format!("{stem}.parameters_grad"), slots }
    }

    /// Opens the record. None if it is not wanted.
    fn open(&self, core: &Recorder, py: Python<'_>) -> PyResult<Option<Call>> {
        match self {
            Self::Call { name, scope, stack, recomputed } => {
                core.opened(py, name, scope.as_deref(), *stack, *recomputed)
            }
            Self::Parameters { key, .. } => {
                let number = lock(py, &core.names).number(key, Region::None);
                core.opened(py, &format!("{key}.{number}"), None, None, false)
            }
        }
    }
}

/// Slot of the gradient of a parameter.
pub(super) fn parameter_slot(name: &str) -> String {
    format!("grad.{name}")
}

/// An input whose gradient is the sum of what several nodes compute.
#[derive(Debug)]
struct Part {
    slot: String,
    /// Number of these nodes.
    nodes: usize,
    seen: usize,
    total: Option<Py<PyAny>>,
}

/// Gradients on their way.
#[derive(Debug)]
pub(super) struct Tap {
    subject: Subject,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// True once the first has arrived.
    opened: bool,
    call: Option<Arc<Mutex<Call>>>,
    /// Where [`Gradients::start`] has put it.
    place: Option<(i64, u64)>,
    /// Slots that have yet to arrive.
    missing: Vec<String>,
    parts: Vec<Part>,
}

impl Tap {
    pub(super) fn new(subject: Subject) -> Self {
        let missing = match &subject {
            Subject::Call { .. } => Vec::new(),
            Subject::Parameters { slots, .. } => slots.clone(),
        };
        Self { subject, state: Mutex::new(State { missing, ..State::default() }) }
    }

    /// The gradient of an output of the call will arrive.
    pub(super) fn expect(&mut self, path: &str) {
        self.expects(format!("input.{path}"));
    }

    /// A part of the gradient of an input will arrive.
    pub(super) fn expect_part(&mut self, path: &str) {
        let slot = format!("output.{path}");
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(part) = state.parts.iter_mut().find(|part| part.slot == slot) {
            part.nodes += 1;
        } else {
            state.parts.push(Part { slot: slot.clone(), nodes: 1, seen: 0, total: None });
            self.expects(slot);
        }
    }

    fn expects(&mut self, slot: String) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !state.missing.contains(&slot) {
            state.missing.push(slot);
        }
    }

    /// Adds what one node has computed for an input. Returns the gradient of the input with the last one.
    pub(super) fn part<'py>(
        &self,
        owner: &Gradients,
        path: &str,
        gradient: Bound<'py, PyAny>,
    ) -> PyResult<Option<Arrived<'py>>> {
        let py = gradient.py();
        let slot = format!("output.{path}");
        let of_one = |part: &&mut Part| part.slot == slot && part.nodes > 1;
        let before = match lock(py, &self.state).parts.iter_mut().find(of_one) {
            None => return Ok(Some((slot, gradient))),
            Some(part) => part.total.take(),
        };
        let total = match before {
            Some(before) if gradient.is_none() => before.into_bound(py),
            Some(before) => owner.graph.sum(before.bind(py), &gradient)?,
            None => gradient,
        };
        let mut state = lock(py, &self.state);
        let Some(part) = state.parts.iter_mut().find(of_one) else { return Ok(None) };
        part.seen += 1;
        if part.seen < part.nodes {
            part.total = (!total.is_none()).then(|| total.unbind());
            return Ok(None);
        }
        part.seen = 0;
        Ok(Some((slot, total)))
    }

    /// Adds gradients, and files the record if these were the last.
    pub(super) fn arrived(
        self: &Arc<Self>,
        owner: &Bound<'_, Gradients>,
        side: SlotSide,
        mut values: Vec<Arrived<'_>>,
    ) -> PyResult<()> {
        let (core, py) = (owner.get().core.get(), owner.py());
        if !std::mem::replace(&mut lock(py, &self.state).opened, true) {
            let call = self.subject.open(core, py)?.map(|call| Arc::new(Mutex::new(call)));
            lock(py, &self.state).call = call;
            let place = Gradients::start(owner, self)?;
            lock(py, &self.state).place = Some(place);
        }
        let call = lock(py, &self.state).call.clone();
        if let Some(call) = call
            && core.records(side)
        {
            core.walk(py, &mut lock(py, &call), Style { side, join_numbers: false }, |walk| {
                for (path, value) in &mut values {
                    walk.value(value, path, 0);
                }
            });
        }
        let complete = {
            let mut state = lock(py, &self.state);
            state.missing.retain(|slot| values.iter().all(|(arrived, _)| arrived != slot));
            state.missing.is_empty().then_some(state.place)
        };
        if let Some(place) = complete {
            if let Some(place) = place {
                owner.get().done(py, place);
            }
            self.finish(core, py, false);
        }
        Ok(())
    }

    /// Files the record; with `cut`, it is incomplete, because the program has ended.
    pub(super) fn finish(&self, core: &Recorder, py: Python<'_>, cut: bool) {
        let call = {
            let mut state = lock(py, &self.state);
            if let Subject::Parameters { slots, .. } = &self.subject {
                state.opened = false;
                state.missing.clone_from(slots);
            }
            state.call.take()
        };
        if let Some(call) = call {
            let mut call = lock(py, &call);
            if cut {
                call.record.raised = true;
                core.file(py, &mut call);
            } else {
                core.finished(py, &mut call);
            }
        }
    }
}
