//! The identity of one large tensor: hash, statistics, sketch, and values that reveal a permuted or rounded
//! copy.
//!
//! A tensor may come in pieces, for example when it is fetched from a device. The threads of the caller's pool
//! share it: each takes parts that fit its cache and does all the work on a part while it is there. The result
//! does not depend on pieces or threads.

use std::mem;
use std::sync::Arc;

use twox_hash::XxHash3_128;

use probe_dump::{Counts, DType, Sketch, SketchVersion, TensorRef};

use super::blocks::Blocks;
use super::extent::{Scaled, SideExtent};
use super::finish;
use super::hashes::{Hashes, round};
use super::metric::TensorSummary;
use super::segment::{Numbers, Segment};
use super::sentinel::Sentinels;
use super::simd::{Body, unordered};
use super::sums::{CHUNK, SEGMENT};
use super::task::{Pieces, Room, Task, Wanted, row};

/// All pieces of a tensor except the last have a multiple of this number of elements.
pub const PIECE: usize = CHUNK;

/// Pieces of up to this many elements stay on the calling thread.
const ALONE: usize = 2 * CHUNK;

/// Number of elements that threads share at once: the sums of their blocks are kept until all are measured.
const AT_ONCE: usize = if cfg!(test) { 8 * CHUNK } else { 256 * CHUNK };

/// Requested parts of a [`TensorDigest`] besides hash and statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DigestContent {
    /// The signed-sum sketch.
    pub sketch: bool,
    /// The hash that does not depend on the order of the elements.
    pub unordered: bool,
    /// The hashes of the tensor rounded to shorter types.
    pub casts: bool,
}

/// Identity of a tensor.
#[derive(Debug, Clone)]
pub struct TensorDigest {
    /// xxh3-128 of the contiguous bytes.
    pub hash: u128,
    /// Statistics of the finite elements.
    pub summary: TensorSummary,
    /// Elements by kind.
    pub counts: Counts,
    /// Signed sums, if requested.
    pub sketch: Option<Sketch>,
    /// Sum of the mixed elements, if requested and if an element has at most 8 bytes.
    pub unordered: Option<u64>,
    /// Hashes after rounding to shorter types, if requested.
    pub casts: Vec<(DType, u128)>,
}

/// Sketches of packs all have one version, so that all packs can be compared.
const PACK_SKETCH: SketchVersion = SketchVersion::First;

/// A tensor being digested.
#[derive(Debug)]
pub struct Digest {
    body: Body,
    dtype: DType,
    elements: usize,
    numbers: Numbers,
    hashes: Hashes,
    unordered: Option<u64>,
    room: Arc<Room>,
}

/// A piece cannot follow if the previous length is not a multiple of [`PIECE`] elements, or if its dtype
/// differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pieces of a tensor have one element type, and a multiple of {PIECE} elements but for the last")]
pub struct PieceError;

impl Digest {
    /// Returns an empty digest.
    pub fn new(dtype: DType, content: DigestContent) -> Self {
        Self {
            body: Body::detected(),
            dtype,
            elements: 0,
            numbers: Numbers::new(content.sketch.then_some(PACK_SKETCH)),
            hashes: Hashes::new(dtype, content.casts),
            unordered: (content.unordered && dtype.size() <= 8).then_some(0),
            room: Arc::default(),
        }
    }

    /// Adds the elements that follow.
    ///
    /// # Errors
    /// [`PieceError`] if they cannot follow the previous ones.
    pub fn push(&mut self, piece: TensorRef<'_>) -> Result<(), PieceError> {
        if piece.dtype() != self.dtype || !self.elements.is_multiple_of(PIECE) {
            return Err(PieceError);
        }
        match piece.contiguous_bytes() {
            Some(bytes) if piece.len() > AT_ONCE => {
                for bytes in bytes.chunks(AT_ONCE * piece.dtype().size()) {
                    let shape = [bytes.len() / piece.dtype().size()];
                    self.add(row(bytes, piece.dtype(), &shape));
                }
            }
            _ => self.add(piece),
        }
        Ok(())
    }

    fn add(&mut self, piece: TensorRef<'_>) {
        let parts = if piece.len() > ALONE { Pieces::of(piece) } else { None };
        match parts {
            Some(parts) => self.add_shared(piece, parts),
            None => self.add_alone(piece),
        }
        self.elements += piece.len();
    }

