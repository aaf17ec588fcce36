//! Writes `result.parquet`: one row per slot with exact values, for programs.
//!
//! The columns are those of [`SlotColumn`], always all of them, so that files of different comparisons can be concatenated. The answer is
//! in the file's metadata, so that other reports can be made from it. The file is sealed.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, StringBuilder, StringDictionaryBuilder, UInt64Builder,
};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::columns::{Kind, SlotColumn};
use super::gallery::Gallery;
use super::model::{Report, SCHEMA_VERSION, Tool};
use super::rows::{Cell, op_rows};
use super::{Extent, ReportWriter};
use probe_compare::PartReport;
use probe_files::seal::{self, Sealed};
use probe_files::{Draft, ReportError};
use probe_judge::Summary;

/// Rows per record batch.
const BATCH: usize = 2048;
/// Rows per row group, and so the number of rows held in memory, compressed.
const ROW_GROUP: usize = 16_384;
/// Rows per page, and so the number of rows of each column held in memory uncompressed.
const PAGE: usize = 4096;

/// Writer of `result.parquet`.
pub struct ParquetReport {
    draft: Draft,
    writer: ArrowWriter<Sealed>,
    schema: Arc<Schema>,
    columns: Vec<(SlotColumn, Builder)>,
    gallery: Gallery,
    extent: Extent,
}

/// Keys of the file's metadata: the text of `report.json`, and the portraits of values at fault as JSON.
pub(super) const REPORT: &str = "report";
pub(super) const PORTRAITS: &str = "portraits";
/// Key that is there if the workbook of the comparison holds everything, however large.
pub(super) const FULL: &str = "full";

impl std::fmt::Debug for ParquetReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetReport").field("draft", &self.draft).finish_non_exhaustive()
    }
}

impl ParquetReport {
    /// Creates the file that will become `path`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        let mut draft = Draft::create(path)?;
        let columns: Vec<(SlotColumn, Builder)> = SlotColumn::with_programs()
            .into_iter()
            .map(|column| (column, Builder::new(column.kind())))
            .collect();
        let fields: Vec<Field> = columns
            .iter()
            .map(|(column, _)| Field::new(column.name(), data_type(column.kind()), !always(*column)))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let metadata = [
            ("schema_version", SCHEMA_VERSION.to_string()),
            ("tool", Tool::THIS.name.into()),
            ("tool_version", Tool::THIS.version.into()),
        ];
        let mut properties = WriterProperties::builder();
        // A dictionary of numbers that hardly ever repeat takes more memory than everything else, and does not shrink the
        // file.
        for (column, _) in columns.iter().filter(|(column, _)| column.kind() == Kind::Real) {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(column.name()), false);
        }
        let properties = properties
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP))
            .set_data_page_row_count_limit(PAGE)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_created_by(format!("{} {}", Tool::THIS.name, Tool::THIS.version))
            .set_key_value_metadata(Some(
                metadata.map(|(key, value)| KeyValue::new(key.to_owned(), value)).into(),
            ))
            .build();
        let file = draft.file().try_clone().map_err(|error| draft.refused(error))?;
        let writer = ArrowWriter::try_new(Sealed::new(file), schema.clone(), Some(properties))
            .map_err(|error| ReportError::format(path, error))?;
        Ok(Self { draft, writer, schema, columns, gallery: Gallery::default(), extent: Extent::default() })
    }

    /// Keeps how much of a large comparison the reports for people hold, for those that are made from the file.
    pub(super) fn beside(mut self, extent: Extent) -> Self {
        self.extent = extent;
        self
    }

    fn flush(&mut self) -> Result<(), ReportError> {
        let arrays: Vec<ArrayRef> = self.columns.iter_mut().map(|(_, builder)| builder.finish()).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), arrays);
        let batch = batch.map_err(|error| ReportError::format(self.draft.target(), error))?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.writer.write(&batch).map_err(|error| ReportError::format(self.draft.target(), error))
    }
}

