//! Graphs (`torch.npu.NPUGraph`, aclgraph): operators launched during a capture do not run then, but with every
//! replay.
//!
//! Nothing may wait for the device during a capture. So the copies of an operator's inputs and outputs become part of
//! the graph: with every replay they go to memory that belongs to the graph for its lifetime. After a replay in a
//! recorded step an event is recorded in the stream, and the writer reads the memory once the device has reached it;
//! the next replay of the graph waits until the writer has read it. Before the first capture a graph of the agent's
//! own shows whether the device accepts such copies at all.
//!
//! ```text
//! functions   replacements of CANN's: captures, replays, the end of a graph
//! captures    graphs being captured, and the destination of a launch
//! memory      pinned memory shared by graphs
//! trial       a graph with a copy in it, captured and replayed before any of the program's
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::control;
use crate::device::{Context, Event, Runtime, Stream};
use crate::launch::Record;
use crate::notes::{self, Count};
use crate::scope;
use crate::settings::Settings;
use crate::switches;
use crate::writer::{Message, Recorder};

mod captures;
pub(crate) mod functions;
mod memory;
mod trial;

pub(crate) use captures::{Destination, Share, add, destination, is_any_captured, is_run, outside_captures};
use memory::Blocks;

/// A graph that can be replayed.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Number in the order of captures, from 1.
    number: u64,
    /// Its recorded launches, with copies in its memory.
    pub(crate) launches: Vec<Record>,
    /// Number of operators in it.
    operators: u64,
    /// True if copies were made part of it.
    recorded: bool,
    /// True if the launch of one of its operators ends a step.
    ends_step: bool,
    /// Its memory, released when the graph is gone and all of it has been read.
    _memory: Blocks,
    /// Replays whose copies the writer has not read yet.
    unread: Mutex<u32>,
    read: Condvar,
    /// True if a replay came before the previous one was read.
    overwritten: AtomicBool,
    /// True if it is part of another graph, so that its replays cannot be seen.
    nested: AtomicBool,
}

/// Graphs by their handles.
static GRAPHS: Mutex<Option<HashMap<usize, Arc<Graph>>>> = Mutex::new(None);

fn graphs() -> MutexGuard<'static, Option<HashMap<usize, Arc<Graph>>>> {
    GRAPHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A replay in a recorded step, as passed to the writer. While it exists the next one waits.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) graph: Arc<Graph>,
    pub(crate) step: u64,
    /// Reached when the graph has run; `None` if the program waited for it.
    pub(crate) event: Option<Event>,
    pub(crate) context: Context,
}

impl Drop for Replay {
    fn drop(&mut self) {
        let mut unread = self.graph.unread();
        *unread -= 1;
        if *unread == 0 {
            self.graph.overwritten.store(false, Ordering::Release);
        }
        drop(unread);
        self.graph.read.notify_all();
    }
}

impl Graph {
    fn unread(&self) -> MutexGuard<'_, u32> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why the contents of its memory do not belong to the current replay, if so.
    pub(crate) fn is_overwritten(&self) -> Option<String> {
        let overwritten = self.overwritten.load(Ordering::Acquire) || self.nested.load(Ordering::Acquire);
        overwritten.then(|| "overwritten by the next replay: the writer did not keep up".to_owned())
    }

