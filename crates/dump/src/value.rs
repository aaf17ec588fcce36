//! What a dump holds of one value: a tensor's record, a scalar, or the fact that there was none.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::{Counts, DataKey, ExtremePlaces, Figure, RecordedDType, Sketch};

/// A number as a dump states it, without loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Integer that fits 64 signed bits.
    Int(i64),
    /// Integer above `i64::MAX`.
    UInt(u64),
    /// Floating-point number; NaN and infinities included.
    Float(f64),
    /// Truth value (statistics of bool tensors).
    Bool(bool),
}

impl Number {
    /// The value as binary64; integers above 2^53 are rounded, false is 0 and true is 1.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(v) => v as f64,
            Self::UInt(v) => v as f64,
            Self::Float(v) => v,
            Self::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// Equal as values: 1 equals 1.0, NaN equals NaN, integers are compared exactly.
    pub fn same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::UInt(a), Self::UInt(b)) => a == b,
            (Self::Int(_), Self::UInt(_)) | (Self::UInt(_), Self::Int(_)) => false,
            (a, b) => {
                let (a, b) = (a.as_f64(), b.as_f64());
                a.total_cmp(&b).is_eq() || (a.is_nan() && b.is_nan()) || (a - b).abs().to_bits() == 0
            }
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(v) => v.fmt(f),
            Self::UInt(v) => v.fmt(f),
            Self::Float(v) => write!(f, "{v:?}"),
            Self::Bool(v) => v.fmt(f),
        }
    }
}

/// Statistics as recorded at capture. A missing one was not recorded for this type or version.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RecordedStatistics {
    /// Largest element; for bool tensors whether any is true; for complex the largest modulus.
    pub max: Option<Number>,
    /// Smallest element; for bool tensors whether all are true; for complex the smallest modulus.
    pub min: Option<Number>,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Euclidean norm of all elements (of a 0-d tensor some tools record the value itself, with its sign).
    pub norm: Option<f64>,
}

impl RecordedStatistics {
    /// True when nothing was recorded.
    pub const fn is_empty(&self) -> bool {
        self.max.is_none() && self.min.is_none() && self.mean.is_none() && self.norm.is_none()
    }
}

/// [`RecordedStatistics`] in less memory, as records hold them.
#[derive(Clone, Copy, Default)]
pub struct KeptStatistics {
    extremes: [u64; 2],
    kinds: [NumberKind; 2],
    mean: Figure,
    norm: Figure,
}

/// What the bits of a [`Number`] are.
#[derive(Debug, Clone, Copy, Default)]
enum NumberKind {
    #[default]
    None,
    Int,
    UInt,
    Float,
    Bool,
}

impl KeptStatistics {
    /// The statistics.
    pub fn get(&self) -> RecordedStatistics {
        RecordedStatistics { max: self.max(), min: self.min(), mean: self.mean(), norm: self.norm() }
    }

    /// See [`RecordedStatistics::max`].
    pub const fn max(&self) -> Option<Number> {
        self.kinds[0].number(self.extremes[0])
    }

    /// See [`RecordedStatistics::min`].
    pub const fn min(&self) -> Option<Number> {
        self.kinds[1].number(self.extremes[1])
    }

    /// See [`RecordedStatistics::mean`].
    pub const fn mean(&self) -> Option<f64> {
        self.mean.get()
    }

    /// See [`RecordedStatistics::norm`].
    pub const fn norm(&self) -> Option<f64> {
        self.norm.get()
    }

    /// True when nothing was recorded.
    pub const fn is_empty(&self) -> bool {
        self.max().is_none() && self.min().is_none() && self.mean().is_none() && self.norm().is_none()
    }
}

impl NumberKind {
    const fn number(self, bits: u64) -> Option<Number> {
        match self {
            Self::None => None,
            Self::Int => Some(Number::Int(bits.cast_signed())),
            Self::UInt => Some(Number::UInt(bits)),
            Self::Float => Some(Number::Float(f64::from_bits(bits))),
            Self::Bool => Some(Number::Bool(bits > 0)),
        }
    }

    const fn of(number: Option<Number>) -> (Self, u64) {
        match number {
            None => (Self::None, 0),
            Some(Number::Int(v)) => (Self::Int, v.cast_unsigned()),
            Some(Number::UInt(v)) => (Self::UInt, v),
            Some(Number::Float(v)) => (Self::Float, v.to_bits()),
            Some(Number::Bool(v)) => (Self::Bool, v as u64),
        }
    }
}

impl From<RecordedStatistics> for KeptStatistics {
    fn from(of: RecordedStatistics) -> Self {
        let ((max_kind, max), (min_kind, min)) = (NumberKind::of(of.max), NumberKind::of(of.min));
        Self { extremes: [max, min], kinds: [max_kind, min_kind], mean: of.mean.into(), norm: of.norm.into() }
    }
}

