//! Rows of earlier comparisons, read back from `result.parquet`: one comparison, or the shards of one.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::Extent;
use super::columns::{Kind, SlotColumn};
use super::model::SCHEMA_VERSION;
use super::parquet::{FULL, REPORT, data_type};
use super::replays::{self, Replay};
use super::rows::Cell;
use probe_files::{ReportError, guarded, seal};

/// Rows read per batch.
const BATCH: usize = 8192;

/// Maximum number of rows of a result.
const MAX_ROWS: i64 = 1 << 31;

/// Maximum uncompressed size of a row group in bytes; groups written by probe are a tenth of it.
const MAX_GROUP_BYTES: i64 = 4 << 30;

/// Reason why no report could be made from an earlier result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The result cannot be read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The result.
        path: PathBuf,
        /// Reason and remedy.
        reason: String,
    },
    /// The report cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// A `result.parquet` whose metadata was checked.
#[derive(Debug)]
pub struct StoredFile {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
}

impl StoredFile {
    /// Opens the result at `path`.
    ///
    /// # Errors
    /// [`StoredError::Unreadable`] when the file is not a valid result.
    pub fn open(path: &Path) -> Result<Self, StoredError> {
        let unreadable = |reason: String| StoredError::Unreadable { path: path.into(), reason };
        let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let length = file.metadata().map_err(|error| unreadable(error.to_string()))?.len();
        seal::check(path, &file, length)
            .map_err(|_| unreadable("has changed since it was written; copy it or compare again".into()))?;
        let read = || ArrowReaderMetadata::load(&file, <_>::default()).map_err(|error| error.to_string());
        let metadata = guarded(read).unwrap_or_else(|| Err("it is damaged".into()));
        let opened = metadata
            .and_then(|metadata| check(metadata.metadata()).map(|()| metadata))
            .map_err(|reason| unreadable(unsound(&reason)))?;
        Ok(Self { path: path.into(), file, metadata: opened })
    }

    /// Returns the replays that lie beside it.
    ///
    /// # Errors
    /// [`StoredError::Unreadable`] when their file is not what `probe replay` wrote.
    pub(super) fn replays(&self) -> Result<Vec<Replay>, StoredError> {
        replays::of_folder(self.path.parent().unwrap_or(&self.path))
    }

    /// Returns an error about this file.
    pub(super) fn unreadable(&self, reason: impl Into<String>) -> StoredError {
        StoredError::Unreadable { path: self.path.clone(), reason: reason.into() }
    }

    /// Returns the error for a damaged file.
    pub(super) fn damaged(&self, reason: impl std::fmt::Display) -> StoredError {
        self.unreadable(unsound(&reason))
    }

    /// Returns the number of rows.
    fn count(&self) -> usize {
        usize::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Returns the metadata stored under `key`, if the file has the current version.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let pairs = self.metadata.metadata().file_metadata().key_value_metadata()?;
        let of = |key: &str| pairs.iter().find(|pair| pair.key == key)?.value.as_deref();
        let version = of("schema_version")?;
        of(key).filter(|_| version == SCHEMA_VERSION.to_string())
    }

    /// Returns the text of the answer.
    ///
    /// # Errors
    /// [`StoredError::Unreadable`] when the file holds none.
    pub(super) fn answer(&self) -> Result<&str, StoredError> {
        self.text(REPORT).ok_or_else(|| {
            self.unreadable(
                "holds rows but no answer: written by an older version, or by another program; compare again",
            )
        })
    }

    /// Returns how much of a large comparison its workbook holds.
    pub(super) fn extent(&self) -> Extent {
        let pairs = self.metadata.metadata().file_metadata().key_value_metadata();
        let is_full = pairs.is_some_and(|pairs| pairs.iter().any(|pair| pair.key == FULL));
        if is_full { Extent::Full } else { Extent::Selection }
    }

