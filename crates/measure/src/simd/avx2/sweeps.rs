//! Sums of blocks without NaN and infinity: the path of nearly all tensors.
//!
//! Sixteen registers cannot hold all sums of a pair at once. Instead, a slice that stays in L1 is swept
//! several times, and each sweep leaves its results in memory for the next. Numbers are widened to binary64 as
//! they are loaded, which costs half as much as widening values already in a register.

use std::mem::MaybeUninit;

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::sums::{BlockSums, PairSums, fold};

use super::super::{F32, size_of_kind};
use super::places::PairPlaces;
use super::side::finite_sums;
use super::slice::{SLICE, Scratch, Singles, doubles, singles};
use super::{Halves, STEP, abs, abs_wide, add, add_products, counted, lanes, largest, total};

/// Returns a one that is opaque to the compiler, which would otherwise simplify adding `x * 1` to adding `x`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn hidden_one() -> Halves {
    [_mm256_set1_pd(std::hint::black_box(1.0)); 2]
}

/// Returns the number of lanes that are set, for counts without a free register.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn lanes_in(mask: __m256) -> u64 {
    u64::from(_mm256_movemask_ps(mask).count_ones())
}

/// Sums of products.
#[derive(Clone, Copy)]
struct Products {
    baseline: Halves,
    candidate: Halves,
    baseline_squares: Halves,
    candidate_squares: Halves,
    dot: Halves,
}

impl Products {
    /// Leaves the differences in memory.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    fn sweep(self, b: &[Singles], c: &[Singles], differences: &mut [MaybeUninit<Halves>]) -> Self {
        let (mut sums, one) = (self, hidden_one());
        for ((b, c), difference) in b.iter().zip(c).zip(differences) {
            let (b, c) = (doubles(b), doubles(c));
            // The adders are busy with widening; the multipliers are not.
            add_products(&mut sums.baseline, b, one);
            add(&mut sums.candidate, c);
            add_products(&mut sums.baseline_squares, b, b);
            add_products(&mut sums.candidate_squares, c, c);
            add_products(&mut sums.dot, b, c);
            difference.write([0, 1].map(|half| _mm256_sub_pd(c[half], b[half])));
        }
        sums
    }
}

/// Relative errors and counts.
#[derive(Clone, Copy)]
struct Relative {
    largest: __m256,
    /// The largest absolute error, rounded; see [`Distances::largest`].
    largest_abs: __m256,
    within_1e3: __m256i,
    within_5e3: __m256i,
    zero_baseline: u64,
}

impl Relative {
    /// Leaves the relative errors in memory.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    fn sweep<const KIND: u8, const ZEROS: bool>(
        self,
        b: &[Singles],
        c: &[Singles],
        errors: &mut [MaybeUninit<__m256>],
    ) -> Self {
        let mut sums = self;
        let zero = _mm256_setzero_ps();
        for ((b, c), error) in b.iter().zip(c).zip(errors) {
            let (b, c) = (singles(b), singles(c));
            let difference = _mm256_sub_ps(c, b);
            if KIND == F32 {
                sums.largest_abs = _mm256_max_ps(abs(difference), sums.largest_abs);
            }
            let quotient = if ZEROS {
                let empty = _mm256_cmp_ps::<_CMP_EQ_OQ>(b, zero);
                let epsilon = _mm256_set1_ps(f32::EPSILON);
                let divisor = _mm256_blendv_ps(b, epsilon, empty);
                let raised = _mm256_blendv_ps(c, _mm256_add_ps(c, epsilon), empty);
                let unlike = _mm256_and_ps(empty, _mm256_cmp_ps::<_CMP_NEQ_OQ>(c, zero));
                sums.zero_baseline += lanes_in(unlike);
                _mm256_div_ps(_mm256_sub_ps(raised, divisor), divisor)
            } else {
                _mm256_div_ps(difference, b)
            };
            let relative = abs(quotient);
            error.write(relative);
            sums.largest = _mm256_max_ps(relative, sums.largest);
            let below = |limit| _mm256_cmp_ps::<_CMP_LT_OQ>(relative, _mm256_set1_ps(limit));
            sums.within_1e3 = counted(sums.within_1e3, below(0.001));
            sums.within_5e3 = counted(sums.within_5e3, below(0.005));
        }
        sums
    }
}

