//! One chunk of a pair: picks a path for every block and keeps the running totals.
//!
//! The choice of path depends on the contents of earlier blocks of the same chunk. It cannot show in the
//! result, because all paths that accept a block give the same bits.

use probe_dump::DType;

use super::arithmetic::Arithmetic;
use super::decode::Decode;
use super::simd::{Body, Lanes, Path};
use super::sketch::SignedSums;
use super::sums::{BlockSums, LANES, Magnitude, PairSums, Record, SideSums, Totals};

/// Operations of a body on one block of at most [`BLOCK`] elements, given as bytes.
pub(crate) trait Kernel {
    /// Sums of the pair under the assumptions of `path`.
    fn pair(&mut self, path: Path, b: &[u8], c: &[u8]) -> BlockSums;

    /// Sums of one tensor (the baseline's type); without `masked` every element must be finite.
    fn side(&mut self, masked: bool, x: &[u8]) -> SideSums;

    /// Adds one tensor's block to its sketch; without `masked` every element must be finite. All blocks of a
    /// tensor except the last must have [`BLOCK`] elements.
    fn sketch(&mut self, masked: bool, x: &[u8], sums: &mut SignedSums);

    /// [`side`](Self::side) and [`sketch`](Self::sketch) of a block whose elements should be finite. If the
    /// sum of squares shows that they are not, `sums` becomes unusable.
    fn side_and_sketch(&mut self, x: &[u8], sums: &mut SignedSums) -> SideSums {
        side_then_sketch(self, x, sums)
    }

    /// Returns the first element with the largest absolute error among both-finite positions. `hint` is the
    /// block's [`BlockSums::max_abs_hint`]. Errors up to `floor` may be skipped.
    fn locate(&mut self, hint: f64, floor: Option<f64>, b: &[u8], c: &[u8]) -> Option<Record>;

    /// Returns false if a block with this hint certainly holds no error above `record`.
    fn may_exceed(&self, hint: f64, record: Magnitude) -> bool;
}

/// Implements [`Kernel::side_and_sketch`] as two steps.
pub(crate) fn side_then_sketch<K: Kernel + ?Sized>(
    kernel: &mut K,
    x: &[u8],
    sums: &mut SignedSums,
) -> SideSums {
    let side = kernel.side(false, x);
    kernel.sketch(false, x, sums);
    side
}

/// The running state of one chunk.
#[derive(Debug)]
pub(crate) struct Chunk {
    totals: Totals,
    path: Path,
    done: u64,
    /// Equal bytes mean equal values: both sides have the same type, and every block so far was identical.
    same_bytes: bool,
}

impl Chunk {
    /// Returns a chunk without blocks; `comparable` if both sides have the same type.
    pub(crate) const fn new(comparable: bool) -> Self {
        let totals = Totals { identical: comparable, ..Totals::EMPTY };
        Self { totals, path: Path::Plain, done: 0, same_bytes: comparable }
    }

    /// Adds the next block of `elements` elements.
    pub(crate) fn push(&mut self, kernel: &mut dyn Kernel, elements: usize, b: &[u8], c: &[u8]) {
        self.same_bytes = self.same_bytes && b == c;
        if self.same_bytes {
            self.push_identical(kernel, elements, b);
        } else {
            self.totals.identical = false;
            self.push_pair(kernel, elements, b, c);
        }
        self.done += elements as u64;
    }

    fn push_identical(&mut self, kernel: &mut dyn Kernel, elements: usize, bytes: &[u8]) {
        let side = one_side(kernel, &mut self.path, elements, bytes);
        let pair = PairSums::of_identical(&side, elements);
        self.totals.baseline.append(&side);
        self.totals.candidate.append(&side);
        self.totals.pair.append(&pair);
        if self.totals.record.is_none() && pair.finite > 0 {
            self.challenge(kernel.locate(0.0, None, bytes, bytes));
        }
    }

