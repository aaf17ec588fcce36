//! Entry points for Python's modes and hooks: opens a record when an op begins, adds its inputs and outputs, and
//! files it.
//!
//! Every entry catches its own failures: a fault of the recorder costs a record, never the user's call.

mod calls;
mod filing;
mod gradients;
mod place;
mod slots;
mod state;
mod thread;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use probe::capture::DumpWriter;
use probe::dump::{OpName, Phase, SlotSide};
use probe::measure::Crew;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::call::{Call, OpInfo};
use crate::compiled::CompiledNodes;
use crate::flatten::Style;
use crate::measure::Meter;
use crate::names::{Names, Region};
use crate::options::{Options, full_manifest};
use crate::private::{Frames, are_quick_ways_taken};
use crate::stack::Stacks;
use crate::tape::{End, Tally, Tape};
use crate::tensor::Torch;
use calls::tensors_of;
use filing::Queue;
pub(crate) use gradients::{Gradients, ParameterHook};
use place::{Here, LastRegion};
use state::{Hooks, Questions, Raised, lock};
use thread::{Busy, enter, leave, scope};

/// Records the ops of one process.
#[pyclass(frozen, module = "probe._core")]
#[derive(Debug)]
pub(crate) struct Recorder {
    meter: Meter,
    tape: Arc<Tape>,
    options: Options,
    questions: Questions,
    stacks: Mutex<Stacks>,
    /// True if frames are read the quick way.
    quick_frames: bool,
    /// Number of a place -> its number in the writer, for the current step.
    written_stacks: Mutex<HashMap<usize, u32>>,
    names: Mutex<Names>,
    ops: Mutex<HashMap<usize, Arc<OpInfo>>>,
    compiled: CompiledNodes,
    last_region: Mutex<Option<LastRegion>>,
    queue: Mutex<Queue>,
    faults: AtomicU64,
    first_fault: Mutex<Option<String>>,
    /// Nanoseconds that threads have spent in the recorder.
    spent: AtomicU64,
    /// Number of calls that have returned.
    returned: AtomicU64,
    /// The last exception that ended a call.
    raised: Mutex<Option<Raised>>,
}

#[pymethods]
impl Recorder {
    /// Creates the dump folder. `options` and `manifest` are JSON; `hooks` is a dict of the functions to call, and of the
    /// module of the tensors (`arrays`) if they are not torch's.
    #[new]
    fn new(
        py: Python<'_>,
        output: PathBuf,
        rank: u32,
        manifest: &str,
        options: &str,
        hooks: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let invalid = |error: serde_json::Error| PyValueError::new_err(error.to_string());
        let manifest = full_manifest(manifest).map_err(invalid)?;
        let options: Options = serde_json::from_str(options).map_err(invalid)?;
        let hooks = Hooks(hooks);
        let writer = py
            .detach(|| DumpWriter::create_over(options.existing(), &output, &manifest, rank))
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        let tape = Arc::new(Tape::new(writer, options.max_bytes));
        let spool = Arc::downgrade(tape.spool());
        let crew = Crew::new(options.helpers(), move || {
            if let Some(spool) = spool.upgrade() {
                spool.write();
            }
        });
        let frames = Frames::new(are_quick_ways_taken(py));
        let (torch, of) = match hooks.arrays()? {
            Some(arrays) => (Torch::of(&arrays)?, arrays),
            None => (Torch::new(py)?, py.import("torch")?),
        };
        Ok(Self {
            meter: Meter::new(
                torch,
                &of,
                (options.content(), options.as_on_device),
                crew,
                hooks.needed("parts")?,
                hooks.needed("device")?,
                hooks.wanted("narrow"),
            )?,
            tape,
            options,
            questions: Questions::of(&hooks)?,
            quick_frames: frames.is_quick(),
            stacks: Mutex::new(Stacks::new(
                frames,
                hooks.needed("describe_frames")?,
                hooks.codes("checkpoint_code")?,
                hooks.codes("border_code")?,
            )),
            written_stacks: Mutex::default(),
            names: Mutex::default(),
            ops: Mutex::default(),
            compiled: CompiledNodes::default(),
            last_region: Mutex::default(),
            queue: Mutex::default(),
            faults: AtomicU64::new(0),
            first_fault: Mutex::default(),
            spent: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            raised: Mutex::default(),
        })
    }

