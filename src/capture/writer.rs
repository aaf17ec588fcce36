//! The writer of a dump: one for each process of a run.

use std::fs;
use std::path::{Path, PathBuf};

use super::finish::Finisher;
use super::step::StepWriter;
use super::{CaptureError, DataLocation, OpRecord, manifest};
use crate::dump::native::{RunManifest, STOPPED};

/// Writes what one rank records.
///
/// Steps come one after the other: [`begin_step`](Self::begin_step), then stacks, tensors and ops in execution order, then
/// [`finish_step`](Self::finish_step). After an error nothing more is taken: every call then returns
/// [`CaptureError::Stopped`], and [`abandon`](Self::abandon) says so in the dump. A writer that is dropped completes finished
/// steps and leaves the current one as an interrupted one.
#[derive(Debug)]
pub struct DumpWriter {
    root: PathBuf,
    rank: u32,
    step: Option<StepWriter>,
    finisher: Finisher,
    stopped: Option<String>,
}

impl DumpWriter {
    /// Creates the dump at `root`, or joins it. The ranks of a run call this in any order, also at the same time; the first
    /// one's manifest stays.
    ///
    /// # Errors
    /// [`CaptureError::Occupied`] when `root` holds something else, or a dump of another task or level;
    /// [`CaptureError::Io`] when it cannot be written.
    pub fn create(root: &Path, manifest: &RunManifest, rank: u32) -> Result<Self, CaptureError> {
        manifest::create(root, manifest)?;
        Ok(Self { root: root.into(), rank, step: None, finisher: Finisher::new(), stopped: None })
    }

