//! Hashes of elements in order: as they are, and rounded to shorter types.

use std::fmt;

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};
use twox_hash::XxHash3_128;

use probe_dump::{DType, TensorRef};

use super::blocks::Blocks;
use super::decode::widened;
use super::sums::CHUNK;

/// Hashes of the elements so far.
#[derive(Default)]
pub(super) struct Hashes {
    plain: XxHash3_128,
    rounded: Vec<(DType, XxHash3_128)>,
}

impl fmt::Debug for Hashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hashes").field("types", &self.types().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

impl Hashes {
    /// Returns empty hashes; with `casts`, also for the elements of `dtype` rounded to every shorter float
    /// type.
    pub(super) fn new(dtype: DType, casts: bool) -> Self {
        let types: &[DType] = match dtype {
            _ if !casts => &[],
            DType::F32 => &[DType::Bf16, DType::F16],
            DType::F64 => &[DType::F32, DType::Bf16, DType::F16],
            _ => &[],
        };
        Self {
            plain: XxHash3_128::new(),
            rounded: types.iter().map(|&dtype| (dtype, XxHash3_128::new())).collect(),
        }
    }

    /// Iterates over the types that elements are rounded to.
    pub(super) fn types(&self) -> impl Iterator<Item = DType> {
        self.rounded.iter().map(|&(dtype, _)| dtype)
    }

    /// Adds the following elements: as they are, and [`round`]ed to each type.
    pub(super) fn write(&mut self, elements: &[u8], rounded: &[Vec<u8>]) {
        self.plain.write(elements);
        for ((_, hash), elements) in self.rounded.iter_mut().zip(rounded) {
            hash.write(elements);
        }
    }

    /// Returns the xxh3-128 of the elements as they are.
    pub(super) fn plain(&self) -> u128 {
        self.plain.finish_128()
    }

    /// Returns the xxh3-128 of the rounded elements, by type.
    pub(super) fn rounded(&self) -> Vec<(DType, u128)> {
        self.rounded.iter().map(|(dtype, hash)| (*dtype, hash.finish_128())).collect()
    }
}

/// Returns the xxh3-128 of the elements in row-major order, as a capture records it. Runs on the calling
/// thread.
pub fn hash(tensor: TensorRef<'_>) -> u128 {
    let mut hash = XxHash3_128::new();
    let mut source = Blocks::of(tensor, tensor.len());
    for start in (0..tensor.len()).step_by(CHUNK) {
        let range = start..tensor.len().min(start + CHUNK);
        hash.write(source.bytes(range.clone()));
        tensor.used(range.len());
    }
    hash.finish_128()
}

/// Number of elements rounded at a time, in the nearest cache.
const GROUP: usize = 1024;

/// Rounds elements of a float type to a shorter one: to nearest, ties to even. From float64 to the 16-bit
/// types via float32, as frameworks do. Replaces the contents of `out`.
///
/// Source types are binary64, binary32, binary16 and bfloat16; target types binary32, binary16 and bfloat16.
pub fn round(from: DType, elements: &[u8], to: DType, out: &mut Vec<u8>) {
    out.resize(elements.len() / from.size() * to.size(), 0);
    let mut singles = [0.0_f32; GROUP];
    let groups = elements.chunks(GROUP * from.size()).zip(out.chunks_mut(GROUP * to.size()));
    for (elements, out) in groups {
        let singles = &mut singles[..elements.len() / from.size()];
        if from == DType::F32 {
            for (single, &element) in singles.iter_mut().zip(elements.as_chunks().0) {
                *single = f32::from_le_bytes(element);
            }
        } else if from.size() == 2 {
            singles.copy_from_slice(&widened(from, elements));
        } else {
            for (single, &element) in singles.iter_mut().zip(elements.as_chunks().0) {
                #[expect(clippy::cast_possible_truncation, reason = "rounding is what is asked for")]
                let rounded = f64::from_le_bytes(element) as f32;
                *single = rounded;
            }
        }
        match to {
            DType::F32 => store(out, singles, f32::to_le_bytes),
            DType::Bf16 => {
                let mut values = [bf16::ZERO; GROUP];
                let values = &mut values[..singles.len()];
                values.convert_from_f32_slice(singles);
                store(out, values, bf16::to_le_bytes);
            }
            _ => {
                let mut values = [f16::ZERO; GROUP];
                let values = &mut values[..singles.len()];
                values.convert_from_f32_slice(singles);
                store(out, values, f16::to_le_bytes);
            }
        }
    }
}

fn store<T: Copy, const SIZE: usize>(out: &mut [u8], values: &[T], bytes: impl Fn(T) -> [u8; SIZE]) {
    for (out, &value) in out.as_chunks_mut().0.iter_mut().zip(values) {
        *out = bytes(value);
    }
}
