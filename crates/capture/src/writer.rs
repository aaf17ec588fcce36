//! The writer of a dump: one per process of a run.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::finish::Finisher;
use super::step::StepWriter;
use super::{CaptureError, DataLocation, Existing, OpRecord, folder, manifest};
use probe_dump::native::{RunManifest, STOPPED};

/// Writes the records of one rank.
///
/// Steps are recorded in sequence: [`begin_step`](Self::begin_step), then stacks, tensors and ops in execution order, then
/// [`finish_step`](Self::finish_step). After an error nothing more is accepted: every call then returns
/// [`CaptureError::Stopped`], and [`abandon`](Self::abandon) records this in the dump. Dropping a writer completes finished
/// steps and leaves the current one interrupted.
#[derive(Debug)]
pub struct DumpWriter {
    root: PathBuf,
    rank: u32,
    step: Option<StepWriter>,
    finisher: Finisher,
    stopped: Option<String>,
    /// Lock that marks the run as alive; its manifest may have been changed since.
    alive: Option<File>,
}

impl DumpWriter {
    /// Creates the dump at `root`, or joins that of the same run. The ranks of a run call this in any order, possibly
    /// concurrently; the first one's manifest is kept.
    ///
    /// # Errors
    /// [`CaptureError::Occupied`] when `root` holds something else, a dump of another run, or one of another task or level;
    /// [`CaptureError::Io`] when it cannot be written.
    pub fn create(root: &Path, manifest: &RunManifest, rank: u32) -> Result<Self, CaptureError> {
        Self::create_over(Existing::Keep, root, manifest, rank)
    }

    /// Like [`create`](Self::create), but may first remove the dump of another run.
    ///
    /// # Errors
    /// As for [`create`](Self::create); a run in progress is never removed.
    pub fn create_over(
        existing: Existing,
        root: &Path,
        manifest: &RunManifest,
        rank: u32,
    ) -> Result<Self, CaptureError> {
        let alive = folder::claim(root, manifest, rank, existing)?;
        Ok(Self { root: root.into(), rank, step: None, finisher: Finisher::new(), stopped: None, alive })
    }

