//! Converts rows to ops. Columns are taken by name; a missing one counts as empty, one of a different type is an
//! error.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, DictionaryArray, RecordBatch, StringArray};
use arrow_schema::DataType;

use super::part::Places;
use super::small::{Elements, SmallTensor, SmallTensors, find};
use super::store::Place;
use super::table::dictionary;
use crate::ReadError;
use crate::tensor_file::printable;
use probe_dump::native::columns::{Column, Form, HASH_BYTES, SKETCH_BYTES, ops_schema};
use probe_dump::{
    Checksum, Counts, DType, DataKey, ExtremePlaces, MAX_DIMS, Number, Op, OpName, RecordedDType,
    RecordedStatistics, Repeated, SKETCH_LANES, Scalar, SeenAs, Sketch, SketchVersion, Slot, SlotSide,
    TensorMetadata, TensorRecord, Value,
};
use probe_files::limits;

/// Bytes that may still be copied out of one file.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: limits::MAX_LISTED_BYTES }
    }
}

impl Budget {
    pub(super) fn take(&mut self, path: &Path, text: &str) -> Result<(), ReadError> {
        self.left = self.left.checked_sub(text.len()).ok_or_else(|| ReadError::Limit {
            path: path.into(),
            what: "the number of bytes of names and texts",
            found: limits::MAX_LISTED_BYTES as u64 + 1,
            limit: limits::MAX_LISTED_BYTES as u64,
        })?;
        Ok(())
    }
}

/// A text column, as found in journals and in tables.
pub(super) enum Texts<'b> {
    Plain(&'b StringArray),
    Numbered(&'b DictionaryArray<Int32Type>, &'b StringArray),
}

impl<'b> Texts<'b> {
    pub(super) fn get(&self, row: usize) -> Option<&'b str> {
        match self {
            Self::Plain(texts) => (row < texts.len() && texts.is_valid(row)).then(|| texts.value(row)),
            Self::Numbered(numbers, texts) => {
                let key = (row < numbers.len()).then(|| numbers.key(row)).flatten()?;
                (key < texts.len() && texts.is_valid(key)).then(|| texts.value(key))
            }
        }
    }
}

/// Returns the text column called `name`; `None` if it is missing or has a different type.
pub(super) fn text_column<'b>(batch: &'b RecordBatch, name: &str) -> Option<Texts<'b>> {
    texts(batch.column_by_name(name)?)
}

fn texts(column: &ArrayRef) -> Option<Texts<'_>> {
    if let Some(texts) = column.as_string_opt::<i32>() {
        return Some(Texts::Plain(texts));
    }
    let numbers = column.as_dictionary_opt::<Int32Type>()?;
    Some(Texts::Numbered(numbers, numbers.values().as_string_opt::<i32>()?))
}

/// One batch, with its columns in the order of [`Column`].
struct Rows<'b> {
    columns: Vec<Option<&'b ArrayRef>>,
    texts: Vec<Option<Texts<'b>>>,
}

impl<'b> Rows<'b> {
    fn of(batch: &'b RecordBatch) -> Result<Self, String> {
        let (journal, table) = (ops_schema(Form::Journal), ops_schema(Form::Table));
        let (mut columns, mut all_texts) = (Vec::new(), Vec::new());
        for (column, (a, b)) in Column::ALL.iter().zip(journal.fields().iter().zip(table.fields())) {
            let found = batch.column_by_name(column.name());
            let found_texts = found.and_then(texts).filter(|_| *a.data_type() == DataType::Utf8);
            if let Some(array) = found {
                let kind = array.data_type();
                let numbered = *column == Column::Data && *kind == dictionary(DataType::Binary);
                if found_texts.is_none() && kind != a.data_type() && kind != b.data_type() && !numbered {
                    return Err(format!("column {} holds {kind}, not {}", column.name(), a.data_type()));
                }
            } else if !column.nullable() {
                return Err(format!("has no column {}", column.name()));
            }
            columns.push(found);
            all_texts.push(found_texts);
        }
        Ok(Self { columns, texts: all_texts })
    }