    /// Waits until the copies of earlier replays are read, since the next one overwrites them. Returns false if they
    /// are not.
    fn wait_until_read(&self) -> bool {
        // The writer does not wait for anything while a graph is captured.
        let patience =
            if is_any_captured() { 0 } else { Settings::get().map_or(0, |settings| settings.patience) };
        let until = Instant::now() + Duration::from_secs(patience);
        let mut unread = self.unread();
        while *unread > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.overwritten.store(true, Ordering::Release);
                return false;
            }
            unread = self.read.wait_timeout(unread, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Returns its name for messages.
    fn name(&self) -> String {
        format!("graph {} of {} operators", self.number, self.operators)
    }
}

/// A replay under way.
struct Running {
    /// `None` if its capture was not seen.
    graph: Option<Arc<Graph>>,
    /// True if its memory is free for new copies.
    is_free: bool,
    recording: bool,
}

/// Runs before a replay.
fn begin_replay(handle: usize, stream: Option<Stream>) -> Option<Running> {
    let graph = graphs().as_ref().and_then(|graphs| graphs.get(&handle).cloned());
    let recording = switches::is_recording() && scope::is_on_in_this_thread();
    if let Some(stream) = stream
        && !is_run(stream)
    {
        let what = graph.as_ref().map_or_else(|| "a graph".to_owned(), |graph| graph.name());
        let operators = graph.as_ref().map_or(1, |graph| graph.operators);
        notes::count_many(Count::InGraph, operators, &format!("{what}, which went into another graph"));
        if let Some(graph) = graph {
            graph.nested.store(true, Ordering::Release);
        }
        return None;
    }
    let is_free = graph.as_ref().is_none_or(|graph| graph.launches.is_empty() || graph.wait_until_read());
    let ends_step = graph.as_ref().is_some_and(|graph| graph.ends_step);
    (recording || ends_step).then_some(Running { graph, is_free, recording })
}

impl Running {
    /// Runs after the replay; `stream` is `None` if the program waited for it.
    fn end(self, stream: Option<Stream>) {
        let Some(graph) = self.graph else {
            notes::count(Count::Replayed, "a graph not captured in this process");
            return;
        };
        let ends_step = graph.ends_step;
        if self.recording {
            if !graph.recorded || graph.nested.load(Ordering::Acquire) {
                notes::count(Count::Replayed, &graph.name());
                notes::count_many(Count::InGraph, graph.operators, &graph.name());
            } else if !self.is_free {
                notes::count(Count::Dropped, &format!("a replay of {}", graph.name()));
            } else if !graph.launches.is_empty() {
                push(graph, stream);
            }
        }
        if ends_step {
            control::step_end_replayed();
        }
    }
}

/// Hands the copies of a replay to the writer.
fn push(graph: Arc<Graph>, stream: Option<Stream>) {
    let (Some(recorder), Ok(runtime)) = (Recorder::get(), Runtime::get()) else { return };
    let event = match stream.map(|stream| runtime.mark(stream)).transpose() {
        Ok(event) => event,
        Err(status) => {
            notes::count(Count::CopyFailed, &format!("the stream accepts no mark ({status})"));
            return;
        }
    };
    *graph.unread() += 1;
    let replay = Replay { graph, step: control::step(), event, context: runtime.context() };
    recorder.ring.push(Message::Replay(Box::new(replay)));
}

/// Registers a captured graph under its handle.
fn keep(handle: usize, graph: Graph) {
    graphs().get_or_insert_default().insert(handle, Arc::new(graph));
}

/// Graphs that are gone although the writer has not read all of their copies, which keeps their memory.
static GONE: Mutex<Vec<Weak<Graph>>> = Mutex::new(Vec::new());

fn gone() -> MutexGuard<'static, Vec<Weak<Graph>>> {
    GONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a graph that is gone.
fn forget(handle: usize) {
    let Some(graph) = graphs().as_mut().and_then(|graphs| graphs.remove(&handle)) else { return };
    if *graph.unread() > 0 {
        gone().push(Arc::downgrade(&graph));
    }
}

/// Waits until the writer has read the copies of graphs that are gone, so that the next graph has their memory: not while
/// one is captured, and no longer than the writer is waited for elsewhere. A replay lets go of its graph, and of the memory,
/// only after it has said that it is read: so it is not enough to wait for that.
fn wait_for_gone() {
    const LOOK: Duration = Duration::from_millis(1);
    let patience = Settings::get().map_or(0, |settings| settings.patience);
    let until = Instant::now() + Duration::from_secs(patience);
    for graph in std::mem::take(&mut *gone()) {
        while graph.strong_count() > 0 && !is_any_captured() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}
