//! Rows of the slot table, collected column by column until they are worth writing.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, Float64Builder, Int64Builder, StringBuilder,
    UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};

use super::record::{OpRecord, SlotRecord, SlotValue, TensorFacts};
use probe_dump::native::columns::{Column, Form, HASH_BYTES, SKETCH_BYTES, ops_schema};
use probe_dump::{ExtremePlaces, Number, Observation, OpName, Phase, Scalar, SlotSide};

/// Number of small tensors after which earlier ones are forgotten and stored again if they recur: this bounds memory, not
/// the length of a step.
const MAX_SMALL: usize = 1 << 17;

/// The rows of one batch, with the required state of all rows before them.
#[derive(Debug)]
pub(super) struct OpsBatch {
    schema: SchemaRef,
    columns: Columns,
    /// Number of rows in the batch.
    rows: usize,
    /// Approximate bytes of its longest columns.
    bytes: usize,
    /// Number of rows before the batch.
    rows_before: u64,
    /// Number of ops so far.
    ops: u64,
    /// Rows that hold the sketches of observations that are still shared. A weak reference keeps the address from
    /// being reused.
    sketched: HashMap<usize, (Weak<Observation>, u64)>,
    /// Rows that hold the elements of small tensors, by hash.
    small: HashMap<u128, u64>,
    text: String,
}

#[derive(Debug)]
struct Columns {
    order: UInt64Builder,
    op: StringBuilder,
    phase: StringBuilder,
    call: UInt32Builder,
    scope: StringBuilder,
    stack: UInt32Builder,
    recomputed: BooleanBuilder,
    raised: BooleanBuilder,
    note: StringBuilder,
    slot: StringBuilder,
    side: StringBuilder,
    kind: StringBuilder,
    value: StringBuilder,
    type_name: StringBuilder,
    dtype: StringBuilder,
    shape: StringBuilder,
    strides: StringBuilder,
    device: StringBuilder,
    requires_grad: BooleanBuilder,
    placement: StringBuilder,
    tensor_note: StringBuilder,
    /// Elements, zeros, NaNs, infinities of both signs.
    counts: [UInt64Builder; 5],
    sentinels: UInt64Builder,
    /// Min, max, mean, norm.
    statistics: [Float64Builder; 4],
    sum_error: Float64Builder,
    /// Min, max.
    integers: [Int64Builder; 2],
    /// Min, max.
    places: [UInt64Builder; 2],
    hash: FixedSizeBinaryBuilder,
    sketch: BinaryBuilder,
    same_as: UInt64Builder,
    shard: UInt32Builder,
    tensor: StringBuilder,
    offset: UInt64Builder,
    data_bytes: UInt64Builder,
    small: BinaryBuilder,
    identity: UInt64Builder,
}

impl Default for Columns {
    fn default() -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "16")]
        let hash = FixedSizeBinaryBuilder::new(HASH_BYTES as i32);
        Self {
            order: UInt64Builder::default(),
            op: StringBuilder::default(),
            phase: StringBuilder::default(),
            call: UInt32Builder::default(),
            scope: StringBuilder::default(),
            stack: UInt32Builder::default(),
            recomputed: BooleanBuilder::default(),
            raised: BooleanBuilder::default(),
            note: StringBuilder::default(),
            slot: StringBuilder::default(),
            side: StringBuilder::default(),
            kind: StringBuilder::default(),
            value: StringBuilder::default(),
            type_name: StringBuilder::default(),
            dtype: StringBuilder::default(),
            shape: StringBuilder::default(),
            strides: StringBuilder::default(),
            device: StringBuilder::default(),
            requires_grad: BooleanBuilder::default(),
            placement: StringBuilder::default(),
            tensor_note: StringBuilder::default(),
            counts: Default::default(),
            sentinels: UInt64Builder::default(),
            statistics: Default::default(),
            sum_error: Float64Builder::default(),
            integers: Default::default(),
            places: Default::default(),
            hash,
            sketch: BinaryBuilder::default(),
            same_as: UInt64Builder::default(),
            shard: UInt32Builder::default(),
            tensor: StringBuilder::default(),
            offset: UInt64Builder::default(),
            data_bytes: UInt64Builder::default(),
            small: BinaryBuilder::default(),
            identity: UInt64Builder::default(),
        }
    }
}

