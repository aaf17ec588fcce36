//! A journal: record batches appended to an Arrow IPC stream, each passed to the system as a whole.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::Schema;

use super::CaptureError;

/// Buffer size before data is passed to the system. A batch of statistics fits; sketches bypass it.
const BUFFER: usize = 256 << 10;

/// A stream of batches being written.
pub(super) struct Journal {
    path: PathBuf,
    writer: StreamWriter<BufWriter<File>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Journal {
    /// Creates the file and writes the schema.
    pub(super) fn create(path: PathBuf, schema: &Schema) -> Result<Self, CaptureError> {
        let file = File::create_new(&path).map_err(|error| CaptureError::io(&path, error))?;
        let writer = StreamWriter::try_new(BufWriter::with_capacity(BUFFER, file), schema);
        let writer = writer.map_err(|error| CaptureError::format(&path, error))?;
        let mut journal = Self { path, writer };
        journal.flush()?;
        Ok(journal)
    }

    /// Appends a batch and passes it to the system.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), CaptureError> {
        self.writer.write(batch).map_err(|error| CaptureError::format(&self.path, error))?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        self.writer.get_mut().flush().map_err(|error| CaptureError::io(&self.path, error))
    }

    /// Writes the end mark, which tells readers that nothing is missing.
    pub(super) fn finish(mut self) -> Result<PathBuf, CaptureError> {
        self.writer.finish().map_err(|error| CaptureError::format(&self.path, error))?;
        Ok(self.path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
