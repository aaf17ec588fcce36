//! Output of `probe inspect --format json` as plain structs.
//!
//! Names and meanings are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

#[cfg(feature = "schema")]
use std::borrow::Cow;

use serde::Serialize;
use serde::ser::Serializer;

use crate::model::Tool;
use probe_compare::inspect::{InspectedOp, InspectedPart, Inspection, Measured, Values};
use probe_dump::Exact;
use probe_dump::{Checksum, Number, SlotSide, TensorRecord, Value};
use probe_judge::source_line;
use probe_measure::TensorSummary;

/// Version of this format. Raised when a field changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// Content of a dump or tensor file.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "probe inspection", deny_unknown_fields))]
pub struct Report<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote the document.
    pub tool: Tool,
    /// Path as it was given.
    pub path: String,
    /// Format in words.
    pub format: &'a str,
    /// Every step there is, also those that were not asked for.
    pub steps: Vec<u64>,
    /// Every rank there is.
    pub ranks: Vec<u32>,
    /// The requested parts, in order of step, then rank.
    pub parts: Vec<Part<'a>>,
    /// Everything that could not be read; exit code 3 if not empty.
    pub incomplete: &'a [String],
}

/// One step of one rank.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Part<'a> {
    /// Iteration.
    pub step: u64,
    /// Rank.
    pub rank: u32,
    /// Data recorded for tensors.
    pub task: String,
    /// Level as the capture tool names it; empty when there is none.
    pub level: &'a str,
    /// Ops that were recorded.
    pub op_count: u64,
    /// The requested ops, in execution order; empty if a single tensor was requested.
    pub ops: Vec<Op<'a>>,
    /// The requested tensor; null if none was requested or this part has none of that name.
    pub tensor: Option<TensorValues<'a>>,
    /// Remarks that take nothing away.
    pub notes: &'a [String],
}

/// One op.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Op<'a> {
    /// Place in execution order within the part, from 0.
    pub order: u64,
    /// Full name.
    pub name: &'a str,
    /// Name of the module call it ran in; null if not recorded.
    pub scope: Option<&'a str>,
    /// True for a repetition made by activation checkpointing.
    pub recomputed: bool,
    /// True when it ended in an exception.
    pub raised: bool,
    /// A remark of the capture.
    pub note: Option<&'a str>,
    /// Source line of the innermost user frame as `file:line`; null if not recorded.
    pub source: Option<String>,
    /// Inputs, parameters, outputs, parameter gradients.
    pub slots: Vec<Slot<'a>>,
}

/// One value of an op.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Slot<'a> {
    /// Path inside the op, such as `input.0`.
    pub path: &'a str,
    /// Side of the op.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["input", "parameter", "output", "gradient"])))]
    pub side: &'static str,
    /// Kind of the value.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["tensor", "scalar", "none", "not recorded"])))]
    pub kind: &'static str,
    /// A scalar as text; null for everything else.
    pub value: Option<String>,
    /// A tensor; null for everything else.
    pub tensor: Option<Tensor<'a>>,
}

/// Record of a tensor.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Tensor<'a> {
    /// Element type.
    pub dtype: String,
    /// Sizes of the dimensions.
    pub shape: &'a [u64],
    /// Steps in elements from one index to the next; null if not recorded.
    pub strides: Option<&'a [i64]>,
    /// True if autograd tracked it; null if not recorded.
    pub requires_grad: Option<bool>,
    /// Its device; null if not recorded.
    pub device: Option<&'a str>,
    /// Placement of a distributed tensor; null for others.
    pub placement: Option<&'a str>,
    /// Statistics as recorded, or else measured from the data; null if neither is possible.
    pub statistics: Option<Statistics>,
    /// xxh3-128 of the bytes as 32 hex digits; null if not recorded.
    pub hash: Option<String>,
    /// Another checksum as text; null if not recorded.
    pub checksum: Option<String>,
    /// True when a sketch was recorded.
    pub sketch: bool,
    /// True when the data was recorded.
    pub data: bool,
    /// A remark of the capture.
    pub note: Option<&'a str>,
    /// Reason why needed data could not be read; null otherwise.
    pub unreadable: Option<&'a str>,
}

