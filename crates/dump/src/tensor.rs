//! Interpreted tensor bytes: dtype, shape and strides.
//!
//! [`TensorData`] owns (or maps) the storage, [`TensorRef`] borrows it. Both are checked once, on creation:
//! every index that shape and strides can form lies inside the storage. Nothing here reads files.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::DType;

/// Largest number of dimensions accepted; torch itself stops at 64.
pub const MAX_DIMS: usize = 64;

/// Reason bytes, dtype, shape and strides do not form a tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// More dimensions than [`MAX_DIMS`].
    #[error("{0} dimensions, at most {MAX_DIMS} are supported")]
    TooManyDims(usize),
    /// Shape and strides of different length.
    #[error("{shape} sizes but {strides} strides")]
    RankMismatch {
        /// Number of sizes.
        shape: usize,
        /// Number of strides.
        strides: usize,
    },
    /// The number of elements or bytes does not fit the machine.
    #[error("the shape {0:?} has more elements than can be addressed")]
    Overflow(Vec<usize>),
    /// Some element lies outside the storage.
    #[error("the layout needs {needed} bytes, the storage has {available}")]
    OutOfBounds {
        /// Bytes from the start of the storage to the end of the last element.
        needed: usize,
        /// Bytes the storage has.
        available: usize,
    },
    /// A negative stride, which torch never writes.
    #[error("negative stride {0}")]
    NegativeStride(i64),
    /// Non-contiguous elements in bytes that are not in memory.
    #[error("strides {0:?} ask for bytes in memory")]
    Far(Vec<usize>),
}

/// Returns the number of elements of `shape`, or `None` on overflow. A scalar (`[]`) has one.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the tensor empty, even if the other sizes alone would overflow.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size))
}

/// Returns row-major strides, in elements.
pub fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

/// A borrowed tensor: storage bytes in machine order (little endian), dtype, shape, strides and offset in elements.
#[derive(Clone, Copy)]
pub struct TensorRef<'a> {
    /// Empty if the bytes are not in memory.
    storage: &'a [u8],
    /// Source of the bytes, and the position in it where `storage` begins; `None` for a bare slice.
    source: Option<(&'a dyn Bytes, usize)>,
    dtype: DType,
    shape: &'a [usize],
    strides: &'a [usize],
    offset: usize,
    count: usize,
}

impl<'a> TensorRef<'a> {
    /// Checks and borrows a strided tensor. `strides` and `offset` count elements, not bytes.
    ///
    /// # Errors
    /// [`LayoutError`] when an element would lie outside `storage` or sizes overflow.
    pub fn strided(
        storage: &'a [u8],
        dtype: DType,
        shape: &'a [usize],
        strides: &'a [usize],
        offset: usize,
    ) -> Result<Self, LayoutError> {
        let count = check_layout(storage.len(), dtype, shape, strides, offset)?;
        Ok(Self { storage, source: None, dtype, shape, strides, offset, count })
    }

    /// Returns the dtype.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the bytes that contain the elements.
    pub const fn storage(&self) -> &'a [u8] {
        self.storage
    }

    /// Returns the position of the first element in the storage, in elements.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the sizes of the dimensions; empty for a scalar.
    pub const fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Returns the strides in elements, one per dimension.
    pub const fn strides(&self) -> &'a [usize] {
        self.strides
    }

    /// Returns the number of elements.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Returns true for a tensor without elements.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the row-major bytes if the tensor is contiguous in memory; `None` means: gather them.
    pub fn contiguous_bytes(&self) -> Option<&'a [u8]> {
        if self.count == 0 {
            return Some(&[]);
        }
        if !is_row_major(self.shape, self.strides) {
            return None;
        }
        let size = self.dtype.size();
        self.storage.get(self.offset * size..(self.offset + self.count) * size)
    }

    /// Returns the source of the elements `range` of a row-major tensor, and the position of the first in it; `None` if they are
    /// in memory.
    pub(crate) fn far(&self, range: &Range<usize>) -> Option<(&'a dyn Bytes, usize)> {
        let (source, base) = self.source.filter(|_| self.storage.is_empty() && self.count > 0)?;
        Some((source, base + (self.offset + range.start) * self.dtype.size()))
    }

    /// Tells the source that this many elements have been read: the memory that holds them may be released.
    pub fn used(&self, elements: usize) {
        if let Some((source, _)) = self.source {
            source.used(elements * self.dtype.size());
        }
    }

    /// Returns the bytes of one element, by its row-major position. For a few elements; [`gather`](Self::gather) is for
    /// many.
    ///
    /// # Panics
    /// When the tensor has no such element.
    pub fn element(&self, index: usize) -> &'a [u8] {
        assert!(index < self.count, "element {index} of {}", self.count);
        let (mut at, mut rest) = (self.offset, index);
        for (&size, &stride) in self.shape.iter().zip(self.strides).skip(1).rev() {
            at += rest % size * stride;
            rest /= size;
        }
        at += rest * self.strides.first().copied().unwrap_or(0);
        let size = self.dtype.size();
        &self.storage[at * size..(at + 1) * size]
    }

    /// Returns the row-major bytes, copied unless the tensor is contiguous. For small tensors and
    /// tests.
    pub fn to_bytes(&self) -> Vec<u8> {
        if let Some(bytes) = self.contiguous_bytes() {
            return bytes.to_vec();
        }
        let mut out = vec![0; self.count * self.dtype.size()];
        self.gather(0..self.count, &mut out);
        out
    }
}

