//! Records of calls: opened before a call runs, completed or broken off when it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use probe::capture::OpRecord;
use probe::dump::{OpName, Phase, SlotSide};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::place::Here;
use super::state::Raised;
use super::thread::{Busy, scope};
use super::{Recorder, lock};
use crate::call::{Call, OpInfo};
use crate::flatten::Style;
use crate::interrupt;
use crate::measure::short;
use crate::names::Origin;

impl Recorder {
    /// Runs the body of an entry, unless the recorder is already at work in this thread; no fault escapes.
    pub(super) fn guarded<T>(&self, py: Python<'_>, body: impl FnOnce() -> PyResult<Option<T>>) -> Option<T> {
        let _busy = Busy::enter(&self.spent)?;
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        let fault = match outcome {
            Ok(Ok(value)) => return value,
            Ok(Err(error)) => {
                interrupt::kept(py, &error);
                short(&error)
            }
            Err(_) => "a panic in the recorder".to_owned(),
        };
        self.count_fault(py, || fault);
        None
    }

    /// Counts a fault of the recorder.
    pub(super) fn count_fault(&self, py: Python<'_>, reason: impl FnOnce() -> String) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        lock(py, &self.first_fault).get_or_insert_with(reason);
    }

    /// Returns true if the values of this side are recorded.
    pub(super) fn records(&self, side: SlotSide) -> bool {
        if side.is_result() { self.options.outputs } else { self.options.inputs }
    }

    /// Opens a record without arguments. None if it is not wanted.
    pub(super) fn opened(
        &self,
        py: Python<'_>,
        name: &str,
        scope: Option<&str>,
        stack: Option<u32>,
        recomputed: bool,
    ) -> PyResult<Option<Call>> {
        let phase = OpName::parse(name).phase();
        if !self.wants(py, name, scope, phase) {
            return Ok(None);
        }
        let stack = match stack {
            Some(stack) => Some(stack),
            None if phase == Phase::None => self.found(py)?.and_then(|found| self.stack(py, Some(found.id))),
            None => None,
        };
        Ok(Some(self.call(py, name.to_owned(), scope, stack, recomputed)))
    }

    /// Files a record whose slots have come in any order.
    pub(super) fn finished(&self, py: Python<'_>, call: &mut Call) {
        if !call.record.slots.is_empty() {
            // Gradients arrive in the order of the graph; a slot's place is its position in the call.
            call.sort();
            self.file(py, call);
        }
    }

    /// Opens the record of a dispatcher op about to run, with these arguments; without them, they are added later. None if it is not to be
    /// recorded.
    pub(super) fn before_op(
        &self,
        func: &Bound<'_, PyAny>,
        given: Option<(&Bound<'_, PyTuple>, &Bound<'_, PyDict>)>,
    ) -> Option<(Call, Arc<OpInfo>)> {
        let py = func.py();
        self.guarded(py, || {
            let info = self.op_info(func)?;
            if info.stem.is_empty() {
                return Ok(None);
            }
            let Some(Here { node, found, region, recomputed, backward }) = self.here(py)? else {
                return Ok(None);
            };
            let phase = if backward { Phase::Backward } else { Phase::Forward };
            let key = if backward { &info.backward_key } else { &info.forward_key };
            let mut scope = scope();
            let number = {
                let sequence: Option<u64> = if backward {
                    node.call_method0(intern!(py, "_sequence_nr"))?.extract().ok()
                } else {
                    self.questions.sequence.bind(py).call0()?.extract().ok()
                };
                let mut names = lock(py, &self.names);
                let mut place = found.as_ref().map(|found| found.id);
                if let Some(sequence) = sequence {
                    if !backward {
                        names.note_origin(sequence, || Origin { scope: scope.clone(), place });
                    } else if found.as_ref().is_none_or(|found| found.place.engine_only)
                        && let Some(origin) = names.origin(sequence)
                    {
                        // No user code runs here: the user wrote the forward op.
                        scope = origin.scope.clone().or(scope);
                        place = origin.place.or(place);
                    }
                }
                (names.number(key, region), place)
            };
            let (number, place) = number;
            let name = format!("{}.{number}.{}", info.stem, if backward { "backward" } else { "forward" });
            if !self.wants(py, &name, scope.as_deref(), phase) {
                return Ok(None);
            }
            let mut call = self.call(py, name, scope.as_deref(), self.stack(py, place), recomputed);
            call.remembered = false;
            if let Some((args, kwargs)) = given {
                self.read(&mut call, args, kwargs);
            }
            call.announce();
            Ok(Some((call, info)))
        })
    }

    /// Adds the arguments of a dispatcher op.
    pub(super) fn read(&self, call: &mut Call, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) {
        // Leaves room for the results.
        call.record.slots.reserve(args.len() + kwargs.len() + 1);
        if self.options.inputs {
            self.arguments(call, args, kwargs, true);
        }
    }

