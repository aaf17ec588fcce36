//! Record of one value: a tensor's record, a scalar, or the fact that there was none.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::{Counts, DataKey, ExtremePlaces, KeptStatistics, Number, RecordedDType, Sketch};

/// A 128-bit hash; unlike a `u128`, it needs no more alignment than its halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash128([u64; 2]);

impl Hash128 {
    /// Returns the hash as a number.
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
    /// CRC-32 of the contiguous bytes. Equal values very likely mean equal bytes.
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
    /// Wraps an xxh3-128.
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

/// Start of the capture's remark on a tensor without elements in memory: on the device `meta`, or released.
pub const NO_DATA: &str = "no data";

/// Properties of a tensor besides its values.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorMetadata {
    /// Dtype at capture.
    pub dtype: RecordedDType,
    /// Sizes of the dimensions; empty for a scalar.
    pub shape: Arc<[u64]>,
    /// Strides in elements, as at capture; `None` if not recorded.
    pub strides: Option<Box<[i64]>>,
    /// Device of the tensor (`cuda:0`, `npu:3`), as recorded; `None` if not recorded.
    pub device: Option<Box<str>>,
    /// True if autograd tracked the tensor; `None` if not recorded.
    pub requires_grad: Option<bool>,
    /// Placement of a distributed tensor, as text; `None` for plain tensors.
    pub placement: Option<Box<str>>,
    /// Private device format that the elements are still in (`FRACTAL_Z`), if the conversion to the logical tensor is unknown. Different
    /// formats cannot be compared elementwise, even if the shapes agree.
    pub layout: Option<Box<str>>,
    /// Error bound of mean, norm and sketch relative to the norm; `None` if they were summed in binary64, or nothing was recorded.
    pub sum_error: Option<f64>,
    /// A remark of the capture (`beyond the byte budget`, `quantised`).
    pub note: Option<Box<str>>,
    /// Reason not even dtype and shape could be read, though the file has the name; the values here are then
    /// meaningless.
    pub damage: Option<Box<str>>,
}

/// Record of one tensor. It dereferences to the metadata, for reads and writes (`record.shape`).
#[derive(Debug, Clone, PartialEq)]
pub struct TensorRecord {
    /// Shared by similar tensors, if the reader deduplicates: a part holds hundreds of thousands of records of few kinds.
    pub metadata: Arc<TensorMetadata>,
    /// Statistics, as far as recorded.
    pub statistics: KeptStatistics,
    /// Positions of the greatest and the least element; `None` if not recorded.
    pub places: Option<ExtremePlaces>,
    /// Checksum of the bytes; `None` if not recorded.
    pub checksum: Option<Checksum>,
    /// Key under which the [`TensorStore`](super::TensorStore) of the rank holds the data; `None` if no data was recorded.
    pub data: Option<DataKey>,
    /// Elements by kind; `None` if not recorded. If recorded, the statistics cover the finite elements. Shared like the metadata.
    pub counts: Option<Arc<Counts>>,
    /// Signed sums; `None` if not recorded. Shared by the slots that hold the same tensor.
    pub sketch: Option<Arc<Sketch>>,
}

impl Deref for TensorRecord {
    type Target = TensorMetadata;

    fn deref(&self) -> &TensorMetadata {
        &self.metadata
    }
}

/// Copies the metadata before writing if it is shared.
impl DerefMut for TensorRecord {
    fn deref_mut(&mut self) -> &mut TensorMetadata {
        Arc::make_mut(&mut self.metadata)
    }
}

impl TensorMetadata {
    /// Creates metadata with only dtype and shape known.
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
    /// Creates a record of a tensor with only dtype and shape recorded.
    pub fn new(dtype: RecordedDType, shape: Arc<[u64]>) -> Self {
        TensorMetadata::new(dtype, shape).into()
    }

    /// Returns the reason nothing is known of the elements although there are some: the capture tried to measure them and failed.
    /// `None` if something is known, or if there was nothing to measure: no elements, or none in memory.
    pub fn unmeasured(&self) -> Option<&str> {
        let known = self.counts.is_some()
            || !self.statistics.is_empty()
            || self.checksum.is_some()
            || self.sketch.is_some()
            || self.data.is_some();
        self.note.as_deref().filter(|note| !known && !self.is_empty() && !note.starts_with(NO_DATA))
    }

    /// Returns the number of elements; saturates, since the shape comes from a file.
    pub fn len(&self) -> u64 {
        self.shape.iter().fold(1, |count, &size| count.saturating_mul(size))
    }

    /// Returns the sizes other than 1. Sizes of 1 do not affect the element order, so tensors with equal squeezed
    /// shapes hold the same elements.
    pub fn squeezed_shape(&self) -> Vec<u64> {
        self.shape.iter().copied().filter(|&size| size != 1).collect()
    }

    /// Returns the [`coordinates`] in this shape.
    pub fn coordinates(&self, place: u64) -> Option<Vec<u64>> {
        coordinates(place, &self.shape)
    }

    /// Returns true for a tensor without elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

/// Wraps metadata of a tensor of which nothing else was recorded.
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

/// Returns the index in each dimension of the element at `place` in row-major order; `None` if there
/// is none.
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

/// A value of any type, as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    /// Type name as recorded.
    pub kind: Box<str>,
    /// Printed form.
    pub text: Box<str>,
}

impl Scalar {
    /// Creates a value of the type `kind` that prints as `text`.
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
    /// A tensor; slots that hold the same one share a record.
    Tensor(Arc<TensorRecord>),
    /// A scalar argument or result.
    Scalar(Scalar),
    /// None, a masked position, or a value the capture could not describe and wrote as null.
    None,
    /// Something the capture marked as unsupported; nothing can be said about it.
    Unsupported,
}

impl Value {
    /// Returns the tensor record, if it is one.
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
}
