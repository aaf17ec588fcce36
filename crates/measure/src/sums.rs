//! Running sums of a block, a chunk and a tensor, and the order in which they are combined.
//!
//! Counts and extremes do not depend on order. Floating-point sums do, so there is only one order: lanes of a
//! block by [`fold`], blocks of a chunk and chunks of a tensor by index.

/// Number of lanes of every floating-point sum: element `i` of a block adds to lane `i % LANES`. Part of the
/// definition of the results, like [`BLOCK`] and [`CHUNK`]: changing one of them changes last digits.
pub(crate) const LANES: usize = 8;

/// Number of elements whose lanes are folded together.
pub(crate) const BLOCK: usize = 2048;

/// Number of elements that one thread takes at a time.
pub(crate) const CHUNK: usize = 128 * BLOCK;

/// Number of elements whose rows are summed together for a sketch: the unit that threads take if there is one.
pub(crate) const SEGMENT: usize = 32 * BLOCK;

/// Adds the lanes in the one fixed order.
#[inline]
pub(crate) fn fold(lanes: [f64; LANES]) -> f64 {
    ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
}

/// Sums over one tensor's own finite elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SideSums {
    /// Sum of the values (moduli for complex).
    pub(crate) sum: f64,
    /// Sum of the squares.
    pub(crate) squares: f64,
    /// Smallest value, +Inf if there is none.
    pub(crate) min: f64,
    /// Largest value, -Inf if there is none.
    pub(crate) max: f64,
    /// Elements equal to zero.
    pub(crate) zeros: u64,
    /// Elements that are NaN.
    pub(crate) nan: u64,
    /// Elements that are +Inf.
    pub(crate) pos_inf: u64,
    /// Elements that are -Inf.
    pub(crate) neg_inf: u64,
}

impl SideSums {
    /// Nothing summed yet.
    pub(crate) const EMPTY: Self = Self {
        sum: 0.0,
        squares: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        zeros: 0,
        nan: 0,
        pos_inf: 0,
        neg_inf: 0,
    };

    /// Returns the number of elements that are not finite.
    pub(crate) const fn non_finite(&self) -> u64 {
        self.nan + self.pos_inf + self.neg_inf
    }

    /// Adds the sums of the elements that follow.
    pub(crate) fn append(&mut self, next: &Self) {
        self.sum += next.sum;
        self.squares += next.squares;
        self.min = if next.min < self.min { next.min } else { self.min };
        self.max = if next.max > self.max { next.max } else { self.max };
        self.zeros += next.zeros;
        self.nan += next.nan;
        self.pos_inf += next.pos_inf;
        self.neg_inf += next.neg_inf;
    }
}

/// Sums of a tensor whose blocks arrive in order.
#[derive(Debug, Clone)]
pub(crate) struct RunningSums {
    /// Sums of the complete chunks.
    chunks: SideSums,
    /// Sums of the blocks after them.
    chunk: SideSums,
    /// Blocks in `chunk`.
    blocks: usize,
}

impl RunningSums {
    /// Nothing summed yet.
    pub(crate) const EMPTY: Self = Self { chunks: SideSums::EMPTY, chunk: SideSums::EMPTY, blocks: 0 };

    /// Adds the next block.
    pub(crate) fn push(&mut self, block: &SideSums) {
        self.chunk.append(block);
        self.blocks += 1;
        if self.blocks == CHUNK / BLOCK {
            self.chunks.append(&self.chunk);
            (self.chunk, self.blocks) = (SideSums::EMPTY, 0);
        }
    }

    /// Returns the sums of everything pushed.
    pub(crate) fn finish(mut self) -> SideSums {
        if self.blocks > 0 {
            self.chunks.append(&self.chunk);
        }
        self.chunks
    }
}

/// Sums over the positions where both sides are finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PairSums {
    /// Number of both-finite positions.
    pub(crate) finite: u64,
    /// Sum of products.
    pub(crate) dot: f64,
    /// Sum of squares of the baseline.
    pub(crate) baseline_squares: f64,
    /// Sum of squares of the candidate.
    pub(crate) candidate_squares: f64,
    /// Sum of squared differences.
    pub(crate) distance_squares: f64,
    /// Sum of absolute differences.
    pub(crate) abs: f64,
    /// Sum of relative errors.
    pub(crate) rel: f64,
    /// Largest relative error.
    pub(crate) max_rel: f64,
    /// Relative errors below 1/1000.
    pub(crate) within_1e3: u64,
    /// Relative errors below 5/1000.
    pub(crate) within_5e3: u64,
    /// Positions that differ, non-finite ones included.
    pub(crate) different: u64,
    /// Positions whose class (finite, NaN, +Inf, -Inf) differs.
    pub(crate) mismatch: u64,
    /// Baseline zero, candidate not.
    pub(crate) zero_baseline: u64,
}

