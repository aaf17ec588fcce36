//! The writer behind the recorder: accepts records, keeps the first failure, and stays silent after it.
//!
//! Records are written in batches: written one by one, each would find its code evicted from the processor's caches.
//! If the program leaves a processor unused they are written there. Written data is handed to the system at once: a
//! program that is killed loses only the waiting records, [`BATCH`] of them or those of [`AGE`], whichever is less.
//!
//! Records that have waited for a device are written by a thread when their step has ended, while the program goes on:
//! one step at most. Whatever else is asked of the tape waits for it. So the next step begins in the writer only when its
//! first record is written.

mod ending;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use probe::capture::{CaptureError, DumpWriter, OpRecord, SlotValue};
use probe::dump::{NO_DATA, TensorRef};
use probe::measure::background;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::measure::DataName;
use crate::nonfinite::introduced;
use crate::token::Written;
pub(crate) use ending::End;

/// Most records that wait; …
const BATCH: usize = 32;
/// … a helper, if there is one, is asked to write at this many, …
const HELPED: usize = 16;
/// … unless the previous batch is this old, …
const AGE: Duration = Duration::from_millis(150);
/// … which is checked this often if no more records arrive.
const LOOK: Duration = Duration::from_millis(50);

/// The writer, and its state so far.
#[derive(Debug, Default)]
struct Reel {
    writer: Option<DumpWriter>,
    /// Reason why recording ended early.
    failed: Option<String>,
    /// Bytes of data written in this step.
    bytes: u64,
    /// Tensors whose data exceeded the budget, in all steps.
    left_out: u64,
    /// Each step that was written, with the tally before it.
    begun: Vec<(u64, Tally)>,
}

/// A step that has begun but not been written: a step without ops leaves nothing behind.
#[derive(Debug)]
struct Opening {
    step: u64,
    /// Its call stacks, in the order of their numbers: a call may be seen but not recorded.
    stacks: Vec<Arc<[String]>>,
    numbers: HashMap<Arc<[String]>, u32>,
}

/// Amounts recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) ops: u64,
    /// Tensors among the values of the ops.
    pub(crate) tensors: u64,
    /// Tensors that could not be measured.
    pub(crate) unmeasured: u64,
    /// The first of these, and the reason.
    pub(crate) first: Option<Arc<str>>,
}

impl Tally {
    fn add(&mut self, op: &OpRecord) {
        self.ops += 1;
        for slot in &op.slots {
            let SlotValue::Tensor(facts) = &slot.value else { continue };
            self.tensors += 1;
            let reason = facts.note.as_deref().unwrap_or_default();
            // Without elements there was nothing to measure.
            if facts.observation.is_none() && !reason.starts_with(NO_DATA) {
                self.unmeasured += 1;
                self.first.get_or_insert_with(|| format!("{} {}: {reason}", op.name, slot.path).into());
            }
        }
    }
}

/// Records waiting to be written, in order.
#[derive(Debug)]
struct Waiting {
    records: Vec<OpRecord>,
    /// Time at which records were last taken.
    since: Instant,
    /// True if the next record is the first of its step: it is written at once.
    first: bool,
}

/// Time at which waiting records are to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Later, since there are few.
    Later,
    /// Soon, by a helper, if there is one.
    Soon,
    /// Now, by the caller.
    Now,
}

/// Writes a dump.
#[derive(Debug)]
pub(crate) struct Tape {
    spool: Arc<Spool>,
    /// Most bytes of data that a step may write.
    max_bytes: u64,
    tally: Mutex<Tally>,
    /// The first op of this step that made a NaN or an infinity: see [`introduced`].
    nonfinite: Mutex<Option<String>>,
    /// The step that has begun, until something of it is written. A thread that holds it must not lock `reel`.
    opening: Mutex<Option<Opening>>,
    /// The thread that writes a step that has ended.
    ending: Mutex<Option<JoinHandle<()>>>,
}

/// State shared with helpers. A thread that holds `waiting` must not lock `reel`.
#[derive(Debug)]
pub(crate) struct Spool {
    reel: Mutex<Reel>,
    waiting: Mutex<Waiting>,
    /// Number of step begins and ends so far: odd during a step.
    steps: AtomicU64,
}

impl Tape {
    pub(crate) fn new(writer: DumpWriter, max_bytes: u64) -> Self {
        let reel = Mutex::new(Reel { writer: Some(writer), ..Reel::default() });
        let waiting = Mutex::new(Waiting { records: Vec::new(), since: Instant::now(), first: false });
        let spool = Arc::new(Spool { reel, waiting, steps: AtomicU64::new(0) });
        Self {
            spool,
            max_bytes,
            tally: Mutex::default(),
            nonfinite: Mutex::default(),
            opening: Mutex::default(),
            ending: Mutex::default(),
        }
    }