/// Statistics of a tensor.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Statistics {
    /// Smallest element.
    pub min: Real,
    /// Largest element.
    pub max: Real,
    /// Index in each dimension of the first element that is `min`; null if not recorded.
    pub min_at: Option<Vec<u64>>,
    /// The same of `max`.
    pub max_at: Option<Vec<u64>>,
    /// Mean.
    pub mean: Real,
    /// Euclidean norm.
    pub norm: Real,
    /// Elements equal to zero; null if not recorded.
    pub zeros: Option<u64>,
    /// Elements that are NaN; null if not recorded.
    pub nan: Option<u64>,
    /// Elements that are +Inf; null if not recorded.
    pub positive_infinite: Option<u64>,
    /// Elements that are -Inf; null if not recorded.
    pub negative_infinite: Option<u64>,
    /// Finite elements from 2^100 on in magnitude (of float16 the least number) that mean and norm leave out; null where they are in
    /// both.
    pub sentinels: Option<u64>,
}

/// One tensor with its values.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct TensorValues<'a> {
    /// Full name of its op.
    pub op: &'a str,
    /// Path of its slot.
    pub slot: &'a str,
    /// Its record.
    pub record: Tensor<'a>,
    /// Number of elements; like the fields below, null if there is no data or it cannot be read.
    pub elements: Option<u64>,
    /// Statistics of the data.
    pub statistics: Option<Statistics>,
    /// The first elements in row-major order as text; all of them if there are few.
    pub first: Option<&'a [String]>,
    /// The last elements; empty where `first` holds all.
    pub last: Option<&'a [String]>,
    /// Elements in equal bins from the smallest to the largest finite one.
    pub histogram: Option<&'a [u64]>,
}

/// A number: null if unknown, a word if not finite.
#[derive(Debug)]
pub struct Real(pub Option<Number>);

impl Real {
    const fn float(value: Option<f64>) -> Self {
        Self(match value {
            Some(value) => Some(Number::Float(value)),
            None => None,
        })
    }
}

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => serializer.serialize_none(),
            Some(Number::Int(value)) => serializer.serialize_i64(value),
            Some(Number::UInt(value)) => serializer.serialize_u64(value),
            Some(Number::Bool(value)) => serializer.serialize_bool(value),
            Some(Number::Float(value)) => Exact(value).serialize(serializer),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Real {
    fn schema_name() -> Cow<'static, str> {
        "Real".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A number, or the truth value of a bool tensor; null if unknown, a word if not finite.",
            "anyOf": [{ "type": ["number", "boolean", "null"] }, { "enum": ["NaN", "Infinity", "-Infinity"] }],
        })
    }
}

impl<'a> From<&'a Inspection> for Report<'a> {
    fn from(inspection: &'a Inspection) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            path: inspection.path.display().to_string(),
            format: inspection.format,
            steps: inspection.steps.iter().copied().collect(),
            ranks: inspection.ranks.iter().copied().collect(),
            parts: inspection.parts.iter().map(Into::into).collect(),
            incomplete: &inspection.faults,
        }
    }
}

impl<'a> From<&'a InspectedPart> for Part<'a> {
    fn from(part: &'a InspectedPart) -> Self {
        let rank = &part.rank;
        Self {
            step: rank.key.step,
            rank: rank.key.rank.number(),
            task: rank.task.to_string(),
            level: &rank.level,
            op_count: rank.ops.len() as u64,
            ops: part.ops.iter().map(|op| Op::of(part, op)).collect(),
            tensor: TensorValues::of(part),
            notes: &rank.notes,
        }
    }
}

impl<'a> Op<'a> {
    fn of(part: &'a InspectedPart, inspected: &'a InspectedOp) -> Self {
        let rank = &part.rank;
        let op = &rank.ops[inspected.op];
        let stack = op.stack.and_then(|stack| rank.stacks.get(stack as usize));
        Self {
            order: inspected.op as u64,
            name: op.name.as_str(),
            scope: op.parent.as_deref(),
            recomputed: op.recomputed,
            raised: op.raised,
            note: op.note.said(),
            source: stack.and_then(|stack| source_line(stack)),
            slots: op.slots.iter().zip(&inspected.measured).map(Into::into).collect(),
        }
    }
}