/// Sums of errors.
#[derive(Clone, Copy)]
struct Distances {
    squares: Halves,
    abs: Halves,
    rel: Halves,
    /// The largest absolute error; for binary32, [`Relative`] finds it.
    largest: Halves,
}

impl Distances {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    fn sweep<const KIND: u8>(self, differences: &[Halves], errors: &[Singles]) -> Self {
        let (mut sums, one) = (self, hidden_one());
        for (difference, error) in differences.iter().zip(errors) {
            add(&mut sums.squares, difference.map(|half| _mm256_mul_pd(half, half)));
            let distance = difference.map(|half| abs_wide(half));
            add_products(&mut sums.abs, distance, one);
            if KIND != F32 {
                // Narrow types are full of ties: use exact values, so that a tie is not taken for a record.
                sums.largest = [0, 1].map(|half| _mm256_max_pd(distance[half], sums.largest[half]));
            }
            add(&mut sums.rel, doubles(error));
        }
        sums
    }
}

/// Sums of a pair of blocks of finite elements, a multiple of two steps. Without `ZEROS`, no element of the baseline is zero.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(super) fn finite_pair<const KIND: u8, const ZEROS: bool>(b: &[u8], c: &[u8]) -> BlockSums {
    let (none, count) = ([_mm256_setzero_pd(); 2], _mm256_setzero_si256());
    let mut products = Products {
        baseline: none,
        candidate: none,
        baseline_squares: none,
        candidate_squares: none,
        dot: none,
    };
    let mut relative = Relative {
        largest: _mm256_setzero_ps(),
        largest_abs: _mm256_setzero_ps(),
        within_1e3: count,
        within_5e3: count,
        zero_baseline: 0,
    };
    let mut distances = Distances { squares: none, abs: none, rel: none, largest: none };
    let mut places = PairPlaces::<KIND>::new();
    let (mut scratch_b, mut scratch_c, mut errors) = (Scratch::new(), Scratch::new(), Scratch::new());
    let mut differences = [MaybeUninit::<Halves>::uninit(); SLICE / STEP];
    let slice = SLICE * size_of_kind(KIND);
    for (b, c) in b.chunks(slice).zip(c.chunks(slice)) {
        places = places.sweep::<ZEROS>(b, c);
        let (b, c) = (scratch_b.widened::<KIND>(b), scratch_c.widened::<KIND>(c));
        products = products.sweep(b, c, &mut differences);
        relative = relative.sweep::<KIND, ZEROS>(b, c, &mut errors.0);
        let steps = b.len().min(c.len());
        // SAFETY: the sweeps above have written as many steps.
        let errors = unsafe { errors.filled(steps) };
        // SAFETY: as above; a slice has no more steps than there is room for.
        let differences = unsafe { std::slice::from_raw_parts(differences.as_ptr().cast(), steps) };
        distances = distances.sweep::<KIND>(differences, errors);
    }
    let baseline = finite_sums(products.baseline, products.baseline_squares, &places.baseline);
    let candidate = finite_sums(products.candidate, products.candidate_squares, &places.candidate);
    let elements = (b.len() / size_of_kind(KIND)) as u64;
    let pair = PairSums {
        finite: elements,
        dot: fold(lanes(products.dot)),
        baseline_squares: baseline.squares,
        candidate_squares: candidate.squares,
        distance_squares: fold(lanes(distances.squares)),
        abs: fold(lanes(distances.abs)),
        rel: fold(lanes(distances.rel)),
        max_rel: largest(relative.largest),
        within_1e3: total(relative.within_1e3),
        within_5e3: total(relative.within_5e3),
        different: elements - places.equal(),
        mismatch: 0,
        zero_baseline: relative.zero_baseline,
    };
    let max_abs_hint = if KIND == F32 {
        largest(relative.largest_abs)
    } else {
        lanes(distances.largest).into_iter().fold(0.0, |most, lane| if lane > most { lane } else { most })
    };
    BlockSums { baseline, candidate, pair, max_abs_hint, max_ulp: places.max_ulp() }
}