    /// Returns the steps for which this rank already has a folder here, in order. [`begin_step`](Self::begin_step)
    /// rejects them.
    pub fn recorded_steps(&self) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Vec::new() };
        let step = |entry: fs::DirEntry| {
            let step = entry.file_name().to_str()?.strip_prefix("step")?.parse().ok()?;
            probe_dump::native::rank_folder(&self.root, step, self.rank).exists().then_some(step)
        };
        let mut steps: Vec<u64> = entries.filter_map(Result::ok).filter_map(step).collect();
        steps.sort_unstable();
        steps
    }

    /// Begins a step; the previous one must be finished.
    ///
    /// # Errors
    /// [`CaptureError::Occupied`] when this rank has already recorded the step, [`CaptureError::Io`] when it cannot be written.
    pub fn begin_step(&mut self, step: u64) -> Result<(), CaptureError> {
        self.check()?;
        if let Some(open) = &self.step {
            return Err(CaptureError::Usage(format!("{} is not finished yet", open.folder().display())));
        }
        let created = StepWriter::create(&self.root, step, self.rank);
        self.step = Some(self.note(created)?);
        Ok(())
    }

    /// Records a call stack, innermost frame first; equal ones are stored once per step. The number is valid within the step.
    /// `None` for a stack without frames, as framework threads have: there is nothing to refer to.
    ///
    /// # Errors
    /// [`CaptureError::Usage`] when no step has begun.
    pub fn push_stack<S: AsRef<str>>(&mut self, frames: &[S]) -> Result<Option<u32>, CaptureError> {
        Ok(self.open()?.push_stack(frames))
    }

    /// Writes the data of a tensor. `name` should tell where it was seen, as in `Functional.gelu.1.forward/output.0`; a name
    /// already taken gets a number appended. `dtype` is the framework's name, `bytes` the elements in row-major order, little
    /// endian. Types unknown to safetensors are stored as bytes.
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

    /// Adds an op, in execution order.
    ///
    /// # Errors
    /// [`CaptureError::Usage`] when no step has begun, [`CaptureError::Io`] when it cannot be written.
    pub fn push(&mut self, op: &OpRecord) -> Result<(), CaptureError> {
        self.push_all(std::slice::from_ref(op))
    }

    /// Adds several ops, in execution order, like [`push`](Self::push).
    ///
    /// # Errors
    /// As for [`push`](Self::push); ops before the failed one are kept.
    pub fn push_all(&mut self, ops: &[OpRecord]) -> Result<(), CaptureError> {
        let pushed = self.open()?.push(ops);
        self.note(pushed)
    }

    /// Writes the collected rows, so that they survive whatever happens next. Happens automatically every second and
    /// every 1024 slots; the Python package calls it every 32 ops.
    ///
    /// # Errors
    /// [`CaptureError::Usage`] when no step has begun, [`CaptureError::Io`] when it cannot be written.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        let flushed = self.open()?.flush();
        self.note(flushed)
    }

    /// Ends the step. Its tables are written on another thread; [`close`](Self::close) waits for
    /// them.
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

    /// Discards the records of a step, in progress or finished, whose number turned out to be wrong.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when an earlier step cannot be written, or this one cannot be removed.
    pub fn forget_step(&mut self, step: u64) -> Result<(), CaptureError> {
        self.check()?;
        let folder = probe_dump::native::rank_folder(&self.root, step, self.rank);
        if self.step.as_ref().is_some_and(|open| open.folder() == folder) {
            self.step = None;
        }
        let joined = self.finisher.join();
        let removed = match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CaptureError::io(&folder, error)),
            _ => Ok(()),
        };
        if let Some(parent) = folder.parent() {
            // Other ranks may have their folders in it.
            _ = fs::remove_dir(parent);
        }
        self.note(joined.and(removed))
    }

    /// Ends the step in which the program ended: `error` is the cause, and `op` the place, if known; else it is the last recorded
    /// op. The records are complete, and marked as the beginning of a step.
    ///
    /// # Errors
    /// As for [`finish_step`](Self::finish_step).
    pub fn cut_step(&mut self, op: Option<&str>, error: &str) -> Result<(), CaptureError> {
        let marked = self.open()?.mark_cut(op, error);
        self.note(marked)?;
        self.finish_step()
    }

    /// Waits for all tables and adds `notes` to the manifest. An unfinished step stays interrupted.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when a table or the manifest cannot be written.
    pub fn close(mut self, notes: &[String]) -> Result<(), CaptureError> {
        let flushed = self.step.take().map_or(Ok(()), |mut step| step.flush());
        let joined = self.finisher.join();
        let added = if notes.is_empty() {
            Ok(())
        } else {
            self.amend(|manifest| {
                for note in notes {
                    if !manifest.notes.contains(note) {
                        manifest.notes.push(note.clone());
                    }
                }
            })
        };
        flushed.and(joined).and(added)
    }

    /// Stops the capture and records the reason in the folder of the current step and in the manifest, as far as they can
    /// still be written. Everything recorded stays readable.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when the reason cannot be written.
    pub fn abandon(mut self, reason: &str) -> Result<(), CaptureError> {
        self.finisher.join().ok();
        let mut said = Ok(());
        if let Some(mut step) = self.step.take() {
            // The collected rows may still fit; if not, the previous batch is the last.
            step.flush().ok();
            let path = step.folder().join(STOPPED);
            said = fs::write(&path, format!("the capture stopped: {reason}\n"))
                .map_err(|error| CaptureError::io(path, error));
        }
        let rank = self.rank;
        let amended = self.amend(|manifest| {
            let reason =
                if manifest.world_size > 1 { format!("rank {rank}: {reason}") } else { reason.into() };
            manifest.stopped.get_or_insert(reason);
        });
        said.and(amended)
    }

    fn amend(&mut self, change: impl FnOnce(&mut RunManifest)) -> Result<(), CaptureError> {
        let lock = manifest::amend(&self.root, change)?;
        match &mut self.alive {
            Some(alive) => *alive = lock,
            None => folder::keep_alive(lock),
        }
        Ok(())
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

    /// Remembers an error that leaves files in an uncertain state.
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