    /// Passes rows to `take` one by one: all of them, or those in `ranges`, which are sorted. Only `columns` are read.
    ///
    /// # Errors
    /// [`StoredError`] when a row cannot be read, or `take` fails.
    pub(super) fn read(
        &self,
        columns: &[SlotColumn],
        ranges: Option<&[Range<usize>]>,
        take: &mut dyn FnMut(StoredRow<'_>) -> Result<(), StoredError>,
    ) -> Result<(), StoredError> {
        let read = guarded(|| self.rows(columns, ranges, take));
        read.unwrap_or_else(|| Err(self.unreadable("is damaged; compare again")))
    }

    /// Returns the rows in `ranges`, which are sorted, with all columns; `None` if there are none.
    ///
    /// # Errors
    /// [`StoredError::Unreadable`] when they cannot be read.
    pub(super) fn gather(&self, ranges: &[Range<usize>]) -> Result<Option<StoredRows>, StoredError> {
        let count: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        if count == 0 {
            return Ok(None);
        }
        let read = || {
            let mut batches = self.batches(&SlotColumn::with_programs(), Some(ranges), count)?;
            let batch = batches.next().transpose().map_err(|error| self.damaged(error))?;
            let batch = batch.filter(|batch| batch.num_rows() == count);
            batch.map(StoredRows).ok_or_else(|| self.damaged("rows are missing"))
        };
        guarded(read).unwrap_or_else(|| Err(self.unreadable("is damaged; compare again"))).map(Some)
    }

    fn batches(
        &self,
        columns: &[SlotColumn],
        ranges: Option<&[Range<usize>]>,
        size: usize,
    ) -> Result<ParquetRecordBatchReader, StoredError> {
        let file = self.file.try_clone().map_err(|error| self.unreadable(error.to_string()))?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone());
        let names: Vec<String> = columns.iter().map(|column| column.name()).collect();
        let mask = ProjectionMask::columns(builder.parquet_schema(), names.iter().map(String::as_str));
        let mut builder = builder.with_batch_size(size).with_projection(mask);
        if let Some(ranges) = ranges {
            let chosen = RowSelection::from_consecutive_ranges(ranges.iter().cloned(), self.count());
            builder = builder.with_row_selection(chosen);
        }
        builder.build().map_err(|error| self.damaged(error))
    }

    /// Returns the columns of a batch of this file.
    pub(super) fn columns<'a>(
        &self,
        batch: &'a RecordBatch,
        wanted: &[SlotColumn],
    ) -> Result<Columns<'a>, StoredError> {
        Columns::of(batch, wanted).map_err(|name| {
            self.unreadable(format!("has no column {name} as this version writes it; compare again"))
        })
    }

    fn rows(
        &self,
        columns: &[SlotColumn],
        ranges: Option<&[Range<usize>]>,
        take: &mut dyn FnMut(StoredRow<'_>) -> Result<(), StoredError>,
    ) -> Result<(), StoredError> {
        for batch in self.batches(columns, ranges, BATCH)? {
            let batch = batch.map_err(|error| self.damaged(error))?;
            let columns = self.columns(&batch, columns)?;
            for row in 0..batch.num_rows() {
                take(StoredRow { columns: &columns, row })?;
            }
        }
        Ok(())
    }
}

fn unsound(reason: &dyn std::fmt::Display) -> String {
    format!("is not a valid result of probe compare: {reason}; compare again")
}

fn check(metadata: &ParquetMetaData) -> Result<(), String> {
    let rows = metadata.file_metadata().num_rows();
    if !(0..=MAX_ROWS).contains(&rows) {
        return Err(format!("it claims {rows} rows"));
    }
    let large = metadata.row_groups().iter().map(RowGroupMetaData::total_byte_size);
    match large.max() {
        Some(bytes) if !(0..=MAX_GROUP_BYTES).contains(&bytes) => Err(format!("rows claim {bytes} bytes")),
        _ => Ok(()),
    }
}

/// Rows selected from a file.
#[derive(Debug)]
pub(super) struct StoredRows(pub(super) RecordBatch);

/// The columns of a batch.
pub(super) struct Columns<'a>(HashMap<SlotColumn, &'a ArrayRef>);

impl<'a> Columns<'a> {
    /// # Errors
    /// The name of a column that is missing or has a different type.
    fn of(batch: &'a RecordBatch, wanted: &[SlotColumn]) -> Result<Self, String> {
        let column = |column: &SlotColumn| {
            let name = column.name();
            let array = batch.column_by_name(&name);
            let array = array.filter(|array| *array.data_type() == data_type(column.kind()));
            array.map(|array| (*column, array)).ok_or(name)
        };
        wanted.iter().map(column).collect::<Result<_, _>>().map(Self)
    }
}

