//! A step being recorded.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::builder::{StringBuilder, UInt32Builder};
use arrow_array::{ArrayRef, RecordBatch};

use super::batch::OpsBatch;
use super::journal::Journal;
use super::shard::Shards;
use super::{CaptureError, DataLocation, OpRecord};
use probe_dump::native::columns::{Form, ops_schema, stacks_schema};
use probe_dump::native::{JOURNAL, STACKS_JOURNAL, STOPPED, rank_folder};

/// A batch is written when it has this many rows, …
const BATCH_ROWS: usize = 1024;
/// … about this many bytes, …
const BATCH_BYTES: usize = 1 << 20;
/// … or is this old when the next op arrives.
const BATCH_AGE: Duration = Duration::from_secs(1);

/// Writes the records of one rank in one step.
#[derive(Debug)]
pub(super) struct StepWriter {
    folder: PathBuf,
    batch: OpsBatch,
    journal: Journal,
    stacks: Stacks,
    shards: Shards,
    flushed: Instant,
    /// Name of the last op that returned.
    last: Option<String>,
}

impl StepWriter {
    /// Creates the folder of the step and its journals.
    pub(super) fn create(root: &Path, step: u64, rank: u32) -> Result<Self, CaptureError> {
        let folder = rank_folder(root, step, rank);
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(|error| CaptureError::io(parent, error))?;
        }
        fs::create_dir(&folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => CaptureError::occupied(
                &folder,
                "was already recorded; capture into another folder, or remove this one",
            ),
            _ => CaptureError::io(&folder, error),
        })?;
        Ok(Self {
            batch: OpsBatch::new(),
            journal: Journal::create(folder.join(JOURNAL), &ops_schema(Form::Journal))?,
            stacks: Stacks::create(&folder)?,
            shards: Shards::new(folder.clone()),
            flushed: Instant::now(),
            last: None,
            folder,
        })
    }

    pub(super) fn push_stack<S: AsRef<str>>(&mut self, frames: &[S]) -> Option<u32> {
        // The table has one row per frame, so it cannot hold an empty stack.
        (!frames.is_empty()).then(|| self.stacks.push(frames))
    }

    pub(super) fn push_tensor(
        &mut self,
        name: &str,
        dtype: &str,
        shape: &[u64],
        bytes: &[u8],
    ) -> Result<DataLocation, CaptureError> {
        self.shards.push(name, dtype, shape, bytes)
    }

    pub(super) fn push(&mut self, ops: &[OpRecord]) -> Result<(), CaptureError> {
        for op in ops {
            self.batch.push(op).map_err(|error| CaptureError::format(self.journal.path(), error))?;
            if self.batch.rows() >= BATCH_ROWS || self.batch.bytes() >= BATCH_BYTES {
                self.flush()?;
            }
        }
        // An op that ended in an exception did not return.
        if let Some(op) = ops.iter().rfind(|op| !op.raised) {
            self.last = Some(op.name.clone());
        }
        if self.flushed.elapsed() >= BATCH_AGE { self.flush() } else { Ok(()) }
    }

    /// Passes everything to the system: first the data, then the stacks, then the ops that refer to
    /// them.
    pub(super) fn flush(&mut self) -> Result<(), CaptureError> {
        self.flushed = Instant::now();
        self.shards.flush()?;
        self.stacks.flush()?;
        if self.batch.rows() == 0 {
            return Ok(());
        }
        let batch = self.batch.take().map_err(|error| CaptureError::format(self.journal.path(), error))?;
        self.journal.write(&batch)
    }

    /// Marks in the folder that the program ended inside the step.
    pub(super) fn mark_cut(&self, op: Option<&str>, error: &str) -> Result<(), CaptureError> {
        let place = match op.or(self.last.as_deref()).map(|name| (op.is_some(), name)) {
            Some((true, name)) => format!(" in {name}"),
            Some((false, name)) => format!(" after {name}"),
            None => String::new(),
        };
        let path = self.folder.join(STOPPED);
        fs::write(&path, format!("the program ended{place}: {error}\n"))
            .map_err(|error| CaptureError::io(path, error))
    }

    /// Completes shards and journals, which are then ready for conversion to tables.
    pub(super) fn finish(mut self) -> Result<PathBuf, CaptureError> {
        self.flush()?;
        self.shards.finish()?;
        self.stacks.journal.finish()?;
        self.journal.finish()?;
        Ok(self.folder)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Call stacks, without duplicates.
#[derive(Debug)]
struct Stacks {
    journal: Journal,
    known: HashMap<Box<str>, u32>,
    numbers: UInt32Builder,
    frames: StringBuilder,
    waiting: usize,
}

impl Stacks {
    fn create(folder: &Path) -> Result<Self, CaptureError> {
        Ok(Self {
            journal: Journal::create(folder.join(STACKS_JOURNAL), &stacks_schema())?,
            known: HashMap::new(),
            numbers: UInt32Builder::new(),
            frames: StringBuilder::new(),
            waiting: 0,
        })
    }

    fn push<S: AsRef<str>>(&mut self, frames: &[S]) -> u32 {
        let length = frames.iter().map(|frame| frame.as_ref().len() + 1).sum();
        let mut key = String::with_capacity(length);
        for frame in frames {
            key.push_str(frame.as_ref());
            key.push('\0');
        }
        // 2^32 different stacks would exceed any memory.
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let number = *self.known.entry(key.into()).or_insert(next);
        if number == next {
            for frame in frames {
                self.numbers.append_value(number);
                self.frames.append_value(frame.as_ref());
            }
            self.waiting += frames.len();
        }
        number
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        if self.waiting == 0 {
            return Ok(());
        }
        self.waiting = 0;
        let columns: Vec<ArrayRef> = vec![Arc::new(self.numbers.finish()), Arc::new(self.frames.finish())];
        let batch = RecordBatch::try_new(stacks_schema(), columns)
            .map_err(|error| CaptureError::format(self.journal.path(), error))?;
        self.journal.write(&batch)
    }
}
