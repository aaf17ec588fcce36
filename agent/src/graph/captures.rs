//! Captures that are under way: which streams go into which graph, and what has gone into it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::memory::{self, Blocks};
use super::{Graph, trial};
use crate::acl::Status;
use crate::control;
use crate::device::{Context, Runtime, Stream};
use crate::launch::Record;
use crate::notes;
use crate::plan::{Basis, Plan};
use crate::settings::Settings;
use crate::symbols::{self, Address};
use crate::writer::Recorder;

/// A graph that is being captured.
#[derive(Debug)]
pub(crate) struct Capture {
    /// In the order of captures, from 1.
    number: u64,
    /// Where it began.
    origin: Stream,
    /// CANN's handle of the graph to be; 0 where it does not tell.
    handle: usize,
    /// Whether copies go into it.
    recorded: bool,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    launches: Vec<Record>,
    memory: Blocks,
    operators: u64,
    ends_step: bool,
    /// Streams with a group of operators that the program will change.
    grouped: Vec<Stream>,
}

impl Content {
    /// Of a graph of this context, into which nothing has gone yet.
    const fn new(context: Option<Context>) -> Self {
        Self {
            launches: Vec::new(),
            memory: Blocks::new(context),
            operators: 0,
            ends_step: false,
            grouped: Vec::new(),
        }
    }
}

static CAPTURES: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
/// Captures that are under way or about to be, and a bell for their end.
static UNDER_WAY: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());
/// The same number, for a glance.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NUMBER: Mutex<u64> = Mutex::new(0);
/// Streams on which operators of a graph are given other arguments.
static UPDATED: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where what is put into a stream goes.
#[derive(Debug)]
pub(crate) enum Destination {
    /// To the device.
    Device,
    /// Into a graph.
    Graph(Arc<Capture>),
    /// Neither: it is a change of a graph, or a capture that failed.
    Nowhere,
}

impl Destination {
    pub(crate) const fn is_graph(&self) -> bool {
        matches!(self, Self::Graph(_))
    }
}

/// Whether a graph is being captured.
pub(crate) fn is_any_captured() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Whether what is put into this stream runs, when the stream gets there.
pub(crate) fn is_run(stream: Stream) -> bool {
    matches!(destination(stream), Destination::Device)
}

/// Where what is put into this stream goes.
pub(crate) fn destination(stream: Stream) -> Destination {
    if locked(&UPDATED).contains(&stream) {
        return Destination::Nowhere;
    }
    if !is_any_captured() {
        return Destination::Device;
    }
    let captures = locked(&CAPTURES);
    let of_handle = |handle: usize| {
        let known = captures.iter().find(|capture| handle != 0 && capture.handle == handle);
        known.or_else(|| captures.iter().find(|capture| capture.origin == stream)).or(match &captures[..] {
            [only] => Some(only),
            _ => None,
        })
    };
    match status(stream) {
        // Without the function that tells, everything goes there.
        None => captures.last().cloned().map_or(Destination::Device, Destination::Graph),
        Some((NONE, _)) => Destination::Device,
        Some((ACTIVE, handle)) => of_handle(handle).cloned().map_or(Destination::Nowhere, Destination::Graph),
        Some(_) => Destination::Nowhere,
    }
}

/// CANN's numbers for a stream that is not captured, and for one that is.
const NONE: i32 = 0;
const ACTIVE: i32 = 1;

/// Whether a stream is captured, and the handle of its graph; `None` where CANN does not tell.
fn status(stream: Stream) -> Option<(i32, usize)> {
    type Info = unsafe extern "C" fn(u64, *mut i32, *mut usize) -> Status;
    let found = symbols::of_cann(c"aclmdlRICaptureGetInfo")?;
    let (mut status, mut graph) = (NONE, 0);
    // SAFETY: the address of CANN's function of this name, whose signature is public; it writes a number and a handle.
    let told =
        unsafe { std::mem::transmute::<Address, Info>(found)(stream.0, &raw mut status, &raw mut graph) };
    (told == 0).then_some((status, graph))
}

/// Does something that may not be done while a graph is captured: afterwards, unless `in_haste` says that nobody will end a capture any more.
pub(crate) fn outside_captures<T>(in_haste: impl Fn() -> bool, work: impl FnOnce() -> T) -> T {
    const LOOK: Duration = Duration::from_millis(200);
    let mut count = locked(&UNDER_WAY.0);
    while *count > 0 && !in_haste() {
        count = UNDER_WAY.1.wait_timeout(count, LOOK).unwrap_or_else(PoisonError::into_inner).0;
    }
    // Whoever is about to capture waits until it is done.
    work()
}

