//! The body for any CPU: lane arrays that the compiler may vectorise, no intrinsics, no fused multiply-add.
//!
//! The other bodies must give its bits, so this file is the definition of the sums.

#![expect(
    clippy::inline_always,
    reason = "a loop of a kernel is vectorised only when everything in it is inlined"
)]

use crate::measure::arithmetic::{Arithmetic, Class, Real};
use crate::measure::sums::{BlockSums, LANES, PairSums, SideSums, fold};

use super::Path;

/// Lanes of one side.
struct SideLanes<R> {
    sum: [f64; LANES],
    squares: [f64; LANES],
    min: [R; LANES],
    max: [R; LANES],
    zeros: [u32; LANES],
    nan: [u32; LANES],
    pos_inf: [u32; LANES],
    neg_inf: [u32; LANES],
}

impl<R: Real> SideLanes<R> {
    const fn new() -> Self {
        Self {
            sum: [0.0; LANES],
            squares: [0.0; LANES],
            min: [R::INFINITY; LANES],
            max: [R::NEG_INFINITY; LANES],
            zeros: [0; LANES],
            nan: [0; LANES],
            pos_inf: [0; LANES],
            neg_inf: [0; LANES],
        }
    }

    /// Adds `x`; without `MASKED` it must be finite.
    #[inline(always)]
    fn add<A: Arithmetic<Real = R>, const MASKED: bool>(&mut self, lane: usize, x: A::Item) {
        let value = A::value(x);
        let finite = !MASKED || A::is_finite(x);
        self.sum[lane] += if finite { value.widen() } else { 0.0 };
        self.squares[lane] += if finite { A::square(x) } else { 0.0 };
        self.min[lane] = if finite && value < self.min[lane] { value } else { self.min[lane] };
        self.max[lane] = if finite && value > self.max[lane] { value } else { self.max[lane] };
        self.zeros[lane] += u32::from(A::is_zero(x));
        if MASKED {
            let class = A::class(x);
            self.nan[lane] += u32::from(class == Class::Nan);
            self.pos_inf[lane] += u32::from(class == Class::PosInf);
            self.neg_inf[lane] += u32::from(class == Class::NegInf);
        }
    }

    fn finish(self) -> SideSums {
        SideSums {
            sum: fold(self.sum),
            squares: fold(self.squares),
            // Adding +0 turns -0 into +0 and leaves the rest alone: the sign of a zero extreme would depend on lanes.
            min: smallest(self.min) + 0.0,
            max: largest(self.max) + 0.0,
            zeros: count(self.zeros),
            nan: count(self.nan),
            pos_inf: count(self.pos_inf),
            neg_inf: count(self.neg_inf),
        }
    }
}

/// Lanes of the pair.
struct PairLanes<R> {
    dot: [f64; LANES],
    baseline_squares: [f64; LANES],
    candidate_squares: [f64; LANES],
    distance_squares: [f64; LANES],
    abs: [f64; LANES],
    rel: [f64; LANES],
    max_rel: [R; LANES],
    max_abs: [f64; LANES],
    finite: [u32; LANES],
    within_1e3: [u32; LANES],
    within_5e3: [u32; LANES],
    different: [u32; LANES],
    mismatch: [u32; LANES],
    zero_baseline: [u32; LANES],
}

impl<R: Real> PairLanes<R> {
    const fn new() -> Self {
        Self {
            dot: [0.0; LANES],
            baseline_squares: [0.0; LANES],
            candidate_squares: [0.0; LANES],
            distance_squares: [0.0; LANES],
            abs: [0.0; LANES],
            rel: [0.0; LANES],
            max_rel: [R::ZERO; LANES],
            max_abs: [0.0; LANES],
            finite: [0; LANES],
            within_1e3: [0; LANES],
            within_5e3: [0; LANES],
            different: [0; LANES],
            mismatch: [0; LANES],
            zero_baseline: [0; LANES],
        }
    }

    #[inline(always)]
    fn add<A: Arithmetic<Real = R>, const ZEROS: bool, const MASKED: bool>(
        &mut self,
        lane: usize,
        b: A::Item,
        c: A::Item,
    ) {
        let both = !MASKED || (A::is_finite(b) && A::is_finite(c));
        let term = |value: f64| if both { value } else { 0.0 };
        let (abs, square) = A::distance(b, c);
        let rel = A::relative::<ZEROS>(b, c);
        self.dot[lane] += term(A::product(b, c));
        self.distance_squares[lane] += term(square);
        self.abs[lane] += term(abs);
        self.rel[lane] += term(rel.widen());
        self.max_rel[lane] = if both && rel > self.max_rel[lane] { rel } else { self.max_rel[lane] };
        self.max_abs[lane] = if both && abs > self.max_abs[lane] { abs } else { self.max_abs[lane] };
        self.within_1e3[lane] += u32::from(both && rel < R::THOUSANDTH);
        self.within_5e3[lane] += u32::from(both && rel < R::FIVE_THOUSANDTHS);
        self.different[lane] += u32::from(A::differs(b, c));
        if ZEROS {
            self.zero_baseline[lane] += u32::from(both && A::is_zero(b) && !A::is_zero(c));
        }
        if MASKED {
            self.baseline_squares[lane] += term(A::square(b));
            self.candidate_squares[lane] += term(A::square(c));
            self.finite[lane] += u32::from(both);
            self.mismatch[lane] += u32::from(A::mismatch(b, c));
        }
    }
}