    pub(crate) const fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    /// Returns the reel, once the step that ended last is written.
    fn reel(&self) -> MutexGuard<'_, Reel> {
        self.wait();
        locked(&self.spool.reel)
    }

    /// Returns the reel with all waiting records written to it.
    fn complete(&self, py: Python<'_>) -> MutexGuard<'_, Reel> {
        py.detach(|| self.wait());
        let mut reel = self.spool.reel.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        self.spool.move_to(&mut reel);
        reel
    }

    /// Waits until the step that ended last is written.
    fn wait(&self) {
        let mut ending = locked(&self.ending);
        if let Some(thread) = ending.take() {
            // A panic has left its reason in the reel.
            _ = thread.join();
        }
    }

    /// Begins the current step in the writer, unless that was done.
    fn open(&self) {
        if locked(&self.opening).is_none() {
            return;
        }
        let mut reel = self.reel();
        let Some(opening) = locked(&self.opening).take() else { return };
        self.begin(&mut reel, opening);
        self.spool.waiting().first = true;
        drop(reel);
        self.spool.watch();
    }

    /// Begins a step in the writer.
    fn begin(&self, reel: &mut Reel, opening: Opening) {
        self.spool.move_to(reel);
        reel.bytes = 0;
        *locked(&self.nonfinite) = None;
        reel.begun.push((opening.step, locked(&self.tally).clone()));
        reel.run(|writer| {
            writer.begin_step(opening.step)?;
            // The writer numbers them in the same way: from 0, equal ones once.
            opening.stacks.iter().try_for_each(|frames| writer.push_stack(frames).map(drop))
        });
    }

    /// Returns why recording ended early, if that is known: a step may still be on its way.
    pub(crate) fn failed(&self) -> Option<String> {
        let mut reel = self.spool.free()?;
        self.spool.move_to(&mut reel);
        reel.failed.clone()
    }

    /// Ends recording for good and writes the reason to the dump, if that is possible.
    pub(crate) fn abandon(&self, py: Python<'_>, reason: &str) {
        self.complete(py).abandon(reason);
    }

    pub(crate) fn begin_step(&self, step: u64) {
        let opening = Opening { step, stacks: Vec::new(), numbers: HashMap::new() };
        *locked(&self.opening) = Some(opening);
    }

    /// Takes back the records of step `first` and of those that began after it.
    pub(crate) fn forget_steps(&self, py: Python<'_>, first: u64) {
        let mut reel = self.complete(py);
        {
            let mut opening = locked(&self.opening);
            if opening.as_ref().is_some_and(|opening| opening.step >= first) {
                *opening = None;
            }
        }
        let Some(place) = reel.begun.iter().position(|(step, _)| *step >= first) else { return };
        let forgotten = reel.begun.split_off(place);
        if let Some((_, before)) = forgotten.first() {
            *locked(&self.tally) = before.clone();
        }
        for (step, _) in forgotten {
            reel.run(|writer| writer.forget_step(step));
        }
    }

    /// Returns the number of a call stack within the step; None for one without frames.
    pub(crate) fn push_stack(&self, py: Python<'_>, frames: &Arc<[String]>) -> Option<u32> {
        if frames.is_empty() {
            return None;
        }
        if let Some(opening) = &mut *locked(&self.opening) {
            if let Some(number) = opening.numbers.get(frames) {
                return Some(*number);
            }
            let number = u32::try_from(opening.stacks.len()).ok()?;
            opening.numbers.insert(Arc::clone(frames), number);
            opening.stacks.push(Arc::clone(frames));
            return Some(number);
        }
        py.detach(|| self.reel().run(|writer| writer.push_stack(frames)).flatten())
    }

    /// Returns the amounts recorded so far.
    pub(crate) fn tally(&self, py: Python<'_>) -> Tally {
        py.detach(|| self.wait());
        locked(&self.tally).clone()
    }

    /// Returns the first op of this step that made a NaN or an infinity, as [`introduced`] describes it.
    pub(crate) fn nonfinite(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.wait());
        locked(&self.nonfinite).clone()
    }

    /// Accepts the record of an op, and returns when the waiting ones are to be written.
    pub(crate) fn push(&self, py: Python<'_>, op: OpRecord) -> Due {
        if locked(&self.opening).is_some() {
            py.detach(|| self.open());
        }
        self.note(&op);
        let mut waiting = self.spool.waiting();
        waiting.records.push(op);
        if std::mem::take(&mut waiting.first) {
            return Due::Now;
        }
        match waiting.records.len() {
            BATCH.. => Due::Now,
            _ if waiting.since.elapsed() >= AGE => Due::Now,
            HELPED => Due::Soon,
            _ => Due::Later,
        }
    }

    /// Counts a record, and looks for the first that is not finite.
    fn note(&self, op: &OpRecord) {
        locked(&self.tally).add(op);
        let mut first = locked(&self.nonfinite);
        if first.is_none() {
            *first = introduced(op);
        }
    }

    /// Writes the waiting records.
    pub(crate) fn write(&self, py: Python<'_>) {
        drop(self.complete(py));
    }

    /// Waits until everything is written.
    pub(crate) fn close(&self, py: Python<'_>, notes: &[String]) {
        let (writer, left_out) = {
            let mut reel = self.complete(py);
            (reel.writer.take(), reel.left_out)
        };
        if let Some(writer) = writer {
            let mut notes = notes.to_vec();
            if left_out > 0 {
                notes.push(format!(
                    "the data of {left_out} tensors was left out, beyond the byte budget of their step; they have sketches"
                ));
            }
            let closed = py.detach(|| writer.close(&notes));
            if let Err(error) = closed {
                self.complete(py).failed.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Writes the data of a tensor, unless it exceeds the step's budget; `small` ones then go into the record. Called
    /// without the interpreter lock.
    pub(crate) fn write_data(
        &self,
        name: DataName<'_>,
        (dtype, shape): (&str, &[u64]),
        tensor: &TensorRef<'_>,
        small: bool,
    ) -> Written {
        let bytes = (tensor.len() * tensor.dtype().size()) as u64;
        self.open();
        {
            let mut reel = self.reel();
            if reel.bytes.saturating_add(bytes) > self.max_bytes {
                if small {
                    return (None, None);
                }
                reel.left_out += 1;
                return (None, Some("data left out: beyond the byte budget of the step".into()));
            }
            reel.bytes += bytes;
        }
        let gathered;
        let data = if let Some(data) = tensor.contiguous_bytes() {
            data
        } else {
            gathered = tensor.to_bytes();
            &gathered
        };
        let written = self
            .reel()
            .run(|writer| writer.push_tensor(&format!("{}/{}", name.op, name.path), dtype, shape, data));
        (written, None)
    }
}

impl Spool {
    /// Until the step ends, writes records that wait too long because no more arrive: the last ops before a program
    /// hangs and is killed are the ones that matter.
    fn watch(self: &Arc<Self>) {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let spool = Arc::downgrade(self);
        let look = move || {
            loop {
                thread::sleep(LOOK);
                let Some(spool) = spool.upgrade().filter(|spool| spool.steps.load(Ordering::Relaxed) == step)
                else {
                    return;
                };
                if spool.is_late() {
                    spool.write();
                }
            }
        };
        // Without it, records are written when others arrive.
        _ = background::spawn("probe-late", look);
    }

    fn is_late(&self) -> bool {
        let waiting = self.waiting();
        !waiting.records.is_empty() && waiting.since.elapsed() >= AGE
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        locked(&self.waiting)
    }

    /// Writes the waiting records, on a thread that does not use Python. Does nothing if another thread is already
    /// writing.
    pub(crate) fn write(&self) {
        if let Some(mut reel) = self.free() {
            self.move_to(&mut reel);
        }
    }

    /// Returns the reel, unless another thread is at it.
    fn free(&self) -> Option<MutexGuard<'_, Reel>> {
        match self.reel.try_lock() {
            Ok(reel) => Some(reel),
            Err(TryLockError::Poisoned(reel)) => Some(reel.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn move_to(&self, reel: &mut Reel) {
        let records = {
            let mut waiting = self.waiting();
            waiting.since = Instant::now();
            std::mem::take(&mut waiting.records)
        };
        if !records.is_empty() {
            reel.run(|writer| {
                writer.push_all(&records)?;
                writer.flush()
            });
        }
    }
}

/// Locks; what a panic has left behind is used.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Spool {
    fn drop(&mut self) {
        let mut reel = std::mem::take(self.reel.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.move_to(&mut reel);
    }
}

impl Reel {
    fn run<T>(&mut self, work: impl FnOnce(&mut DumpWriter) -> Result<T, CaptureError>) -> Option<T> {
        let writer = self.writer.as_mut()?;
        match work(writer) {
            Ok(value) => Some(value),
            Err(error @ CaptureError::Occupied { .. }) => {
                // The folder belongs to someone else: nothing is written to it.
                self.writer = None;
                self.failed = Some(error.to_string());
                None
            }
            Err(error) => {
                self.abandon(&error.to_string());
                None
            }
        }
    }

    fn abandon(&mut self, reason: &str) {
        if let Some(writer) = self.writer.take() {
            self.failed = Some(reason.to_owned());
            // The reason is printed on the terminal as well; a full disk may have no room for it.
            _ = writer.abandon(reason);
        }
    }
}
