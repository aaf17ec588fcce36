//! Positions of the greatest and the least element of a tensor.
//!
//! While blocks are summed, the first ones that reach an extreme are recorded; afterwards only the first of
//! them is searched: among the elements equal to the extreme, the first in row-major order is the position. If
//! blocks came in memory order, which differs, all blocks that reach the extreme are searched if they are few;
//! if there are many, one is soon found in row-major order.

use half::{bf16, f16};

use super::arithmetic::{Arithmetic as _, ComplexDouble, modulus};
use super::blocks::Blocks;
use super::decode::{Decode as _, f32_of_f8e4m3, f32_of_f8e5m2};
use super::sums::BLOCK;
use probe_dump::{DType, ExtremePlaces, TensorRef, contiguous_strides};

/// Number of blocks remembered for an extreme.
const FEW: usize = 8;

/// Number of elements compared with an extreme at once.
const AT_ONCE: usize = 64;

/// An extreme as a value of its type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Extreme {
    /// All types except those of 64 bits; the modulus of complex numbers.
    Real(f64),
    /// int64.
    Signed(i64),
    /// uint64.
    Unsigned(u64),
}

/// Least and greatest finite element of the blocks so far, and the blocks that have them.
#[derive(Debug, Clone)]
pub(crate) struct Peaks<T> {
    blocks: usize,
    least: Peak<T>,
    greatest: Peak<T>,
}

#[derive(Debug, Clone)]
struct Peak<T> {
    value: T,
    /// The first blocks that reach it, at most `times` of them.
    blocks: [usize; FEW],
    times: usize,
}

impl<T: Copy + PartialOrd> Peaks<T> {
    /// Returns peaks of no blocks yet: no element is below `bottom` or above `top`.
    pub(crate) const fn new(bottom: T, top: T) -> Self {
        let least = Peak { value: top, blocks: [0; FEW], times: 0 };
        Self { blocks: 0, least, greatest: Peak { value: bottom, blocks: [0; FEW], times: 0 } }
    }

    /// Adds the next block, by its extremes.
    pub(crate) fn push(&mut self, min: T, max: T) {
        self.least.push(self.blocks, min, min < self.least.value);
        self.greatest.push(self.blocks, max, max > self.greatest.value);
        self.blocks += 1;
    }

    /// Returns the least and the greatest element; the arguments of [`new`](Self::new) if there is none.
    pub(crate) const fn extremes(&self) -> (T, T) {
        (self.least.value, self.greatest.value)
    }

    /// Returns their positions in `tensor`, whose blocks were pushed in the order of `source`. `None` if no
    /// element is finite.
    pub(crate) fn places(&self, source: &mut Blocks<'_>) -> Option<ExtremePlaces>
    where
        Extreme: From<T>,
    {
        let max = self.greatest.place(self.blocks, source)?;
        ExtremePlaces::new(max as u64, self.least.place(self.blocks, source)? as u64)
    }
}

impl<T: Copy + PartialOrd> Peak<T> {
    fn push(&mut self, block: usize, value: T, beats: bool) {
        if beats {
            (self.value, self.times) = (value, 0);
        } else if value != self.value {
            return;
        }
        if let Some(place) = self.blocks.get_mut(self.times) {
            *place = block;
        }
        self.times += 1;
    }

    /// Returns the row-major index of the first element equal to the extreme.
    fn place(&self, blocks: usize, source: &mut Blocks<'_>) -> Option<usize>
    where
        Extreme: From<T>,
    {
        let (tensor, extreme) = (source.tensor(), Extreme::from(self.value));
        let of_block = |block: usize| block * BLOCK..tensor.len().min((block + 1) * BLOCK);
        if source.is_row_major() {
            let block = of_block(self.blocks[0]);
            return Some(block.start + first(tensor.dtype(), source.bytes(block), extreme)?);
        }
        if self.times <= FEW && self.times < blocks {
            let memory = Memory::of(tensor);
            let found = self.blocks[..self.times].iter().filter_map(|&block| {
                let block = of_block(block);
                memory.first(block.start, source.bytes(block), extreme)
            });
            return found.min();
        }
        let mut in_order = Blocks::of(tensor, tensor.len());
        (0..blocks)
            .map(of_block)
            .find_map(|block| Some(block.start + first(tensor.dtype(), in_order.bytes(block), extreme)?))
    }
}

/// A tensor whose elements fill a piece of memory in another order than that of their indices.
#[derive(Debug)]
struct Memory {
    dtype: DType,
    /// For each dimension with more than one index: its stride, and its row-major stride. Sorted by stride,
    /// largest first.
    dimensions: Vec<(usize, usize)>,
    /// Number of elements that are adjacent in memory, in index order.
    run: usize,
}

impl Memory {
    fn of(tensor: TensorRef<'_>) -> Self {
        let sizes = tensor.shape().iter().zip(tensor.strides()).zip(contiguous_strides(tensor.shape()));
        let mut dimensions: Vec<_> = sizes
            .filter(|((size, _), _)| **size > 1)
            .map(|((_, &stride), row_major)| (stride, row_major))
            .collect();
        dimensions.sort_unstable_by(|a, b| b.cmp(a));
        // The last dimension has stride 1; it ends where the stride of the previous one begins.
        let run = dimensions.iter().rev().nth(1).map_or(tensor.len(), |(stride, _)| *stride);
        Self { dtype: tensor.dtype(), dimensions, run }
    }

