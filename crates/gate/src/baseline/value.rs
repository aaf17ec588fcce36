//! An output of a module call, as one line.

use std::fmt;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};

use probe_dump::Exact;
use probe_files::limits;

/// Values of one step of one rank, in the order of execution.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ValuePart {
    /// True if hashes were recorded to prove equality of bits. Hashes that differ are then a difference, whatever the statistics say.
    #[serde(default)]
    pub exact: bool,
    /// Iteration.
    pub step: u64,
    /// Rank.
    pub rank: u32,
    /// A line for each value.
    pub values: Vec<BoundaryValue>,
}

impl ValuePart {
    /// Checks the requirements that deserialization alone does not enforce.
    pub(super) fn check(&self) -> Result<(), String> {
        for value in &self.values {
            if value.split().is_none() {
                return Err(format!(
                    "value {:?}: expected an op and a slot, separated by a space",
                    value.name
                ));
            }
            if value.shape.len() > probe_dump::MAX_DIMS || value.name.len() > limits::MAX_NAME_BYTES {
                return Err(format!("value {:.60}: its name or its shape is too long", value.name));
            }
        }
        Ok(())
    }
}

/// A value at the boundary of a module: a list of ten items, or nine if [`BoundaryValue::inputs`] is empty.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BoundaryValue {
    /// Op and slot: `Module.h.0.mlp.MLP.forward.0 output.0`.
    pub name: String,
    /// Element type.
    pub dtype: String,
    /// Sizes of the dimensions.
    pub shape: Vec<u64>,
    /// Hash of the bytes: 16 digits of xxh3-128, or the one that the capture recorded; `None` if it recorded none.
    pub hash: Option<String>,
    /// Largest element.
    pub max: Option<f64>,
    /// Smallest element.
    pub min: Option<f64>,
    /// Mean, with 24 bits.
    pub mean: Option<f64>,
    /// Euclidean norm, with 24 bits.
    pub norm: Option<f64>,
    /// Counts of elements that are not finite.
    pub nonfinite: NonFinite,
    /// Inputs of the op that other lines produced: a bare hash for `input.0`, otherwise slot and hash, as in
    /// `parameter.bias=0123456789abcdef`.
    pub inputs: Vec<String>,
}

/// Counts of elements that are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NonFinite {
    /// Not counted.
    #[default]
    Unknown,
    /// Counts of NaN, positive infinity, negative infinity.
    Counted([u64; 3]),
}

impl BoundaryValue {
    /// Columns of a line.
    pub const COLUMNS: [&'static str; 10] =
        ["name", "dtype", "shape", "hash", "max", "min", "mean", "norm", "nonfinite", "inputs"];

    /// Returns op and slot.
    pub fn split(&self) -> Option<(&str, &str)> {
        self.name.rsplit_once(' ').filter(|(op, slot)| !op.is_empty() && !slot.is_empty())
    }

    /// Returns true if an element is NaN or infinite, as far as recorded.
    pub fn holds_nonfinite(&self) -> bool {
        let counted =
            matches!(self.nonfinite, NonFinite::Counted(kinds) if kinds.iter().any(|&count| count > 0));
        counted || [self.max, self.min, self.mean, self.norm].iter().flatten().any(|value| !value.is_finite())
    }
}

impl Serialize for NonFinite {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unknown => serializer.serialize_none(),
            Self::Counted([0, 0, 0]) => serializer.serialize_u8(0),
            Self::Counted(kinds) => kinds.serialize(serializer),
        }
    }
}

/// Accepted representations of [`NonFinite`].
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    None(()),
    Number(u64),
    Kinds([u64; 3]),
}

impl<'de> Deserialize<'de> for NonFinite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::None(()) => Ok(Self::Unknown),
            Written::Number(0) => Ok(Self::Counted([0; 3])),
            Written::Number(_) => Err(de::Error::custom("nonfinite: expected null, 0 or a list of three")),
            Written::Kinds(kinds) => Ok(Self::Counted(kinds)),
        }
    }
}

