//! Writes tokens as a plain table in Parquet, which [`read`](crate::read) takes: a row a token.
//!
//! Columns are encoded beside one another, a group of rows at a time. What is written does not depend on the number of threads.

mod chunk;

use std::io::{BufWriter, Write as _};
use std::sync::Arc;

use arrow_array::builder::{Float32Builder, ListBuilder, UInt16Builder};
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, compute_leaves};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::ColumnDescPtr;
use rayon::prelude::*;

use crate::routes::Routes;
use crate::table::{COUNTED, NO_ID, ROLLOUT, Sample, TRAINER, Table};
use chunk::{Encoded, Pages, Run, bits_of};
use probe_files::{Draft, ReportError};

/// Tokens of a page, at least; a page ends with a sample.
const BATCH: usize = 1 << 17;
/// Tokens of a group of rows, at least; a group ends with a sample too.
const GROUP: usize = 1 << 20;

/// Writes the table into `draft`.
///
/// # Errors
/// [`ReportError`] when the file cannot be written.
pub fn tokens(draft: &mut Draft, table: &Table) -> Result<(), ReportError> {
    let target = draft.target().to_path_buf();
    groups(draft, table).map_err(|error| ReportError::format(&target, error))?;
    draft.file().flush().map_err(|error| draft.refused(error))
}

fn groups(draft: &mut Draft, table: &Table) -> Result<(), ParquetError> {
    let columns = columns(table);
    let schema = Schema::new(columns.iter().map(|(name, values)| values.field(name)).collect::<Vec<Field>>());
    let properties = WriterProperties::builder()
        // Log-probabilities hardly compress.
        .set_compression(Compression::UNCOMPRESSED)
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let file = BufWriter::with_capacity(BUFFER, &mut *draft.file());
    let (mut writer, encoders) =
        ArrowWriter::try_new(file, Arc::new(schema), Some(properties))?.into_serialized_writer()?;
    for (number, samples) in pieces(&table.samples, GROUP).enumerate() {
        let encoded: Vec<Chunk> = encoders
            .create_column_writers(number)?
            .into_par_iter()
            .zip(&columns)
            .zip(writer.schema_descr().columns())
            .with_max_len(1)
            .map(|((writer, (_, values)), column)| values.encoded(writer, column, table, samples))
            .collect::<Result<_, _>>()?;
        let mut group = writer.next_row_group()?;
        encoded.into_iter().try_for_each(|column| column.append(&mut group))?;
        group.close()?;
    }
    writer.into_inner()?.flush()?;
    Ok(())
}

/// Cuts samples into pieces of so many tokens, or more by part of a sample.
fn pieces(mut samples: &[Sample], tokens: usize) -> impl Iterator<Item = &[Sample]> {
    std::iter::from_fn(move || {
        let mut count = 0;
        let full = samples.iter().position(|sample| {
            count += sample.range.len();
            count >= tokens
        });
        let (now, rest) = samples.split_at(full.map_or(samples.len(), |last| last + 1));
        samples = rest;
        (!now.is_empty()).then_some(now)
    })
}

/// Bytes that are written to the file at once.
const BUFFER: usize = 1 << 20;

/// An encoded column of a group of rows.
enum Chunk {
    Own(Encoded),
    /// Of lists.
    Arrow(ArrowColumnChunk),
}

impl Chunk {
    fn append<W: std::io::Write + Send>(
        self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        match self {
            Self::Own(Encoded { bytes, close }) => group.append_column(&bytes, close),
            Self::Arrow(chunk) => chunk.append_to_row_group(group),
        }
    }
}

/// Returns a list for each token of samples.
type ListsOf = fn(&Table, &[Sample]) -> ArrayRef;

/// What a column holds.
enum Values {
    /// Whole numbers of tokens, and the one that stands for none.
    Whole(fn(&Table) -> &[u32], Option<u32>),
    /// Log-probabilities of the tokens that have a flag.
    Logprobs(fn(&Table) -> &[f32], u8),
    /// A flag of tokens.
    Flag(u8),
    /// Names of samples.
    Names,
    /// A number of samples, of a type, as bytes.
    OfSamples(DataType, fn(&Sample) -> Option<Vec<u8>>),
    /// Lists of tokens.
    Lists(ListsOf, DataType),
}