/// A capture is about to begin: nothing is waited for from now on. What has to be waited for so that copies can go into the graph is waited for
/// here; the answer is whether they can.
pub(super) fn announce() -> bool {
    let wanted = notes::guarded("a capture", || control::will_record() && Recorder::get().is_some());
    let mut count = locked(&UNDER_WAY.0);
    let prepare = || {
        let (Some(settings), Ok(runtime)) = (Settings::get(), Runtime::get()) else { return false };
        memory::begin(runtime, settings.graph_memory, trial::run)
    };
    let recorded = match (wanted, *count) {
        (Some(true), 0) => notes::guarded("a capture", prepare).unwrap_or(false),
        // Beside another capture nothing may be waited for.
        (Some(true), _) => memory::is_there(),
        _ => false,
    };
    *count += 1;
    COUNT.store(*count, Ordering::Release);
    recorded
}

/// It is over, or has not begun.
fn withdraw() {
    let mut count = locked(&UNDER_WAY.0);
    *count = count.saturating_sub(1);
    COUNT.store(*count, Ordering::Release);
    drop(count);
    UNDER_WAY.1.notify_all();
}

/// The capture that was announced has begun on this stream, or CANN has refused.
pub(super) fn begun(origin: Stream, succeeded: bool, recorded: bool) {
    if !succeeded {
        return withdraw();
    }
    let number = {
        let mut number = locked(&NUMBER);
        *number += 1;
        *number
    };
    let content = Content::new(Runtime::get().map(Runtime::context).ok());
    let handle = status(origin).map_or(0, |(_, handle)| handle);
    let capture = Capture { number, origin, handle, recorded, content: Mutex::new(content) };
    locked(&CAPTURES).push(Arc::new(capture));
    control::resettle();
}

/// The capture that began on this stream is over; the graph is there where that `succeeded`.
pub(super) fn ended(origin: Stream, succeeded: bool) -> Option<Graph> {
    let capture = {
        let mut captures = locked(&CAPTURES);
        let place = captures.iter().position(|capture| capture.origin == origin)?;
        captures.remove(place)
    };
    withdraw();
    control::resettle();
    let mut content = locked(&capture.content);
    let content = std::mem::replace(&mut *content, Content::new(None));
    succeeded.then(|| Graph::captured(capture.number, capture.recorded, content))
}

impl Graph {
    fn captured(number: u64, recorded: bool, content: Content) -> Self {
        let Content { launches, memory, operators, ends_step, grouped: _ } = content;
        Self {
            number,
            launches,
            operators,
            recorded,
            ends_step,
            _memory: memory,
            unread: Mutex::new(0),
            read: Condvar::new(),
            overwritten: false.into(),
            nested: false.into(),
        }
    }
}

/// What a launch has of the graph that it goes into.
#[derive(Debug)]
pub(crate) struct Share {
    capture: Arc<Capture>,
    grouped: bool,
}

/// Takes an operator into a graph; `None` where its launches are not recorded, as they are if it is not `wanted`.
pub(crate) fn add(capture: Arc<Capture>, stream: Stream, plan: &Plan, wanted: bool) -> Option<Share> {
    let mut content = locked(&capture.content);
    content.operators += 1;
    let kind = if plan.basis == Basis::Signature { "aclop" } else { "aclnn" };
    content.ends_step |= control::ends_step(kind, &plan.operator);
    let grouped = content.grouped.contains(&stream);
    drop(content);
    (wanted && capture.recorded).then_some(Share { capture, grouped })
}

impl Share {
    /// A remark on the launches of a replay.
    pub(crate) fn note(&self) -> String {
        format!("replay of graph {}", self.capture.number)
    }

    /// Whether the program gives the operator other arguments from replay to replay: nothing may be added beside it.
    pub(crate) const fn is_grouped(&self) -> bool {
        self.grouped
    }

    /// Memory of the graph for its copies; `None` where there is none left.
    pub(crate) fn room(&self, bytes: usize) -> Option<usize> {
        locked(&self.capture.content).memory.take(bytes)
    }

    /// The launch has gone into the graph.
    pub(crate) fn keep(self, record: Record) {
        locked(&self.capture.content).launches.push(record);
    }
}

/// Operators that go into a stream from now on are a group that the program will change, or are no longer.
pub(super) fn group(stream: Stream, begins: bool) {
    let Destination::Graph(capture) = destination(stream) else { return };
    let mut content = locked(&capture.content);
    content.grouped.retain(|other| *other != stream);
    if begins {
        content.grouped.push(stream);
    }
}

/// Operators that go into a stream from now on change a graph, or no longer do.
pub(super) fn update(stream: Stream, begins: bool) {
    let mut updated = locked(&UPDATED);
    updated.retain(|other| *other != stream);
    if begins {
        updated.push(stream);
    }
}
