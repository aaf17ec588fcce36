//! Pinned memory for the copies of graphs: of fixed size, and shared by all graphs. A graph keeps its part until it
//! is gone.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::{Context, Runtime};
use crate::notes;
use crate::ring::rounded;
use crate::settings::Settings;

/// A part of the memory: start and size in bytes.
type Block = (usize, usize);

#[derive(Debug)]
struct Memory {
    /// Free parts, by start.
    gaps: BTreeMap<usize, usize>,
    /// Parts returned by graphs, with the context of each. The device may still copy into them.
    returned: Vec<(Context, Vec<Block>)>,
}

#[derive(Debug)]
enum State {
    /// No graph has been captured yet.
    Unasked,
    /// Graphs are not recorded; the reason was reported.
    Refused,
    There(Memory),
}

static STATE: Mutex<State> = Mutex::new(State::Unasked);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if graphs have memory.
pub(super) fn is_there() -> bool {
    matches!(*state(), State::There(_))
}

/// Makes all memory that no graph uses available to the next graph; the first time, reserves `bytes` bytes if `trial`
/// finds that the device copies into them. Waits for the device, so nothing may be captured meanwhile. Returns false
/// if graphs are not recorded.
pub(super) fn begin(
    runtime: &Runtime,
    bytes: usize,
    trial: impl FnOnce(&Runtime, usize) -> Result<(), String>,
) -> bool {
    let mut state = state();
    if matches!(*state, State::Unasked) {
        *state = match reserve(runtime, bytes, trial) {
            Ok(memory) => {
                say(&format!(
                    "graphs are recorded: their tensors are copied with every replay, to up to {} MiB of pinned memory (--graph-memory)",
                    bytes >> 20
                ));
                State::There(memory)
            }
            Err(why) => {
                notes::say(&format!("graphs are NOT RECORDED: {why}"));
                State::Refused
            }
        };
    }
    let State::There(memory) = &mut *state else { return false };
    memory.reclaim(runtime);
    true
}

/// Prints a line that is not a warning.
fn say(text: &str) {
    if Settings::get().is_some_and(|settings| !settings.quiet) {
        notes::say(text);
    }
}

fn reserve(
    runtime: &Runtime,
    bytes: usize,
    trial: impl FnOnce(&Runtime, usize) -> Result<(), String>,
) -> Result<Memory, String> {
    if bytes == 0 {
        return Err("--graph-memory is 0".to_owned());
    }
    let bytes = rounded(bytes);
    let start = runtime.pinned(bytes).map_err(|status| {
        format!("cannot get {bytes} bytes of pinned memory ({status}); ask for less with --graph-memory")
    })?;
    trial(runtime, start.addr())?;
    Ok(Memory { gaps: BTreeMap::from([(start.addr(), bytes)]), returned: Vec::new() })
}

impl Memory {
    /// Takes back the parts returned by graphs, once their devices have finished with them.
    fn reclaim(&mut self, runtime: &Runtime) {
        if self.returned.is_empty() {
            return;
        }
        let own = runtime.context();
        let mut waited: Vec<Context> = Vec::new();
        for (context, blocks) in std::mem::take(&mut self.returned) {
            if !waited.contains(&context) {
                runtime.enter(context);
                if runtime.finish() != 0 {
                    // A device that failed no longer writes, and reports the failure to the program itself.
                    notes::count(notes::Count::CopyFailed, "a device failed before a capture");
                }
                waited.push(context);
            }
            for (start, bytes) in blocks {
                self.give_back(start, bytes);
            }
        }
        runtime.enter(own);
    }

    fn take(&mut self, bytes: usize) -> Option<usize> {
        let (&start, &room) = self.gaps.iter().find(|(_, room)| **room >= bytes)?;
        self.gaps.remove(&start);
        if room > bytes {
            self.gaps.insert(start + bytes, room - bytes);
        }
        Some(start)
    }

    fn give_back(&mut self, mut start: usize, mut bytes: usize) {
        if let Some(after) = self.gaps.remove(&(start + bytes)) {
            bytes += after;
        }
        if let Some((&before, &room)) = self.gaps.range(..start).next_back()
            && before + room == start
        {
            (start, bytes) = (before, room + bytes);
        }
        self.gaps.insert(start, bytes);
    }
}

/// The parts of a graph, returned when it is gone.
#[derive(Debug)]
pub(super) struct Blocks {
    context: Option<Context>,
    blocks: Vec<Block>,
}

impl Blocks {
    /// Returns an empty set of parts for a graph in this context.
    pub(super) const fn new(context: Option<Context>) -> Self {
        Self { context, blocks: Vec::new() }
    }

    /// Takes this many bytes; `None` if there is no contiguous part.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = rounded(bytes.max(1));
        let State::There(memory) = &mut *state() else { return None };
        let start = memory.take(bytes)?;
        self.blocks.push((start, bytes));
        Some(start)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        if let (Some(context), State::There(memory)) = (self.context, &mut *state())
            && !self.blocks.is_empty()
        {
            memory.returned.push((context, std::mem::take(&mut self.blocks)));
        }
    }
}
