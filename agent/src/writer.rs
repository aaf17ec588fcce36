//! A thread that takes what has arrived in the ring, measures it with the kernels of probe, and writes the dump.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use probe::capture::{
    CaptureError, CaptureLevel, CaptureTask, DataLocation, Device, DumpWriter, OpRecord, RunManifest,
    SlotRecord, SlotValue, Software, TensorFacts,
};
use probe::dump::{CALLED_IN, DType, Number, Observation, SMALL_TENSOR, Scalar, SlotSide, TensorRef};
use probe::measure;

use crate::device::{self, Runtime};
use crate::handles::{self, Tensor};
use crate::launch::{Copied, Record};
use crate::notes::{self, Count};
use crate::plan::{Argument, Basis};
use crate::ring::{Next, Piece, Ring};
use crate::roles::Role;
use crate::settings::{self, Settings};
use crate::{control, entry};

/// What the writer is told, in order.
#[derive(Debug)]
pub(crate) enum Message {
    Launch(Box<Record>),
    StepEnd(u64),
}

/// The ring, and what fills it.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) runtime: &'static Runtime,
    pub(crate) ring: Ring<Message>,
}

static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();
/// Whether the thread has ended, and a bell for it.
static ENDED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
/// Launches written so far.
static WRITTEN: AtomicU64 = AtomicU64::new(0);
/// Tensors measured so far.
static TENSORS: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicBool = AtomicBool::new(false);

/// How long the end of the process waits for a writer that makes no progress.
const STALL: Duration = Duration::from_secs(30);
/// How long a launch may be under way once everything else is over.
const ABANDONED: Duration = Duration::from_secs(5);
/// The same while others come after it.
const LONGEST_LAUNCH: Duration = Duration::from_secs(120);
/// What was gathered is written at least this often while nothing arrives.
const IDLE: Duration = Duration::from_millis(500);
/// Measurements that are kept in mind, so that a tensor that appears again is stored once.
const KNOWN: usize = 1 << 14;

impl Recorder {
    /// The recorder of this process, made at the first launch that is recorded; `None` where it cannot record.
    pub(crate) fn get() -> Option<&'static Self> {
        RECORDER
            .get_or_init(|| {
                Self::begin()
                    .map_err(|why| {
                        notes::say(&format!("nothing is recorded: {why}"));
                        control::give_up();
                    })
                    .ok()
            })
            .as_ref()
    }

    /// The recorder, if there is one already.
    pub(crate) fn begun() -> Option<&'static Self> {
        RECORDER.get()?.as_ref()
    }

    fn begin() -> Result<Self, String> {
        let settings = Settings::get().ok_or("it was not asked for")?;
        let runtime = Runtime::get()?;
        let start = runtime.pinned(settings.ring).map_err(|status| {
            format!(
                "no {} bytes of pinned memory are to be had ({status}); ask for less with --ring",
                settings.ring
            )
        })?;
        std::thread::Builder::new()
            .name("probe-runtime".into())
            .spawn(write)
            .map_err(|error| format!("no thread to write with: {error}"))?;
        // Functions that are registered later run earlier: CANN, which was there before, is still there.
        // SAFETY: a function without conditions, in a library that is never unloaded.
        #[expect(unsafe_code, reason = "asks the C library to be called at the end")]
        unsafe {
            libc::atexit(control::process_ends);
        }
        if !settings.quiet {
            notes::say(&found(settings.ring));
        }
        Ok(Self { runtime, ring: Ring::new(start, settings.ring) })
    }
}

/// What a recording stands on, where the first launch is recorded: the device, the operators that were looked up until then, and
/// how many of them have parameters that are known.
fn found(ring: usize) -> String {
    let device = device::named();
    let operators = entry::operators();
    let known = operators.iter().filter(|operator| operator.roles.is_some()).count();
    format!(
        "recording on {device}; operators found so far: {}, parameters known of {known}; {} MiB of pinned memory",
        operators.len(),
        ring >> 20
    )
}

/// Whether this process has begun to record.
pub(crate) fn has_begun() -> bool {
    RECORDER.get().is_some()
}

