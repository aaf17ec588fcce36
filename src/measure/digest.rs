//! The identity of one large tensor: hash, statistics, sketch, and what tells a permuted or rounded copy from another tensor.
//!
//! A tensor may come in pieces, as one does that is fetched from a device. A piece is cut into spans that fit the cache. The
//! parts of the work run side by side in the pool of the caller, the sums over one span and the rest over the span before it, so memory is
//! read once however many they are.
//! Nothing in the result depends on pieces or threads.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::fmt;
use std::ops::Range;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use twox_hash::xxhash3_128::Hasher;

use crate::dump::{Counts, DType, Sketch, TensorRef};

use super::blocks::{Blocks, blocks_of};
use super::extent::{Scaled, SideExtent};
use super::finish;
use super::metric::TensorSummary;
use super::segment::{Numbers, Segment};
use super::simd::{Body, unordered};
use super::sums::{CHUNK, SEGMENT};

/// Elements of every piece of a tensor but the last are a multiple of this.
pub const PIECE: usize = CHUNK;

/// Elements whose parts are computed side by side: enough that threads share them evenly and seldom wait for one another,
/// few enough that two spans stay in cache.
const SPAN: usize = 2 * CHUNK;

/// Pieces of no more elements stay on the calling thread.
const ALONE: usize = 2 * CHUNK;

/// Which parts of a [`TensorDigest`] are wanted beside hash and statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DigestContent {
    /// The signed-sum sketch.
    pub sketch: bool,
    /// The hash that does not depend on the order of the elements.
    pub unordered: bool,
    /// The hashes of the tensor rounded to shorter types.
    pub casts: bool,
}

/// What identifies a tensor.
#[derive(Debug, Clone)]
pub struct TensorDigest {
    /// xxh3-128 of the contiguous bytes.
    pub hash: u128,
    /// Statistics of the finite elements.
    pub summary: TensorSummary,
    /// Elements by kind.
    pub counts: Counts,
    /// Signed sums, if wanted.
    pub sketch: Option<Sketch>,
    /// Sum of the mixed elements, if wanted and an element has at most 8 bytes.
    pub unordered: Option<u64>,
    /// Hashes after rounding to shorter types, if wanted.
    pub casts: Vec<(DType, u128)>,
}

/// A tensor that is being digested.
pub struct Digest {
    body: Body,
    dtype: DType,
    elements: usize,
    hash: Hasher,
    numbers: Numbers,
    unordered: Option<u64>,
    casts: Vec<Cast>,
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digest")
            .field("dtype", &self.dtype)
            .field("elements", &self.elements)
            .finish_non_exhaustive()
    }
}

/// A piece cannot follow one that has not a multiple of [`PIECE`] elements, or has another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pieces of a tensor have one element type, and a multiple of {PIECE} elements but for the last")]
pub struct PieceError;

impl Digest {
    /// A digest of nothing yet.
    pub fn new(dtype: DType, content: DigestContent) -> Self {
        let targets: &[DType] = match dtype {
            _ if !content.casts => &[],
            DType::F32 => &[DType::Bf16, DType::F16],
            DType::F64 => &[DType::F32, DType::Bf16, DType::F16],
            _ => &[],
        };
        Self {
            body: Body::detected(),
            dtype,
            elements: 0,
            hash: Hasher::new(),
            numbers: Numbers::new(content.sketch),
            unordered: (content.unordered && dtype.size() <= 8).then_some(0),
            casts: targets.iter().map(|&dtype| Cast { dtype, hash: Hasher::new() }).collect(),
        }
    }