    fn push_pair(&mut self, kernel: &mut dyn Kernel, elements: usize, b: &[u8], c: &[u8]) {
        if !elements.is_multiple_of(2 * LANES) {
            // Ragged ends are masked ends; the wider paths then need no second loop.
            self.path = Path::Masked;
        }
        let sums = loop {
            let sums = kernel.pair(self.path, b, c);
            let finite = sums.baseline.squares.is_finite() && sums.candidate.squares.is_finite();
            self.path = match self.path {
                Path::Plain if finite && !sums.pair.rel.is_finite() => Path::ZeroAware,
                Path::Plain | Path::ZeroAware if !finite => Path::Masked,
                _ => break sums,
            };
        };
        self.totals.baseline.append(&sums.baseline);
        self.totals.candidate.append(&sums.candidate);
        self.totals.pair.append(&sums.pair);
        self.totals.max_ulp = self.totals.max_ulp.max(sums.max_ulp);
        let locate = match self.totals.record {
            Some(record) => kernel.may_exceed(sums.max_abs_hint, record.error),
            None => true,
        };
        if sums.pair.finite > 0 && locate {
            let floor = self.totals.record.map(|record| record.error.rounded);
            self.challenge(kernel.locate(sums.max_abs_hint, floor, b, c));
        }
    }

    fn challenge(&mut self, record: Option<Record>) {
        if let Some(record) = record {
            self.totals.challenge(Record { index: record.index + self.done, ..record });
        }
    }

    /// Returns the totals of the pushed blocks.
    pub(crate) const fn finish(self) -> Totals {
        self.totals
    }
}

/// Returns the sums of one tensor's block by the cheapest path that accepts it.
pub(crate) fn one_side(kernel: &mut dyn Kernel, path: &mut Path, elements: usize, bytes: &[u8]) -> SideSums {
    if !elements.is_multiple_of(2 * LANES) {
        *path = Path::Masked;
    }
    if *path != Path::Masked {
        let sums = kernel.side(false, bytes);
        if sums.squares.is_finite() {
            return sums;
        }
        *path = Path::Masked;
    }
    kernel.side(true, bytes)
}

/// The kernel for every type: decodes a block into scratch, then runs the portable body on it.
pub(crate) struct Decoded<A: Arithmetic> {
    lanes: Lanes,
    dtypes: (DType, DType),
    b: Vec<A::Item>,
    c: Vec<A::Item>,
}

impl<A: Arithmetic<Item: Decode>> Decoded<A> {
    /// Returns a kernel for a baseline and a candidate of these types.
    pub(crate) fn new(body: Body, baseline: DType, candidate: DType) -> Self {
        Self { lanes: Lanes::new(body), dtypes: (baseline, candidate), b: Vec::new(), c: Vec::new() }
    }

    fn decode(&mut self, b: &[u8], c: &[u8]) {
        self.lanes.decode(self.dtypes.0, b, &mut self.b);
        self.lanes.decode(self.dtypes.1, c, &mut self.c);
    }
}

impl<A: Arithmetic<Item: Decode>> Kernel for Decoded<A> {
    fn pair(&mut self, path: Path, b: &[u8], c: &[u8]) -> BlockSums {
        self.decode(b, c);
        let mut sums = self.lanes.pair::<A>(path, &self.b, &self.c);
        if self.dtypes.0 == self.dtypes.1 {
            sums.max_ulp = self.lanes.largest_ulp(self.dtypes.0, b, c);
        }
        sums
    }

    fn side(&mut self, masked: bool, x: &[u8]) -> SideSums {
        self.lanes.decode(self.dtypes.0, x, &mut self.b);
        self.lanes.side::<A>(masked, &self.b)
    }

    fn sketch(&mut self, masked: bool, x: &[u8], sums: &mut SignedSums) {
        self.lanes.decode(self.dtypes.0, x, &mut self.b);
        self.lanes.sketch::<A>(masked, &self.b, sums);
    }

    fn locate(&mut self, _: f64, _: Option<f64>, b: &[u8], c: &[u8]) -> Option<Record> {
        self.decode(b, c);
        let mut best: Option<Record> = None;
        for (index, (&b, &c)) in (0..).zip(self.b.iter().zip(&self.c)) {
            if A::is_finite(b) && A::is_finite(c) {
                let error = A::magnitude(b, c);
                if best.is_none_or(|best| error > best.error) {
                    best = Some(Record { error, index, values: (A::shown(b), A::shown(c)) });
                }
            }
        }
        best
    }

    fn may_exceed(&self, hint: f64, record: Magnitude) -> bool {
        A::may_exceed(hint, record.rounded)
    }
}
