//! A thread that takes what has arrived in the ring, measures it with the kernels of probe, and writes the dump.
//!
//! ```text
//! launches    the order of the dump: steps, and the launches in them
//! slots       what a launch read and wrote, measured
//! arguments   numbers, texts and lists among what it was given
//! manifest    what the dump says of itself
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
use crate::{control, entry};

mod arguments;
mod launches;
mod manifest;
mod slots;

use launches::Writer;

/// What the writer is told, in order.
#[derive(Debug)]
pub(crate) enum Message {
    Launch(Box<Record>),
    Replay(Box<Replay>),
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
/// What was gathered is written at least this often while nothing arrives.
const IDLE: Duration = Duration::from_millis(500);
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
                "cannot get {} bytes of pinned memory ({status}); ask for less with --ring",
                settings.ring
            )
        })?;
        std::thread::Builder::new()
            .name("probe-runtime".into())
            .spawn(write)
            .map_err(|error| format!("cannot start the writer: {error}"))?;
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
        "recording on {device}; operators found so far: {}, parameters known for {known}; {} MiB of pinned memory",
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
            notes::say("the device does not finish the last recorded work; the dump ends before it");
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