impl ReportWriter for ParquetReport {
    fn part(&mut self, part: &PartReport<'_>) -> Result<(), ReportError> {
        for op in op_rows(part) {
            for slot in op.slots() {
                for (column, builder) in &mut self.columns {
                    builder.push(&slot.cell(*column));
                }
                if self.columns.first().is_some_and(|(_, builder)| builder.len() >= BATCH) {
                    self.flush()?;
                }
            }
        }
        self.gallery.add(part);
        self.flush()
    }

    fn finish(mut self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError> {
        self.flush()?;
        let texts = [
            (REPORT, serde_json::to_string(&Report::from(summary))),
            (PORTRAITS, serde_json::to_string(&self.gallery.wire())),
        ];
        if self.extent == Extent::Full {
            self.writer.append_key_value_metadata(KeyValue::new(FULL.to_owned(), None));
        }
        for (key, text) in texts {
            let text = text.map_err(|error| ReportError::format(self.draft.target(), error))?;
            self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), text));
        }
        // Comes last, so that no text in front of it can be taken for it.
        self.writer.append_key_value_metadata(KeyValue::new(seal::KEY.to_owned(), seal::blank()));
        let mut file =
            self.writer.into_inner().map_err(|error| ReportError::format(self.draft.target(), error))?;
        file.flush().and_then(|()| file.close()).map_err(|error| self.draft.refused(error))?;
        Ok(self.draft)
    }
}

/// Returns true for columns that are never empty.
const fn always(column: SlotColumn) -> bool {
    matches!(
        column,
        SlotColumn::Step | SlotColumn::Rank | SlotColumn::Order | SlotColumn::Verdict | SlotColumn::Role
    )
}

pub(super) fn data_type(kind: Kind) -> DataType {
    match kind {
        Kind::Count => DataType::UInt64,
        Kind::Real => DataType::Float64,
        Kind::Flag => DataType::Boolean,
        Kind::Category => DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()),
        Kind::Text => DataType::Utf8,
    }
}

/// A column being filled.
enum Builder {
    Count(UInt64Builder),
    Real(Float64Builder),
    Flag(BooleanBuilder),
    Category(StringDictionaryBuilder<Int32Type>),
    Text(StringBuilder),
}

impl Builder {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Count => Self::Count(UInt64Builder::new()),
            Kind::Real => Self::Real(Float64Builder::new()),
            Kind::Flag => Self::Flag(BooleanBuilder::new()),
            Kind::Category => Self::Category(StringDictionaryBuilder::new()),
            Kind::Text => Self::Text(StringBuilder::new()),
        }
    }

    fn push(&mut self, cell: &Cell<'_>) {
        match (self, cell) {
            (Self::Count(builder), Cell::Count(value)) => builder.append_value(*value),
            (Self::Real(builder), Cell::Real(value)) => builder.append_value(*value),
            (Self::Flag(builder), Cell::Flag(value)) => builder.append_value(*value),
            (Self::Category(builder), Cell::Text(text)) => builder.append_value(text),
            (Self::Text(builder), Cell::Text(text)) => builder.append_value(text),
            // A cell is either empty or of its column's type; the test over all cells ensures this.
            (Self::Count(builder), _) => builder.append_null(),
            (Self::Real(builder), _) => builder.append_null(),
            (Self::Flag(builder), _) => builder.append_null(),
            (Self::Category(builder), _) => builder.append_null(),
            (Self::Text(builder), _) => builder.append_null(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Count(builder) => builder.len(),
            Self::Real(builder) => builder.len(),
            Self::Flag(builder) => builder.len(),
            Self::Category(builder) => builder.len(),
            Self::Text(builder) => builder.len(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Count(builder) => Arc::new(builder.finish()),
            Self::Real(builder) => Arc::new(builder.finish()),
            Self::Flag(builder) => Arc::new(builder.finish()),
            // Each batch gets a fresh dictionary, which holds only a handful of words.
            Self::Category(builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
        }
    }
}
