//! The writer behind the recorder: takes records, notes the first failure, and is silent after it.
//!
//! Records wait until there are some: written one by one, each would find its code gone from the processor's caches. Where the
//! program leaves a processor unused they are written there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use probe::capture::{CaptureError, DumpWriter, OpRecord};
use probe::dump::TensorRef;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::measure::{DataName, Written};
use crate::tensor::Facts;

/// Records that are written together, …
const BATCH: usize = 32;
/// … unless the batch before is this old when one more arrives, …
const AGE: Duration = Duration::from_millis(200);
/// … and most that wait for another thread.
const MOST: usize = 1024;

/// What writes, and how it went so far.
#[derive(Debug, Default)]
struct Reel {
    writer: Option<DumpWriter>,
    /// Why recording ended early.
    failed: Option<String>,
    /// Bytes of data written in this step.
    bytes: u64,
    /// Tensors whose data had no room, in all steps.
    left_out: u64,
    /// The step that has begun, until the first of it is written: one without ops leaves nothing behind.
    pending: Option<u64>,
}

/// Records that wait to be written, in order.
#[derive(Debug)]
struct Waiting {
    records: Vec<OpRecord>,
    /// When some were taken last.
    since: Instant,
}

/// When waiting records are to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// There are few.
    Later,
    /// By anybody.
    Soon,
    /// Nobody has done it: by who asks.
    Now,
}

/// Writes a dump.
#[derive(Debug)]
pub(crate) struct Tape {
    spool: Arc<Spool>,
    /// Most bytes of data a step may write.
    max_bytes: u64,
}

/// What records go through. Who holds `waiting` does not ask for `reel`.
#[derive(Debug)]
pub(crate) struct Spool {
    reel: Mutex<Reel>,
    waiting: Mutex<Waiting>,
}

impl Tape {
    pub(crate) fn new(writer: DumpWriter, max_bytes: u64) -> Self {
        let reel = Mutex::new(Reel { writer: Some(writer), ..Reel::default() });
        let waiting = Mutex::new(Waiting { records: Vec::new(), since: Instant::now() });
        Self { spool: Arc::new(Spool { reel, waiting }), max_bytes }
    }

    pub(crate) const fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    fn reel(&self, py: Python<'_>) -> MutexGuard<'_, Reel> {
        self.spool.reel.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// The reel, on which everything is that waited.
    fn complete(&self, py: Python<'_>) -> MutexGuard<'_, Reel> {
        let mut reel = self.reel(py);
        self.spool.move_to(&mut reel);
        reel
    }

    /// Why recording ended early, if it did.
    pub(crate) fn failed(&self, py: Python<'_>) -> Option<String> {
        self.complete(py).failed.clone()
    }

    /// Ends recording for good and says why in the dump, as far as that can be written.
    pub(crate) fn abandon(&self, py: Python<'_>, reason: &str) {
        self.complete(py).abandon(reason);
    }

    pub(crate) fn begin_step(&self, py: Python<'_>, step: u64) {
        let mut reel = self.complete(py);
        reel.bytes = 0;
        reel.pending = Some(step);
    }

    pub(crate) fn finish_step(&self, py: Python<'_>) {
        let mut reel = self.complete(py);
        if reel.pending.take().is_none() {
            reel.run(DumpWriter::finish_step);
        }
    }

    pub(crate) fn push_stack(&self, py: Python<'_>, frames: &[String]) -> Option<u32> {
        self.reel(py).run(|writer| writer.push_stack(frames))
    }

    /// Takes the record of an op, and says when the waiting ones are to be written.
    pub(crate) fn push(&self, op: OpRecord) -> Due {
        let mut waiting = self.spool.waiting();
        waiting.records.push(op);
        match waiting.records.len() {
            MOST.. => Due::Now,
            count if count.is_multiple_of(BATCH) || waiting.since.elapsed() >= AGE => Due::Soon,
            _ => Due::Later,
        }
    }

    /// Writes the records that wait.
    pub(crate) fn write(&self, py: Python<'_>) {
        drop(self.complete(py));
    }

    /// Waits for everything to be written.
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
                self.reel(py).failed.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Writes the data of a tensor, unless the step has no room for it. Called without the interpreter lock.
    pub(crate) fn write_data(&self, name: DataName<'_>, facts: &Facts, tensor: &TensorRef<'_>) -> Written {
        let bytes = (tensor.len() * tensor.dtype().size()) as u64;
        let shape: Vec<u64> = facts.shape.iter().map(|&size| size as u64).collect();
        let lock = || self.spool.reel.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut reel = lock();
            if reel.bytes.saturating_add(bytes) > self.max_bytes {
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
        let written = lock().run(|writer| {
            writer.push_tensor(&format!("{}/{}", name.op, name.path), &facts.dtype_name, &shape, data)
        });
        (written, None)
    }
}

impl Spool {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the records that wait, in a thread that knows nothing of Python. Not when somebody else is at it.
    pub(crate) fn write(&self) {
        let mut reel = match self.reel.try_lock() {
            Ok(reel) => reel,
            Err(TryLockError::Poisoned(reel)) => reel.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.move_to(&mut reel);
    }

    fn move_to(&self, reel: &mut Reel) {
        let records = {
            let mut waiting = self.waiting();
            waiting.since = Instant::now();
            std::mem::take(&mut waiting.records)
        };
        if !records.is_empty() {
            reel.run(|writer| writer.push_all(&records));
        }
    }
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
        let begun = self.pending.take().map_or(Ok(()), |step| writer.begin_step(step));
        match begun.and_then(|()| work(writer)) {
            Ok(value) => Some(value),
            Err(error) => {
                self.abandon(&error.to_string());
                None
            }
        }
    }

    fn abandon(&mut self, reason: &str) {
        if let Some(writer) = self.writer.take() {
            self.failed = Some(reason.to_owned());
            // It is said on the terminal as well; a full disk may have no room for it.
            _ = writer.abandon(reason);
        }
    }
}