/// Sums of a block of pairs. `Plain` and `ZeroAware` assume what their names say; the caller checks the result.
#[inline(always)]
pub(crate) fn pair<A: Arithmetic>(path: Path, b: &[A::Item], c: &[A::Item]) -> BlockSums {
    match path {
        Path::Plain => pair_on::<A, false, false>(b, c),
        Path::ZeroAware => pair_on::<A, true, false>(b, c),
        Path::Masked => pair_on::<A, true, true>(b, c),
    }
}

#[inline(always)]
fn pair_on<A: Arithmetic, const ZEROS: bool, const MASKED: bool>(b: &[A::Item], c: &[A::Item]) -> BlockSums {
    let mut baseline = SideLanes::<A::Real>::new();
    let mut candidate = SideLanes::<A::Real>::new();
    let mut lanes = PairLanes::<A::Real>::new();
    let (groups_b, rest_b) = b.as_chunks::<LANES>();
    let (groups_c, rest_c) = c.as_chunks::<LANES>();
    for (group_b, group_c) in groups_b.iter().zip(groups_c) {
        for lane in 0..LANES {
            baseline.add::<A, MASKED>(lane, group_b[lane]);
            candidate.add::<A, MASKED>(lane, group_c[lane]);
            lanes.add::<A, ZEROS, MASKED>(lane, group_b[lane], group_c[lane]);
        }
    }
    for (lane, (&b, &c)) in rest_b.iter().zip(rest_c).enumerate() {
        baseline.add::<A, MASKED>(lane, b);
        candidate.add::<A, MASKED>(lane, c);
        lanes.add::<A, ZEROS, MASKED>(lane, b, c);
    }
    let (baseline, candidate) = (baseline.finish(), candidate.finish());
    let (finite, baseline_squares, candidate_squares) = if MASKED {
        (count(lanes.finite), fold(lanes.baseline_squares), fold(lanes.candidate_squares))
    } else {
        (b.len() as u64, baseline.squares, candidate.squares)
    };
    let pair = PairSums {
        finite,
        dot: fold(lanes.dot),
        baseline_squares,
        candidate_squares,
        distance_squares: fold(lanes.distance_squares),
        abs: fold(lanes.abs),
        rel: fold(lanes.rel),
        max_rel: largest(lanes.max_rel),
        within_1e3: count(lanes.within_1e3),
        within_5e3: count(lanes.within_5e3),
        different: count(lanes.different),
        mismatch: count(lanes.mismatch),
        zero_baseline: count(lanes.zero_baseline),
    };
    BlockSums { baseline, candidate, pair, max_abs_hint: largest(lanes.max_abs), max_ulp: 0 }
}

/// Sums of a block of one tensor; without `masked` every element must be finite.
#[inline(always)]
pub(crate) fn side<A: Arithmetic>(masked: bool, x: &[A::Item]) -> SideSums {
    if masked { side_on::<A, true>(x) } else { side_on::<A, false>(x) }
}

#[inline(always)]
fn side_on<A: Arithmetic, const MASKED: bool>(x: &[A::Item]) -> SideSums {
    let mut lanes = SideLanes::<A::Real>::new();
    let (groups, rest) = x.as_chunks::<LANES>();
    for group in groups {
        for (lane, &x) in group.iter().enumerate() {
            lanes.add::<A, MASKED>(lane, x);
        }
    }
    for (lane, &x) in rest.iter().enumerate() {
        lanes.add::<A, MASKED>(lane, x);
    }
    lanes.finish()
}

fn count(lanes: [u32; LANES]) -> u64 {
    lanes.iter().map(|&lane| u64::from(lane)).sum()
}

fn smallest<R: Real>(lanes: [R; LANES]) -> f64 {
    lanes.into_iter().fold(R::INFINITY, |least, lane| if lane < least { lane } else { least }).widen()
}

fn largest<R: Real>(lanes: [R; LANES]) -> f64 {
    lanes.into_iter().fold(R::NEG_INFINITY, |most, lane| if lane > most { lane } else { most }).widen()
}
