//! Numbers of one tensor, collected segment by segment: in parallel on threads, combined in one order.

use std::ops::Range;

use probe_dump::{SketchVersion, TensorRef};

use super::blocks::{self, Blocks, blocks_of};
use super::kernel::one_side;
use super::places::Peaks;
use super::sentinel::{Sentinels, Sieve};
use super::simd::{Body, DefaultFloat, Path};
use super::sketch::{Lanes, SignedSums};
use super::sums::{BLOCK, LANES, RunningSums, SEGMENT, SideSums};

/// Numbers of a tensor's elements so far.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    /// Extremes and counts of all elements; sums of those that are not sentinels.
    pub(crate) sums: RunningSums,
    /// Extremes of all elements, rounded to binary64, and the blocks that have them.
    pub(crate) peaks: Peaks<f64>,
    pub(crate) lanes: Option<Lanes>,
    pub(crate) sentinels: u64,
}

/// Numbers of one segment, not yet appended to those of earlier segments.
#[derive(Debug)]
pub(crate) struct Segment {
    blocks: Vec<SideSums>,
    signed: Option<Box<SignedSums>>,
    sentinels: u64,
}

impl Numbers {
    /// Returns empty numbers, with lanes if a sketch is requested.
    pub(crate) fn new(sketch: Option<SketchVersion>) -> Self {
        let peaks = Peaks::new(f64::NEG_INFINITY, f64::INFINITY);
        Self { sums: RunningSums::EMPTY, peaks, lanes: sketch.map(Lanes::empty), sentinels: 0 }
    }

    fn push(&mut self, block: &SideSums) {
        self.sums.push(block);
        self.peaks.push(block.min, block.max);
    }

    /// Measures a whole tensor on this thread, which has entered [`DefaultFloat`], and passes every block to
    /// `each` while it is in cache.
    pub(crate) fn add(&mut self, body: Body, source: &mut Blocks<'_>, mut each: impl FnMut(&[u8])) {
        let tensor = source.tensor();
        for start in (0..tensor.len()).step_by(SEGMENT) {
            let range = start..tensor.len().min(start + SEGMENT);
            // Filled in place: moving the lanes would take as long as summing a small tensor.
            let version = self.lanes.as_ref().map(|lanes| lanes.version);
            let mut signed =
                version.map(|version| SignedSums::of_segment(version, start / SEGMENT, tensor.dtype()));
            let mut sieve = Sieve::new(tensor.dtype(), Sentinels::KeptOut);
            measure(body, &mut sieve, source, range, signed.as_mut(), |bytes, sums| {
                self.push(sums);
                each(bytes);
            });
            self.sentinels += sieve.found;
            if let (Some(lanes), Some(signed)) = (&mut self.lanes, &signed) {
                lanes.append(signed);
            }
        }
    }

    /// Adds the next segment.
    pub(crate) fn append(&mut self, segment: &Segment) {
        segment.blocks.iter().for_each(|block| self.push(block));
        self.sentinels += segment.sentinels;
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
        sketch: Option<SketchVersion>,
        sentinels: Sentinels,
    ) -> Self {
        let _control = DefaultFloat::enter();
        let dtype = part.dtype();
        let mut segment = Self {
            blocks: Vec::with_capacity(range.len().div_ceil(BLOCK)),
            signed: sketch.map(|version| Box::new(SignedSums::of_segment(version, index, dtype))),
            sentinels: 0,
        };
        let Self { blocks, signed, .. } = &mut segment;
        let (mut source, mut sieve) = (Blocks::of(part, range.end), Sieve::new(dtype, sentinels));
        measure(body, &mut sieve, &mut source, range, signed.as_deref_mut(), |_, sums| blocks.push(*sums));
        segment.sentinels = sieve.found;
        segment
    }
}

/// Sums the blocks of `range`, at most a segment, and adds them to `signed`, without the elements that `sieve`
/// removes.
fn measure(
    body: Body,
    sieve: &mut Sieve,
    source: &mut Blocks<'_>,
    range: Range<usize>,
    mut signed: Option<&mut SignedSums>,
    mut each: impl FnMut(&[u8], &SideSums),
) {
    let dtype = source.tensor().dtype();
    let (mut kernel, mut path) = (blocks::kernel(body, dtype, dtype), Path::Plain);
    for block in blocks_of(range.clone()) {
        // As long as all is well, a block is summed and sketched in one go.
        let at_once = path == Path::Plain && sieve.found == 0 && block.len().is_multiple_of(2 * LANES);
        if let Some(signed) = signed.as_mut().filter(|_| at_once) {
            let sums = kernel.side_and_sketch(source.bytes(block.clone()), signed);
            if sums.squares.is_finite() && !sieve.sees(&sums) {
                each(source.bytes(block), &sums);
                continue;
            }
            // The sketch is unusable; that of the earlier blocks is made again.
            signed.restart();
            for before in blocks_of(range.start..block.start) {
                kernel.sketch(false, source.bytes(before), signed);
            }
        }
        let bytes = source.bytes(block.clone());
        let mut sums = one_side(&mut *kernel, &mut path, block.len(), bytes);
        let mut summed = bytes;
        if sieve.sees(&sums) {
            summed = sieve.without(bytes);
            let ordinary = one_side(&mut *kernel, &mut path, block.len(), summed);
            (sums.sum, sums.squares) = (ordinary.sum, ordinary.squares);
        }
        if let Some(signed) = &mut signed {
            kernel.sketch(path == Path::Masked, summed, signed);
        }
        each(bytes, &sums);
    }
}
