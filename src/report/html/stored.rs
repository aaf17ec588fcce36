//! A page from a `result.parquet` of an earlier comparison: its rows, and the answer in its metadata.

use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use serde::Serialize;
use serde_json::value::RawValue;

use super::begin;
use super::head::Head;
use super::pack::{Packer, needed};
use crate::report::columns::{Kind, SlotColumn};
use crate::report::model::SCHEMA_VERSION;
use crate::report::parquet::{PORTRAITS, REPORT, data_type};
use crate::report::rows::Cell;
use crate::report::{Draft, ReportError};

/// Rows taken at once.
const BATCH: usize = 8192;

/// Most rows of a result.
const MAX_ROWS: i64 = 1 << 31;

/// Most bytes that a group of rows may unpack to; those that probe writes are a tenth of it.
const MAX_GROUP_BYTES: i64 = 4 << 30;

/// Why no page came of a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The result cannot be read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The result.
        path: PathBuf,
        /// Why, and the repair.
        reason: String,
    },
    /// The page cannot be written.
    #[error(transparent)]
    Page(#[from] ReportError),
}

#[derive(Debug, Serialize)]
struct Stored<'a> {
    report: &'a RawValue,
    portraits: &'a RawValue,
}

/// Makes a page of the result at `path`, which will stand at `target`.
///
/// # Errors
/// [`StoredError`] when the result cannot be read, was written by a version that did not store what a page needs, or the page cannot be
/// written.
pub fn from_parquet(path: &Path, target: &Path) -> Result<Draft, StoredError> {
    let unreadable = |reason: String| StoredError::Unreadable { path: path.into(), reason };
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    // The library panics on some damaged files.
    let made = catch_unwind(AssertUnwindSafe(|| made(file, target, &unreadable)));
    made.unwrap_or_else(|_| Err(unreadable("is damaged; compare again".into())))
}

fn made(
    file: File,
    target: &Path,
    unreadable: &impl Fn(String) -> StoredError,
) -> Result<Draft, StoredError> {
    let damaged = |error: &dyn std::fmt::Display| {
        unreadable(format!("is no sound result of probe compare: {error}; compare again"))
    };
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(&error))?;
    let metadata = builder.metadata().clone();
    check(&metadata).map_err(|reason| damaged(&reason))?;
    let report: Box<RawValue> = answer(&metadata, REPORT)
        .ok_or_else(|| unreadable("holds no answer beside its rows: it was written by an older version, or by something else; compare again".into()))?;
    let portraits = answer(&metadata, PORTRAITS).ok_or_else(|| damaged(&"no portraits"))?;
    let names: Vec<String> = needed().map(SlotColumn::name).collect();
    let mask = ProjectionMask::columns(builder.parquet_schema(), names.iter().map(String::as_str));
    let batches =
        builder.with_batch_size(BATCH).with_projection(mask).build().map_err(|error| damaged(&error))?;
    let mut draft = Draft::create(target)?;
    let mut page = begin(&mut draft)?;
    let mut packer = Packer::default();
    let mut last = None;
    for batch in batches {
        let batch = batch.map_err(|error| damaged(&error))?;
        let columns = Columns::of(&batch).map_err(|name| {
            unreadable(format!("has no column {name} as this version writes it; compare again"))
        })?;
        for row in 0..batch.num_rows() {
            let place = columns.place(row).ok_or_else(|| damaged(&"a row without step, rank or order"))?;
            if last != Some(place) {
                if packer.is_full() {
                    page.add(packer.take()).map_err(|error| draft.refused(error))?;
                }
                packer.op(place.0, place.1, |column| Some(columns.cell(column, row)));
                last = Some(place);
            }
            packer.slot(|column| columns.cell(column, row));
        }
    }
    page.add(packer.take()).map_err(|error| draft.refused(error))?;
    let finished = page.finish(&Head::comparison(&Stored { report: &report, portraits: &portraits }));
    match finished {
        Ok(_) => Ok(draft),
        Err(error) => Err(draft.refused(error).into()),
    }
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

/// What is stored in the metadata under `key`, if it is JSON of the version that is written today.
fn answer(metadata: &ParquetMetaData, key: &str) -> Option<Box<RawValue>> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    let of = |key: &str| pairs.iter().find(|pair| pair.key == key)?.value.clone();
    let version = of("schema_version")?;
    RawValue::from_string(of(key)?).ok().filter(|_| version == SCHEMA_VERSION.to_string())
}

/// The columns of a batch.
struct Columns<'a>(HashMap<SlotColumn, &'a ArrayRef>);

impl<'a> Columns<'a> {
    /// # Errors
    /// The name of a column that is missing, or of another type.
    fn of(batch: &'a RecordBatch) -> Result<Self, String> {
        let column = |column: SlotColumn| {
            let name = column.name();
            let array = batch.column_by_name(&name);
            let array = array.filter(|array| *array.data_type() == data_type(column.kind()));
            array.map(|array| (column, array)).ok_or(name)
        };
        needed().map(column).collect::<Result<_, _>>().map(Self)
    }

    fn place(&self, row: usize) -> Option<(u64, u32, u64)> {
        let count = |column| match self.cell(column, row) {
            Cell::Count(count) => Some(count),
            _ => None,
        };
        let rank = u32::try_from(count(SlotColumn::Rank)?).ok()?;
        Some((count(SlotColumn::Step)?, rank, count(SlotColumn::Order)?))
    }

    fn cell(&self, column: SlotColumn, row: usize) -> Cell<'a> {
        let Some(array) = self.0.get(&column).filter(|array| array.is_valid(row)) else { return Cell::Empty };
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
}
