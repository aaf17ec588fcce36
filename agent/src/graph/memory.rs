//! Pinned memory for the copies of graphs: of fixed size, and shared by all graphs. A graph has its part until it is gone.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::{Context, Runtime};
use crate::notes;
use crate::ring::rounded;
use crate::settings::Settings;

/// A part of the memory: where it begins, and its bytes.
type Block = (usize, usize);

#[derive(Debug)]
struct Memory {
    /// What is free, by where it begins.
    gaps: BTreeMap<usize, usize>,
    /// What graphs have given back, with the context of each. The device may still copy into it.
    returned: Vec<(Context, Vec<Block>)>,
}

#[derive(Debug)]
enum State {
    /// No graph was captured yet.
    Unasked,
    /// Graphs are not recorded, and why was said.
    Refused,
    There(Memory),
}

static STATE: Mutex<State> = Mutex::new(State::Unasked);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether graphs have memory.
pub(super) fn is_there() -> bool {
    matches!(*state(), State::There(_))
}

/// Sees to it that the next graph finds all memory that no graph has; so many bytes the first time, if `trial` finds that the device copies into
/// it. Waits for the device, so that nothing may be captured meanwhile. False where graphs are not recorded.
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

/// A line that is no warning.
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
    /// Takes back what graphs have left, once their devices are done with it.
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
                    // A device that failed writes nothing any more, and tells the program itself.
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

/// The parts of a graph, given back when it is gone.
#[derive(Debug)]
pub(super) struct Blocks {
    context: Option<Context>,
    blocks: Vec<Block>,
}

impl Blocks {
    /// None yet, of a graph of this context.
    pub(super) const fn new(context: Option<Context>) -> Self {
        Self { context, blocks: Vec::new() }
    }

    /// Takes so many bytes; `None` where there are none in a row.
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