    /// Returns which quick ways past torch's attributes are in use: for tensors in host memory, and for the
    /// interpreter's frames.
    fn quick_ways(&self) -> (bool, bool) {
        (self.meter.torch.is_quick(), self.quick_frames)
    }

    /// Begins a step; numbers start at 0.
    fn begin_step(&self, py: Python<'_>, step: u64) {
        let Some(_busy) = Busy::enter(&self.spent) else { return };
        lock(py, &self.names).clear();
        lock(py, &self.written_stacks).clear();
        self.meter.restart(py);
        *lock(py, &self.raised) = None;
        self.tape.begin_step(step);
    }

    /// Ends the step.
    fn finish_step(&self, py: Python<'_>) {
        self.end_step(py, End::Finished);
    }

    /// Ends the step because the program ended inside it: `error` is the cause, and `op` the call.
    fn cut_step(&self, py: Python<'_>, op: Option<String>, error: String) {
        self.end_step(py, End::Cut { op, error });
    }

    /// Returns the last exception that ended a call of this step: the name of the call, the identity of the
    /// exception, its type and text, and whether any call has returned since.
    fn last_raised(&self, py: Python<'_>) -> Option<(String, usize, String, bool)> {
        let raised = lock(py, &self.raised);
        let raised = raised.as_ref()?;
        let since = self.returned.load(Ordering::Relaxed) != raised.returned;
        Some((raised.op.clone(), raised.error, raised.text.clone(), since))
    }

    /// Takes back the records of step `first` and of those that began after it: they were miscounted.
    fn forget_steps(&self, py: Python<'_>, first: u64) {
        let Some(_busy) = Busy::enter(&self.spent) else { return };
        self.settle(py);
        self.tape.forget_steps(py, first);
        self.meter.restart(py);
    }

    /// Returns the ops recorded so far; the tensors among their values, how many could not be measured, and the first
    /// of these with the reason; and the seconds spent recording.
    fn tally(&self, py: Python<'_>) -> (u64, (u64, u64, Option<String>), f64) {
        let Tally { ops, tensors, unmeasured, first } = self.tape.tally(py);
        let seconds = Duration::from_nanos(self.spent.load(Ordering::Relaxed)).as_secs_f64();
        (ops, (tensors, unmeasured, first.map(|first| first.to_string())), seconds)
    }

    /// Returns the first op of the step that made a NaN or an infinity of inputs without one, which of its results, and
    /// how many; None if none did. Asked after the step has ended, it knows the values on devices too.
    fn nonfinite(&self, py: Python<'_>) -> Option<String> {
        self.tape.nonfinite(py)
    }

    /// Ends the dump; `notes` go into its manifest.
    fn close(&self, py: Python<'_>, notes: Vec<String>) {
        let Some(_busy) = Busy::enter(&self.spent) else { return };
        self.settle(py);
        self.tape.close(py, &notes);
        self.meter.restart(py);
    }

    /// Stops recording for good and writes the reason to the dump.
    fn abandon(&self, py: Python<'_>, reason: &str) {
        self.tape.abandon(py, reason);
    }

    /// Returns why recording ended early, or None. What goes wrong while a step is written in the background is known
    /// when the next one ends.
    fn failed(&self) -> Option<String> {
        self.tape.failed()
    }

    /// Returns how many calls could not be recorded because of a fault of the recorder, and the first such fault.
    fn faults(&self, py: Python<'_>) -> (u64, Option<String>) {
        (self.faults.load(Ordering::Relaxed), lock(py, &self.first_fault).clone())
    }

