//! Plain tables in Parquet.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{
    Array, ArrayAccessor as _, ArrayRef, DictionaryArray, RecordBatch, StringArray, TypedDictionaryArray,
};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::Collected;
use super::batch::Batch;
use super::columns::{NAMES, missing};
use super::pages;
use super::plain::{Experts, Name, Row, Rows, SIDES};
use crate::table::Side;
use probe_files::{limits, map};
use probe_read::ReadError;

/// Rows decoded at a time.
const BATCH: usize = 16_384;

/// Reads the file.
pub(super) fn read(path: &Path, into: &mut Collected) -> Result<(), ReadError> {
    let (file, length) = map::open_regular(path)?;
    // The library behind the format panics for some damaged files.
    catch_unwind(AssertUnwindSafe(|| table(path, file, length, into)))
        .unwrap_or_else(|_| Err(ReadError::format(path, "is damaged; write the table again")))
}

fn table(path: &Path, file: File, length: u64, into: &mut Collected) -> Result<(), ReadError> {
    let damaged = |error: &dyn std::fmt::Display| {
        ReadError::format(path, format!("is not a valid Parquet table: {error}; write it again"))
    };
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = ArrowReaderMetadata::load(&file, options).map_err(|error| damaged(&error))?;
    check(path, &file, metadata.metadata(), length)?;
    let metadata = with_keys(&metadata).map_err(|error| damaged(&error))?;
    // Values of tokens take four bytes, which hardly become fewer in a file: a table that claims more grows as it is read.
    let claimed = metadata.metadata().file_metadata().num_rows().unsigned_abs().min(length / 4);
    let tokens = usize::try_from(claimed).unwrap_or(0);
    let schema = metadata.schema().clone();
    if let Some(error) = missing(path, |name| schema.column_with_name(name).is_some()) {
        return Err(error);
    }
    let lists = lists();
    let names = NAMES.into_iter().chain(lists.iter().map(String::as_str));
    let mask = ProjectionMask::columns(metadata.parquet_schema(), names);
    let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_batch_size(BATCH)
        .with_projection(mask)
        .build()
        .map_err(|error| damaged(&error))?;
    into.builder.reserve(tokens);
    let mut rows = Rows::new(path, into);
    let (mut whole, mut first) = (Batch::default(), 0);
    for batch in batches {
        let batch = batch.map_err(|error| damaged(&error))?;
        if lists.iter().any(|name| batch.column_by_name(name).is_some()) || !whole.add(&batch, &mut rows) {
            add(&batch, &mut rows).map_err(|(row, message)| {
                ReadError::format(path, format!("row {}: {message}", first + row))
            })?;
        }
        first += batch.num_rows();
    }
    Ok(())
}

/// Asks for names of samples as keys of a dictionary: most rows have the name of the row before.
fn with_keys(metadata: &ArrowReaderMetadata) -> Result<ArrowReaderMetadata, ParquetError> {
    let schema = metadata.schema();
    let keyed = |field: &Field| match (field.name().as_str(), field.data_type()) {
        ("sample", DataType::Utf8) => field
            .clone()
            .with_data_type(DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))),
        _ => field.clone(),
    };
    let fields: Vec<Field> = schema.fields().iter().map(|field| keyed(field)).collect();
    let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
    ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options)
}

/// Checks what the footer claims.
fn check(path: &Path, file: &File, metadata: &ParquetMetaData, length: u64) -> Result<(), ReadError> {
    let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(u64::MAX);
    // Columns that repeat one value take far less than a bit a row.
    let limit = limits::MAX_ROLLOUT_TOKENS.min(length.saturating_mul(limits::MAX_INFLATE_RATIO));
    if rows > limit {
        return Err(ReadError::Limit { path: path.into(), what: "the number of rows", found: rows, limit });
    }
    let columns = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let lists = lists();
    let is_read = |name: &str| NAMES.contains(&name) || lists.iter().any(|list| list == name);
    for column in
        columns.filter(|column| column.column_path().parts().first().is_some_and(|name| is_read(name)))
    {
        if !matches!(
            column.compression(),
            Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)
        ) {
            return Err(ReadError::format(
                path,
                format!(
                    "column {} is compressed with {}; write the table with compression='snappy', 'zstd' or none",
                    column.column_path(),
                    column.compression().to_string().to_lowercase()
                ),
            ));
        }
        if column.compression() == Compression::SNAPPY {
            pages::check(file, column)
                .map_err(|message| ReadError::format(path, format!("{message}; write the table again")))?;
        }
    }
    Ok(())
}