impl PartialEq for KeptStatistics {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for KeptStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A hash of 128 bits; unlike a `u128`, it needs no more alignment than its halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash128([u64; 2]);

impl Hash128 {
    /// The hash as a number.
    pub const fn bits(self) -> u128 {
        (self.0[0] as u128) << 64 | self.0[1] as u128
    }
}

impl From<u128> for Hash128 {
    fn from(bits: u128) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "each half of the number")]
        let halves = [(bits >> 64) as u64, bits as u64];
        Self(halves)
    }
}

/// Checksum of a tensor's bytes as recorded at capture.
#[derive(Debug, Clone, PartialEq)]
pub enum Checksum {
    /// CRC-32 of the contiguous bytes. Equal means equal in all likelihood.
    Crc32(u32),
    /// XOR of 8-byte words: unequal proves a difference, equal proves little.
    Xor(u64),
    /// XOR mode records a 0-d float by value.
    Value(f64),
    /// xxh3-128 of the contiguous bytes, little endian, in row-major order. Equal means equal bytes.
    Xxh3(Hash128),
    /// Some other text; compared as text.
    Text(Box<str>),
}

impl Checksum {
    /// Of an xxh3-128.
    pub fn of_hash(bits: u128) -> Self {
        Self::Xxh3(bits.into())
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crc32(v) => write!(f, "{v:08x}"),
            Self::Xor(v) => write!(f, "0x{v:016x}"),
            Self::Value(v) => write!(f, "{v:?}"),
            Self::Xxh3(v) => write!(f, "{:032x}", v.bits()),
            Self::Text(v) => f.write_str(v),
        }
    }
}

/// How the remark of a capture begins on a tensor whose elements are nowhere: on the device `meta`, or released.
pub const NO_DATA: &str = "no data";

/// What a dump says of a tensor besides its values.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorMetadata {
    /// Element type at capture.
    pub dtype: RecordedDType,
    /// Sizes of the dimensions; empty for a scalar.
    pub shape: Arc<[u64]>,
    /// Steps in elements from one index to the next in each dimension, as at capture; `None` when not recorded.
    pub strides: Option<Box<[i64]>>,
    /// Where the tensor was (`cuda:0`, `npu:3`), as recorded; `None` when not recorded.
    pub device: Option<Box<str>>,
    /// Whether autograd tracked the tensor; `None` when not recorded.
    pub requires_grad: Option<bool>,
    /// Placement of a distributed tensor, as text; `None` for plain tensors.
    pub placement: Option<Box<str>>,
    /// Private format of a device that the elements are still in (`FRACTAL_Z`), where the way to the logical tensor is not known. Elements
    /// of two formats do not answer one another, even where the shapes agree.
    pub layout: Option<Box<str>>,
    /// How far mean, norm and sketch may be off relative to the norm; `None` where they were summed in binary64, or nothing was said.
    pub sum_error: Option<f64>,
    /// A remark of the capture (`beyond the byte budget`, `quantised`).
    pub note: Option<Box<str>>,
    /// Why not even type and shape could be read, though the file has the name; those given here stand for nothing then.
    pub damage: Option<Box<str>>,
}

/// What a dump holds of one tensor. Reads and writes of the metadata go through to it (`record.shape`).
#[derive(Debug, Clone, PartialEq)]
pub struct TensorRecord {
    /// Shared by the tensors that are alike, where the reader sees to it: a part holds hundreds of thousands of records, and few kinds.
    pub metadata: Arc<TensorMetadata>,
    /// Statistics, as far as recorded.
    pub statistics: KeptStatistics,
    /// Where the greatest and the least element are; `None` when not recorded.
    pub places: Option<ExtremePlaces>,
    /// Checksum of the bytes; `None` when not recorded.
    pub checksum: Option<Checksum>,
    /// Key under which the [`TensorStore`](super::TensorStore) of the rank holds the data; `None` when no data was recorded.
    pub data: Option<DataKey>,
    /// Elements by kind; `None` when not recorded. Where they are, the statistics are those of the finite elements. Shared like the metadata.
    pub counts: Option<Arc<Counts>>,
    /// Signed sums; `None` when not recorded. Shared by the slots that hold the same tensor.
    pub sketch: Option<Arc<Sketch>>,
}

impl Deref for TensorRecord {
    type Target = TensorMetadata;

    fn deref(&self) -> &TensorMetadata {
        &self.metadata
    }
}

/// Writes to a copy of its own where others share the metadata.
impl DerefMut for TensorRecord {
    fn deref_mut(&mut self) -> &mut TensorMetadata {
        Arc::make_mut(&mut self.metadata)
    }
}

impl TensorMetadata {
    /// Of a tensor of which nothing but type and shape is known.
    pub fn new(dtype: RecordedDType, shape: Arc<[u64]>) -> Self {
        Self {
            dtype,
            shape,
            strides: None,
            device: None,
            requires_grad: None,
            placement: None,
            layout: None,
            sum_error: None,
            note: None,
            damage: None,
        }
    }
}

