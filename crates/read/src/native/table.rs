//! Reads a table: a Parquet file with the columns defined by the format.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaData;

use super::guarded;
use crate::ReadError;
use probe_files::{limits, map, seal};

/// Rows read at a time: with a sketch of 1 KiB in each row they stay in the cache, and their memory is not returned in
/// between.
const BATCH: usize = 128;

/// Passes the rows of the table to `take`, batch by batch, with those of the columns `names` that exist.
///
/// # Errors
/// [`ReadError`] when the file cannot be read, is damaged, or claims more than its size allows; also the errors of `take`.
pub(super) fn read(
    path: &Path,
    names: &[&str],
    mut take: impl FnMut(&RecordBatch) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    read_some(path, names, None, |_, batch| take(batch))
}

/// Like [`read`], for the row group that contains `row`; does nothing if there is no such row. `take` receives the number of the
/// first row.
///
/// # Errors
/// As for [`read`].
pub(super) fn read_group(
    path: &Path,
    names: &[&str],
    row: u64,
    take: impl FnMut(u64, &RecordBatch) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    read_some(path, names, Some(row), take)
}

fn read_some(
    path: &Path,
    names: &[&str],
    row: Option<u64>,
    mut take: impl FnMut(u64, &RecordBatch) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let (file, len) = map::open_regular(path)?;
    // A single group is read again of a table that was checked.
    if row.is_none() {
        seal::check(path, &file, len)?;
    }
    guarded(path, || {
        let damaged = |error: &dyn std::fmt::Display| {
            ReadError::format(path, format!("is not a valid Parquet table: {error}; capture it again"))
        };
        let plain = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(&file, plain.clone()).map_err(|error| damaged(&error))?;
        check(path, metadata.metadata(), len)?;
        // Texts and bytes stay in the dictionary of their column chunk, so that a long value shared by many rows is stored
        // once.
        let fields: Vec<Field> = metadata
            .schema()
            .fields()
            .iter()
            .map(|field| match field.data_type() {
                DataType::Utf8 => field.as_ref().clone().with_data_type(dictionary(DataType::Utf8)),
                DataType::Binary => field.as_ref().clone().with_data_type(dictionary(DataType::Binary)),
                _ => field.as_ref().clone(),
            })
            .collect();
        let options = plain.with_schema(Arc::new(Schema::new(fields)));
        let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)
            .map_err(|error| damaged(&error))?;
        let mask = ProjectionMask::columns(metadata.parquet_schema(), names.iter().copied());
        let (groups, mut first) = match row {
            Some(row) => {
                let Some((group, first)) = group_of(metadata.metadata(), row) else { return Ok(()) };
                (vec![group], first)
            }
            None => ((0..metadata.metadata().num_row_groups()).collect(), 0),
        };
        let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_batch_size(BATCH)
            .with_projection(mask)
            .with_row_groups(groups)
            .build()
            .map_err(|error| damaged(&error))?;
        for batch in batches {
            let batch = batch.map_err(|error| damaged(&error))?;
            take(first, &batch)?;
            first += batch.num_rows() as u64;
        }
        Ok(())
    })
}

/// Returns the row group that contains `row`, and the group's first row.
fn group_of(metadata: &ParquetMetaData, row: u64) -> Option<(usize, u64)> {
    let mut first = 0_u64;
    for (index, group) in metadata.row_groups().iter().enumerate() {
        let end = first.checked_add(u64::try_from(group.num_rows()).ok()?)?;
        if row < end {
            return Some((index, first));
        }
        first = end;
    }
    None
}

/// Returns the type of dictionary-encoded values, as tables are read.
pub(super) fn dictionary(values: DataType) -> DataType {
    DataType::Dictionary(DataType::Int32.into(), values.into())
}

/// Checks the footer's claims against the file size.
fn check(path: &Path, metadata: &ParquetMetaData, len: u64) -> Result<(), ReadError> {
    let rows = u64::try_from(metadata.file_metadata().num_rows())
        .map_err(|_| ReadError::format(path, "has a negative number of rows"))?;
    // Even a row of repeated values takes a few bits in each of a dozen columns.
    let limit = limits::MAX_TABLE_ROWS.min(len);
    if rows > limit {
        return Err(ReadError::Limit { path: path.into(), what: "the number of rows", found: rows, limit });
    }
    let mut sum = 0_u64;
    for group in metadata.row_groups() {
        sum = sum.saturating_add(u64::try_from(group.num_rows()).unwrap_or(u64::MAX));
        for column in group.columns() {
            if column.compression() != Compression::UNCOMPRESSED {
                return Err(ReadError::format(
                    path,
                    format!("column {} is compressed, tables of this format are not", column.column_path()),
                ));
            }
        }
    }
    if sum != rows {
        return Err(ReadError::format(path, format!("has {rows} rows, but its groups have {sum}")));
    }
    Ok(())
}
