//! The writer behind the recorder: takes records, notes the first failure, and is silent after it.

use std::sync::{Mutex, MutexGuard};

use probe::capture::{CaptureError, DumpWriter, OpRecord};
use probe::dump::TensorRef;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::measure::{DataName, Written};
use crate::tensor::Facts;

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

/// Writes a dump.
#[derive(Debug)]
pub(crate) struct Tape {
    reel: Mutex<Reel>,
    /// Most bytes of data a step may write.
    max_bytes: u64,
}

impl Tape {
    pub(crate) fn new(writer: DumpWriter, max_bytes: u64) -> Self {
        Self { reel: Mutex::new(Reel { writer: Some(writer), ..Reel::default() }), max_bytes }
    }

    fn reel(&self, py: Python<'_>) -> MutexGuard<'_, Reel> {
        self.reel.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Why recording ended early, if it did.
    pub(crate) fn failed(&self, py: Python<'_>) -> Option<String> {
        self.reel(py).failed.clone()
    }

    /// Ends recording for good and says why in the dump, as far as that can be written.
    pub(crate) fn abandon(&self, py: Python<'_>, reason: &str) {
        self.reel(py).abandon(reason);
    }

    pub(crate) fn begin_step(&self, py: Python<'_>, step: u64) {
        let mut reel = self.reel(py);
        reel.bytes = 0;
        reel.pending = Some(step);
    }

    pub(crate) fn finish_step(&self, py: Python<'_>) {
        let mut reel = self.reel(py);
        if reel.pending.take().is_none() {
            reel.run(DumpWriter::finish_step);
        }
    }

    pub(crate) fn push_stack(&self, py: Python<'_>, frames: &[String]) -> Option<u32> {
        self.reel(py).run(|writer| writer.push_stack(frames))
    }

    pub(crate) fn push(&self, py: Python<'_>, op: &OpRecord) {
        self.reel(py).run(|writer| writer.push(op));
    }

    /// Waits for everything to be written.
    pub(crate) fn close(&self, py: Python<'_>, notes: &[String]) {
        let (writer, left_out) = {
            let mut reel = self.reel(py);
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
        let lock = || self.reel.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
