//! Numbers of one tensor, gathered segment by segment: side by side in threads, put together in one order.

use std::ops::Range;

use crate::dump::{DType, TensorRef};

use super::blocks::{self, Blocks, blocks_of};
use super::kernel::one_side;
use super::simd::{Body, DefaultFloat, Path};
use super::sketch::{Lanes, SignedSums};
use super::sums::{BLOCK, LANES, RunningSums, SEGMENT, SideSums};

/// What is known of the elements of a tensor so far.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    pub(crate) sums: RunningSums,
    pub(crate) extremes: Extremes,
    pub(crate) lanes: Option<Lanes>,
}

/// Numbers of one segment, not yet put behind those of the segments before it.
#[derive(Debug)]
pub(crate) struct Segment {
    blocks: Vec<SideSums>,
    extremes: Extremes,
    signed: Option<Box<SignedSums>>,
}

impl Numbers {
    /// Numbers of nothing; with lanes if a sketch is wanted.
    pub(crate) fn new(dtype: DType, sketch: bool) -> Self {
        Self {
            sums: RunningSums::EMPTY,
            extremes: Extremes::of(dtype),
            lanes: sketch.then_some(Lanes::EMPTY),
        }
    }

    /// Measures a whole tensor in this thread, which has entered [`DefaultFloat`], and hands every block to `each` while it is in cache.
    pub(crate) fn add(&mut self, body: Body, source: &mut Blocks<'_>, mut each: impl FnMut(&[u8])) {
        let tensor = source.tensor();
        for start in (0..tensor.len()).step_by(SEGMENT) {
            let range = start..tensor.len().min(start + SEGMENT);
            // Filled where they lie: moving the lanes would take as long as summing a small tensor.
            let mut signed =
                self.lanes.is_some().then(|| SignedSums::of_segment(start / SEGMENT, tensor.dtype()));
            measure(body, tensor.dtype(), source, range, signed.as_mut(), |bytes, sums| {
                self.sums.push(sums);
                self.extremes.push(bytes);
                each(bytes);
            });
            if let (Some(lanes), Some(signed)) = (&mut self.lanes, &signed) {
                lanes.append(signed);
            }
        }
    }

    /// Adds the segment that follows.
    pub(crate) fn append(&mut self, segment: &Segment) {
        segment.blocks.iter().for_each(|block| self.sums.push(block));
        self.extremes.append(&segment.extremes);
        if let (Some(lanes), Some(signed)) = (&mut self.lanes, &segment.signed) {
            lanes.append(signed);
        }
    }
}

impl Segment {
    /// Measures the elements `range` of `part`, which are segment `index` of the whole tensor.
    pub(crate) fn measure(
        body: Body,
        part: TensorRef<'_>,
        range: Range<usize>,
        index: usize,
        sketch: bool,
    ) -> Self {
        let _control = DefaultFloat::enter();
        let dtype = part.dtype();
        let mut segment = Self {
            blocks: Vec::with_capacity(range.len().div_ceil(BLOCK)),
            extremes: Extremes::of(dtype),
            signed: sketch.then(|| Box::new(SignedSums::of_segment(index, dtype))),
        };
        let Self { blocks, extremes, signed } = &mut segment;
        let mut source = Blocks::of(part, range.end);
        measure(body, dtype, &mut source, range, signed.as_deref_mut(), |bytes, sums| {
            blocks.push(*sums);
            extremes.push(bytes);
        });
        segment
    }
}

/// Sums the blocks of `range`, at most a segment, and adds them to `signed`.
fn measure(
    body: Body,
    dtype: DType,
    source: &mut Blocks<'_>,
    range: Range<usize>,
    mut signed: Option<&mut SignedSums>,
    mut each: impl FnMut(&[u8], &SideSums),
) {
    let (mut kernel, mut path) = (blocks::kernel(body, dtype, dtype), Path::Plain);
    for block in blocks_of(range.clone()) {
        let sums = match &mut signed {
            Some(signed) if path == Path::Plain && block.len().is_multiple_of(2 * LANES) => {
                let sums = kernel.side_and_sketch(source.bytes(block.clone()), signed);
                if sums.squares.is_finite() {
                    sums
                } else {
                    path = Path::Masked;
                    signed.restart();
                    for block in blocks_of(range.start..block.end) {
                        kernel.sketch(true, source.bytes(block), signed);
                    }
                    kernel.side(true, source.bytes(block.clone()))
                }
            }
            signed => {
                let bytes = source.bytes(block.clone());
                let sums = one_side(&mut *kernel, &mut path, block.len(), bytes);
                if let Some(signed) = signed {
                    kernel.sketch(path == Path::Masked, bytes, signed);
                }
                sums
            }
        };
        each(source.bytes(block), &sums);
    }
}

/// Extremes of the types that binary64 does not hold exactly.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extremes {
    /// Any other type: the extremes of the sums are exact.
    Rounded,
    Signed {
        min: i64,
        max: i64,
    },
    Unsigned {
        min: u64,
        max: u64,
    },
}

impl Extremes {
    pub(crate) const fn of(dtype: DType) -> Self {
        match dtype {
            DType::I64 => Self::Signed { min: i64::MAX, max: i64::MIN },
            DType::U64 => Self::Unsigned { min: u64::MAX, max: u64::MIN },
            _ => Self::Rounded,
        }
    }

    /// Takes the elements that `bytes` holds into account.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let (elements, _) = bytes.as_chunks::<8>();
        match self {
            Self::Rounded => {}
            Self::Signed { min, max } => {
                for &element in elements {
                    let value = i64::from_le_bytes(element);
                    (*min, *max) = ((*min).min(value), (*max).max(value));
                }
            }
            Self::Unsigned { min, max } => {
                for &element in elements {
                    let value = u64::from_le_bytes(element);
                    (*min, *max) = ((*min).min(value), (*max).max(value));
                }
            }
        }
    }

    /// Takes into account what others did.
    fn append(&mut self, next: &Self) {
        match (self, next) {
            (Self::Signed { min, max }, Self::Signed { min: least, max: most }) => {
                (*min, *max) = ((*min).min(*least), (*max).max(*most));
            }
            (Self::Unsigned { min, max }, Self::Unsigned { min: least, max: most }) => {
                (*min, *max) = ((*min).min(*least), (*max).max(*most));
            }
            _ => {}
        }
    }
}