/// Returns the columns that `table` fills.
fn columns(table: &Table) -> Vec<(&'static str, Values)> {
    let bytes = |sample: &Sample| Some(sample.step.to_le_bytes().to_vec());
    let mut columns = vec![
        ("step", Values::OfSamples(DataType::UInt64, bytes)),
        ("sample", Values::Names),
        ("position", Values::Whole(|table| &table.tokens.positions, None)),
        ("token_id", Values::Whole(|table| &table.tokens.ids, Some(NO_ID))),
        ("rollout_logprob", Values::Logprobs(|table| &table.tokens.rollout, ROLLOUT)),
        ("trainer_logprob", Values::Logprobs(|table| &table.tokens.trainer, TRAINER)),
        ("mask", Values::Flag(COUNTED)),
        (
            "padding",
            Values::OfSamples(DataType::UInt32, |sample| Some(sample.padding?.to_le_bytes().to_vec())),
        ),
        (
            "version",
            Values::OfSamples(DataType::Int64, |sample| Some(sample.version?.to_le_bytes().to_vec())),
        ),
    ];
    let [ours, theirs] = [&table.tokens.rollout_routes, &table.tokens.trainer_routes];
    let lists: [(_, ListsOf, _); 4] = [
        ("rollout_routed_experts", |table, of| experts(&table.tokens.rollout_routes, of), !ours.is_empty()),
        ("rollout_router_margins", |table, of| margins(&table.tokens.rollout_routes, of), ours.has_margins()),
        ("trainer_routed_experts", |table, of| experts(&table.tokens.trainer_routes, of), !theirs.is_empty()),
        (
            "trainer_router_margins",
            |table, of| margins(&table.tokens.trainer_routes, of),
            theirs.has_margins(),
        ),
    ];
    for (name, values, _) in lists.into_iter().filter(|(_, _, is_filled)| *is_filled) {
        columns.push((name, Values::Lists(values, values(table, &[]).data_type().clone())));
    }
    columns
}

impl Values {
    fn field(&self, name: &str) -> Field {
        let names = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let kind = match self {
            Self::Whole(..) => DataType::UInt32,
            Self::Logprobs(..) => DataType::Float32,
            Self::Flag(_) => DataType::Boolean,
            Self::Names => names(),
            Self::OfSamples(kind, _) | Self::Lists(_, kind) => kind.clone(),
        };
        Field::new(name, kind, !matches!(self, Self::Names))
    }

    /// Encodes the values of `samples`. Lists are left to `writer`.
    fn encoded(
        &self,
        writer: ArrowColumnWriter,
        column: &ColumnDescPtr,
        table: &Table,
        samples: &[Sample],
    ) -> Result<Chunk, ParquetError> {
        let size = if matches!(self, Self::Whole(..) | Self::Logprobs(..)) { 4 * count(samples) } else { 0 };
        let mut pages = Pages::new(Arc::clone(column), size + size / 64);
        match self {
            Self::Lists(values, _) => {
                return lists(*values, &self.field(column.name()), writer, table, samples);
            }
            Self::Names => {
                let names = samples.iter().map(|sample| {
                    let length = u32::try_from(sample.name.len()).unwrap_or(0).to_le_bytes();
                    Some([&length, sample.name.as_bytes()].concat())
                });
                keyed(&mut pages, samples, names)?;
            }
            Self::OfSamples(_, value) => keyed(&mut pages, samples, samples.iter().map(value))?,
            Self::Whole(whole, none) => {
                let column = whole(table);
                by_token(&mut pages, column, samples, u32::to_le_bytes, |at| *none != Some(column[at]))?;
            }
            Self::Logprobs(values, flag) => {
                by_token(&mut pages, values(table), samples, f32::to_le_bytes, |at| {
                    table.tokens.flags[at] & flag != 0
                })?;
            }
            Self::Flag(flag) => {
                for samples in pieces(samples, BATCH) {
                    let places = samples.iter().flat_map(|sample| sample.range.clone());
                    let bits: Vec<bool> = places.map(|at| table.tokens.flags[at] & flag != 0).collect();
                    pages.plain(bits.len(), None, &bits_of(&bits).collect::<Vec<u8>>())?;
                }
            }
        }
        pages.close().map(Chunk::Own)
    }
}

/// Encodes a value of each sample, the same in all of its rows.
fn keyed(
    pages: &mut Pages,
    samples: &[Sample],
    values: impl Iterator<Item = Option<Vec<u8>>>,
) -> Result<(), ParquetError> {
    let (mut dictionary, mut count, mut last) = (Vec::new(), 0_u32, None);
    let mut runs: Vec<Run> = Vec::new();
    for (sample, value) in samples.iter().zip(values) {
        let key = value.map(|value| {
            if last.as_ref() != Some(&value) {
                dictionary.extend_from_slice(&value);
                count += 1;
                last = Some(value);
            }
            count - 1
        });
        match runs.last_mut() {
            Some(run) if run.key == key => run.rows += sample.range.len(),
            _ => runs.push(Run { rows: sample.range.len(), key }),
        }
    }
    pages.runs(&runs, dictionary, count)
}