impl PairSums {
    /// Nothing summed yet.
    pub(crate) const EMPTY: Self = Self {
        finite: 0,
        dot: 0.0,
        baseline_squares: 0.0,
        candidate_squares: 0.0,
        distance_squares: 0.0,
        abs: 0.0,
        rel: 0.0,
        max_rel: 0.0,
        within_1e3: 0,
        within_5e3: 0,
        different: 0,
        mismatch: 0,
        zero_baseline: 0,
    };

    /// Returns the sums of a block against itself: equal to those of the general path, without its divisions.
    pub(crate) const fn of_identical(side: &SideSums, elements: usize) -> Self {
        let finite = elements as u64 - side.non_finite();
        Self {
            finite,
            dot: side.squares,
            baseline_squares: side.squares,
            candidate_squares: side.squares,
            within_1e3: finite,
            within_5e3: finite,
            ..Self::EMPTY
        }
    }

    /// Adds the sums of the elements that follow.
    pub(crate) fn append(&mut self, next: &Self) {
        self.finite += next.finite;
        self.dot += next.dot;
        self.baseline_squares += next.baseline_squares;
        self.candidate_squares += next.candidate_squares;
        self.distance_squares += next.distance_squares;
        self.abs += next.abs;
        self.rel += next.rel;
        self.max_rel = if next.max_rel > self.max_rel { next.max_rel } else { self.max_rel };
        self.within_1e3 += next.within_1e3;
        self.within_5e3 += next.within_5e3;
        self.different += next.different;
        self.mismatch += next.mismatch;
        self.zero_baseline += next.zero_baseline;
    }
}

/// Result of a kernel for one block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BlockSums {
    /// The baseline by itself.
    pub(crate) baseline: SideSums,
    /// The candidate by itself.
    pub(crate) candidate: SideSums,
    /// Both together.
    pub(crate) pair: PairSums,
    /// Largest absolute error, or that error rounded to a narrower type: good enough to tell if the block may
    /// hold a new record, but not to report.
    pub(crate) max_abs_hint: f64,
    /// Largest distance in units in the last place; 0 if the kernel has none.
    pub(crate) max_ulp: u64,
}

/// An absolute error in rankable form: the rounded value first, then, for 64-bit integers, the exact one.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Magnitude {
    /// The error, rounded once.
    pub(crate) rounded: f64,
    /// The exact error of integers; 0 for floats, whose rounded error is the definition.
    pub(crate) exact: u128,
}

/// The largest absolute error seen, and its first position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Record {
    /// The error.
    pub(crate) error: Magnitude,
    /// Row-major index of the element within the block, chunk or tensor that holds the record.
    pub(crate) index: u64,
    /// Values of baseline and candidate there.
    pub(crate) values: (f64, f64),
}

/// Sums of a chunk or of a whole tensor pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Totals {
    /// The baseline by itself.
    pub(crate) baseline: SideSums,
    /// The candidate by itself.
    pub(crate) candidate: SideSums,
    /// Both together.
    pub(crate) pair: PairSums,
    /// Largest absolute error.
    pub(crate) record: Option<Record>,
    /// Largest distance in units in the last place.
    pub(crate) max_ulp: u64,
    /// True while all bytes so far were the same.
    pub(crate) identical: bool,
}

impl Totals {
    /// Nothing summed yet.
    pub(crate) const EMPTY: Self = Self {
        baseline: SideSums::EMPTY,
        candidate: SideSums::EMPTY,
        pair: PairSums::EMPTY,
        record: None,
        max_ulp: 0,
        identical: true,
    };

    /// Adds the totals of the elements that follow, the first of which has index `offset`.
    pub(crate) fn append(&mut self, next: &Self, offset: u64) {
        self.baseline.append(&next.baseline);
        self.candidate.append(&next.candidate);
        self.pair.append(&next.pair);
        if let Some(record) = next.record {
            self.challenge(Record { index: record.index + offset, ..record });
        }
        self.max_ulp = self.max_ulp.max(next.max_ulp);
        self.identical &= next.identical;
    }

    /// Replaces the record if `later` beats it; a later equal one does not.
    pub(crate) fn challenge(&mut self, later: Record) {
        if self.record.is_none_or(|record| later.error > record.error) {
            self.record = Some(later);
        }
    }
}