impl<'a> From<(&'a probe_dump::Slot, &'a Measured)> for Slot<'a> {
    fn from((slot, measured): (&'a probe_dump::Slot, &'a Measured)) -> Self {
        let (kind, value, tensor) = match &slot.value {
            Value::Tensor(record) => ("tensor", None, Some(Tensor::of(record, measured))),
            Value::Scalar(scalar) => ("scalar", Some(scalar.to_string()), None),
            Value::None => ("none", None, None),
            Value::Unsupported => ("not recorded", None, None),
        };
        let side = match slot.side {
            SlotSide::Input => "input",
            SlotSide::Parameter => "parameter",
            SlotSide::Output => "output",
            SlotSide::Gradient => "gradient",
        };
        Self { path: &slot.path, side, kind, value, tensor }
    }
}

impl<'a> Tensor<'a> {
    fn of(record: &'a TensorRecord, measured: &'a Measured) -> Self {
        let (hash, checksum) = match &record.checksum {
            Some(hash @ Checksum::Xxh3(_)) => (Some(hash.to_string()), None),
            other => (None, other.as_ref().map(ToString::to_string)),
        };
        Self {
            dtype: record.dtype.to_string(),
            shape: &record.shape,
            strides: record.strides.as_deref(),
            requires_grad: record.requires_grad,
            device: record.device.as_deref(),
            placement: record.placement.as_deref(),
            statistics: match measured {
                Measured::Summary(summary) => Some(summary.into()),
                _ => Statistics::recorded(record),
            },
            hash,
            checksum,
            sketch: record.sketch.is_some(),
            data: record.data.is_some(),
            note: record.note.as_deref(),
            unreadable: match measured {
                Measured::Unreadable(reason) => Some(reason),
                _ => None,
            },
        }
    }
}

impl Statistics {
    fn recorded(record: &TensorRecord) -> Option<Self> {
        let (found, counts) = (&record.statistics, record.counts.as_deref());
        (!found.is_empty() || counts.is_some()).then(|| Self {
            min: Real(found.min()),
            max: Real(found.max()),
            min_at: record.places.and_then(|places| record.coordinates(places.min())),
            max_at: record.places.and_then(|places| record.coordinates(places.max())),
            mean: Real::float(found.mean()),
            norm: Real::float(found.norm()),
            zeros: counts.map(|counts| counts.zeros),
            nan: counts.map(|counts| counts.nan),
            positive_infinite: counts.map(|counts| counts.positive_infinite),
            negative_infinite: counts.map(|counts| counts.negative_infinite),
            sentinels: counts.and_then(|counts| counts.sentinels),
        })
    }
}

impl Statistics {
    fn of_values(values: &Values) -> Self {
        let [min_at, max_at] = values.extremes();
        Self { min_at, max_at, ..(&values.histogram.summary).into() }
    }
}

impl From<&TensorSummary> for Statistics {
    fn from(summary: &TensorSummary) -> Self {
        Self {
            min: Real::float(summary.min),
            max: Real::float(summary.max),
            min_at: None,
            max_at: None,
            mean: Real::float(summary.mean),
            norm: Real::float(Some(summary.norm)),
            zeros: Some(summary.zeros),
            nan: Some(summary.nan),
            positive_infinite: Some(summary.pos_inf),
            negative_infinite: Some(summary.neg_inf),
            sentinels: None,
        }
    }
}

impl<'a> TensorValues<'a> {
    fn of(part: &'a InspectedPart) -> Option<Self> {
        let inspected = part.tensor.as_ref()?;
        let op = &part.rank.ops[inspected.place.0];
        let slot = &op.slots[inspected.place.1];
        let mut record = Tensor::of(slot.value.tensor()?, &Measured::Nothing);
        record.unreadable =
            inspected.values.as_ref().and_then(|values| values.as_ref().err()).map(String::as_str);
        let values = inspected.values.as_ref().and_then(|values| values.as_ref().ok());
        Some(Self {
            op: op.name.as_str(),
            slot: &slot.path,
            record,
            elements: values.map(|values| values.histogram.summary.count),
            statistics: values.map(Statistics::of_values),
            first: values.map(|values| &*values.first),
            last: values.map(|values| &*values.last),
            histogram: values.map(|values| &*values.histogram.counts),
        })
    }
}

/// Returns the committed JSON Schema of an inspection.
#[cfg(feature = "schema")]
pub fn inspection_schema() -> String {
    let schema = schemars::schema_for!(Report<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