/// Waits until everything that was recorded is written.
pub(crate) fn close() {
    let Some(recorder) = Recorder::begun() else { return };
    if CLOSED.swap(true, Ordering::AcqRel) {
        return;
    }
    recorder.ring.close();
    let mut seen = WRITTEN.load(Ordering::Relaxed);
    let mut since = Instant::now();
    let mut ended = ENDED.0.lock().unwrap_or_else(PoisonError::into_inner);
    while !*ended {
        ended = ENDED.1.wait_timeout(ended, IDLE).unwrap_or_else(PoisonError::into_inner).0;
        let now = WRITTEN.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > STALL {
            notes::say("the device does not finish what was recorded last; the dump ends before it");
            return;
        }
    }
}

/// Part of the report of `probe_agent_report`.
pub(crate) fn report() -> String {
    let missing = Runtime::get().err().unwrap_or("");
    format!(
        ", \"launches\": {}, \"tensors\": {}, \"missing\": {missing:?}, \"soc\": {:?}",
        WRITTEN.load(Ordering::Relaxed),
        TENSORS.load(Ordering::Relaxed),
        device::name(),
    )
}

/// The thread.
fn write() {
    let written = catch_unwind(AssertUnwindSafe(|| {
        // Made before this thread was seen by anybody else.
        let recorder = loop {
            if let Some(recorder) = Recorder::begun() {
                break recorder;
            }
            if has_begun() {
                return;
            }
            std::thread::yield_now();
        };
        let Some(settings) = Settings::get() else { return };
        if let Err(error) = Writer::run(recorder, settings) {
            notes::say(&format!("recording has stopped: {error}"));
            control::give_up();
            // Launches that are under way must not wait for room.
            recorder.ring.close();
            while !matches!(recorder.ring.next(Duration::ZERO), Next::End) {
                recorder.ring.done();
            }
        }
    }));
    if written.is_err() {
        notes::count(Count::Fault, "the writer");
        control::give_up();
        if let Some(recorder) = Recorder::begun() {
            recorder.ring.close();
        }
    }
    *ENDED.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    ENDED.1.notify_all();
}

/// What was measured of a tensor and where its data is.
#[derive(Debug, Clone)]
struct Measured {
    observation: Arc<Observation>,
    data: Option<DataLocation>,
    bytes: Option<Arc<[u8]>>,
}

struct Writer<'a> {
    recorder: &'a Recorder,
    settings: &'a Settings,
    dump: DumpWriter,
    step: Option<u64>,
    /// Calls of each operator in the step.
    calls: HashMap<(&'static str, Arc<str>), u32>,
    known: HashMap<(u128, DType, Box<[i64]>), Measured>,
    /// Launches of each step.
    launches: Vec<(u64, u64)>,
}