    /// Returns true if the column exists.
    fn has(&self, column: Column) -> bool {
        self.columns.get(column as usize).is_some_and(Option::is_some)
    }

    fn array(&self, column: Column, row: usize) -> Option<&'b ArrayRef> {
        let array = self.columns.get(column as usize).copied().flatten()?;
        (row < array.len() && array.is_valid(row)).then_some(array)
    }

    fn text(&self, column: Column, row: usize) -> Option<&'b str> {
        self.texts.get(column as usize)?.as_ref()?.get(row)
    }

    fn flag(&self, column: Column, row: usize) -> Option<bool> {
        Some(self.array(column, row)?.as_boolean_opt()?.value(row))
    }

    fn number<T: ArrowPrimitiveType>(&self, column: Column, row: usize) -> Option<T::Native> {
        Some(self.array(column, row)?.as_primitive_opt::<T>()?.value(row))
    }

    fn small(&self, column: Column, row: usize) -> Option<u32> {
        self.number::<UInt32Type>(column, row)
    }

    fn count(&self, column: Column, row: usize) -> Option<u64> {
        self.number::<UInt64Type>(column, row)
    }

    fn real(&self, column: Column, row: usize) -> Option<f64> {
        self.number::<Float64Type>(column, row)
    }

    fn bytes(&self, column: Column, row: usize) -> Option<&'b [u8]> {
        let array = self.array(column, row)?;
        if let Some(fixed) = array.as_fixed_size_binary_opt() {
            return Some(fixed.value(row));
        }
        if let Some(numbers) = array.as_dictionary_opt::<Int32Type>() {
            let values = numbers.values().as_binary_opt::<i32>()?;
            let key = numbers.key(row).filter(|&key| key < values.len() && values.is_valid(key))?;
            return Some(values.value(key));
        }
        Some(array.as_binary_opt::<i32>()?.value(row))
    }
}

/// Content of a part's rows.
pub(super) struct Parsed {
    pub(super) ops: Vec<Op>,
    pub(super) places: Places,
    /// Tensors whose elements are stored in the table, by row.
    pub(super) tensors: Vec<SmallTensor>,
    pub(super) elements: Elements,
}

/// Builds ops from rows as they arrive.
pub(super) struct OpsBuilder<'p> {
    path: &'p Path,
    budget: Budget,
    ops: Vec<Op>,
    /// `order` of the last op.
    open: Option<u64>,
    /// Number of rows before the batch.
    rows: u64,
    /// Sketch version number from the manifest, if given.
    said_version: Option<u32>,
    /// Sketch version; sketches are dropped if it is unknown.
    sketch_version: Option<SketchVersion>,
    /// Sketches by row, for rows that share one.
    sketches: HashMap<u64, Arc<Sketch>>,
    /// Small tensors by row.
    tensors: Vec<SmallTensor>,
    elements: Elements,
    /// True if their bytes are kept rather than only counted.
    keeps: bool,
    places: Places,
    repeated: Repeated,
}

impl<'p> OpsBuilder<'p> {
    /// Starts a builder for a file of `bytes` bytes, with the sketch version from its manifest, if there is one. `keeps`: small tensors
    /// cannot be read again.
    pub(super) fn new(path: &'p Path, bytes: u64, sketch_version: Option<u32>, keeps: bool) -> Self {
        Self {
            path,
            budget: Budget::default(),
            ops: Vec::new(),
            open: None,
            rows: 0,
            said_version: sketch_version,
            sketch_version: None,
            sketches: HashMap::new(),
            tensors: Vec::new(),
            elements: Elements::within(bytes),
            keeps,
            places: HashMap::new(),
            repeated: Repeated::default(),
        }
    }

    /// Releases the spare slot capacity of the last op.
    fn close(&mut self) {
        if let Some(op) = self.ops.last_mut() {
            op.slots.shrink_to_fit();
        }
    }