impl Columns {
    fn append_no_observation(&mut self) {
        self.counts.iter_mut().for_each(UInt64Builder::append_null);
        self.sentinels.append_null();
        self.statistics.iter_mut().for_each(Float64Builder::append_null);
        self.sum_error.append_null();
        self.integers.iter_mut().for_each(Int64Builder::append_null);
        self.places.iter_mut().for_each(UInt64Builder::append_null);
        self.hash.append_null();
        self.sketch.append_null();
    }

    fn append_counts(&mut self, observation: &Observation) {
        let counts = &observation.counts;
        let all =
            [counts.elements, counts.zeros, counts.nan, counts.positive_infinite, counts.negative_infinite];
        for (builder, count) in self.counts.iter_mut().zip(all) {
            builder.append_value(count);
        }
        self.sentinels.append_option(counts.sentinels);
    }

    fn append_statistics(&mut self, observation: &Observation) {
        let statistics = &observation.statistics;
        let extremes = [statistics.min, statistics.max];
        let [min, max] = extremes.map(|number| number.map(Number::as_f64));
        for (builder, value) in self.statistics.iter_mut().zip([min, max, statistics.mean, statistics.norm]) {
            builder.append_option(value);
        }
        self.sum_error.append_option(observation.sum_error);
        for (builder, value) in self.integers.iter_mut().zip(extremes) {
            builder.append_option(match value {
                Some(Number::Int(value)) => Some(value),
                Some(Number::UInt(value)) => Some(value.cast_signed()),
                Some(Number::Float(_) | Number::Bool(_)) | None => None,
            });
        }
        let places = observation.places;
        for (builder, place) in
            self.places.iter_mut().zip([places.map(ExtremePlaces::min), places.map(ExtremePlaces::max)])
        {
            builder.append_option(place);
        }
    }
}

impl OpsBatch {
    pub(super) fn new() -> Self {
        Self {
            schema: ops_schema(Form::Journal),
            columns: Columns::default(),
            rows: 0,
            bytes: 0,
            rows_before: 0,
            ops: 0,
            sketched: HashMap::new(),
            small: HashMap::new(),
            text: String::new(),
        }
    }

    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the approximate number of bytes held.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the rows of one op.
    pub(super) fn push(&mut self, op: &OpRecord) -> Result<(), ArrowError> {
        let name = OpName::parse(&op.name);
        if op.slots.is_empty() {
            self.push_op(op, &name);
            self.push_no_slot()?;
        }
        for slot in &op.slots {
            self.push_op(op, &name);
            self.push_slot(slot)?;
        }
        self.ops += 1;
        Ok(())
    }

    fn push_op(&mut self, op: &OpRecord, name: &OpName) {
        let columns = &mut self.columns;
        columns.order.append_value(self.ops);
        columns.op.append_value(&op.name);
        columns.phase.append_option(match name.phase() {
            Phase::Forward => Some("forward"),
            Phase::Backward => Some("backward"),
            Phase::ParameterGradient => Some("parameters_grad"),
            Phase::None => None,
        });
        columns.call.append_option(name.call());
        columns.scope.append_option(op.scope.as_deref());
        columns.stack.append_option(op.stack);
        columns.recomputed.append_value(op.recomputed);
        columns.raised.append_value(op.raised);
        columns.note.append_option(op.note.as_deref());
        self.rows += 1;
        self.bytes += 256 + op.name.len() + op.scope.as_ref().map_or(0, String::len);
    }

    fn push_no_slot(&mut self) -> Result<(), ArrowError> {
        let columns = &mut self.columns;
        columns.slot.append_null();
        columns.side.append_null();
        columns.kind.append_null();
        columns.value.append_null();
        columns.type_name.append_null();
        self.push_no_tensor()
    }

    fn push_slot(&mut self, slot: &SlotRecord) -> Result<(), ArrowError> {
        let columns = &mut self.columns;
        columns.slot.append_value(&slot.path);
        columns.side.append_value(side_word(slot.side));
        let (kind, value, type_name) = match &slot.value {
            SlotValue::Tensor(facts) => {
                columns.kind.append_value("tensor");
                columns.value.append_null();
                columns.type_name.append_null();
                return self.push_tensor(facts);
            }
            SlotValue::None => ("none", None, None),
            SlotValue::Unsupported(reason) => ("unsupported", Some(reason.as_str()), None),
            SlotValue::Scalar(Scalar::Number(number)) => {
                self.text.clear();
                _ = write!(self.text, "{number}");
                let kind = match number {
                    Number::Int(_) | Number::UInt(_) => "int",
                    Number::Float(_) => "float",
                    Number::Bool(_) => "bool",
                };
                (kind, Some(self.text.as_str()), None)
            }
            SlotValue::Scalar(Scalar::Text(text)) => ("text", Some(&**text), None),
            SlotValue::Scalar(Scalar::Device(text)) => ("device", Some(&**text), None),
            SlotValue::Scalar(Scalar::Printed(printed)) => {
                ("printed", Some(&*printed.text), Some(&*printed.kind))
            }
        };
        columns.kind.append_value(kind);
        columns.value.append_option(value);
        columns.type_name.append_option(type_name);
        self.push_no_tensor()
    }

