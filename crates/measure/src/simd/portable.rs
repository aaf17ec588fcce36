//! The body for any CPU: lane arrays that the compiler may vectorise, no intrinsics, no fused multiply-add.
//!
//! The other bodies must give the same bits, so this file defines the sums.

#![expect(
    clippy::inline_always,
    reason = "a loop of a kernel is vectorised only when everything in it is inlined"
)]

use std::array;

use crate::arithmetic::{Arithmetic, Class, Real};
use crate::sketch::{ROW, SignedSums};
use crate::sums::{BlockSums, LANES, PairSums, SideSums, fold};

use super::Path;

/// Lanes of one side.
struct SideLanes<R> {
    sum: [f64; LANES],
    squares: [f64; LANES],
    min: [R; LANES],
    max: [R; LANES],
    zeros: [u64; LANES],
    nan: [u64; LANES],
    pos_inf: [u64; LANES],
    neg_inf: [u64; LANES],
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

    /// Adds the first `count` of `x`; without `MASKED` all of them, which must be finite. Returns the lanes
    /// added.
    #[inline(always)]
    fn add<A: Arithmetic<Real = R>, const MASKED: bool>(
        &mut self,
        x: &[A::Item; LANES],
        count: usize,
    ) -> [bool; LANES] {
        let valid: [bool; LANES] = array::from_fn(|lane| !MASKED || lane < count);
        let finite: [bool; LANES] = array::from_fn(|lane| valid[lane] && (!MASKED || A::is_finite(x[lane])));
        let value = x.map(A::value);
        let term = |lane: usize, value: f64| if finite[lane] { value } else { 0.0 };
        each(&mut self.sum, |lane, sum| sum + term(lane, value[lane].widen()));
        each(&mut self.squares, |lane, sum| sum + term(lane, A::square(x[lane])));
        let low = array::from_fn::<R, LANES, _>(|lane| if finite[lane] { value[lane] } else { R::INFINITY });
        let high =
            array::from_fn::<R, LANES, _>(|lane| if finite[lane] { value[lane] } else { R::NEG_INFINITY });
        each(&mut self.min, |lane, min| if low[lane] < min { low[lane] } else { min });
        each(&mut self.max, |lane, max| if high[lane] > max { high[lane] } else { max });
        each(&mut self.zeros, |lane, count| count + u64::from(valid[lane] && A::is_zero(x[lane])));
        if MASKED && finite != [true; LANES] {
            for (lane, &x) in x.iter().enumerate().take(count) {
                let class = A::class(x);
                self.nan[lane] += u64::from(class == Class::Nan);
                self.pos_inf[lane] += u64::from(class == Class::PosInf);
                self.neg_inf[lane] += u64::from(class == Class::NegInf);
            }
        }
        finite
    }