    /// Adds the elements that follow.
    ///
    /// # Errors
    /// [`PieceError`] when they cannot follow what came before.
    pub fn push(&mut self, piece: TensorRef<'_>) -> Result<(), PieceError> {
        if piece.dtype() != self.dtype || !self.elements.is_multiple_of(PIECE) {
            return Err(PieceError);
        }
        let Self { body, dtype, elements, hash, numbers, unordered, casts } = self;
        let (body, width, alone) = (*body, dtype.size(), piece.len() <= ALONE);
        let (first, with_sketch) = (*elements / SEGMENT, numbers.lanes.is_some());
        let spans = (0..piece.len()).step_by(SPAN).map(|start| start..piece.len().min(start + SPAN));
        let parts = |span: &Range<usize>, size: usize| -> Vec<Range<usize>> {
            let end = span.end;
            span.clone().step_by(size).map(|start| start..end.min(start + size)).collect()
        };
        let mut measured = |span: &Range<usize>| {
            let each = |range: Range<usize>| {
                let index = first + range.start / SEGMENT;
                Segment::measure(body, piece, range, index, with_sketch)
            };
            let ranges = parts(span, SEGMENT);
            let segments: Vec<Segment> = if alone {
                ranges.into_iter().map(each).collect()
            } else {
                ranges.into_par_iter().map(each).collect()
            };
            for segment in &segments {
                numbers.append(segment);
            }
        };
        let mut hashed = |span: &Range<usize>| {
            // By large pieces: the hash keeps a copy of the end of each.
            let mut source = Blocks::of(piece, span.end);
            for range in parts(span, CHUNK) {
                hash.write(source.bytes(range));
            }
        };
        let each = |span: &Range<usize>, work: &mut dyn FnMut(&[u8])| {
            let mut source = Blocks::of(piece, span.end);
            blocks_of(span.clone()).for_each(|block| work(source.bytes(block)));
        };
        let mut identified = |span: &Range<usize>| {
            if let Some(sum) = unordered {
                each(span, &mut |bytes| {
                    *sum = sum.wrapping_add(unordered::unordered(body, width, bytes).unwrap_or(0));
                });
            }
        };
        let mut rounded = |span: &Range<usize>| {
            for cast in casts.iter_mut() {
                each(span, &mut |bytes| cast.push(*dtype, bytes));
            }
        };
        // Measuring asks for memory ahead of its use and hardly waits for it; hashing would. So the numbers lead, and the rest follows a
        // span behind, out of the cache.
        let mut behind: Option<Range<usize>> = None;
        for span in spans.map(Some).chain([None]) {
            let mut lead = || span.iter().for_each(&mut measured);
            let behind = std::mem::replace(&mut behind, span.clone());
            if alone {
                lead();
                behind.iter().for_each(&mut hashed);
                behind.iter().for_each(&mut identified);
                behind.iter().for_each(&mut rounded);
            } else {
                let rest = || {
                    rayon::join(
                        || behind.iter().for_each(&mut identified),
                        || behind.iter().for_each(&mut rounded),
                    )
                };
                rayon::join(|| rayon::join(|| behind.iter().for_each(&mut hashed), rest), lead);
            }
        }
        self.elements += piece.len();
        Ok(())
    }

    /// The digest of everything pushed.
    pub fn finish(self) -> TensorDigest {
        let Numbers { sums, lanes } = self.numbers;
        let sums = sums.finish();
        let extent = SideExtent { sum: Scaled::from(sums.sum), squares: Scaled::from(sums.squares) };
        let summary = finish::summary(self.elements, &sums, extent);
        TensorDigest {
            hash: self.hash.finish_128(),
            counts: Counts {
                elements: summary.count,
                zeros: summary.zeros,
                nan: summary.nan,
                positive_infinite: summary.pos_inf,
                negative_infinite: summary.neg_inf,
            },
            summary,
            sketch: lanes.map(|lanes| lanes.finish()),
            unordered: self.unordered,
            casts: self.casts.into_iter().map(|cast| (cast.dtype, cast.hash.finish_128())).collect(),
        }
    }
}

/// Digests a whole tensor.
pub fn digest(tensor: TensorRef<'_>, content: DigestContent) -> TensorDigest {
    let mut digest = Digest::new(tensor.dtype(), content);
    // The first piece fits whatever it is.
    _ = digest.push(tensor);
    digest.finish()
}