    fn push_no_tensor(&mut self) -> Result<(), ArrowError> {
        let columns = &mut self.columns;
        columns.dtype.append_null();
        columns.shape.append_null();
        columns.strides.append_null();
        columns.device.append_null();
        columns.requires_grad.append_null();
        columns.placement.append_null();
        columns.tensor_note.append_null();
        columns.identity.append_null();
        columns.small.append_null();
        columns.same_as.append_null();
        self.push_observation(None)?;
        self.push_no_data();
        Ok(())
    }

    fn push_tensor(&mut self, facts: &TensorFacts) -> Result<(), ArrowError> {
        let columns = &mut self.columns;
        columns.dtype.append_value(&facts.dtype);
        columns.shape.append_value(list(&mut self.text, &facts.shape));
        match &facts.strides {
            Some(strides) => columns.strides.append_value(list(&mut self.text, strides)),
            None => columns.strides.append_null(),
        }
        columns.device.append_option((!facts.device.is_empty()).then_some(&*facts.device));
        columns.requires_grad.append_option(facts.requires_grad);
        columns.placement.append_option(facts.placement.as_deref());
        columns.tensor_note.append_option(facts.note.as_deref());
        columns.identity.append_option(facts.identity);
        match &facts.data {
            Some(data) => {
                columns.shard.append_value(data.shard);
                columns.tensor.append_value(&data.name);
                columns.offset.append_value(data.offset);
                columns.data_bytes.append_value(data.bytes);
            }
            None => self.push_no_data(),
        }
        let same = self.push_small(facts).or(self.push_observation(facts.observation.as_ref())?);
        self.columns.same_as.append_option(same);
        Ok(())
    }

    /// Adds the elements of a small tensor; returns the row that already has them, if any.
    fn push_small(&mut self, facts: &TensorFacts) -> Option<u64> {
        let Some(bytes) = facts.bytes.as_deref() else {
            self.columns.small.append_null();
            return None;
        };
        let row = self.row();
        if let Some(hash) = facts.observation.as_ref().and_then(|observation| observation.hash) {
            if self.small.len() >= MAX_SMALL {
                self.small.clear();
            }
            let first = *self.small.entry(hash).or_insert(row);
            if first != row {
                self.columns.small.append_null();
                return Some(first);
            }
        }
        self.columns.small.append_value(bytes);
        self.bytes += bytes.len();
        None
    }

    fn push_no_data(&mut self) {
        let columns = &mut self.columns;
        columns.shard.append_null();
        columns.tensor.append_null();
        columns.offset.append_null();
        columns.data_bytes.append_null();
    }

    /// Adds the measurements; returns the row that already has the sketch, if any.
    fn push_observation(
        &mut self,
        observation: Option<&Arc<Observation>>,
    ) -> Result<Option<u64>, ArrowError> {
        let Some(shared) = observation else {
            self.columns.append_no_observation();
            return Ok(None);
        };
        self.columns.append_counts(shared);
        self.columns.append_statistics(shared);
        match shared.hash {
            Some(hash) => self.columns.hash.append_value(hash.to_be_bytes())?,
            None => self.columns.hash.append_null(),
        }
        Ok(self.push_sketch(shared))
    }

    /// Adds the sketch; returns the row that already has it, if any.
    fn push_sketch(&mut self, shared: &Arc<Observation>) -> Option<u64> {
        let row = self.row();
        let column = &mut self.columns.sketch;
        let Some(sketch) = &shared.sketch else {
            column.append_null();
            return None;
        };
        let address = Arc::as_ptr(shared).addr();
        if let Some((_, first)) = self.sketched.get(&address) {
            column.append_null();
            return Some(*first);
        }
        let mut bytes = [0; SKETCH_BYTES];
        for (place, lane) in bytes.chunks_exact_mut(4).zip(sketch.lanes.iter()) {
            place.copy_from_slice(&lane.to_le_bytes());
        }
        column.append_value(bytes);
        self.bytes += SKETCH_BYTES;
        // An observation with no other owner cannot recur.
        if Arc::strong_count(shared) > 1 {
            self.sketched.insert(address, (Arc::downgrade(shared), row));
        }
        None
    }