impl fmt::Debug for TensorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorRef({} {:?} strides {:?})", self.dtype, self.shape, self.strides)
    }
}

/// Returns true if the elements are contiguous in row-major order.
pub fn is_row_major(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().filter(|&(&size, _)| size != 1).all(|(&size, &stride)| {
        let follows = stride == expected;
        expected = stride.saturating_mul(size);
        follows
    })
}

/// Returns the number of elements of a layout that lies inside `available` bytes.
fn check_layout(
    available: usize,
    dtype: DType,
    shape: &[usize],
    strides: &[usize],
    offset: usize,
) -> Result<usize, LayoutError> {
    if shape.len() > MAX_DIMS {
        return Err(LayoutError::TooManyDims(shape.len()));
    }
    if shape.len() != strides.len() {
        return Err(LayoutError::RankMismatch { shape: shape.len(), strides: strides.len() });
    }
    let overflow = || LayoutError::Overflow(shape.to_vec());
    let count = element_count(shape).ok_or_else(overflow)?;
    if count > 0 {
        let last = shape
            .iter()
            .zip(strides)
            .try_fold(offset, |at, (&size, &stride)| at.checked_add((size - 1).checked_mul(stride)?))
            .ok_or_else(overflow)?;
        let needed = last.checked_add(1).and_then(|n| n.checked_mul(dtype.size())).ok_or_else(overflow)?;
        if needed > available {
            return Err(LayoutError::OutOfBounds { needed, available });
        }
    }
    Ok(count)
}

/// Bytes that hold tensors: a buffer, a mapped file, or a file read range by range.
pub trait Bytes: Send + Sync {
    /// Returns their number.
    fn size(&self) -> usize;

    /// Returns all of them, if they are in memory.
    fn in_memory(&self) -> Option<&[u8]>;

    /// Copies the bytes starting at `at` into `out`, if they are not in memory. On failure, `out` is filled with zeros and
    /// [`fault`](Self::fault) reports it from then on.
    fn read(&self, at: usize, out: &mut [u8]);

    /// Returns the reason some bytes could not be read, if any.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Notes that this many bytes have been read; memory that holds them may be released if they can be read again.
    fn used(&self, _bytes: usize) {}
}

impl Bytes for Vec<u8> {
    fn size(&self) -> usize {
        self.len()
    }

    fn in_memory(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self[at..at + out.len()]);
    }
}

/// Storage shared by tensors.
pub type Storage = Arc<dyn Bytes>;

/// A tensor that keeps its storage alive.
#[derive(Clone)]
pub struct TensorData {
    storage: Storage,
    bytes: Range<usize>,
    dtype: DType,
    shape: Box<[usize]>,
    strides: Box<[usize]>,
    offset: usize,
}

impl TensorData {
    /// Checks and wraps a strided view of `storage[bytes]`; `strides` and `offset` count elements. If the storage is not in memory,
    /// the tensor must be row-major.
    ///
    /// # Errors
    /// [`LayoutError`] when an element would lie outside `bytes`, or cannot be read from its location.
    pub fn strided(
        storage: Storage,
        bytes: Range<usize>,
        dtype: DType,
        shape: Box<[usize]>,
        strides: Box<[usize]>,
        offset: usize,
    ) -> Result<Self, LayoutError> {
        if bytes.start > bytes.end || bytes.end > storage.size() {
            return Err(LayoutError::OutOfBounds {
                needed: bytes.end.saturating_sub(bytes.start),
                available: storage.size().saturating_sub(bytes.start),
            });
        }
        let count = check_layout(bytes.len(), dtype, &shape, &strides, offset)?;
        if count > 0 && storage.in_memory().is_none() && !is_row_major(&shape, &strides) {
            return Err(LayoutError::Far(strides.into()));
        }
        Ok(Self { storage, bytes, dtype, shape, strides, offset })
    }