/// A row of a result.
#[derive(Clone, Copy)]
pub(super) struct StoredRow<'a> {
    pub(super) columns: &'a Columns<'a>,
    pub(super) row: usize,
}

impl<'a> StoredRow<'a> {
    /// Returns the content of a cell; empty if the column was not read.
    pub(super) fn cell(&self, column: SlotColumn) -> Cell<'a> {
        let row = self.row;
        let array = self.columns.0.get(&column);
        let Some(array) = array.filter(|array| array.is_valid(row)) else { return Cell::Empty };
        match column.kind() {
            Kind::Count => Cell::Count(array.as_primitive::<UInt64Type>().value(row)),
            Kind::Real => Cell::Real(array.as_primitive::<Float64Type>().value(row)),
            Kind::Flag => Cell::Flag(array.as_boolean().value(row)),
            Kind::Text => Cell::Text(array.as_string::<i32>().value(row).into()),
            Kind::Category => {
                let words = array.as_dictionary::<Int32Type>();
                let key = words.key(row).filter(|&key| key < words.values().len());
                key.map_or(Cell::Empty, |key| {
                    let word = words.values().as_string::<i32>().value(key);
                    Cell::Text(word.into())
                })
            }
        }
    }

    fn count(&self, column: SlotColumn) -> Option<u64> {
        match self.cell(column) {
            Cell::Count(count) => Some(count),
            _ => None,
        }
    }

    /// Returns step and rank.
    pub(super) fn part(&self) -> Option<(u64, u32)> {
        Some((self.count(SlotColumn::Step)?, u32::try_from(self.count(SlotColumn::Rank)?).ok()?))
    }

    /// Returns the position of the op in its part.
    pub(super) fn order(&self) -> Option<u64> {
        self.count(SlotColumn::Order)
    }
}

/// Rows of one step of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredPart {
    pub(super) step: u64,
    pub(super) rank: u32,
    /// Index of the file, and the rows in it.
    pub(super) file: usize,
    pub(super) rows: Range<usize>,
}

/// Rows of a comparison spread over several files, each with its own parts.
#[derive(Debug)]
pub struct StoredRun {
    pub(super) files: Vec<StoredFile>,
    /// Ordered by file, then by row.
    pub(super) parts: Vec<StoredPart>,
    /// Calls that were run again since.
    pub(super) replays: Vec<Replay>,
}

impl StoredRun {
    /// Opens the files and finds where parts begin and end.
    ///
    /// # Errors
    /// [`StoredError::Unreadable`] when a file is not a valid result.
    pub fn open(paths: &[PathBuf]) -> Result<Self, StoredError> {
        Self::of(paths.iter().map(|path| StoredFile::open(path)).collect::<Result<_, _>>()?)
    }

    /// Finds where parts begin and end in open files.
    ///
    /// # Errors
    /// [`StoredError::Unreadable`] when their rows are damaged.
    pub(super) fn of(files: Vec<StoredFile>) -> Result<Self, StoredError> {
        let mut parts: Vec<StoredPart> = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let mut row = 0;
            file.read(&[SlotColumn::Step, SlotColumn::Rank], None, &mut |found| {
                let (step, rank) = found.part().ok_or_else(|| file.damaged("a row without step or rank"))?;
                match parts.last_mut() {
                    Some(last) if (last.file, last.step, last.rank) == (number, step, rank) => {
                        last.rows.end = row + 1;
                    }
                    _ => parts.push(StoredPart { step, rank, file: number, rows: row..row + 1 }),
                }
                row += 1;
                Ok(())
            })?;
        }
        Ok(Self { files, parts, replays: Vec::new() })
    }

    /// Adds the replays that lie in the `folder` of the reports.
    ///
    /// # Errors
    /// [`StoredError::Unreadable`] when their file is not what `probe replay` wrote.
    pub fn with_replays(mut self, folder: &Path) -> Result<Self, StoredError> {
        self.replays = replays::of_folder(folder)?;
        Ok(self)
    }

    /// Returns the number of rows.
    pub(super) fn count(&self) -> usize {
        self.files.iter().map(StoredFile::count).sum()
    }
}