impl Serialize for BoundaryValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let columns = Self::COLUMNS.len() - usize::from(self.inputs.is_empty());
        let mut line = serializer.serialize_seq(Some(columns))?;
        line.serialize_element(&self.name)?;
        line.serialize_element(&self.dtype)?;
        line.serialize_element(&self.shape)?;
        line.serialize_element(&self.hash)?;
        for value in [self.max, self.min, self.mean, self.norm] {
            match value {
                Some(value) if is_wide(&self.dtype) => line.serialize_element(&Exact(value))?,
                value => line.serialize_element(&value.map(Short))?,
            }
        }
        line.serialize_element(&self.nonfinite)?;
        if !self.inputs.is_empty() {
            line.serialize_element(&self.inputs)?;
        }
        line.end()
    }
}

/// A number with the digits that binary32 needs, if it is a binary32 value.
struct Short(f64);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[expect(clippy::cast_possible_truncation, reason = "whether anything is lost is what is asked")]
        let narrow = self.0 as f32;
        if self.0.is_finite() && f64::from(narrow).to_bits() == self.0.to_bits() {
            return serializer.serialize_f32(narrow);
        }
        Exact(self.0).serialize(serializer)
    }
}

/// Returns true for types whose elements do not fit binary32.
fn is_wide(dtype: &str) -> bool {
    matches!(dtype, "float64" | "complex128" | "int64" | "uint64" | "int32" | "uint32")
}

/// Reads a number written by [`Short`].
fn long(value: Exact, dtype: &str) -> f64 {
    #[expect(clippy::cast_possible_truncation, reason = "elements of such types are binary32's")]
    let narrow = f64::from(value.0 as f32);
    // A norm may exceed the range of binary32.
    if is_wide(dtype) || (narrow.is_infinite() && value.0.is_finite()) { value.0 } else { narrow }
}

impl<'de> Deserialize<'de> for BoundaryValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Line)
    }
}

struct Line;

impl<'de> Visitor<'de> for Line {
    type Value = BoundaryValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {}", BoundaryValue::COLUMNS.join(", "))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut line: A) -> Result<BoundaryValue, A::Error> {
        fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
            line: &mut A,
            column: usize,
        ) -> Result<T, A::Error> {
            line.next_element()?.ok_or_else(|| de::Error::invalid_length(column, &Line))
        }
        let name = next(&mut line, 0)?;
        let dtype: String = next(&mut line, 1)?;
        let shape = next(&mut line, 2)?;
        let hash = next(&mut line, 3)?;
        let mut numbers = [None; 4];
        for (place, number) in numbers.iter_mut().enumerate() {
            *number = next::<Option<Exact>, _>(&mut line, 4 + place)?.map(|value| long(value, &dtype));
        }
        let [max, min, mean, norm] = numbers;
        let nonfinite = next(&mut line, 8)?;
        let inputs = line.next_element()?.unwrap_or_default();
        if line.next_element::<de::IgnoredAny>()?.is_some() {
            return Err(de::Error::invalid_length(BoundaryValue::COLUMNS.len() + 1, &Self));
        }
        Ok(BoundaryValue { name, dtype, shape, hash, max, min, mean, norm, nonfinite, inputs })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for BoundaryValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BoundaryValue".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let number = generator.subschema_for::<Option<Exact>>();
        schemars::json_schema!({
            "description": "One value: op and slot, element type, sizes, hash, largest, smallest, mean, norm, elements that are not finite (null if not \
                counted, 0, or NaN, +Inf and -Inf), hashes of the op's inputs (left out if there are none).",
            "type": "array",
            "prefixItems": [
                { "type": "string" },
                { "type": "string" },
                { "type": "array", "items": { "type": "integer", "minimum": 0 } },
                { "type": ["string", "null"] },
                number, number, number, number,
                { "anyOf": [
                    { "type": "null" },
                    { "const": 0 },
                    { "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 3, "maxItems": 3 },
                ] },
                { "type": "array", "items": { "type": "string" } },
            ],
            "minItems": Self::COLUMNS.len() - 1,
            "maxItems": Self::COLUMNS.len(),
        })
    }
}
