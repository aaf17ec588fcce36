//! A call being recorded.

use probe::capture::{OpRecord, SlotRecord};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::agent;
use crate::token::Pending;

/// Arguments that an op writes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    /// Positions and names of the arguments.
    arguments: Vec<(usize, String)>,
}

impl Writes {
    /// Returns the written arguments, as they were passed.
    pub(crate) fn arguments<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> Vec<Bound<'py, PyAny>> {
        self.arguments
            .iter()
            .filter_map(|(index, name)| {
                args.get_item(*index).ok().or_else(|| kwargs.get_item(name).ok().flatten())
            })
            .collect()
    }
}

/// Facts about a dispatcher op that do not depend on its arguments.
#[derive(Debug)]
pub(crate) struct OpInfo {
    /// `Aten.addmm`
    pub(crate) stem: String,
    /// Keys under which its calls are counted.
    pub(crate) forward_key: String,
    pub(crate) backward_key: String,
    pub(crate) writes: Writes,
    /// Callable that a call of the op amounts to.
    pub(crate) runs: Py<PyAny>,
    /// True if its results are ready only some time after it has returned.
    pub(crate) collective: bool,
    /// Keeps the address of the op from being reused.
    _func: Py<PyAny>,
}

impl OpInfo {
    /// `described` is `(stem, [(position, name) of each written argument], callable, is a collective)`.
    pub(crate) fn new(func: &Bound<'_, PyAny>, described: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (stem, arguments, runs, collective): (String, Vec<(usize, String)>, Py<PyAny>, bool) =
            described.extract()?;
        Ok(Self {
            forward_key: stem.clone(),
            backward_key: format!("{stem} backward"),
            stem,
            writes: Writes { arguments },
            runs,
            collective,
            _func: func.clone().unbind(),
        })
    }
}

/// An incomplete record.
#[pyclass(module = "probe._core")]
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked by itself")]
pub(crate) struct Call {
    pub(crate) record: OpRecord,
    /// Slots whose measurements are still on a device.
    pub(crate) pending: Vec<Pending>,
    /// Addresses of the tensors that the op has written to. Torch counts the write when the handler returns.
    pub(crate) rewritten: Vec<usize>,
    /// True if counted and named, but not recorded.
    pub(crate) unwanted: bool,
    /// True if the data of its tensors is written.
    pub(crate) stored: bool,
    /// True if its name is still needed after it was filed.
    pub(crate) remembered: bool,
    /// True if the recorder of the runtime was told that it runs.
    announced: bool,
}

impl Call {
    pub(crate) const fn new(record: OpRecord, stored: bool) -> Self {
        Self {
            record,
            pending: Vec::new(),
            rewritten: Vec::new(),
            unwanted: false,
            stored,
            remembered: true,
            announced: false,
        }
    }

    /// Tells the agent that the op is about to run.
    pub(crate) fn announce(&mut self) {
        agent::enter(Some(&self.record.name), self.record.scope.as_deref());
        self.announced = true;
    }

    /// Tells the agent that the op has ended, if it was announced.
    pub(crate) fn ended(&mut self) {
        if std::mem::take(&mut self.announced) {
            agent::leave();
        }
    }

    /// Sorts the slots: inputs first, then by position.
    pub(crate) fn sort(&mut self) {
        let slots = std::mem::take(&mut self.record.slots);
        let mut slots: Vec<(usize, SlotRecord)> = slots.into_iter().enumerate().collect();
        slots.sort_by_cached_key(|(_, slot)| {
            let parts: Vec<(usize, String)> = slot
                .path
                .split('.')
                .map(|part| (part.parse().unwrap_or(usize::MAX), part.to_owned()))
                .collect();
            (slot.side, parts)
        });
        // Slots that wait for a device are identified by their index.
        for pending in &mut self.pending {
            if let Some(now) = slots.iter().position(|&(before, _)| before == pending.slot) {
                pending.slot = now;
            }
        }
        self.record.slots = slots.into_iter().map(|(_, slot)| slot).collect();
    }

    /// Takes the record out; nothing remains to be recorded.
    pub(crate) fn take(&mut self) -> (OpRecord, Vec<Pending>) {
        self.unwanted = true;
        if !self.remembered {
            return (std::mem::take(&mut self.record), std::mem::take(&mut self.pending));
        }
        // The call's identity stays: its backward pass is named after it.
        let identity = OpRecord {
            name: self.record.name.clone(),
            scope: self.record.scope.clone(),
            stack: self.record.stack,
            recomputed: self.record.recomputed,
            ..OpRecord::default()
        };
        let record = std::mem::replace(&mut self.record, identity);
        (record, std::mem::take(&mut self.pending))
    }
}

#[pymethods]
impl Call {
    /// Full name of the op.
    #[getter]
    fn name(&self) -> &str {
        &self.record.name
    }

    /// Module call that it runs in.
    #[getter]
    fn scope(&self) -> Option<&str> {
        self.record.scope.as_deref()
    }

    /// Number of its call stack.
    #[getter]
    fn stack(&self) -> Option<u32> {
        self.record.stack
    }

    /// True if activation checkpointing recomputes it.
    #[getter]
    fn recomputed(&self) -> bool {
        self.record.recomputed
    }

    /// Adds a remark to the record.
    fn remark(&mut self, note: String) {
        self.record.note = Some(note);
    }
}