    /// Returns the least row-major index among the elements of `bytes` that equal `extreme`; the first of
    /// `bytes` is number `start` in memory.
    fn first(&self, start: usize, bytes: &[u8], extreme: Extreme) -> Option<usize> {
        let (mut best, mut from, size) = (None, 0, self.dtype.size());
        while let Some(found) = bytes.get(from * size..).and_then(|rest| first(self.dtype, rest, extreme)) {
            let place = start + from + found;
            let mut rest = place;
            let mut index = 0;
            for &(stride, row_major) in &self.dimensions {
                index += rest / stride * row_major;
                rest %= stride;
            }
            best = Some(best.map_or(index, |best: usize| best.min(index)));
            // Elements behind it in its run have greater indices.
            from = (place / self.run + 1) * self.run - start;
        }
        best
    }
}

/// Returns the first element of `bytes` that equals `extreme`: zeros of both signs are equal, complex numbers
/// compare by their moduli.
fn first(dtype: DType, bytes: &[u8], extreme: Extreme) -> Option<usize> {
    let real = match extreme {
        Extreme::Signed(wanted) => return find(bytes, |element| i64::from_le_bytes(element) == wanted),
        Extreme::Unsigned(wanted) => return find(bytes, |element| u64::from_le_bytes(element) == wanted),
        Extreme::Real(real) => real,
    };
    #[expect(clippy::cast_possible_truncation, reason = "an element of this type, which binary64 holds")]
    let (single, integer) = (real as f32, real as i64);
    #[expect(clippy::float_cmp, reason = "the extreme is one of the elements")]
    match dtype {
        DType::F32 => find(bytes, |element| f32::from_le_bytes(element) == single),
        DType::F64 => find(bytes, |element| f64::from_le_bytes(element) == real),
        DType::F16 => find_short(bytes, f16::from_f64(real).to_bits()),
        DType::Bf16 => find_short(bytes, bf16::from_f64(real).to_bits()),
        DType::F8E4M3 => find(bytes, |[element]| f32_of_f8e4m3(element) == single),
        DType::F8E5M2 => find(bytes, |[element]| f32_of_f8e5m2(element) == single),
        DType::Bool => find(bytes, |[element]| (element != 0) == (real > 0.0)),
        DType::I8 => find(bytes, |element| i64::from(i8::from_le_bytes(element)) == integer),
        DType::I16 => find(bytes, |element| i64::from(i16::from_le_bytes(element)) == integer),
        DType::I32 => find(bytes, |element| i64::from(i32::from_le_bytes(element)) == integer),
        DType::U8 => find(bytes, |element| i64::from(u8::from_le_bytes(element)) == integer),
        DType::U16 => find(bytes, |element| i64::from(u16::from_le_bytes(element)) == integer),
        DType::U32 => find(bytes, |element| i64::from(u32::from_le_bytes(element)) == integer),
        // The 64-bit types are handled above.
        DType::I64 | DType::U64 => None,
        DType::C64 | DType::C128 => {
            let mut elements = Vec::new();
            <[f64; 2]>::decode(dtype, bytes, &mut elements);
            elements
                .into_iter()
                .position(|element| ComplexDouble::is_finite(element) && modulus(element) == real)
        }
    }
}

/// Returns the first 16-bit float with these bits; a zero of any sign if they are zero.
fn find_short(bytes: &[u8], bits: u16) -> Option<usize> {
    const SIGN: u16 = 1 << 15;
    let mask = if bits & !SIGN == 0 { !SIGN } else { u16::MAX };
    find(bytes, |element| u16::from_le_bytes(element) & mask == bits & mask)
}

/// Returns the first element for which `is_it` holds.
fn find<const N: usize>(bytes: &[u8], is_it: impl Fn([u8; N]) -> bool) -> Option<usize> {
    let (elements, _) = bytes.as_chunks::<N>();
    // Without a branch per element, so that compilers vectorise it.
    let group = elements
        .chunks(AT_ONCE)
        .position(|group| group.iter().fold(false, |any, &element| any | is_it(element)))?;
    let start = group * AT_ONCE;
    Some(start + elements[start..].iter().position(|&element| is_it(element))?)
}

impl From<f64> for Extreme {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<i64> for Extreme {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<u64> for Extreme {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

#[cfg(test)]
mod tests;