/// Name of the column of experts, of a side or of the file's own.
const EXPERTS: &str = "routed_experts";
/// Name of the column of margins.
const MARGINS: &str = "router_margins";

/// Returns the names of columns that hold lists.
fn lists() -> Vec<String> {
    SIDES.iter().flat_map(|(_, side)| [EXPERTS, MARGINS].map(|name| format!("{side}{name}"))).collect()
}

/// The experts of a batch on one side.
struct Lists {
    side: Option<Side>,
    experts: ArrayRef,
    margins: Option<ArrayRef>,
}

impl Lists {
    fn all(batch: &RecordBatch) -> Vec<Self> {
        let of = |side: &str, name: &str| batch.column_by_name(&format!("{side}{name}")).cloned();
        let lists = |(side, prefix): (Option<Side>, &str)| {
            Some(Self { side, experts: of(prefix, EXPERTS)?, margins: of(prefix, MARGINS) })
        };
        SIDES.into_iter().filter_map(lists).collect()
    }

    fn get(&self, row: usize) -> Result<Experts, String> {
        let mut route = Experts::default();
        let Some(layers) = list(&self.experts, row, EXPERTS)? else { return Ok(route) };
        for layer in 0..layers.len() {
            let experts = list(&layers, layer, EXPERTS)?.ok_or("has a layer without experts")?;
            route.layer(reals(&experts)?.into_iter())?;
        }
        let margins = self.margins.as_ref().map(|margins| list(margins, row, MARGINS)).transpose()?.flatten();
        if let Some(margins) = margins {
            route.margins = reals(&margins)?.into_iter().map(super::fields::narrow).collect();
        }
        Ok(route)
    }
}

/// Returns the list at `row`.
fn list(column: &ArrayRef, row: usize, name: &str) -> Result<Option<ArrayRef>, String> {
    if !column.is_valid(row) {
        return Ok(None);
    }
    match column.data_type() {
        DataType::List(_) => Ok(Some(column.as_list::<i32>().value(row))),
        DataType::LargeList(_) => Ok(Some(column.as_list::<i64>().value(row))),
        DataType::FixedSizeList(..) => Ok(Some(column.as_fixed_size_list().value(row))),
        other => Err(format!("column {name} has type {other}, expected lists")),
    }
}

/// Returns numbers of a list; one that is not there is NaN.
fn reals(values: &ArrayRef) -> Result<Vec<f64>, String> {
    let numbers = Numbers::of_column(values, "of a list").map_err(|(_, message)| message)?;
    Ok((0..values.len()).map(|at| numbers.real(at).unwrap_or(f64::NAN)).collect())
}