    /// Checks and wraps a row-major tensor at the start of `storage[bytes]`.
    ///
    /// # Errors
    /// As for [`TensorData::strided`].
    pub fn contiguous(
        storage: Storage,
        bytes: Range<usize>,
        dtype: DType,
        shape: Box<[usize]>,
    ) -> Result<Self, LayoutError> {
        let strides = contiguous_strides(&shape).into();
        Self::strided(storage, bytes, dtype, shape, strides, 0)
    }

    /// Borrows the tensor.
    pub fn view(&self) -> TensorRef<'_> {
        let storage = self.storage.in_memory().and_then(|all| all.get(self.bytes.clone())).unwrap_or(&[]);
        let count = element_count(&self.shape).unwrap_or(0);
        TensorRef {
            storage,
            source: Some((&*self.storage, self.bytes.start)),
            dtype: self.dtype,
            shape: &self.shape,
            strides: &self.strides,
            offset: self.offset,
            count,
        }
    }

    /// Returns the first `count` indices of `dimension`; the whole tensor if there are no more, or no such dimension.
    #[must_use]
    pub fn first_of(mut self, dimension: usize, count: usize) -> Self {
        if dimension > 0 && self.storage.in_memory().is_none() {
            // A tensor read range by range must be row-major.
            let bytes = self.view().to_bytes();
            if self.storage.fault().is_some() {
                return self;
            }
            self.strides = contiguous_strides(&self.shape).into();
            (self.bytes, self.offset) = (0..bytes.len(), 0);
            self.storage = Arc::new(bytes);
        }
        if let Some(size) = self.shape.get_mut(dimension) {
            *size = count.min(*size);
        }
        self
    }

    /// Returns the reason some requested bytes could not be read, if any.
    pub fn fault(&self) -> Option<String> {
        self.storage.fault()
    }

    /// Returns the dtype.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the sizes of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl fmt::Debug for TensorData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorData({} {:?} strides {:?})", self.dtype, self.shape, self.strides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gather_follows_strides_from_any_start() {
        // 4 x 6 row-major bytes, seen as the transposed every-second-column view [3, 4].
        let storage: Vec<u8> = (0..24).collect();
        let (shape, strides) = ([3, 4], [2, 6]);
        let view = TensorRef::strided(&storage, DType::U8, &shape, &strides, 1).unwrap();
        let whole: Vec<u8> = (0..3).flat_map(|c| (0..4).map(move |r| 1 + 2 * c + 6 * r)).collect();
        assert!(view.contiguous_bytes().is_none());
        assert_eq!(view.to_bytes(), whole);
        for start in 0..=12 {
            for end in start..=12 {
                let mut out = vec![0; end - start];
                view.gather(start..end, &mut out);
                assert_eq!(out, whole[start..end], "{start}..{end}");
            }
        }
        let elements: Vec<u8> = (0..12).flat_map(|index| view.element(index).to_vec()).collect();
        assert_eq!(elements, whole);
    }

    #[test]
    fn size_one_dimensions_do_not_break_contiguity() {
        let storage = [0_u8; 32];
        let view = TensorRef::strided(&storage, DType::F32, &[2, 1, 4], &[4, 999, 1], 0).unwrap();
        assert_eq!(view.contiguous_bytes().map(<[u8]>::len), Some(32));
        let expanded = TensorRef::strided(&storage, DType::F32, &[3, 4], &[0, 1], 0).unwrap();
        assert!(expanded.contiguous_bytes().is_none());
        let scalar = TensorRef::strided(&storage, DType::F32, &[], &[], 7).unwrap();
        assert_eq!((scalar.len(), scalar.contiguous_bytes().map(<[u8]>::len)), (1, Some(4)));
        assert_eq!(scalar.element(0).as_ptr(), storage[28..].as_ptr());
    }

    #[test]
    fn layouts_outside_the_storage_are_refused() {
        let storage = [0_u8; 32];
        let refused = |shape: &[usize], strides: &[usize], offset| {
            TensorRef::strided(&storage, DType::F32, shape, strides, offset).is_err()
        };
        assert!(refused(&[9], &[1], 0));
        assert!(refused(&[8], &[1], 1));
        assert!(refused(&[2], &[usize::MAX], 0));
        assert!(refused(&[usize::MAX, 3], &[1, 1], 0));
        assert!(refused(&[2], &[], 0));
        assert!(!refused(&[0, usize::MAX], &[1, 1], usize::MAX));
    }
}