impl TensorRecord {
    /// A tensor of which nothing but type and shape was recorded.
    pub fn new(dtype: RecordedDType, shape: Arc<[u64]>) -> Self {
        TensorMetadata::new(dtype, shape).into()
    }

    /// Why nothing is known of the elements although there are some: the capture tried to measure them and could not. `None` where
    /// something is known, and where there was nothing to measure: no elements, or none in memory.
    pub fn unmeasured(&self) -> Option<&str> {
        let known = self.counts.is_some()
            || !self.statistics.is_empty()
            || self.checksum.is_some()
            || self.sketch.is_some()
            || self.data.is_some();
        self.note.as_deref().filter(|note| !known && !self.is_empty() && !note.starts_with(NO_DATA))
    }

    /// Number of elements; saturates, since the shape comes from a file.
    pub fn len(&self) -> u64 {
        self.shape.iter().fold(1, |count, &size| count.saturating_mul(size))
    }

    /// Sizes without those of 1, which change no element's place: tensors that agree in these hold the same elements.
    pub fn squeezed_shape(&self) -> Vec<u64> {
        self.shape.iter().copied().filter(|&size| size != 1).collect()
    }

    /// [`coordinates`] in this shape.
    pub fn coordinates(&self, place: u64) -> Option<Vec<u64>> {
        coordinates(place, &self.shape)
    }

    /// True for a tensor without elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

/// A tensor of which nothing but this was recorded.
impl From<TensorMetadata> for TensorRecord {
    fn from(metadata: TensorMetadata) -> Self {
        Self {
            metadata: metadata.into(),
            statistics: KeptStatistics::default(),
            places: None,
            checksum: None,
            data: None,
            counts: None,
            sketch: None,
        }
    }
}

/// Index in each dimension of the element at `place` in row-major order; `None` where there is none.
pub fn coordinates(place: u64, shape: &[u64]) -> Option<Vec<u64>> {
    let mut rest = place;
    let mut at = vec![0; shape.len()];
    for (index, &size) in at.iter_mut().zip(shape).rev() {
        *index = rest.checked_rem(size)?;
        rest /= size;
    }
    (rest == 0).then_some(at)
}

/// A value that is not a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// Number or truth value.
    Number(Number),
    /// Text of a string argument.
    Text(Box<str>),
    /// A device name such as `cuda:0`; expected to differ between devices.
    Device(Box<str>),
    /// Anything else that has a printed form: dtype, slice, size, memory format, process group.
    Printed(Box<Printed>),
}

/// A value of some type, as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    /// Type name as recorded.
    pub kind: Box<str>,
    /// Printed form.
    pub text: Box<str>,
}

impl Scalar {
    /// A value of the type `kind` that prints as `text`.
    pub fn printed(kind: impl Into<Box<str>>, text: impl Into<Box<str>>) -> Self {
        Self::Printed(Box::new(Printed { kind: kind.into(), text: text.into() }))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(v) => v.fmt(f),
            Self::Text(v) => write!(f, "{v:?}"),
            Self::Device(v) => f.write_str(v),
            Self::Printed(printed) if printed.kind.is_empty() => f.write_str(&printed.text),
            Self::Printed(printed) => write!(f, "{}({})", printed.kind, printed.text),
        }
    }
}

/// One recorded value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A tensor; one record where several slots hold the same.
    Tensor(Arc<TensorRecord>),
    /// A scalar argument or result.
    Scalar(Scalar),
    /// None, a masked position, or a value the capture could not describe and wrote as null.
    None,
    /// Something the capture marked as unsupported; nothing can be said about it.
    Unsupported,
}

impl Value {
    /// The tensor record, if it is one.
    pub fn tensor(&self) -> Option<&TensorRecord> {
        match self {
            Self::Tensor(record) => Some(record),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn coordinates_follow_row_major_order() {
        let at = |place, shape: &[u64]| {
            TensorRecord::new(RecordedDType::Known(DType::F32), shape.into()).coordinates(place)
        };
        assert_eq!(at(0, &[]), Some(vec![]));
        assert_eq!(at(1, &[]), None);
        assert_eq!(at(17 + 20 * (3 + 5 * 2), &[4, 5, 20]), Some(vec![2, 3, 17]));
        assert_eq!(at(400, &[4, 5, 20]), None);
        assert_eq!(at(0, &[2, 0]), None);
    }

    #[test]
    fn numbers_are_compared_as_values_and_integers_exactly() {
        assert!(Number::Int(1).same(Number::Float(1.0)));
        assert!(Number::Float(f64::NAN).same(Number::Float(f64::NAN)));
        assert!(Number::Float(0.0).same(Number::Float(-0.0)));
        assert!(Number::Float(f64::INFINITY).same(Number::Float(f64::INFINITY)));
        assert!(!Number::Float(f64::INFINITY).same(Number::Float(f64::NEG_INFINITY)));
        assert!(!Number::Int(9_007_199_254_740_993).same(Number::Int(9_007_199_254_740_992)));
        assert!(!Number::Bool(true).same(Number::Bool(false)));
    }
}