/// Encodes a value of four bytes of each token that `has` one.
fn by_token<T: Copy>(
    pages: &mut Pages,
    column: &[T],
    samples: &[Sample],
    bytes: impl Fn(T) -> [u8; 4],
    has: impl Fn(usize) -> bool,
) -> Result<(), ParquetError> {
    for samples in pieces(samples, BATCH) {
        let rows = count(samples);
        let places = || samples.iter().flat_map(|sample| sample.range.clone());
        let mut values = Vec::with_capacity(4 * rows);
        if samples.iter().all(|sample| sample.range.clone().all(&has)) {
            for sample in samples {
                let start = values.len();
                values.resize(start + 4 * sample.range.len(), 0);
                let to = values[start..].chunks_exact_mut(4);
                to.zip(&column[sample.range.clone()])
                    .for_each(|(to, value)| to.copy_from_slice(&bytes(*value)));
            }
            pages.plain(rows, None, &values)?;
        } else {
            let valid: Vec<bool> = places().map(&has).collect();
            places().filter(|at| has(*at)).for_each(|at| values.extend(bytes(column[at])));
            pages.plain(rows, Some(&valid), &values)?;
        }
    }
    Ok(())
}

/// Returns the number of tokens of samples.
fn count(samples: &[Sample]) -> usize {
    samples.iter().map(|sample| sample.range.len()).sum()
}

/// Encodes lists with the library's own encoder.
fn lists(
    values: ListsOf,
    field: &Field,
    mut writer: ArrowColumnWriter,
    table: &Table,
    samples: &[Sample],
) -> Result<Chunk, ParquetError> {
    for samples in pieces(samples, BATCH) {
        for leaf in compute_leaves(field, &values(table, samples))? {
            writer.write(&leaf)?;
        }
    }
    writer.close().map(Chunk::Arrow)
}

/// Returns the experts of tokens, a list of lists each: layer, choice.
fn experts(routes: &Routes, samples: &[Sample]) -> ArrayRef {
    let mut tokens = ListBuilder::new(ListBuilder::new(UInt16Builder::new()));
    for place in samples.iter().flat_map(|sample| sample.range.clone()) {
        let route = routes.get(place);
        for layer in 0..route.map_or(0, |route| route.layers) {
            let layers = tokens.values();
            layers.values().append_slice(route.map_or(&[], |route| route.layer(layer)));
            layers.append(true);
        }
        tokens.append(route.is_some());
    }
    Arc::new(tokens.finish())
}

/// Returns the margins of tokens, a list each.
fn margins(routes: &Routes, samples: &[Sample]) -> ArrayRef {
    let mut tokens = ListBuilder::new(Float32Builder::new());
    for place in samples.iter().flat_map(|sample| sample.range.clone()) {
        let route = routes.get(place);
        tokens.values().append_slice(route.map_or(&[], |route| route.margins));
        tokens.append(route.is_some());
    }
    Arc::new(tokens.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;
    use crate::table::{Builder, Side, Token};

    /// A table of several pages, and with several runs of each kind.
    fn table() -> Table {
        let mut builder = Builder::default();
        for number in 0..600_u32 {
            let version = (number % 7 != 0).then(|| i64::from(number / 100) - 2);
            let padding = (number < 400).then_some(number % 3);
            let (step, name) = (u64::from(number / 200), format!("sample {}", number % 200).into());
            builder.begin(Sample { step, name, named: true, range: 0..0, padding, version });
            for position in 0..600 - number {
                let value = |from: u32| (from != 0).then(|| -((number * 31 + position) as f32) / 7.0);
                let id = if position % 11 == 5 { NO_ID } else { number ^ position };
                let (rollout, trainer) = (value(u32::from(number < 300) + position % 5), value(1));
                builder.token(Token { id, position, rollout, trainer, counted: position % 3 != 0 });
            }
        }
        builder.finish().unwrap()
    }

    #[test]
    fn every_value_comes_back_whatever_the_number_of_threads() {
        let folder = tempfile::tempdir().unwrap();
        let table = table();
        assert!(table.tokens.len() > BATCH);
        let written: Vec<Vec<u8>> = [1, 3]
            .into_iter()
            .map(|threads| {
                let path = folder.path().join(format!("{threads}.parquet"));
                let mut draft = Draft::create(&path).unwrap();
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| tokens(&mut draft, &table)).unwrap();
                draft.place().unwrap();
                std::fs::read(path).unwrap()
            })
            .collect();
        assert!(written[0] == written[1]);
        let back = read::open(&folder.path().join("1.parquet"), Side::Rollout).unwrap().table;
        assert_eq!(back.samples, table.samples);
        assert!(back.tokens == table.tokens);
    }
}