    /// Steps of which this rank already has a folder here, in order. [`begin_step`](Self::begin_step) refuses them.
    pub fn recorded_steps(&self) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Vec::new() };
        let step = |entry: fs::DirEntry| {
            let step = entry.file_name().to_str()?.strip_prefix("step")?.parse().ok()?;
            crate::dump::native::rank_folder(&self.root, step, self.rank).exists().then_some(step)
        };
        let mut steps: Vec<u64> = entries.filter_map(Result::ok).filter_map(step).collect();
        steps.sort_unstable();
        steps
    }

    /// Begins a step; the one before must be finished.
    ///
    /// # Errors
    /// [`CaptureError::Occupied`] when this rank has recorded the step before, [`CaptureError::Io`] when it cannot be written.
    pub fn begin_step(&mut self, step: u64) -> Result<(), CaptureError> {
        self.check()?;
        if let Some(open) = &self.step {
            return Err(CaptureError::Usage(format!("{} is not finished yet", open.folder().display())));
        }
        let created = StepWriter::create(&self.root, step, self.rank);
        self.step = Some(self.note(created)?);
        Ok(())
    }

    /// Keeps a call stack, innermost frame first; equal ones once in a step. The number is good within the step.
    ///
    /// # Errors
    /// [`CaptureError::Usage`] when no step has begun.
    pub fn push_stack<S: AsRef<str>>(&mut self, frames: &[S]) -> Result<u32, CaptureError> {
        Ok(self.open()?.push_stack(frames))
    }

    /// Writes the data of a tensor. `name` should say where it was seen, as in `Functional.gelu.1.forward/output.0`; one that is
    /// taken gets a number. `dtype` is the framework's name, `bytes` the elements in row-major order, little endian. Types that
    /// safetensors does not know are stored as bytes.
    ///
    /// # Errors
    /// [`CaptureError::Usage`] when no step has begun or the size does not follow from type and shape,
    /// [`CaptureError::Io`] when it cannot be written.
    pub fn push_tensor(
        &mut self,
        name: &str,
        dtype: &str,
        shape: &[u64],
        bytes: &[u8],
    ) -> Result<DataLocation, CaptureError> {
        let pushed = self.open()?.push_tensor(name, dtype, shape, bytes);
        self.note(pushed)
    }

    /// Adds an op; ops come in execution order.
    ///
    /// # Errors
    /// [`CaptureError::Usage`] when no step has begun, [`CaptureError::Io`] when it cannot be written.
    pub fn push(&mut self, op: &OpRecord) -> Result<(), CaptureError> {
        self.push_all(std::slice::from_ref(op))
    }

    /// Adds ops, which come in execution order, as [`push`](Self::push) does one.
    ///
    /// # Errors
    /// As for [`push`](Self::push); those before the one that failed are kept.
    pub fn push_all(&mut self, ops: &[OpRecord]) -> Result<(), CaptureError> {
        let pushed = self.open()?.push(ops);
        self.note(pushed)
    }

    /// Writes what has been gathered, so that it survives whatever happens next. Happens by itself every second and every
    /// 1024 slots.
    ///
    /// # Errors
    /// [`CaptureError::Usage`] when no step has begun, [`CaptureError::Io`] when it cannot be written.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        let flushed = self.open()?.flush();
        self.note(flushed)
    }

    /// Ends the step. Its tables are made on another thread; [`close`](Self::close) waits for them.
    ///
    /// # Errors
    /// [`CaptureError::Usage`] when no step has begun, [`CaptureError::Io`] when this step or an earlier one cannot be written.
    pub fn finish_step(&mut self) -> Result<(), CaptureError> {
        self.open()?;
        let finished = self.step.take().map_or(Ok(()), |step| {
            let folder = step.finish()?;
            self.finisher.push(folder)
        });
        self.note(finished)
    }

    /// Waits for all tables and adds `notes` to the manifest. A step that is not finished stays as an interrupted one.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when a table or the manifest cannot be written.
    pub fn close(mut self, notes: &[String]) -> Result<(), CaptureError> {
        let flushed = self.step.take().map_or(Ok(()), |mut step| step.flush());
        let joined = self.finisher.join();
        let added = if notes.is_empty() {
            Ok(())
        } else {
            manifest::amend(&self.root, |manifest| {
                for note in notes {
                    if !manifest.notes.contains(note) {
                        manifest.notes.push(note.clone());
                    }
                }
            })
        };
        flushed.and(joined).and(added)
    }

    /// Stops the capture and says why, in the folder of the current step and in the manifest, as far as they can still be
    /// written. What was recorded stays readable.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when the reason cannot be written.
    pub fn abandon(mut self, reason: &str) -> Result<(), CaptureError> {
        self.finisher.join().ok();
        let mut said = Ok(());
        if let Some(mut step) = self.step.take() {
            // What is gathered may still find room; if not, the batch before it is the last.
            step.flush().ok();
            let path = step.folder().join(STOPPED);
            said = fs::write(&path, reason).map_err(|error| CaptureError::io(path, error));
        }
        let rank = self.rank;
        let amended = manifest::amend(&self.root, |manifest| {
            let reason =
                if manifest.world_size > 1 { format!("rank {rank}: {reason}") } else { reason.into() };
            manifest.stopped.get_or_insert(reason);
        });
        said.and(amended)
    }

    fn check(&self) -> Result<(), CaptureError> {
        match &self.stopped {
            Some(reason) => Err(CaptureError::Stopped(reason.clone())),
            None => Ok(()),
        }
    }

    fn open(&mut self) -> Result<&mut StepWriter, CaptureError> {
        self.check()?;
        self.step.as_mut().ok_or_else(|| CaptureError::Usage("no step has begun".into()))
    }

    /// Remembers an error that leaves files in doubt.
    fn note<T>(&mut self, result: Result<T, CaptureError>) -> Result<T, CaptureError> {
        if let Err(
            error @ (CaptureError::Io { .. } | CaptureError::Format { .. } | CaptureError::Stopped(_)),
        ) = &result
        {
            self.stopped = Some(error.to_string());
        }
        result
    }
}

impl Drop for DumpWriter {
    fn drop(&mut self) {
        if let Some(mut step) = self.step.take() {
            step.flush().ok();
        }
        self.finisher.join().ok();
    }
}