/// xxh3-128 of some bytes.
pub fn hash_bytes(bytes: &[u8]) -> u128 {
    Hasher::oneshot(bytes)
}

/// The hash of a tensor as it would be in a shorter type, rounded to nearest, ties to even. From float64 to the 16-bit types
/// by way of float32, as frameworks do.
struct Cast {
    dtype: DType,
    hash: Hasher,
}

impl Cast {
    fn push(&mut self, from: DType, bytes: &[u8]) {
        let singles: Vec<f32> = match from {
            DType::F32 => bytes.as_chunks().0.iter().map(|&element| f32::from_le_bytes(element)).collect(),
            #[expect(clippy::cast_possible_truncation, reason = "rounding is what is asked for")]
            _ => bytes.as_chunks().0.iter().map(|&element| f64::from_le_bytes(element) as f32).collect(),
        };
        let mut out: Vec<u8> = Vec::with_capacity(singles.len() * self.dtype.size());
        match self.dtype {
            DType::F32 => out.extend(singles.iter().flat_map(|value| value.to_le_bytes())),
            DType::Bf16 => {
                let mut values = vec![bf16::ZERO; singles.len()];
                values.convert_from_f32_slice(&singles);
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            _ => {
                let mut values = vec![f16::ZERO; singles.len()];
                values.convert_from_f32_slice(&singles);
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
        }
        self.hash.write(&out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::Content;
    use crate::measure::observe;

    const ALL: DigestContent = DigestContent { sketch: true, unordered: true, casts: true };

    #[expect(clippy::cast_precision_loss, reason = "any values will do")]
    fn values(count: usize) -> Vec<u8> {
        (0..count).flat_map(|i| ((i as f32) * 0.37 - 1000.0).to_le_bytes()).collect()
    }

    #[test]
    fn a_digest_has_the_numbers_of_an_observation_however_it_came() {
        let count = 2 * PIECE + 4321;
        let bytes = values(count);
        let shape = [count];
        let tensor = TensorRef::strided(&bytes, DType::F32, &shape, &[1], 0).expect("a layout");
        let wanted = observe(tensor, Content::SKETCH);
        let whole = digest(tensor, ALL);
        let mut pieces = Digest::new(DType::F32, ALL);
        for piece in bytes.chunks(PIECE * 4) {
            let count = piece.len() / 4;
            let shape = [count];
            let piece = TensorRef::strided(piece, DType::F32, &shape, &[1], 0).expect("a layout");
            pieces.push(piece).expect("pieces of the right size");
        }
        for digest in [whole, pieces.finish()] {
            assert_eq!(Some(digest.hash), wanted.hash);
            assert_eq!(digest.sketch, wanted.sketch);
            assert_eq!(Some(digest.summary.norm), wanted.statistics.norm);
            assert_eq!(digest.counts, wanted.counts);
        }
    }

    #[test]
    fn an_odd_piece_ends_a_tensor() {
        let bytes = values(3);
        let tensor = TensorRef::strided(&bytes, DType::F32, &[3], &[1], 0).expect("a layout");
        let mut digest = Digest::new(DType::F32, ALL);
        assert_eq!(digest.push(tensor), Ok(()));
        assert_eq!(digest.push(tensor), Err(PieceError));
    }

    #[test]
    fn rounding_gives_the_hash_of_the_rounded_tensor() {
        let bytes = values(5000);
        let tensor = TensorRef::strided(&bytes, DType::F32, &[5000], &[1], 0).expect("a layout");
        let rounded: Vec<u8> = bytes
            .as_chunks()
            .0
            .iter()
            .flat_map(|&element| bf16::from_f32(f32::from_le_bytes(element)).to_le_bytes())
            .collect();
        assert_eq!(digest(tensor, ALL).casts[0], (DType::Bf16, hash_bytes(&rounded)));
    }
}
