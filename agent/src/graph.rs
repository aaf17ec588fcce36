//! Graphs (`torch.npu.NPUGraph`, aclgraph): what is launched while one is captured does not run then, but with every replay.
//!
//! Nothing may wait for the device meanwhile. So the copies of what an operator reads and writes become part of the graph: they go to
//! memory that is the graph's for as long as it is there, with every replay. Behind a replay in a recorded step a mark is put
//! into the stream, and the writer reads the memory when the device has got there; the next replay of the graph waits until it has.
//! Before the first capture a graph of the agent's own shows whether the device takes such copies at all.
//!
//! ```text
//! functions   in place of CANN's: captures, replays, the end of a graph
//! captures    what is being captured, and where a launch goes
//! memory      pinned memory, of which graphs have shares
//! trial       a graph with a copy in it, captured and replayed before any of the program's
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::control;
use crate::device::{Context, Event, Runtime, Stream};
use crate::launch::Record;
use crate::notes::{self, Count};
use crate::settings::Settings;
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
    /// In the order of captures, from 1.
    number: u64,
    /// Its launches that are recorded, with copies in its memory.
    pub(crate) launches: Vec<Record>,
    /// Operators that went into it.
    operators: u64,
    /// Whether its copies were made part of it.
    recorded: bool,
    /// Whether the launch of one of its operators ends a step.
    ends_step: bool,
    /// Its memory, given back when it is gone and nothing of it is left to be read.
    _memory: Blocks,
    /// Replays whose copies the writer has not read yet.
    unread: Mutex<u32>,
    read: Condvar,
    /// A replay came before the one before it was read.
    overwritten: AtomicBool,
    /// Part of another graph, whose replays nobody sees.
    nested: AtomicBool,
}

/// Graphs by their handles.
static GRAPHS: Mutex<Option<HashMap<usize, Arc<Graph>>>> = Mutex::new(None);

fn graphs() -> MutexGuard<'static, Option<HashMap<usize, Arc<Graph>>>> {
    GRAPHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A replay in a step that is recorded, as the writer gets it. While it is there the next one waits.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) graph: Arc<Graph>,
    pub(crate) step: u64,
    /// Reached when the graph has run; `None` where it was waited for.
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

    /// Why what is in its memory is not that of the replay at hand.
    pub(crate) fn is_overwritten(&self) -> Option<String> {
        let overwritten = self.overwritten.load(Ordering::Acquire) || self.nested.load(Ordering::Acquire);
        overwritten.then(|| "overwritten by the next replay: the writer did not keep up".to_owned())
    }

    /// Waits until the copies of earlier replays are read: the next one makes them anew. False where they are not.
    fn wait_until_read(&self) -> bool {
        // The writer waits for nothing while a graph is captured.
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

    /// What it is called in remarks.
    fn name(&self) -> String {
        format!("graph {} of {} operators", self.number, self.operators)
    }
}

/// A replay that is under way.
struct Running {
    /// `None` where its capture was not seen.
    graph: Option<Arc<Graph>>,
    /// Whether its memory is free for new copies.
    is_free: bool,
    recording: bool,
}

/// What is done in front of a replay.
fn begin_replay(handle: usize, stream: Option<Stream>) -> Option<Running> {
    let graph = graphs().as_ref().and_then(|graphs| graphs.get(&handle).cloned());
    let recording = control::is_recording() && control::is_on_in_this_thread();
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
    /// What is done behind it; `stream` is `None` where it was waited for.
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

/// A graph was captured, and has this handle.
fn keep(handle: usize, graph: Graph) {
    graphs().get_or_insert_default().insert(handle, Arc::new(graph));
}

/// A graph is gone.
fn forget(handle: usize) {
    let gone = graphs().as_mut().and_then(|graphs| graphs.remove(&handle));
    drop(gone);
}
