//! Converts the journals of finished steps to tables, on a separate thread so that training does not wait.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::CaptureError;
use probe_dump::native::columns::{Column, Form, SKETCH_BYTES, ops_schema, stacks_schema};
use probe_dump::native::{FORMAT, FORMAT_VERSION, JOURNAL, OPS, STACKS, STACKS_JOURNAL};
use probe_files::seal::{self, Sealed};
use probe_measure::background;

/// Most finished steps in the queue; a recorder that is faster still has to wait.
const QUEUE: usize = 4;

/// Rows of a row group, and therefore rows held in memory: 4 MiB of sketches.
const ROW_GROUP: usize = 4096;

/// The thread that writes tables.
#[derive(Debug)]
pub(super) struct Finisher {
    queue: Option<SyncSender<PathBuf>>,
    thread: Option<JoinHandle<Result<(), CaptureError>>>,
}

impl Finisher {
    pub(super) const fn new() -> Self {
        Self { queue: None, thread: None }
    }

    /// Queues a folder whose journals are complete.
    pub(super) fn push(&mut self, folder: PathBuf) -> Result<(), CaptureError> {
        if self.queue.is_none() {
            let (queue, folders) = sync_channel(QUEUE);
            let thread = background::spawn("probe-finish", move || work(&folders))
                .map_err(|error| CaptureError::io(&folder, error))?;
            (self.queue, self.thread) = (Some(queue), Some(thread));
        }
        let sent = self.queue.as_ref().is_some_and(|queue| queue.send(folder).is_ok());
        // The thread ends before its queue only on failure.
        if sent { Ok(()) } else { self.join() }
    }

    /// Waits until all tables are written.
    pub(super) fn join(&mut self) -> Result<(), CaptureError> {
        self.queue = None;
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(CaptureError::Stopped("the thread that makes tables ended".into())),
        }
    }
}

fn work(folders: &Receiver<PathBuf>) -> Result<(), CaptureError> {
    folders.iter().try_for_each(|folder| make_tables(&folder))
}

/// Writes the tables of one part and removes its journals. On failure the journals remain, which readers
/// understand.
pub(super) fn make_tables(folder: &Path) -> Result<(), CaptureError> {
    convert(folder, STACKS_JOURNAL, STACKS, stacks_schema(), Ok)?;
    let schema = ops_schema(Form::Table);
    let widened = schema.clone();
    convert(folder, JOURNAL, OPS, schema, move |batch| widen_sketches(&batch, &widened))?;
    for name in [JOURNAL, STACKS_JOURNAL] {
        let path = folder.join(name);
        fs::remove_file(&path).map_err(|error| CaptureError::io(path, error))?;
    }
    Ok(())
}

fn convert(
    folder: &Path,
    journal: &str,
    table: &str,
    schema: SchemaRef,
    form: impl Fn(RecordBatch) -> Result<RecordBatch, ArrowError>,
) -> Result<(), CaptureError> {
    let (source, target) = (folder.join(journal), folder.join(table));
    let draft_path = folder.join(format!("{table}.part"));
    let file = File::open(&source).map_err(|error| CaptureError::io(&source, error))?;
    let batches = StreamReader::try_new(BufReader::with_capacity(1 << 20, file), None)
        .map_err(|error| CaptureError::format(&source, error))?;
    let unwritten = |error| CaptureError::io(&draft_path, error);
    let mut options = File::options();
    let draft =
        options.read(true).write(true).create(true).truncate(true).open(&draft_path).map_err(unwritten)?;
    let refused = |error: &dyn std::fmt::Display| CaptureError::format(&target, error);
    let mut writer = ArrowWriter::try_new(Sealed::new(draft), schema, Some(properties()))
        .map_err(|error| refused(&error))?;
    for batch in batches {
        let batch = batch.and_then(&form).map_err(|error| refused(&error))?;
        writer.write(&batch).map_err(|error| refused(&error))?;
    }
    let draft = writer.into_inner().map_err(|error| refused(&error))?;
    draft.close().map_err(unwritten)?;
    fs::rename(&draft_path, &target).map_err(|error| CaptureError::io(target, error))
}

fn properties() -> WriterProperties {
    let metadata = [
        ("format", FORMAT.to_owned()),
        ("format_version", FORMAT_VERSION.to_string()),
        (seal::KEY, seal::blank()),
    ];
    WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_dictionary_enabled(Column::Sketch.name().into(), false)
        .set_column_dictionary_enabled(Column::Hash.name().into(), false)
        .set_column_dictionary_enabled(Column::Data.name().into(), false)
        .set_created_by(format!("{} {}", probe_dump::PROGRAM, env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(
            metadata.map(|(key, value)| KeyValue::new(key.to_owned(), value)).into(),
        ))
        .build()
}

/// Returns the batch with sketches of fixed width, as in the table.
fn widen_sketches(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let mut columns = batch.columns().to_vec();
    let place = Column::Sketch as usize;
    let Some(sketches) = columns.get(place).and_then(|column| column.as_binary_opt::<i32>()) else {
        return Err(ArrowError::SchemaError("a journal without sketches".into()));
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "1024")]
    let mut wide = FixedSizeBinaryBuilder::with_capacity(sketches.len(), SKETCH_BYTES as i32);
    for sketch in sketches {
        match sketch {
            Some(bytes) => wide.append_value(bytes)?,
            None => wide.append_null(),
        }
    }
    if let Some(column) = columns.get_mut(place) {
        *column = Arc::new(wide.finish());
    }
    RecordBatch::try_new(schema.clone(), columns)
}
