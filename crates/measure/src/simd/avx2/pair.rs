//! Sums of a pair of blocks.

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::sums::{BlockSums, PairSums, fold};

use super::super::{F32, Path, size_of_kind};
use super::places::{larger_ulp, largest_ulp, places};
use super::sweeps::finite_pair;
use super::{
    STEP, abs, abs_wide, add, add_products, classes, counted, finite_lanes, halves, lanes, largest, load,
    load_rest, side, total, widen, with_nan_from,
};

/// Sums of a block of pairs; see [`super::super::portable::pair`].
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(crate) fn pair<const KIND: u8>(path: Path, b: &[u8], c: &[u8]) -> BlockSums {
    match path {
        Path::Plain => finite_pair::<KIND, false>(b, c),
        Path::ZeroAware => finite_pair::<KIND, true>(b, c),
        Path::Masked => masked::<KIND>(b, c),
    }
}

/// Any elements, in one sweep.
// One loop whose sums stay in registers: a part of it as a function would keep them in memory.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn masked<const KIND: u8>(b: &[u8], c: &[u8]) -> BlockSums {
    let (baseline, candidate) = (side::<KIND>(true, b), side::<KIND>(true, c));
    let none = [_mm256_setzero_pd(); 2];
    let (mut dot, mut distance_squares, mut sum_abs, mut sum_rel) = (none, none, none, none);
    let (mut baseline_squares, mut candidate_squares) = (none, none);
    let (mut max_rel, mut max_abs, mut max_abs_wide) = (_mm256_setzero_ps(), _mm256_setzero_ps(), none);
    let count = _mm256_setzero_si256();
    let (mut within_1e3, mut within_5e3, mut different, mut ulp) = (count, count, count, count);
    let (mut finite, mut mismatch, mut zero_baseline) = (0_u64, 0_u64, 0_u64);
    let zero = _mm256_setzero_ps();
    let mut one_step = |(raw_b, raw_c): (__m256i, __m256i), (b, c): (__m256, __m256)| {
        let both = _mm256_and_ps(finite_lanes(b), finite_lanes(c));
        let lanes = _mm256_movemask_ps(both);
        finite += u64::from(lanes.count_ones());
        if lanes != 0xff {
            let (classes_b, classes_c) = (classes(b), classes(c));
            let unlike = (0..3).fold(0, |unlike, class| unlike | (classes_b[class] ^ classes_c[class]));
            mismatch += u64::from(unlike.count_ones());
        }
        let (b, c) = (_mm256_and_ps(b, both), _mm256_and_ps(c, both));
        let (wide_b, wide_c) = (halves(b), halves(c));
        add_products(&mut baseline_squares, wide_b, wide_b);
        add_products(&mut candidate_squares, wide_c, wide_c);
        add_products(&mut dot, wide_b, wide_c);
        let difference = [0, 1].map(|half| _mm256_sub_pd(wide_c[half], wide_b[half]));
        add(&mut distance_squares, difference.map(|half| _mm256_mul_pd(half, half)));
        let distance = difference.map(|half| abs_wide(half));
        add(&mut sum_abs, distance);
        let difference = _mm256_sub_ps(c, b);
        if KIND == F32 {
            max_abs = _mm256_max_ps(abs(difference), max_abs);
        } else {
            // Narrow types are full of ties: use exact values, so that a tie is not taken for a record.
            for half in 0..2 {
                max_abs_wide[half] = _mm256_max_pd(distance[half], max_abs_wide[half]);
            }
        }
        let empty = _mm256_cmp_ps::<_CMP_EQ_OQ>(b, zero);
        let epsilon = _mm256_set1_ps(f32::EPSILON);
        let divisor = _mm256_blendv_ps(b, epsilon, empty);
        let raised = _mm256_blendv_ps(c, _mm256_add_ps(c, epsilon), empty);
        let unlike = _mm256_and_ps(empty, _mm256_cmp_ps::<_CMP_NEQ_OQ>(c, zero));
        zero_baseline += u64::from(_mm256_movemask_ps(unlike).count_ones());
        let quotient = _mm256_div_ps(_mm256_sub_ps(raised, divisor), divisor);
        let rel = abs(quotient);
        add(&mut sum_rel, halves(rel));
        max_rel = _mm256_max_ps(rel, max_rel);
        let below = |limit| _mm256_and_ps(both, _mm256_cmp_ps::<_CMP_LT_OQ>(rel, _mm256_set1_ps(limit)));
        within_1e3 = counted(within_1e3, below(0.001));
        within_5e3 = counted(within_5e3, below(0.005));
        different = counted(different, _mm256_cmp_ps::<_CMP_NEQ_OQ>(b, c));
        // 16-bit elements fill the lower half, so mask lanes are halved: saturation keeps all ones.
        let mask = _mm256_castps_si256(both);
        let mask = if KIND == F32 {
            mask
        } else {
            _mm256_zextsi128_si256(_mm_packs_epi32(
                _mm256_castsi256_si128(mask),
                _mm256_extracti128_si256::<1>(mask),
            ))
        };
        let place = |raw| _mm256_and_si256(places::<KIND>(raw), mask);
        ulp = larger_ulp::<KIND>(ulp, place(raw_b), place(raw_c));
    };
    let step = STEP * size_of_kind(KIND);
    let (steps_b, steps_c) = (b.chunks_exact(step), c.chunks_exact(step));
    let (rest_b, rest_c) = (steps_b.remainder(), steps_c.remainder());
    for (raw_b, raw_c) in steps_b.zip(steps_c) {
        let raw = (load::<KIND>(raw_b), load::<KIND>(raw_c));
        one_step(raw, (widen::<KIND>(raw.0), widen::<KIND>(raw.1)));
    }
    if !rest_b.is_empty() {
        let elements = rest_b.len() / size_of_kind(KIND);
        let raw = (load_rest::<KIND>(rest_b), load_rest::<KIND>(rest_c));
        let (b, c) = (widen::<KIND>(raw.0), widen::<KIND>(raw.1));
        one_step(raw, (with_nan_from(elements, b), with_nan_from(elements, c)));
    }
    let pair = PairSums {
        finite,
        dot: fold(lanes(dot)),
        baseline_squares: fold(lanes(baseline_squares)),
        candidate_squares: fold(lanes(candidate_squares)),
        distance_squares: fold(lanes(distance_squares)),
        abs: fold(lanes(sum_abs)),
        rel: fold(lanes(sum_rel)),
        max_rel: largest(max_rel),
        within_1e3: total(within_1e3),
        within_5e3: total(within_5e3),
        different: total(different) + mismatch,
        mismatch,
        zero_baseline,
    };
    let max_abs_hint = if KIND == F32 {
        largest(max_abs)
    } else {
        lanes(max_abs_wide).into_iter().fold(0.0, |most, lane| if lane > most { lane } else { most })
    };
    BlockSums { baseline, candidate, pair, max_abs_hint, max_ulp: largest_ulp::<KIND>(ulp) }
}