    /// Adds a piece with the help of the pool's threads.
    fn add_shared(&mut self, piece: TensorRef<'_>, parts: Pieces) {
        let wanted = Wanted {
            sketch: self.numbers.lanes.as_ref().map(|lanes| lanes.version),
            unordered: self.unordered.is_some(),
            hashes: Some(mem::take(&mut self.hashes)),
            before: self.elements / SEGMENT,
            ..Wanted::default()
        };
        let task = Arc::new(Task::new(self.body, piece, parts, wanted, &self.room));
        rayon::scope(|scope| {
            for _ in 1..rayon::current_num_threads() {
                let joined = Task::join(&task);
                scope.spawn(move |_| joined.help());
            }
            let posted = Posted(&task);
            task.lead(|| drop(posted));
        });
        task.segments().for_each(|segment| self.numbers.append(segment));
        self.hashes = task.hashes().unwrap_or_default();
        if let Some(sum) = &mut self.unordered {
            *sum = sum.wrapping_add(task.unordered());
        }
    }

    /// Adds a piece on this thread.
    fn add_alone(&mut self, piece: TensorRef<'_>) {
        let sketch = self.numbers.lanes.as_ref().map(|lanes| lanes.version);
        let types = self.hashes.types().collect::<Vec<_>>();
        let mut source = Blocks::of(piece, piece.len());
        let starts = (0..piece.len()).step_by(SEGMENT);
        for (index, start) in (self.elements / SEGMENT..).zip(starts) {
            let range = start..piece.len().min(start + SEGMENT);
            let shape = [range.len()];
            let bytes = source.bytes(range);
            let row = row(bytes, self.dtype, &shape);
            self.numbers.append(&Segment::measure(
                self.body,
                row,
                0..row.len(),
                index,
                sketch,
                Sentinels::Summed,
            ));
            let rounded = types.iter().map(|&to| {
                let mut out = Vec::new();
                round(self.dtype, bytes, to, &mut out);
                out
            });
            self.hashes.write(bytes, &rounded.collect::<Vec<_>>());
            if let Some(sum) = &mut self.unordered {
                let part = unordered::unordered(self.body, self.dtype.size(), bytes);
                *sum = sum.wrapping_add(part.unwrap_or_default());
            }
        }
    }

    /// Returns the digest of everything pushed.
    pub fn finish(self) -> TensorDigest {
        let Numbers { sums, peaks: _, lanes, sentinels } = self.numbers;
        let sums = sums.finish();
        let extent = SideExtent { sum: Scaled::from(sums.sum), squares: Scaled::from(sums.squares) };
        let summary = finish::summary(self.elements, &sums, extent, sentinels);
        TensorDigest {
            hash: self.hashes.plain(),
            counts: Counts {
                elements: summary.count,
                zeros: summary.zeros,
                nan: summary.nan,
                positive_infinite: summary.pos_inf,
                negative_infinite: summary.neg_inf,
                sentinels: None,
            },
            summary,
            sketch: lanes.map(|lanes| lanes.finish()),
            unordered: self.unordered,
            casts: self.hashes.rounded(),
        }
    }
}

/// A task whose pieces helpers take, until dropped: then helpers stop waiting for one another.
struct Posted<'a>(&'a Task);

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// Digests a whole tensor.
pub fn digest(tensor: TensorRef<'_>, content: DigestContent) -> TensorDigest {
    let mut digest = Digest::new(tensor.dtype(), content);
    // The first piece always fits.
    _ = digest.push(tensor);
    digest.finish()
}

/// Returns the xxh3-128 of some bytes.
pub fn hash_bytes(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::observe;
    use probe_dump::Content;

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
        let wanted = observe(tensor, Content { sketch: Some(PACK_SKETCH), hash: true });
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
            assert_eq!(digest.counts, Counts { sentinels: None, ..wanted.counts });
        }
    }

    #[test]
    fn threads_that_share_a_tensor_change_nothing() {
        let count = AT_ONCE + ALONE + 3 * SEGMENT + 4321;
        let bytes: Vec<u8> = values(2 * count);
        let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let (alone, shared) = (pool(1), pool(4));
        for dtype in [DType::F64, DType::F32, DType::Bf16, DType::U8, DType::C64] {
            for (shape, strides) in [([count, 1], [1, 1]), ([count / 150, 150], [1, count / 150])] {
                let tensor = TensorRef::strided(&bytes, dtype, &shape, &strides, 0).expect("a layout");
                let [one, many] = [&alone, &shared].map(|pool| pool.install(|| digest(tensor, ALL)));
                assert_eq!(format!("{one:?}"), format!("{many:?}"), "{dtype} {shape:?}");
                // A different way: an ordered copy, piece by piece.
                let copy = tensor.to_bytes();
                let mut pieces = Digest::new(dtype, ALL);
                for piece in copy.chunks(PIECE * dtype.size()) {
                    let shape = [piece.len() / dtype.size()];
                    let piece = TensorRef::strided(piece, dtype, &shape, &[1], 0).expect("a layout");
                    pieces.push(piece).expect("pieces of the right size");
                }
                assert_eq!(format!("{:?}", pieces.finish()), format!("{many:?}"), "{dtype} {shape:?}");
                assert_eq!(many.hash, hash_bytes(&copy));
            }
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