    /// Returns the number of the row being written, within the part.
    const fn row(&self) -> u64 {
        self.rows_before + self.rows as u64 - 1
    }

    /// Takes the rows collected so far.
    pub(super) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        self.rows_before += self.rows as u64;
        self.rows = 0;
        self.bytes = 0;
        self.sketched.retain(|_, (shared, _)| shared.strong_count() > 0);
        let arrays = Column::ALL.iter().map(|column| self.columns.finish(*column)).collect();
        RecordBatch::try_new(self.schema.clone(), arrays)
    }
}

impl Columns {
    fn finish(&mut self, column: Column) -> ArrayRef {
        let [elements, zeros, nan, pos_inf, neg_inf] = &mut self.counts;
        let [min, max, mean, norm] = &mut self.statistics;
        let [min_integer, max_integer] = &mut self.integers;
        let [min_at, max_at] = &mut self.places;
        match column {
            Column::Order => Arc::new(self.order.finish()),
            Column::Op => Arc::new(self.op.finish()),
            Column::Phase => Arc::new(self.phase.finish()),
            Column::Call => Arc::new(self.call.finish()),
            Column::Scope => Arc::new(self.scope.finish()),
            Column::Stack => Arc::new(self.stack.finish()),
            Column::Recomputed => Arc::new(self.recomputed.finish()),
            Column::Raised => Arc::new(self.raised.finish()),
            Column::Note => Arc::new(self.note.finish()),
            Column::Slot => Arc::new(self.slot.finish()),
            Column::Side => Arc::new(self.side.finish()),
            Column::Kind => Arc::new(self.kind.finish()),
            Column::Value => Arc::new(self.value.finish()),
            Column::Type => Arc::new(self.type_name.finish()),
            Column::DType => Arc::new(self.dtype.finish()),
            Column::Shape => Arc::new(self.shape.finish()),
            Column::Strides => Arc::new(self.strides.finish()),
            Column::Device => Arc::new(self.device.finish()),
            Column::RequiresGrad => Arc::new(self.requires_grad.finish()),
            Column::Placement => Arc::new(self.placement.finish()),
            Column::TensorNote => Arc::new(self.tensor_note.finish()),
            Column::Elements => Arc::new(elements.finish()),
            Column::Zeros => Arc::new(zeros.finish()),
            Column::Nan => Arc::new(nan.finish()),
            Column::PosInf => Arc::new(pos_inf.finish()),
            Column::NegInf => Arc::new(neg_inf.finish()),
            Column::Sentinels => Arc::new(self.sentinels.finish()),
            Column::Min => Arc::new(min.finish()),
            Column::Max => Arc::new(max.finish()),
            Column::Mean => Arc::new(mean.finish()),
            Column::Norm => Arc::new(norm.finish()),
            Column::SumError => Arc::new(self.sum_error.finish()),
            Column::MinInteger => Arc::new(min_integer.finish()),
            Column::MaxInteger => Arc::new(max_integer.finish()),
            Column::MinAt => Arc::new(min_at.finish()),
            Column::MaxAt => Arc::new(max_at.finish()),
            Column::Hash => Arc::new(self.hash.finish()),
            Column::Sketch => Arc::new(self.sketch.finish()),
            Column::SameAs => Arc::new(self.same_as.finish()),
            Column::Shard => Arc::new(self.shard.finish()),
            Column::Tensor => Arc::new(self.tensor.finish()),
            Column::Offset => Arc::new(self.offset.finish()),
            Column::Bytes => Arc::new(self.data_bytes.finish()),
            Column::Data => Arc::new(self.small.finish()),
            Column::Identity => Arc::new(self.identity.finish()),
        }
    }
}

const fn side_word(side: SlotSide) -> &'static str {
    match side {
        SlotSide::Input => "input",
        SlotSide::Parameter => "parameter",
        SlotSide::Output => "output",
        SlotSide::Gradient => "gradient",
    }
}

/// Formats the numbers as a JSON list.
fn list<'t, T: std::fmt::Display>(text: &'t mut String, numbers: &[T]) -> &'t str {
    text.clear();
    text.push('[');
    for (index, number) in numbers.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        _ = write!(text, "{number}");
    }
    text.push(']');
    text
}