impl Writer<'_> {
    fn run(recorder: &Recorder, settings: &Settings) -> Result<(), CaptureError> {
        let dump = DumpWriter::create_over(
            settings.existing(),
            &settings.output,
            &manifest(settings),
            settings::rank(),
        )?;
        let mut writer = Writer {
            recorder,
            settings,
            dump,
            step: None,
            calls: HashMap::new(),
            known: HashMap::new(),
            launches: Vec::new(),
        };
        match writer.take_all() {
            Ok(()) => writer.close(),
            Err(error) => {
                // The first reason is what counts.
                _ = writer.dump.abandon(&error.to_string());
                Err(error)
            }
        }
    }

    fn take_all(&mut self) -> Result<(), CaptureError> {
        let ring = &self.recorder.ring;
        let mut waited = Duration::ZERO;
        let mut gathered = false;
        loop {
            let next = ring.next(IDLE);
            if matches!(next, Next::End) {
                return Ok(());
            }
            let Next::Item(message) = next else {
                if gathered && self.step.is_some() {
                    self.dump.flush()?;
                    gathered = false;
                }
                waited += IDLE;
                // A launch that an exception has left is never finished. One may take long: CANN compiles operators.
                let patience = if CLOSED.load(Ordering::Acquire) { ABANDONED } else { LONGEST_LAUNCH };
                if waited >= patience && ring.holds_back() {
                    waited = Duration::ZERO;
                    notes::count(Count::Dropped, "a launch that did not return");
                    ring.skip();
                }
                continue;
            };
            waited = Duration::ZERO;
            let taken = match message {
                Message::Launch(record) => self.launch(*record),
                Message::StepEnd(step) => self.finish_step(step),
            };
            ring.done();
            taken?;
            gathered = true;
        }
    }

    fn finish_step(&mut self, step: u64) -> Result<(), CaptureError> {
        if self.step == Some(step) {
            self.step = None;
            self.calls.clear();
            self.known.clear();
            self.dump.finish_step()?;
        }
        Ok(())
    }

    /// Writes a launch. Its copies are waited for here.
    fn launch(&mut self, mut record: Record) -> Result<(), CaptureError> {
        self.recorder.runtime.enter(record.context);
        if let Some(event) = record.event.take() {
            let status = self.recorder.runtime.wait(event);
            if status != 0 {
                let why = format!("the stream failed ({status})");
                notes::count(Count::CopyFailed, &why);
                for copied in &mut record.tensors {
                    copied.lose(why.clone());
                }
            }
        }
        if self.step != Some(record.step) {
            if let Some(step) = self.step {
                self.finish_step(step)?;
            }
            self.dump.begin_step(record.step)?;
            self.step = Some(record.step);
            self.launches.push((record.step, 0));
        }
        let api = if record.plan.basis == Basis::Signature { "Aclop" } else { "Aclnn" };
        let number = self.calls.entry((api, record.plan.operator.clone())).or_insert(0);
        let name = format!("{api}.{}.{number}.forward", record.plan.operator);
        *number += 1;
        self.check(&mut record);
        let slots = self.slots(&name, &record)?;
        let scope = record.plan.scope.as_deref();
        let mut notes = Vec::new();
        if let Some(op) = scope.map(|scope| &*scope.op).filter(|op| !op.is_empty()) {
            notes.push(format!("{CALLED_IN}{op}"));
        }
        match record.plan.basis {
            Basis::Difference => notes.push("inputs and outputs told by what changed".to_owned()),
            Basis::Unscanned => notes.push("arguments unknown".to_owned()),
            Basis::Table | Basis::Signature => {}
        }
        notes.extend(record.note);
        self.dump.push(&OpRecord {
            name,
            scope: scope.map(|scope| String::from(&*scope.module)).filter(|module| !module.is_empty()),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            slots,
            ..OpRecord::default()
        })?;
        if let Some((_, count)) = self.launches.last_mut() {
            *count += 1;
        }
        WRITTEN.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What it read and then what it wrote, each numbered in the order of its parameters.
    fn slots(&mut self, op: &str, record: &Record) -> Result<Vec<SlotRecord>, CaptureError> {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let (mut next_input, mut next_output) = (0, 0);
        let mut copies = record.tensors.iter();
        for parameter in &record.plan.parameters {
            let list: &[Option<Arc<Tensor>>] = match &parameter.argument {
                Argument::Tensor(tensor) => &[Some(tensor.clone())],
                Argument::Tensors(tensors) => tensors,
                other => {
                    if parameter.role != Role::Output {
                        plain(&mut inputs, &format!("input.{next_input}"), other);
                        next_input += 1;
                    } else {
                        plain(&mut outputs, &format!("output.{next_output}"), other);
                        next_output += 1;
                    }
                    continue;
                }
            };
            let of_list = matches!(parameter.argument, Argument::Tensors(_));
            let members: Vec<Option<&Copied>> =
                list.iter().map(|tensor| if tensor.is_some() { copies.next() } else { None }).collect();
            let role = members.iter().flatten().next().map_or(parameter.role, |copied| copied.role);
            let (reads, writes) = match role {
                Role::Input => (true, false),
                Role::Output => (false, true),
                Role::Updated => (true, true),
                Role::Unknown => {
                    let changed = members.iter().flatten().any(|copied| self.has_changed(copied));
                    // Whether what it changed was read cannot be told.
                    (true, changed)
                }
            };
            let path = |side: &str, number: usize, at: usize| {
                if of_list { format!("{side}.{number}.{at}") } else { format!("{side}.{number}") }
            };
            if reads {
                for (at, copied) in members.iter().enumerate() {
                    let path = path("input", next_input, at);
                    let value = self.value(op, &path, *copied, |copied| copied.before, record.device)?;
                    inputs.push(SlotRecord { path, side: SlotSide::Input, value });
                }
                next_input += 1;
            }
            if writes {
                for (at, copied) in members.iter().enumerate() {
                    let path = path("output", next_output, at);
                    let value = self.value(op, &path, *copied, |copied| copied.after, record.device)?;
                    outputs.push(SlotRecord { path, side: SlotSide::Output, value });
                }
                next_output += 1;
            }
        }
        inputs.append(&mut outputs);
        Ok(inputs)
    }

    /// Sees to it that what the table says is read was not written to. From then on the operator's parameters are told by what changes.
    fn check(&self, record: &mut Record) {
        for copied in &mut record.tensors {
            let (Some(before), Some(check)) = (copied.before, copied.check.take()) else { continue };
            if self.bytes(before) != self.bytes(check) {
                notes::count(
                    Count::OtherLayout,
                    &format!("aclnn{} writes to what the table says it reads", record.plan.operator),
                );
                if let Some(function) = record.plan.function {
                    function.distrusted.store(true, Ordering::Relaxed);
                }
                (copied.role, copied.after) = (Role::Updated, Some(check));
            }
        }
    }

    fn has_changed(&self, copied: &Copied) -> bool {
        let (Some(before), Some(after)) = (copied.before, copied.after) else { return false };
        self.bytes(before) != self.bytes(after)
    }

    /// What was copied into a piece of the record at hand.
    fn bytes(&self, piece: Piece) -> &[u8] {
        // SAFETY: its event was waited for, and the record is given back later.
        #[expect(unsafe_code, reason = "memory of the ring that the device has written to")]
        unsafe {
            self.recorder.ring.bytes(piece)
        }
    }

    fn value(
        &mut self,
        op: &str,
        path: &str,
        copied: Option<&Copied>,
        which: impl Fn(&Copied) -> Option<Piece>,
        device: i32,
    ) -> Result<SlotValue, CaptureError> {
        let Some(copied) = copied else { return Ok(SlotValue::None) };
        let tensor = &*copied.tensor;
        let dtype = dtype(tensor.dtype);
        let mut facts = TensorFacts {
            dtype: dtype
                .map_or_else(|| format!("acl.{}", tensor.dtype).into(), |dtype| dtype.torch_name().into()),
            shape: tensor.shape.iter().map(|&size| size.cast_unsigned()).collect(),
            strides: Some(tensor.strides.to_vec()),
            device: format!("npu:{device}").into(),
            note: copied.without.clone().or_else(|| layout_note(tensor)),
            ..TensorFacts::default()
        };
        TENSORS.fetch_add(1, Ordering::Relaxed);
        let empty = tensor.shape.contains(&0);
        let Some(dtype) = dtype else {
            facts.note.get_or_insert_with(|| format!("CANN's element type {} is not measured", tensor.dtype));
            return Ok(SlotValue::Tensor(facts));
        };
        let piece = which(copied);
        if piece.is_none() && !empty {
            facts.note.get_or_insert_with(|| "was not copied".to_owned());
            return Ok(SlotValue::Tensor(facts));
        }
        let measured = self.measure(op, path, tensor, dtype, piece)?;
        match measured {
            Some(Measured { observation, data, bytes }) => {
                (facts.observation, facts.data, facts.bytes) = (Some(observation), data, bytes);
            }
            None => {
                facts.note = Some(format!("shape {:?} with strides {:?}", tensor.shape, tensor.strides));
            }
        }
        Ok(SlotValue::Tensor(facts))
    }

    fn measure(
        &mut self,
        op: &str,
        path: &str,
        tensor: &Tensor,
        dtype: DType,
        piece: Option<Piece>,
    ) -> Result<Option<Measured>, CaptureError> {
        let sizes = |values: &[i64]| -> Option<Vec<usize>> {
            values.iter().map(|&value| usize::try_from(value).ok()).collect()
        };
        let (Some(shape), Some(strides)) = (sizes(&tensor.shape), sizes(&tensor.strides)) else {
            return Ok(None);
        };
        // SAFETY: its event was waited for, and the record is given back later. Not through `self`, which is changed below.
        #[expect(unsafe_code, reason = "memory of the ring that the device has written to")]
        let bytes = piece.map_or(&[][..], |piece| unsafe { self.recorder.ring.bytes(piece) });
        let Ok(view) = TensorRef::strided(bytes, dtype, &shape, &strides, 0) else { return Ok(None) };
        let stored = self.settings.content().sketch.is_some() && view.len() * dtype.size() < SMALL_TENSOR;
        let mut content = self.settings.content();
        if stored {
            content.sketch = None;
        }
        let observation = measure::observe(view, content);
        let key = observation.hash.map(|hash| (hash, dtype, tensor.shape.clone()));
        if let Some(known) = key.as_ref().and_then(|key| self.known.get(key)) {
            return Ok(Some(known.clone()));
        }
        let with_data = self.settings.task == CaptureTask::Tensor;
        let whole = (stored || with_data).then(|| elements(&view));
        let data = match &whole {
            Some(whole) if with_data => {
                let shape: Vec<u64> = tensor.shape.iter().map(|&size| size.cast_unsigned()).collect();
                Some(self.dump.push_tensor(&format!("{op}/{path}"), dtype.torch_name(), &shape, whole)?)
            }
            _ => None,
        };
        let bytes = whole.filter(|_| stored).map(Arc::from);
        let measured = Measured { observation: Arc::new(observation), data, bytes };
        if let Some(key) = key {
            if self.known.len() >= KNOWN {
                self.known.clear();
            }
            self.known.insert(key, measured.clone());
        }
        Ok(Some(measured))
    }

    /// Ends the dump. A step that is under way ends with the program.
    fn close(mut self) -> Result<(), CaptureError> {
        if let Some(step) = self.step {
            self.finish_step(step)?;
        }
        let counts = notes::all();
        let lines: Vec<String> = counts
            .iter()
            .map(|(what, tally)| format!("{} {} (first: {})", tally.count, what.line(), tally.first))
            .collect();
        self.dump.close(&lines)?;
        if !self.settings.quiet {
            let steps: Vec<String> = self
                .launches
                .iter()
                .map(|(step, count)| format!("{count} launches in step {step}"))
                .collect();
            let steps = if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") };
            notes::say(&format!("{steps} recorded in {}", self.settings.output.display()));
            for line in lines {
                notes::say(&line);
            }
        }
        Ok(())
    }
}