    fn finish(self) -> SideSums {
        SideSums {
            sum: fold(self.sum),
            squares: fold(self.squares),
            // Adding +0 turns -0 into +0 and leaves other values alone: the sign of a zero extreme would
            // depend on lanes.
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
    finite: [u64; LANES],
    within_1e3: [u64; LANES],
    within_5e3: [u64; LANES],
    different: [u64; LANES],
    mismatch: [u64; LANES],
    zero_baseline: [u64; LANES],
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

    /// Adds the lanes `both`; without `MASKED` that is all of them.
    #[inline(always)]
    fn add<A: Arithmetic<Real = R>, const ZEROS: bool, const MASKED: bool>(
        &mut self,
        b: &[A::Item; LANES],
        c: &[A::Item; LANES],
        both: [bool; LANES],
        count: usize,
    ) {
        let term = |lane: usize, value: f64| if !MASKED || both[lane] { value } else { 0.0 };
        let distance: [(f64, f64); LANES] = array::from_fn(|lane| A::distance(b[lane], c[lane]));
        let abs: [f64; LANES] = array::from_fn(|lane| term(lane, distance[lane].0));
        let rel: [R; LANES] = array::from_fn(|lane| {
            let rel = A::relative::<ZEROS>(b[lane], c[lane]);
            if !MASKED || both[lane] { rel } else { R::ZERO }
        });
        each(&mut self.dot, |lane, sum| sum + term(lane, A::product(b[lane], c[lane])));
        each(&mut self.distance_squares, |lane, sum| sum + term(lane, distance[lane].1));
        each(&mut self.abs, |lane, sum| sum + abs[lane]);
        each(&mut self.rel, |lane, sum| sum + rel[lane].widen());
        each(&mut self.max_rel, |lane, max| if rel[lane] > max { rel[lane] } else { max });
        each(&mut self.max_abs, |lane, max| if abs[lane] > max { abs[lane] } else { max });
        let below = |lane: usize, limit: R| u64::from((!MASKED || both[lane]) && rel[lane] < limit);
        each(&mut self.within_1e3, |lane, count| count + below(lane, R::THOUSANDTH));
        each(&mut self.within_5e3, |lane, count| count + below(lane, R::FIVE_THOUSANDTHS));
        let differs = |lane: usize| (!MASKED || both[lane]) && A::differs(b[lane], c[lane]);
        each(&mut self.different, |lane, count| count + u64::from(differs(lane)));
        if ZEROS {
            let unlike = |lane: usize| (!MASKED || both[lane]) && A::is_zero(b[lane]) && !A::is_zero(c[lane]);
            each(&mut self.zero_baseline, |lane, count| count + u64::from(unlike(lane)));
        }
        if MASKED {
            each(&mut self.baseline_squares, |lane, sum| sum + term(lane, A::square(b[lane])));
            each(&mut self.candidate_squares, |lane, sum| sum + term(lane, A::square(c[lane])));
            each(&mut self.finite, |lane, count| count + u64::from(both[lane]));
            if both != [true; LANES] {
                for lane in (0..count).filter(|&lane| !both[lane]) {
                    self.different[lane] += u64::from(A::differs(b[lane], c[lane]));
                    self.mismatch[lane] += u64::from(A::mismatch(b[lane], c[lane]));
                }
            }
        }
    }
}

/// Updates every lane. Compilers unroll one small loop per sum into vector code.
#[inline(always)]
fn each<T: Copy>(lanes: &mut [T; LANES], of: impl Fn(usize, T) -> T) {
    *lanes = array::from_fn(|lane| of(lane, lanes[lane]));
}

/// Returns the sums of a block of pairs. `Plain` and `ZeroAware` assume what their names say, and whole groups
/// of lanes; the caller checks the result.
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
    let mut group = |b: &[A::Item; LANES], c: &[A::Item; LANES], count: usize| {
        let finite_b = baseline.add::<A, MASKED>(b, count);
        let finite_c = candidate.add::<A, MASKED>(c, count);
        let both = array::from_fn(|lane| finite_b[lane] && finite_c[lane]);
        lanes.add::<A, ZEROS, MASKED>(b, c, both, count);
    };
    let (groups_b, rest_b) = b.as_chunks::<LANES>();
    let (groups_c, rest_c) = c.as_chunks::<LANES>();
    for (b, c) in groups_b.iter().zip(groups_c) {
        group(b, c, LANES);
    }
    if MASKED && !rest_b.is_empty() {
        group(&padded(rest_b), &padded(rest_c), rest_b.len());
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

/// Returns the sums of a block of one tensor; without `masked` every element must be finite and every group
/// whole.
#[inline(always)]
pub(crate) fn side<A: Arithmetic>(masked: bool, x: &[A::Item]) -> SideSums {
    if masked { side_on::<A, true>(x) } else { side_on::<A, false>(x) }
}

#[inline(always)]
fn side_on<A: Arithmetic, const MASKED: bool>(x: &[A::Item]) -> SideSums {
    let mut lanes = SideLanes::<A::Real>::new();
    let (groups, rest) = x.as_chunks::<LANES>();
    for group in groups {
        lanes.add::<A, MASKED>(group, LANES);
    }
    if MASKED && !rest.is_empty() {
        lanes.add::<A, MASKED>(&padded(rest), rest.len());
    }
    lanes.finish()
}

/// Adds the rows of a block to the sketch; without `masked` every element must be finite.
#[inline(always)]
pub(crate) fn sketch<A: Arithmetic>(masked: bool, x: &[A::Item], sums: &mut SignedSums) {
    if masked { sketch_on::<A, true>(x, sums) } else { sketch_on::<A, false>(x, sums) }
}

#[inline(always)]
fn sketch_on<A: Arithmetic, const MASKED: bool>(x: &[A::Item], sums: &mut SignedSums) {
    let mut terms = [0.0; ROW];
    for row in x.chunks(ROW / A::PARTS) {
        if row.len() * A::PARTS < ROW {
            terms.fill(0.0);
        }
        A::terms(row, &mut terms);
        let (key, lanes) = sums.next_row();
        for (word, (lanes, terms)) in
            key.signs.iter().zip(lanes.as_chunks_mut::<64>().0.iter_mut().zip(terms.as_chunks::<64>().0))
        {
            for (bit, (lane, &term)) in lanes.iter_mut().zip(terms).enumerate() {
                let term = if !MASKED || term.abs() < f64::INFINITY { term } else { 0.0 };
                let sign = ((word >> bit) & 1) << 63;
                *lane += f64::from_bits(term.to_bits() ^ sign);
            }
        }
    }
}

/// Pads a group of which only the first elements count.
fn padded<T: Copy + Default>(rest: &[T]) -> [T; LANES] {
    array::from_fn(|lane| rest.get(lane).copied().unwrap_or_default())
}

fn count(lanes: [u64; LANES]) -> u64 {
    lanes.iter().sum()
}

fn smallest<R: Real>(lanes: [R; LANES]) -> f64 {
    lanes.into_iter().fold(R::INFINITY, |least, lane| if lane < least { lane } else { least }).widen()
}

fn largest<R: Real>(lanes: [R; LANES]) -> f64 {
    lanes.into_iter().fold(R::NEG_INFINITY, |most, lane| if lane > most { lane } else { most }).widen()
}