    /// Runs a dispatcher op and records it: the handler of `mode`, an `OpMode`. Python would take several times as
    /// long.
    #[pyo3(signature = (mode, func, types, args, kwargs=None))]
    fn run_op<'py>(
        &self,
        mode: &Bound<'py, PyAny>,
        func: &Bound<'py, PyAny>,
        types: &Bound<'py, PyTuple>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = func.py();
        if types.iter().any(|kind| self.meter.torch.is_distributed(&kind)) {
            // Made of local ops and collectives: its class splits the op, with the recording on, and those are
            // recorded.
            return Ok(py.NotImplemented().into_bound(py));
        }
        let kwargs = kwargs.unwrap_or_else(|| PyDict::new(py));
        let on = mode.getattr(intern!(py, "on")).and_then(|on| on.is_truthy()).unwrap_or(false);
        let Some((mut call, info)) = on.then(|| self.before_op(func, Some((args, &kwargs)))).flatten() else {
            return func.call(args, Some(&kwargs));
        };
        let result = info.runs.bind(py).call(args, Some(&kwargs));
        match &result {
            Ok(result) => self.finish_op(py, &mut call, &info, args, &kwargs, result),
            Err(error) => self.broken_off(py, &mut call, Some(error.value(py).as_any())),
        }
        result
    }

    /// Calls a torch function: the handler of `mode`, an `ApiMode`. Python takes over if the function may compute
    /// something.
    #[pyo3(signature = (mode, func, types, args=None, kwargs=None))]
    #[expect(clippy::unused_self, reason = "a method, since it belongs to the recording")]
    fn run_api<'py>(
        &self,
        mode: &Bound<'py, PyAny>,
        func: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: Option<Bound<'py, PyTuple>>,
        kwargs: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = func.py();
        let args = args.unwrap_or_else(|| PyTuple::empty(py));
        let questions = mode.getattr(intern!(py, "questions"))?;
        // Objects without a hash are none of torch's functions.
        if questions.contains(func).unwrap_or(false) {
            return func.call(args, kwargs.as_ref());
        }
        let kwargs = kwargs.unwrap_or_else(|| PyDict::new(py));
        mode.call_method1(intern!(py, "call"), (func, types, args, kwargs))
    }

    /// Opens the record of a dispatcher op about to run, without its arguments, for a handler in Python, which replaces them. None if it is not
    /// to be recorded.
    fn open_op(&self, func: &Bound<'_, PyAny>) -> Option<Call> {
        self.before_op(func, None).map(|(call, _)| call)
    }

    /// Adds the arguments of such an op.
    fn read_op(
        &self,
        py: Python<'_>,
        call: &Bound<'_, Call>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) {
        self.guarded(py, || {
            self.read(&mut *call.try_borrow_mut()?, args, kwargs);
            Ok(None::<()>)
        });
    }

    /// Adds the result of such an op and files its record.
    fn close_op(
        &self,
        py: Python<'_>,
        call: &Bound<'_, Call>,
        func: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        result: &Bound<'_, PyAny>,
    ) {
        if let (Ok(mut call), Ok(info)) = (call.try_borrow_mut(), self.op_info(func)) {
            self.finish_op(py, &mut call, &info, args, kwargs, result);
        }
    }

    /// Opens the record of a torch function or method about to run: `name` is its name when called, `operator` its
    /// name as an operator, if it has one.
    fn before_api(
        &self,
        py: Python<'_>,
        name: &str,
        operator: Option<&str>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> Option<Call> {
        self.guarded(py, || {
            let Some(Here { found, region, recomputed, backward, .. }) = self.here(py)? else {
                return Ok(None);
            };
            let stem = match (operator, &found) {
                (Some(operator), Some(found)) if found.place.operator => operator,
                _ => name,
            };
            let scope = scope();
            let number = lock(py, &self.names).number(stem, region);
            let (phase, word) =
                if backward { (Phase::Backward, "backward") } else { (Phase::Forward, "forward") };
            let name = format!("{stem}.{number}.{word}");
            let wanted = self.wants(py, &name, scope.as_deref(), phase);
            let stack = if wanted { self.stack(py, found.map(|found| found.id)) } else { None };
            let mut call = self.call(py, name, scope.as_deref(), stack, recomputed);
            call.unwanted = !wanted;
            if wanted && self.options.inputs {
                self.arguments(&mut call, args, kwargs, false);
            }
            call.announce();
            Ok(Some(call))
        })
    }

    /// Opens the record of a module call about to run; until [`Self::leave_module`], calls are inside it.
    fn enter_module(
        &self,
        py: Python<'_>,
        stem: &str,
        record: bool,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        parameters: &Bound<'_, PyDict>,
    ) -> Option<Call> {
        self.guarded(py, || {
            let found = self.found(py)?;
            let region = self.region(py, found.as_ref())?;
            let recomputed = matches!(region, Region::Recompute(_));
            let number = lock(py, &self.names).number(stem, region);
            let name = format!("{stem}.forward.{number}");
            let scope = scope();
            let wanted = record && self.wants(py, &name, Some(&name), Phase::Forward);
            let stack = if wanted { self.stack(py, found.map(|found| found.id)) } else { None };
            let mut call = self.call(py, name.clone(), scope.as_deref(), stack, recomputed);
            call.unwanted = !wanted;
            if wanted && self.options.inputs {
                self.arguments(&mut call, args, kwargs, false);
                let mut path = String::from("parameter");
                self.walk(py, &mut call, Style { side: SlotSide::Parameter, join_numbers: false }, |walk| {
                    for (key, value) in parameters.iter() {
                        if let Ok(key) = key.extract::<String>() {
                            walk.below(&mut path, &key, &value, 0);
                        }
                    }
                });
            }
            enter(&name);
            Ok(Some(call))
        })
    }

    /// Ends the module call that was entered last.
    #[expect(clippy::unused_self, reason = "a method, since the scope belongs to the recording")]
    fn leave_module(&self) {
        leave();
    }

    /// Attributes what follows on this thread to `name` (an optimizer, for example), until [`Self::leave_module`].
    #[expect(clippy::unused_self, reason = "a method, since the scope belongs to the recording")]
    fn enter_scope(&self, name: &str) {
        enter(name);
    }

    /// Returns the number of this call of `key` in the step.
    fn number(&self, py: Python<'_>, key: &str) -> u32 {
        lock(py, &self.names).number(key, Region::None)
    }

    /// Adds the call's result and files its record.
    fn after(&self, py: Python<'_>, call: &Bound<'_, Call>, result: &Bound<'_, PyAny>) {
        if let Ok(mut call) = call.try_borrow_mut() {
            self.completed(py, &mut call, &[], result);
        }
    }

    /// Files an incomplete record: the call ended in the exception `error`, if known.
    #[pyo3(signature = (call, error=None))]
    fn raised(&self, py: Python<'_>, call: &Bound<'_, Call>, error: Option<&Bound<'_, PyAny>>) {
        if let Ok(mut call) = call.try_borrow_mut() {
            self.broken_off(py, &mut call, error);
        }
    }

    /// Withdraws a call that computed nothing (it asked for a size, for example): it is not recorded, and the next
    /// call gets its number.
    fn withdraw(&self, py: Python<'_>, call: &Bound<'_, Call>) {
        self.guarded(py, || {
            let mut call = call.try_borrow_mut()?;
            call.ended();
            let name = OpName::parse(&call.record.name);
            if let Some(number) = name.call() {
                lock(py, &self.names).give_back(name.stem(), number);
            }
            call.unwanted = true;
            Ok(None::<()>)
        });
    }

    /// Counts a fault of the recorder's Python part.
    fn fault(&self, py: Python<'_>, reason: &str) {
        self.count_fault(py, || reason.to_owned());
    }

    /// Opens a record without arguments: a gradient, or a value that the user saves. None if it is not wanted.
    #[pyo3(signature = (name, scope=None, stack=None, recomputed=false))]
    fn open(
        &self,
        py: Python<'_>,
        name: &str,
        scope: Option<&str>,
        stack: Option<u32>,
        recomputed: bool,
    ) -> Option<Call> {
        self.guarded(py, || self.opened(py, name, scope, stack, recomputed))
    }

    /// Adds values to an open record, each under its path. `side` is `input`, `output`, `parameter` or `gradient`.
    fn add(
        &self,
        py: Python<'_>,
        call: &Bound<'_, Call>,
        side: &str,
        values: Vec<(String, Bound<'_, PyAny>)>,
    ) {
        self.guarded(py, || {
            let side = match side {
                "input" => SlotSide::Input,
                "parameter" => SlotSide::Parameter,
                "gradient" => SlotSide::Gradient,
                _ => SlotSide::Output,
            };
            if self.records(side) {
                let mut call = call.try_borrow_mut()?;
                self.walk(py, &mut call, Style { side, join_numbers: false }, |walk| {
                    for (mut path, value) in values {
                        walk.value(&value, &mut path, 0);
                    }
                });
            }
            Ok(None::<()>)
        });
    }

    /// Files a record that was opened with [`Self::open`].
    fn finish(&self, py: Python<'_>, call: &Bound<'_, Call>) {
        self.guarded(py, || {
            self.finished(py, &mut *call.try_borrow_mut()?);
            Ok(None::<()>)
        });
    }

    /// Forgets the measurements of the memory that contains `value` (a tensor, or a list of them).
    fn forget(&self, value: &Bound<'_, PyAny>) {
        for tensor in tensors_of(value) {
            self.meter.forget(&tensor);
        }
    }
}
