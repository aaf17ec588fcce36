//! A thread that takes items from the ring, measures them with the kernels of probe, and writes the dump.
//!
//! ```text
//! launches    the order of the dump: steps, and the launches in them
//! slots       inputs and outputs of a launch, measured
//! arguments   numbers, texts and lists among the arguments
//! manifest    description of the run in the dump
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::device::{self, Runtime};
use crate::graph::Replay;
use crate::launch::Record;
use crate::notes::{self, Count};
use crate::ring::{Next, Ring};
use crate::settings::Settings;
use crate::{control, stubs, switches};

mod arguments;
mod launches;
mod manifest;
mod slots;

use launches::Writer;

/// Messages to the writer, in order.
#[derive(Debug)]
pub(crate) enum Message {
    Launch(Box<Record>),
    Replay(Box<Replay>),
    StepEnd(u64),
}

/// The ring, and the runtime that fills it.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) runtime: &'static Runtime,
    pub(crate) ring: Ring<Message>,
}

static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();
/// True once the thread has ended, and a signal for that.
static ENDED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
/// Launches written so far.
static WRITTEN: AtomicU64 = AtomicU64::new(0);
/// Tensors measured so far.
static TENSORS: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Longest wait at the end of the process for a writer that makes no progress.
const STALL: Duration = Duration::from_secs(30);
/// Gathered records are written at least this often while nothing arrives.
const IDLE: Duration = Duration::from_millis(500);
impl Recorder {
    /// Returns the recorder of this process, created at the first recorded launch; `None` if it cannot record.
    pub(crate) fn get() -> Option<&'static Self> {
        RECORDER
            .get_or_init(|| {
                Self::begin()
                    .map_err(|why| {
                        notes::say(&format!("nothing is recorded: {why}"));
                        switches::give_up();
                    })
                    .ok()
            })
            .as_ref()
    }

    /// Returns the recorder, if there is one already.
    pub(crate) fn begun() -> Option<&'static Self> {
        RECORDER.get()?.as_ref()
    }

    fn begin() -> Result<Self, String> {
        let settings = Settings::get().ok_or("it was not asked for")?;
        let runtime = Runtime::get()?;
        let start = runtime.pinned(settings.ring).map_err(|status| {
            format!(
                "cannot get {} bytes of pinned memory ({status}); ask for less with --ring",
                settings.ring
            )
        })?;
        std::thread::Builder::new()
            .name("probe-runtime".into())
            .spawn(write)
            .map_err(|error| format!("cannot start the writer: {error}"))?;
        // Functions registered later run earlier: CANN, which registered before, is still there.
        // SAFETY: a function without preconditions, in a library that is never unloaded.
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

/// Describes the recording at the first recorded launch: the device, the operators looked up until then, and the
/// number of them with known parameters.
fn found(ring: usize) -> String {
    let device = device::named();
    let operators = stubs::operators();
    let known = operators.iter().filter(|operator| operator.roles.is_some()).count();
    format!(
        "recording on {device}; operators found so far: {}, parameters known for {known}; {} MiB of pinned memory",
        operators.len(),
        ring >> 20
    )
}

/// Returns true if this process has begun to record.
pub(crate) fn has_begun() -> bool {
    RECORDER.get().is_some()
}

/// Waits until everything recorded is written.
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
            notes::say("the device does not finish the last recorded work; the dump ends before it");
            return;
        }
    }
}

/// Returns part of the report of `probe_agent_report`.
pub(crate) fn report() -> String {
    let missing = Runtime::get().err().unwrap_or("");
    format!(
        ", \"launches\": {}, \"tensors\": {}, \"missing\": {missing:?}, \"soc\": {:?}",
        WRITTEN.load(Ordering::Relaxed),
        TENSORS.load(Ordering::Relaxed),
        device::name(),
    )
}

/// Body of the writer thread.
fn write() {
    let written = catch_unwind(AssertUnwindSafe(|| {
        // This thread starts while the recorder is still being created. One look decides: between two of them the
        // recorder may be finished, and nothing would be written.
        let recorder = loop {
            match RECORDER.get() {
                Some(Some(recorder)) => break recorder,
                Some(None) => return,
                None => std::thread::yield_now(),
            }
        };
        let Some(settings) = Settings::get() else { return };
        if let Err(error) = Writer::run(recorder, settings) {
            notes::say(&format!("recording has stopped: {error}"));
            switches::give_up();
            // Launches under way must not wait for room.
            recorder.ring.close();
            while !matches!(recorder.ring.next(Duration::ZERO), Next::End) {
                recorder.ring.done();
            }
        }
    }));
    if written.is_err() {
        notes::count(Count::Fault, "the writer");
        switches::give_up();
        if let Some(recorder) = Recorder::begun() {
            recorder.ring.close();
        }
    }
    *ENDED.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    ENDED.1.notify_all();
}