    /// Adds the result of a dispatcher op and files its record.
    pub(super) fn finish_op(
        &self,
        py: Python<'_>,
        call: &mut Call,
        info: &OpInfo,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        result: &Bound<'_, PyAny>,
    ) {
        if info.collective {
            self.guarded(py, || self.questions.wait.bind(py).call1((result,)).map(Some));
        }
        let written = info.writes.arguments(args, kwargs);
        self.completed(py, call, &written, result);
    }

    /// Adds a call's result and files its record; `written` are the arguments it is known to have written to.
    pub(super) fn completed(
        &self,
        py: Python<'_>,
        call: &mut Call,
        written: &[Bound<'_, PyAny>],
        result: &Bound<'_, PyAny>,
    ) {
        call.ended();
        self.returned.fetch_add(1, Ordering::Relaxed);
        self.guarded(py, || {
            if call.unwanted {
                return Ok(None::<()>);
            }
            for tensor in written.iter().flat_map(tensors_of) {
                self.meter.forget(&tensor);
                call.rewritten.push(tensor.as_ptr().addr());
            }
            if self.options.outputs {
                self.results(call, result);
                if result.is_none() {
                    // In-place ops on lists return nothing: their results are in their arguments.
                    self.walk(py, call, Style { side: SlotSide::Output, join_numbers: true }, |walk| {
                        let mut path = String::from("output");
                        for (index, value) in written.iter().enumerate() {
                            walk.at(&mut path, index, value, 0);
                        }
                    });
                }
            }
            self.file(py, call);
            Ok(None)
        });
    }

    /// Files an incomplete record: the call ended in an exception.
    pub(super) fn broken_off(&self, py: Python<'_>, call: &mut Call, error: Option<&Bound<'_, PyAny>>) {
        call.ended();
        self.guarded(py, || {
            if let Some(error) = error {
                self.remember(call, error);
            }
            if !call.unwanted {
                call.record.raised = true;
                self.file(py, call);
            }
            Ok(None::<()>)
        });
    }

    /// Remembers the innermost call that an exception has ended.
    pub(super) fn remember(&self, call: &Call, error: &Bound<'_, PyAny>) {
        let identity = error.as_ptr().addr();
        let mut raised = lock(error.py(), &self.raised);
        if raised.as_ref().is_none_or(|raised| raised.error != identity) {
            *raised = Some(Raised {
                op: call.record.name.clone(),
                error: identity,
                text: short(&PyErr::from_value(error.clone())),
                returned: self.returned.load(Ordering::Relaxed),
            });
        }
    }

    /// An empty record.
    pub(super) fn call(
        &self,
        py: Python<'_>,
        name: String,
        scope: Option<&str>,
        stack: Option<u32>,
        recomputed: bool,
    ) -> Call {
        let stored = self.options.with_data()
            || self.questions.stores.as_ref().is_some_and(|stores| asked(py, stores, &name, scope));
        let record =
            OpRecord { name, scope: scope.map(Into::into), stack, recomputed, ..OpRecord::default() };
        Call::new(record, stored)
    }

    /// Returns true if the op `name` in the module call `scope` is to be recorded.
    pub(super) fn wants(&self, py: Python<'_>, name: &str, scope: Option<&str>, phase: Phase) -> bool {
        self.options.has_phase(phase)
            && self.questions.wants.as_ref().is_none_or(|wants| asked(py, wants, name, scope))
    }

    pub(super) fn op_info(&self, func: &Bound<'_, PyAny>) -> PyResult<Arc<OpInfo>> {
        let py = func.py();
        let address = func.as_ptr() as usize;
        if let Some(info) = lock(py, &self.ops).get(&address) {
            return Ok(Arc::clone(info));
        }
        let described = interrupt::asked(py, || self.questions.describe_op.bind(py).call1((func,)))?;
        let info = Arc::new(OpInfo::new(func, &described)?);
        lock(py, &self.ops).insert(address, Arc::clone(&info));
        Ok(info)
    }
}

/// Returns the tensors of a written value: the value itself, or the items of a list.
pub(super) fn tensors_of<'py>(value: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    if let Ok(items) = value.cast::<PyList>() {
        return items.iter().collect();
    }
    if let Ok(items) = value.cast::<PyTuple>() {
        return items.iter().collect();
    }
    vec![value.clone()]
}

/// Returns the answer of a Python function; a failure means no.
fn asked(py: Python<'_>, question: &Py<PyAny>, name: &str, scope: Option<&str>) -> bool {
    interrupt::asked(py, || question.call1(py, (name, scope)))
        .and_then(|answer| answer.is_truthy(py))
        .unwrap_or(false)
}
