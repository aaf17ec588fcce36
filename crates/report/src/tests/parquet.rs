//! `result.parquet`, read back with arrow.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::fixture::{everything, hostile_names, summary};
use crate::ReportWriter;
use crate::columns::{Kind, SlotColumn};
use crate::parquet::ParquetReport;
use crate::rows::{Cell, op_rows};
use probe_compare::PartReport;

fn written(
    folder: &std::path::Path,
    parts: &[PartReport<'_>],
) -> ParquetRecordBatchReaderBuilder<std::fs::File> {
    let mut writer = Box::new(ParquetReport::create(&folder.join("result.parquet")).unwrap());
    for part in parts {
        writer.part(part).unwrap();
    }
    let path = writer.finish(&summary(&[])).unwrap().place().unwrap();
    ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap()
}

fn same(kind: Kind, array: &ArrayRef, row: usize, cell: &Cell<'_>) -> bool {
    if array.is_null(row) {
        return *cell == Cell::Empty;
    }
    match (kind, cell) {
        (Kind::Count, Cell::Count(value)) => array.as_primitive::<UInt64Type>().value(row) == *value,
        (Kind::Real, Cell::Real(value)) => {
            array.as_primitive::<Float64Type>().value(row).to_bits() == value.to_bits()
        }
        (Kind::Flag, Cell::Flag(value)) => array.as_boolean().value(row) == *value,
        (Kind::Category, Cell::Text(text)) => {
            let words = array.as_dictionary::<Int32Type>();
            let key = usize::try_from(words.keys().value(row)).unwrap();
            words.values().as_string::<i32>().value(key) == text
        }
        (Kind::Text, Cell::Text(text)) => array.as_string::<i32>().value(row) == text,
        _ => false,
    }
}

#[test]
fn every_value_reads_back_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let part = everything();
    let report = part.report();
    let builder = written(folder.path(), &[report, report]);
    let keys = builder.metadata().file_metadata().key_value_metadata().unwrap();
    let value = |name: &str| keys.iter().find(|pair| pair.key == name).and_then(|pair| pair.value.clone());
    assert_eq!(value("schema_version").as_deref(), Some("1"));
    assert_eq!(value("tool_version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
    let batches: Vec<_> = builder.build().unwrap().map(Result::unwrap).collect();
    let schema = batches[0].schema();
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, SlotColumn::with_programs().iter().map(|column| column.name()).collect::<Vec<_>>());
    let mut rows: Vec<_> = op_rows(&report).flat_map(|op| op.slots()).collect();
    rows.extend(rows.clone());
    assert_eq!(batches.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), rows.len());
    let mut rows = rows.into_iter();
    for batch in &batches {
        for at in 0..batch.num_rows() {
            let row = rows.next().unwrap();
            for (column, array) in SlotColumn::with_programs().into_iter().zip(batch.columns()) {
                let cell = row.cell(column);
                assert!(same(column.kind(), array, at, &cell), "{column:?} of {}: {cell:?}", row.path());
            }
        }
    }
    let ops =
        batches[0].column_by_name("op").unwrap().as_string::<i32>().iter().flatten().collect::<Vec<_>>();
    for name in hostile_names() {
        assert!(ops.contains(&&*name), "names are kept as they are");
    }
}

#[test]
fn an_empty_comparison_has_a_schema() {
    let folder = tempfile::tempdir().unwrap();
    let builder = written(folder.path(), &[]);
    assert_eq!(builder.schema().fields().len(), SlotColumn::with_programs().len());
    assert_eq!(builder.build().unwrap().count(), 0);
}
