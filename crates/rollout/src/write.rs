//! Writes tokens as a plain table in Parquet, which [`read`](crate::read) takes: a row a token.

use std::io::Write as _;
use std::sync::Arc;

use arrow_array::builder::{Float32Builder, ListBuilder, UInt16Builder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float32Array, Int64Array, RecordBatch, StringArray, UInt32Array,
    UInt64Array,
};
use arrow_schema::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::routes::Routes;
use crate::table::{COUNTED, NO_ID, ROLLOUT, Sample, TRAINER, Table};
use probe_files::{Draft, ReportError};

/// Tokens of a batch, at least; a batch ends with a sample.
const BATCH: usize = 1 << 18;

/// Writes the table into `draft`.
///
/// # Errors
/// [`ReportError`] when the file cannot be written.
pub fn tokens(draft: &mut Draft, table: &Table) -> Result<(), ReportError> {
    let target = draft.target().to_path_buf();
    let refused = |error: &dyn std::fmt::Display| ReportError::format(&target, error);
    let mut properties = WriterProperties::builder()
        // Log-probabilities hardly compress, and writing them is what takes the time.
        .set_compression(Compression::UNCOMPRESSED)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(Some(4 * BATCH));
    for column in ["position", "token_id", "rollout_logprob", "trainer_logprob"] {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
    }
    // Values of a sample, the same in all of its rows: differences to the row before take less time than a dictionary.
    for column in ["step", "padding", "version"] {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(column), false)
            .set_column_encoding(ColumnPath::from(column), Encoding::DELTA_BINARY_PACKED);
    }
    let empty = batch(table, &[]).map_err(|error| refused(&error))?;
    let mut writer = ArrowWriter::try_new(&mut *draft.file(), empty.schema(), Some(properties.build()))
        .map_err(|error| refused(&error))?;
    let mut samples: &[Sample] = &table.samples;
    while !samples.is_empty() {
        let mut tokens = 0;
        let full = samples.iter().position(|sample| {
            tokens += sample.range.len();
            tokens >= BATCH
        });
        let (now, rest) = samples.split_at(full.map_or(samples.len(), |last| last + 1));
        let batch = batch(table, now).map_err(|error| refused(&error))?;
        writer.write(&batch).map_err(|error| refused(&error))?;
        samples = rest;
    }
    writer.close().map_err(|error| refused(&error))?;
    draft.file().flush().map_err(|error| draft.refused(error))
}

/// Returns the rows of `samples`.
fn batch(table: &Table, samples: &[Sample]) -> Result<RecordBatch, ArrowError> {
    let tokens = &table.tokens;
    let places = || samples.iter().flat_map(|sample| sample.range.clone());
    let values = |column: &[f32], flag: u8| -> Float32Array {
        places().map(|place| (tokens.flags[place] & flag != 0).then(|| column[place])).collect()
    };
    let mut keys = Vec::with_capacity(places().count());
    for (key, sample) in (0_i32..).zip(samples) {
        keys.resize(keys.len() + sample.range.len(), key);
    }
    let names: StringArray = samples.iter().map(|sample| Some(&*sample.name)).collect();
    let ids: UInt32Array = places().map(|place| Some(tokens.ids[place]).filter(|id| *id != NO_ID)).collect();
    let each = || samples.iter().flat_map(|sample| std::iter::repeat_n(sample, sample.range.len()));
    let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("step", Arc::new(each().map(|sample| Some(sample.step)).collect::<UInt64Array>()), true),
        ("sample", Arc::new(DictionaryArray::<Int32Type>::try_new(keys.into(), Arc::new(names))?), false),
        (
            "position",
            Arc::new(places().map(|place| Some(tokens.positions[place])).collect::<UInt32Array>()),
            true,
        ),
        ("token_id", Arc::new(ids), true),
        ("rollout_logprob", Arc::new(values(&tokens.rollout, ROLLOUT)), true),
        ("trainer_logprob", Arc::new(values(&tokens.trainer, TRAINER)), true),
        (
            "mask",
            Arc::new(
                places().map(|place| Some(tokens.flags[place] & COUNTED != 0)).collect::<BooleanArray>(),
            ),
            true,
        ),
        ("padding", Arc::new(each().map(|sample| sample.padding).collect::<UInt32Array>()), true),
        ("version", Arc::new(each().map(|sample| sample.version).collect::<Int64Array>()), true),
    ];
    for (routes, [experts, margins]) in [
        (&tokens.rollout_routes, ["rollout_routed_experts", "rollout_router_margins"]),
        (&tokens.trainer_routes, ["trainer_routed_experts", "trainer_router_margins"]),
    ] {
        if !routes.is_empty() {
            columns.push((experts, self::experts(routes, places()), true));
        }
        if routes.has_margins() {
            columns.push((margins, self::margins(routes, places()), true));
        }
    }
    RecordBatch::try_from_iter_with_nullable(columns)
}

/// Returns the experts of tokens, a list of lists each: layer, choice.
fn experts(routes: &Routes, places: impl Iterator<Item = usize>) -> ArrayRef {
    let mut tokens = ListBuilder::new(ListBuilder::new(UInt16Builder::new()));
    for place in places {
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
fn margins(routes: &Routes, places: impl Iterator<Item = usize>) -> ArrayRef {
    let mut tokens = ListBuilder::new(Float32Builder::new());
    for place in places {
        let route = routes.get(place);
        tokens.values().append_slice(route.map_or(&[], |route| route.margins));
        tokens.append(route.is_some());
    }
    Arc::new(tokens.finish())
}