/// A column of a batch, as numbers. They are taken from the batch one by one: copies of whole columns were freed and asked for again
/// with each batch, which cost the system more time than reading them.
pub(super) enum Numbers<'a> {
    Absent,
    Whole(Box<dyn Fn(usize) -> Option<i64> + 'a>),
    Real(Box<dyn Fn(usize) -> Option<f64> + 'a>),
}

impl<'a> Numbers<'a> {
    pub(super) fn of(batch: &'a RecordBatch, name: &str) -> Result<Self, (usize, String)> {
        batch.column_by_name(name).map_or(Ok(Self::Absent), |column| Self::of_column(column, name))
    }

    pub(super) fn of_column(column: &'a ArrayRef, name: &str) -> Result<Self, (usize, String)> {
        macro_rules! numbers {
            ($kind:ident, $array:expr, $convert:expr) => {{
                let array = $array;
                let convert = $convert;
                Self::$kind(Box::new(move |row| {
                    array.is_valid(row).then(|| array.value(row)).and_then(convert)
                }))
            }};
        }
        macro_rules! whole {
            ($type:ty) => {
                numbers!(Whole, column.as_primitive::<$type>(), |value| i64::try_from(value).ok())
            };
        }
        Ok(match column.data_type() {
            DataType::Int8 => whole!(Int8Type),
            DataType::Int16 => whole!(Int16Type),
            DataType::Int32 => whole!(Int32Type),
            DataType::Int64 => numbers!(Whole, column.as_primitive::<Int64Type>(), Some),
            DataType::UInt8 => whole!(UInt8Type),
            DataType::UInt16 => whole!(UInt16Type),
            DataType::UInt32 => whole!(UInt32Type),
            DataType::UInt64 => whole!(UInt64Type),
            DataType::Float32 => {
                numbers!(Real, column.as_primitive::<Float32Type>(), |value| Some(f64::from(value)))
            }
            DataType::Float64 => numbers!(Real, column.as_primitive::<Float64Type>(), Some),
            DataType::Boolean => numbers!(Whole, column.as_boolean(), |value| Some(i64::from(value))),
            other => return Err((0, format!("column {name} has type {other}, expected numbers"))),
        })
    }

    pub(super) fn real(&self, row: usize) -> Option<f64> {
        match self {
            Self::Absent => None,
            Self::Whole(at) => at(row).map(|value| value as f64),
            Self::Real(at) => at(row),
        }
    }

    pub(super) fn whole(&self, row: usize, name: &str) -> Result<Option<i64>, String> {
        match self {
            Self::Absent => Ok(None),
            Self::Whole(at) => Ok(at(row)),
            Self::Real(at) => at(row)
                .map(|value| {
                    super::fields::id(value).map(i64::from).map_err(|_| format!("{name} is {value}"))
                })
                .transpose(),
        }
    }
}

/// Adds a batch row by row. An error names the row.
pub(super) fn add(batch: &RecordBatch, rows: &mut Rows<'_>) -> Result<(), (usize, String)> {
    let of = |name: &str| Numbers::of(batch, name);
    let [step, position, padding, version] = [of("step")?, of("position")?, of("padding")?, of("version")?];
    let (id, mask) = (of("token_id")?, of("mask")?);
    let [logprob, rollout, trainer] = [of("logprob")?, of("rollout_logprob")?, of("trainer_logprob")?];
    let names = Names::of(batch)?;
    let lists = Lists::all(batch);
    for row in 0..batch.num_rows() {
        let mut line = || -> Result<(), String> {
            let whole = |numbers: &Numbers, name: &str| {
                let value = numbers.whole(row, name)?;
                value.map(|value| u64::try_from(value).map_err(|_| format!("{name} is {value}"))).transpose()
            };
            let value = |numbers: &Numbers| numbers.real(row).map(super::fields::narrow);
            let line = Row {
                step: whole(&step, "step")?,
                position: whole(&position, "position")?,
                id: id.real(row),
                logprob: value(&logprob),
                rollout: value(&rollout),
                trainer: value(&trainer),
                mask: mask.real(row).map(|mask| mask > 0.0),
                padding: whole(&padding, "padding")?.and_then(|padding| u32::try_from(padding).ok()),
                version: version.whole(row, "version")?,
            };
            rows.add(&names.get(row)?, &line)?;
            lists.iter().try_for_each(|lists| rows.route(lists.side, &lists.get(row)?))
        };
        line().map_err(|message| (row, message))?;
    }
    Ok(())
}

/// Names of samples of a batch.
pub(super) enum Names<'a> {
    Numbers(Numbers<'a>),
    Texts(TypedDictionaryArray<'a, Int32Type, StringArray>),
}

impl<'a> Names<'a> {
    pub(super) fn of(batch: &'a RecordBatch) -> Result<Self, (usize, String)> {
        let texts = batch.column_by_name("sample").and_then(|column| column.as_dictionary_opt::<Int32Type>());
        Ok(match texts.and_then(DictionaryArray::downcast_dict) {
            Some(column) => Self::Texts(column),
            None => Self::Numbers(Numbers::of(batch, "sample")?),
        })
    }

    pub(super) fn get(&self, row: usize) -> Result<Name<'a>, String> {
        match self {
            Self::Texts(column) if column.is_valid(row) => Ok(Name::Text(column.value(row))),
            Self::Texts(_) => Err("has no sample".into()),
            Self::Numbers(numbers) => {
                numbers.whole(row, "sample")?.map(Name::Number).ok_or_else(|| "has no sample".into())
            }
        }
    }
}