    pub(super) fn finish(mut self) -> Parsed {
        self.close();
        self.ops.shrink_to_fit();
        self.tensors.shrink_to_fit();
        self.elements.close();
        Parsed { ops: self.ops, places: self.places, tensors: self.tensors, elements: self.elements }
    }

    /// Adds the rows of one batch.
    ///
    /// # Errors
    /// [`ReadError`] when a column does not match the format, or a limit would be exceeded.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<(), ReadError> {
        let rows = Rows::of(batch).map_err(|message| {
            ReadError::format(self.path, format!("is not a table of a probe dump: {}", printable(&message)))
        })?;
        self.sketch_version = match self.said_version {
            Some(number) => SketchVersion::of_number(number),
            // Captures whose sketches used the first function had no such column.
            None if rows.has(Column::SumError) => Some(SketchVersion::Second),
            None => Some(SketchVersion::First),
        };
        for row in 0..batch.num_rows() {
            let order = rows.count(Column::Order, row).unwrap_or_default();
            if self.open != Some(order) {
                self.open = Some(order);
                self.close();
                let op = self.op(&rows, row)?;
                self.ops.push(op);
            }
            let slot = self.slot(&rows, row)?;
            if let (Some(slot), Some(op)) = (slot, self.ops.last_mut()) {
                op.slots.push(slot);
            }
            self.rows += 1;
        }
        Ok(())
    }

    /// Copies a text out of the file.
    fn text(&mut self, text: Option<&str>) -> Result<Option<Box<str>>, ReadError> {
        let Some(text) = text else { return Ok(None) };
        self.budget.take(self.path, text)?;
        Ok(Some(text.into()))
    }

    /// Copies a text that many rows share.
    fn shared(&mut self, text: Option<&str>) -> Result<Option<Arc<str>>, ReadError> {
        let Some(text) = text else { return Ok(None) };
        self.budget.take(self.path, text)?;
        Ok(Some(self.repeated.text(text)))
    }

    fn op(&mut self, rows: &Rows<'_>, row: usize) -> Result<Op, ReadError> {
        let name = self.text(rows.text(Column::Op, row))?.unwrap_or_default();
        Ok(Op {
            parent: self.shared(rows.text(Column::Scope, row))?,
            stack: rows.small(Column::Stack, row),
            recomputed: rows.flag(Column::Recomputed, row).unwrap_or_default(),
            raised: rows.flag(Column::Raised, row).unwrap_or_default(),
            note: self.text(rows.text(Column::Note, row))?.as_deref().unwrap_or_default().into(),
            ..Op::new(OpName::parse(&name))
        })
    }

    /// Returns the slot of a row; `None` for the single row of an op without slots.
    fn slot(&mut self, rows: &Rows<'_>, row: usize) -> Result<Option<Slot>, ReadError> {
        let Some(path) = rows.text(Column::Slot, row) else { return Ok(None) };
        self.budget.take(self.path, path)?;
        let side = match rows.text(Column::Side, row) {
            Some("parameter") => SlotSide::Parameter,
            Some("output") => SlotSide::Output,
            Some("gradient") => SlotSide::Gradient,
            _ => SlotSide::Input,
        };
        let name = self.repeated.name(path, side);
        let identity = rows.count(Column::Identity, row).and_then(SeenAs::new);
        Ok(Some(Slot { name, value: self.value(rows, row)?, identity }))
    }

    fn value(&mut self, rows: &Rows<'_>, row: usize) -> Result<Value, ReadError> {
        let kind = rows.text(Column::Kind, row);
        let text =
            |builder: &mut Self| builder.text(rows.text(Column::Value, row)).map(Option::unwrap_or_default);
        Ok(match kind {
            Some("tensor") => match self.tensor(rows, row)? {
                Some((record, small)) => {
                    let record = self.repeated.record(record);
                    let small =
                        small.and_then(|elements| SmallTensor::new(self.rows, elements, record.clone()));
                    self.tensors.extend(small);
                    Value::Tensor(record)
                }
                None => Value::Unsupported,
            },
            Some("none") => Value::None,
            Some(kind @ ("int" | "float" | "bool")) => {
                let value = rows.text(Column::Value, row).unwrap_or_default();
                number(kind, value).map_or(Value::Unsupported, |number| Value::Scalar(Scalar::Number(number)))
            }
            Some("text") => Value::Scalar(Scalar::Text(text(self)?)),
            Some("device") => Value::Scalar(Scalar::Device(text(self)?)),
            Some("printed") => {
                let kind = self.text(rows.text(Column::Type, row))?.unwrap_or_default();
                Value::Scalar(Scalar::printed(kind, text(self)?))
            }
            _ => Value::Unsupported,
        })
    }

    /// Returns a tensor, and for a new small tensor also the row that has its bytes; `None` if its shape is invalid.
    fn tensor(
        &mut self,
        rows: &Rows<'_>,
        row: usize,
    ) -> Result<Option<(TensorRecord, Option<u64>)>, ReadError> {
        let dtype = RecordedDType::parse(rows.text(Column::DType, row).unwrap_or_default());
        if let RecordedDType::Other(text) = &dtype {
            self.budget.take(self.path, text)?;
        }
        let Some(shape) = list::<u64>(rows.text(Column::Shape, row).unwrap_or_default()) else {
            return Ok(None);
        };
        let mut record = TensorRecord::from(TensorMetadata {
            strides: rows.text(Column::Strides, row).and_then(list::<i64>).map(Into::into),
            device: self.text(rows.text(Column::Device, row))?,
            requires_grad: rows.flag(Column::RequiresGrad, row),
            placement: self.text(rows.text(Column::Placement, row))?,
            note: self.text(rows.text(Column::TensorNote, row))?,
            // A value that is not a fraction of the norm is ignored.
            sum_error: rows.real(Column::SumError, row).filter(|error| (0.0..1.0).contains(error)),
            ..TensorMetadata::new(dtype, shape.into())
        });
        record.counts = counts(rows, row).map(Into::into);
        record.statistics = statistics(rows, row, record.dtype.known()).into();
        // Places outside the tensor are ignored.
        record.places = places(rows, row).filter(|places| places.max().max(places.min()) < record.len());
        let hash = rows.bytes(Column::Hash, row).and_then(|bytes| <[u8; HASH_BYTES]>::try_from(bytes).ok());
        record.checksum = hash.map(|bytes| Checksum::of_hash(u128::from_be_bytes(bytes)));
        record.sketch = self.sketch(rows, row);
        let place = self.place(rows, row, &record)?;
        let elements = place.as_ref().and_then(|(_, elements)| *elements);
        record.data = place.map(|(key, _)| key);
        Ok(Some((record, elements)))
    }

    fn sketch(&mut self, rows: &Rows<'_>, row: usize) -> Option<Arc<Sketch>> {
        if let Some(first) = rows.count(Column::SameAs, row) {
            return self.sketches.get(&first).cloned();
        }
        let bytes = rows.bytes(Column::Sketch, row).filter(|bytes| bytes.len() == SKETCH_BYTES)?;
        let mut lanes = Box::new([0_f32; SKETCH_LANES]);
        for (lane, bytes) in lanes.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *lane = f32::from_le_bytes(*bytes);
        }
        let sketch = Arc::new(Sketch { lanes, version: self.sketch_version? });
        self.sketches.insert(self.rows, sketch.clone());
        Some(sketch)
    }

    /// Keeps the elements of a small tensor, which are stored in the table itself; returns the row that
    /// has them.
    fn small(&mut self, rows: &Rows<'_>, row: usize) -> Result<Option<u64>, ReadError> {
        if let Some(first) = rows.count(Column::SameAs, row) {
            return Ok(find(&self.tensors, first).filter(|tensor| tensor.elements() == first).map(|_| first));
        }
        let Some(bytes) = rows.bytes(Column::Data, row) else { return Ok(None) };
        if self.keeps {
            self.elements.push(self.path, self.rows, bytes)?;
        } else {
            self.elements.count(self.path, bytes)?;
        }
        Ok(Some(self.rows))
    }

    /// Records the location of the data, under the name in the shard if that is free, else under the row number. For a new small tensor also
    /// returns the row that has its bytes.
    fn place(
        &mut self,
        rows: &Rows<'_>,
        row: usize,
        record: &TensorRecord,
    ) -> Result<Option<(DataKey, Option<u64>)>, ReadError> {
        let hash = match record.checksum {
            Some(Checksum::Xxh3(hash)) => Some(hash.bits()),
            _ => None,
        };
        let dtype = record.dtype.known();
        let number = |column| rows.count(column, row);
        let (Some(shard), Some(offset), Some(bytes)) =
            (rows.small(Column::Shard, row), number(Column::Offset), number(Column::Bytes))
        else {
            let Some(elements) = self.small(rows, row)? else { return Ok(None) };
            // Keyed by the row that has the bytes, except for views of a different shape.
            let known = find(&self.tensors, elements).filter(|first| first.is_as(record));
            let key = SmallTensors::key(known.map_or(self.rows, SmallTensor::row));
            return Ok(Some((key.as_str().into(), known.is_none().then_some(elements))));
        };
        let place = Place { shard, offset, bytes, dtype, shape: record.shape.clone(), hash };
        let name: Arc<str> = self.text(rows.text(Column::Tensor, row))?.unwrap_or_default().into();
        let taken = self.places.get(&name).is_some_and(|other| *other != place);
        let taken = taken || name.is_empty() || SmallTensors::row(&name).is_some();
        let key = if taken { format!("{name}@{}", self.rows).into() } else { name };
        self.places.insert(key.clone(), place);
        Ok(Some((key.into(), None)))
    }
}

