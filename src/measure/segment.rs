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
    pub(crate) lanes: Option<Lanes>,
}

/// Numbers of one segment, not yet put behind those of the segments before it.
#[derive(Debug)]
pub(crate) struct Segment {
    blocks: Vec<SideSums>,
    signed: Option<Box<SignedSums>>,
}

impl Numbers {
    /// Numbers of nothing; with lanes if a sketch is wanted.
    pub(crate) fn new(sketch: bool) -> Self {
        Self { sums: RunningSums::EMPTY, lanes: sketch.then_some(Lanes::EMPTY) }
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
            signed: sketch.then(|| Box::new(SignedSums::of_segment(index, dtype))),
        };
        let Self { blocks, signed } = &mut segment;
        let mut source = Blocks::of(part, range.end);
        measure(body, dtype, &mut source, range, signed.as_deref_mut(), |_, sums| blocks.push(*sums));
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