/// The elements of a view, one after the other.
fn elements(view: &TensorRef<'_>) -> Vec<u8> {
    view.contiguous_bytes().map_or_else(|| view.to_bytes(), <[u8]>::to_vec)
}

/// A remark on where a tensor lies in its memory, and in what format, where that is not what its shape says.
fn layout_note(tensor: &Tensor) -> Option<String> {
    // What torch_npu calls a tensor of so many dimensions: NCL, NCHW, NCDHW, and ND for all others.
    let usual = match tensor.shape.len() {
        3 => 47,
        4 => 0,
        5 => 30,
        _ => 2,
    };
    let mut parts = Vec::new();
    if ![usual, 2, -1].contains(&tensor.format) {
        let name = match tensor.format {
            0 => "NCHW",
            1 => "NHWC",
            27 => "NDHWC",
            30 => "NCDHW",
            47 => "NCL",
            _ => "",
        };
        parts.push(if name.is_empty() {
            format!("format {}", tensor.format)
        } else {
            format!("format {name}")
        });
    }
    if tensor.offset != 0 {
        parts.push(format!("from element {} of {:?}", tensor.offset, tensor.storage));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// An argument that is no tensor; a list gets a slot for each member.
fn plain(slots: &mut Vec<SlotRecord>, path: &str, argument: &Argument) {
    let side = if path.starts_with("output") { SlotSide::Output } else { SlotSide::Input };
    let mut push = |path: String, value: SlotValue| slots.push(SlotRecord { path, side, value });
    let number = |number: Number| SlotValue::Scalar(Scalar::Number(number));
    let at = |index: usize| format!("{path}.{index}");
    match argument {
        Argument::Tensor(_) | Argument::Tensors(_) => {}
        Argument::Scalar(scalar) => push(path.into(), scalar_value(scalar)),
        Argument::Scalars(scalars) => {
            for (index, scalar) in scalars.iter().enumerate() {
                push(at(index), scalar_value(scalar));
            }
        }
        Argument::Integers(values) => {
            for (index, &value) in values.iter().enumerate() {
                push(at(index), number(Number::Int(value)));
            }
        }
        Argument::Reals(values) => {
            for (index, &value) in values.iter().enumerate() {
                push(at(index), number(Number::Float(f64::from(value))));
            }
        }
        Argument::Truths(values) => {
            for (index, &value) in values.iter().enumerate() {
                push(at(index), number(Number::Bool(value)));
            }
        }
        Argument::Integer(value) => push(path.into(), number(Number::Int(*value))),
        Argument::Real(value) => push(path.into(), number(Number::Float(*value))),
        Argument::Truth(value) => push(path.into(), number(Number::Bool(*value))),
        Argument::Text(text) => push(path.into(), SlotValue::Scalar(Scalar::Text(text.as_str().into()))),
        Argument::Absent => push(path.into(), SlotValue::None),
    }
}

fn scalar_value(scalar: &handles::Scalar) -> SlotValue {
    let bytes = scalar.bytes;
    macro_rules! read {
        ($kind:ty) => {{
            let mut first = [0; size_of::<$kind>()];
            first.copy_from_slice(&bytes[..size_of::<$kind>()]);
            <$kind>::from_le_bytes(first)
        }};
    }
    let number = match dtype(scalar.dtype) {
        Some(DType::F32) => Number::Float(f64::from(read!(f32))),
        Some(DType::F64) => Number::Float(read!(f64)),
        Some(DType::Bf16) => Number::Float(f64::from(f32::from_bits(u32::from(read!(u16)) << 16))),
        Some(DType::I8) => Number::Int(read!(i8).into()),
        Some(DType::I16) => Number::Int(read!(i16).into()),
        Some(DType::I32) => Number::Int(read!(i32).into()),
        Some(DType::I64) => Number::Int(read!(i64)),
        Some(DType::U8) => Number::Int(read!(u8).into()),
        Some(DType::U16) => Number::Int(read!(u16).into()),
        Some(DType::U32) => Number::Int(read!(u32).into()),
        Some(DType::U64) => Number::UInt(read!(u64)),
        Some(DType::Bool) => Number::Bool(read!(u8) != 0),
        kind => {
            let kind =
                kind.map_or_else(|| format!("acl.{}", scalar.dtype), |kind| kind.torch_name().to_owned());
            let text = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
            return SlotValue::Scalar(Scalar::printed(kind, text));
        }
    };
    SlotValue::Scalar(Scalar::Number(number))
}

/// The element type by CANN's number of it.
const fn dtype(number: i32) -> Option<DType> {
    Some(match number {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::I8,
        3 => DType::I32,
        4 => DType::U8,
        6 => DType::I16,
        7 => DType::U16,
        8 => DType::U32,
        9 => DType::I64,
        10 => DType::U64,
        11 => DType::F64,
        12 => DType::Bool,
        16 => DType::C64,
        17 => DType::C128,
        27 => DType::Bf16,
        35 => DType::F8E5M2,
        36 => DType::F8E4M3,
        _ => return None,
    })
}

fn manifest(settings: &Settings) -> RunManifest {
    let patterns = |patterns: &[String]| serde_json::Value::from(patterns.to_vec());
    RunManifest {
        framework: Software { name: "cann".into(), version: String::new() },
        device: Device { kind: "npu".into(), name: device::name(), count: device::count() },
        world_size: settings::world_size(),
        run: settings.run.clone(),
        level: CaptureLevel::Runtime,
        task: settings.task,
        config: serde_json::json!({
            "runtime": "acl",
            "step_on": settings.step_on,
            "include": patterns(&settings.include),
            "exclude": patterns(&settings.exclude),
            "max_tensor": settings.max_tensor,
            "ring": settings.ring,
        }),
        started: now(),
        ..RunManifest::default()
    }
}

/// The time, RFC 3339.
fn now() -> String {
    // SAFETY: a plain structure of numbers.
    #[expect(unsafe_code, reason = "a structure of the C library")]
    let mut parts = unsafe { std::mem::zeroed::<libc::tm>() };
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = libc::time_t::try_from(seconds).unwrap_or(0);
    // SAFETY: it reads a number and fills in the structure.
    #[expect(unsafe_code, reason = "the C library knows the calendar")]
    unsafe {
        libc::gmtime_r(&raw const seconds, &raw mut parts);
    }
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}+00:00",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}