fn counts(rows: &Rows<'_>, row: usize) -> Option<Counts> {
    let count = |column| rows.count(column, row);
    Some(Counts {
        elements: count(Column::Elements)?,
        zeros: count(Column::Zeros)?,
        nan: count(Column::Nan)?,
        positive_infinite: count(Column::PosInf)?,
        negative_infinite: count(Column::NegInf)?,
        sentinels: count(Column::Sentinels),
    })
}

fn statistics(rows: &Rows<'_>, row: usize, dtype: Option<DType>) -> RecordedStatistics {
    let extreme = |real, integer| match rows.number::<Int64Type>(integer, row) {
        Some(bits) if bits < 0 && dtype == Some(DType::U64) => Some(Number::UInt(bits.cast_unsigned())),
        Some(value) => Some(Number::Int(value)),
        None => rows.real(real, row).map(|value| match dtype {
            Some(DType::Bool) => Number::Bool(value > 0.0),
            _ => Number::Float(value),
        }),
    };
    RecordedStatistics {
        min: extreme(Column::Min, Column::MinInteger),
        max: extreme(Column::Max, Column::MaxInteger),
        mean: rows.real(Column::Mean, row),
        norm: rows.real(Column::Norm, row),
    }
}

fn places(rows: &Rows<'_>, row: usize) -> Option<ExtremePlaces> {
    ExtremePlaces::new(rows.count(Column::MaxAt, row)?, rows.count(Column::MinAt, row)?)
}

fn number(kind: &str, text: &str) -> Option<Number> {
    match kind {
        "int" => text.parse().map(Number::Int).or_else(|_| text.parse().map(Number::UInt)).ok(),
        "float" => text.parse().map(Number::Float).ok(),
        _ => text.parse().map(Number::Bool).ok(),
    }
}

/// Parses the numbers of a JSON list; `None` if it is not one, or has more than any tensor has
/// dimensions.
fn list<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    if inner.trim().is_empty() {
        return Some(Vec::new());
    }
    let numbers: Option<Vec<T>> =
        inner.split(',').take(MAX_DIMS + 1).map(|number| number.trim().parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() <= MAX_DIMS)
}
