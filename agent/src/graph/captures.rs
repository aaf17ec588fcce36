//! Captures under way: the streams that each graph captures, and the launches captured so far.

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
use crate::switches;
use crate::symbols::{self, Address};
use crate::writer::Recorder;

/// A graph being captured.
#[derive(Debug)]
pub(crate) struct Capture {
    /// Number in the order of captures, from 1.
    number: u64,
    /// Stream on which it began.
    origin: Stream,
    /// CANN's handle of the future graph; 0 if it does not tell.
    handle: usize,
    /// True if copies go into it.
    recorded: bool,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    launches: Vec<Record>,
    memory: Blocks,
    operators: u64,
    ends_step: bool,
    /// Streams with an open group of operators that the program will update.
    grouped: Vec<Stream>,
}

impl Content {
    /// Returns the empty content of a graph in this context.
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
/// Number of captures under way or about to begin, and a signal for their end.
static UNDER_WAY: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());
/// The same number, for a check without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NUMBER: Mutex<u64> = Mutex::new(0);
/// Streams on which operators of a graph are being given new arguments.
static UPDATED: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Destination of work put into a stream.
#[derive(Debug)]
pub(crate) enum Destination {
    /// To the device.
    Device,
    /// Into a graph.
    Graph(Arc<Capture>),
    /// Neither: it is an update of a graph, or a capture that failed.
    Nowhere,
}

impl Destination {
    pub(crate) const fn is_graph(&self) -> bool {
        matches!(self, Self::Graph(_))
    }
}

/// Returns true if a graph is being captured.
pub(crate) fn is_any_captured() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Returns true if work put into this stream runs once the stream reaches it.
pub(crate) fn is_run(stream: Stream) -> bool {
    matches!(destination(stream), Destination::Device)
}

/// Returns the destination of work put into this stream.
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
        // Without the query function, everything goes to the latest capture.
        None => captures.last().cloned().map_or(Destination::Device, Destination::Graph),
        Some((NONE, _)) => Destination::Device,
        Some((ACTIVE, handle)) => of_handle(handle).cloned().map_or(Destination::Nowhere, Destination::Graph),
        Some(_) => Destination::Nowhere,
    }
}

/// CANN's numbers for a stream that is not captured, and for one that is.
const NONE: i32 = 0;
const ACTIVE: i32 = 1;

/// Returns whether a stream is captured, and the handle of its graph; `None` if CANN does not tell.
fn status(stream: Stream) -> Option<(i32, usize)> {
    type Info = unsafe extern "C" fn(u64, *mut i32, *mut usize) -> Status;
    let found = symbols::of_cann(c"aclmdlRICaptureGetInfo")?;
    let (mut status, mut graph) = (NONE, 0);
    // SAFETY: the address of CANN's function of this name, whose signature is public; it writes a number and a handle.
    let told =
        unsafe { std::mem::transmute::<Address, Info>(found)(stream.0, &raw mut status, &raw mut graph) };
    (told == 0).then_some((status, graph))
}

/// Does work that is not allowed while a graph is captured: waits until none is, unless `in_haste` says that nobody
/// will end a capture any more.
pub(crate) fn outside_captures<T>(in_haste: impl Fn() -> bool, work: impl FnOnce() -> T) -> T {
    const LOOK: Duration = Duration::from_millis(200);
    let mut count = locked(&UNDER_WAY.0);
    while *count > 0 && !in_haste() {
        count = UNDER_WAY.1.wait_timeout(count, LOOK).unwrap_or_else(PoisonError::into_inner).0;
    }
    // Anyone about to capture waits until it is done.
    work()
}

/// Announces a capture: nothing may wait from now on. Any waiting needed before copies can go into the graph is done
/// here; returns whether they can.
pub(super) fn announce() -> bool {
    let wanted = notes::guarded("a capture", || control::will_record() && Recorder::get().is_some());
    if wanted == Some(true) {
        // The writer may wait for the end of captures: before this one is announced.
        notes::guarded("a capture", super::wait_for_gone);
    }
    let mut count = locked(&UNDER_WAY.0);
    let prepare = || {
        let (Some(settings), Ok(runtime)) = (Settings::get(), Runtime::get()) else { return false };
        memory::begin(runtime, settings.graph_memory, trial::run)
    };
    let recorded = match (wanted, *count) {
        (Some(true), 0) => notes::guarded("a capture", prepare).unwrap_or(false),
        // Beside another capture nothing may wait.
        (Some(true), _) => memory::is_there(),
        _ => false,
    };
    *count += 1;
    COUNT.store(*count, Ordering::Release);
    recorded
}

/// Withdraws an announced capture that is over, or has not begun.
fn withdraw() {
    let mut count = locked(&UNDER_WAY.0);
    *count = count.saturating_sub(1);
    COUNT.store(*count, Ordering::Release);
    drop(count);
    UNDER_WAY.1.notify_all();
}

/// Notes that the announced capture has begun on this stream, or that CANN has refused.
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

/// Ends the capture that began on this stream; returns the graph if it `succeeded`.
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

/// A launch's share of the graph that it goes into.
#[derive(Debug)]
pub(crate) struct Share {
    capture: Arc<Capture>,
    grouped: bool,
}

/// Adds an operator to a graph; `None` if its launches are not recorded, because it is not `wanted` or the graph has
/// no copies.
pub(crate) fn add(capture: Arc<Capture>, stream: Stream, plan: &Plan, wanted: bool) -> Option<Share> {
    let mut content = locked(&capture.content);
    content.operators += 1;
    let kind = if plan.basis == Basis::Signature { "aclop" } else { "aclnn" };
    content.ends_step |= switches::ends_step(kind, &plan.operator);
    let grouped = content.grouped.contains(&stream);
    drop(content);
    (wanted && capture.recorded).then_some(Share { capture, grouped })
}

impl Share {
    /// Returns a remark for the launches of a replay.
    pub(crate) fn note(&self) -> String {
        format!("replay of graph {}", self.capture.number)
    }

    /// Returns true if the program gives the operator new arguments between replays: nothing may be added beside it.
    pub(crate) const fn is_grouped(&self) -> bool {
        self.grouped
    }

    /// Returns memory of the graph for its copies; `None` if there is none left.
    pub(crate) fn room(&self, bytes: usize) -> Option<usize> {
        locked(&self.capture.content).memory.take(bytes)
    }

    /// Stores a launch that has gone into the graph.
    pub(crate) fn keep(self, record: Record) {
        locked(&self.capture.content).launches.push(record);
    }
}

/// Begins or ends a group in a stream, whose operators the program will update.
pub(super) fn group(stream: Stream, begins: bool) {
    let Destination::Graph(capture) = destination(stream) else { return };
    let mut content = locked(&capture.content);
    content.grouped.retain(|other| *other != stream);
    if begins {
        content.grouped.push(stream);
    }
}

/// Begins or ends an update in a stream, whose operators change a graph.
pub(super) fn update(stream: Stream, begins: bool) {
    let mut updated = locked(&UPDATED);
    updated.retain(|other| *other != stream);
    if begins {
        updated.push(stream);
    }
}
