//! The body for x86-64 with AVX2, FMA and F16C: eight elements a step, three sweeps over a block that sits in L1.
//!
//! Sixteen registers do not hold all sums at once, hence one sweep for each side and one for the pair. Lanes 0 to 3 and
//! 4 to 7 of a sum are two registers. What is said of fused multiply-add in the AVX-512 body holds here too.

#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::dump::DType;
use crate::measure::arithmetic::Arithmetic;
use crate::measure::decode::Decode;
use crate::measure::sketch::{ROW, SignedSums};
use crate::measure::sums::{BlockSums, LANES, Magnitude, PairSums, Record, SideSums, fold};
use crate::measure::ulp;

use super::{BF16, F32, Path, fetch_ahead, portable, size_of_kind, ulp_across_signs};

/// Elements a step takes.
const STEP: usize = 8;

/// A binary64 sum or operand: lanes 0 to 3, lanes 4 to 7.
type Halves = [__m256d; 2];

/// Loads eight elements; `bytes` must be exactly that long. The 16-bit types fill the lower half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn load<const KIND: u8>(bytes: &[u8]) -> __m256i {
    debug_assert_eq!(bytes.len(), STEP * size_of_kind(KIND));
    if KIND == F32 {
        // SAFETY: the slice has 32 bytes (callers cut it by `chunks_exact`), and the load needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    } else {
        // SAFETY: the slice has 16 bytes (callers cut it by `chunks_exact`), and the load needs no alignment.
        _mm256_castsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
    }
}

/// Loads fewer than eight elements, zeros beyond.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn load_rest<const KIND: u8>(bytes: &[u8]) -> __m256i {
    let mut whole = [0_u8; 32];
    whole[..bytes.len()].copy_from_slice(bytes);
    load::<KIND>(&whole[..STEP * size_of_kind(KIND)])
}

/// Widens to binary32, exactly.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn widen<const KIND: u8>(raw: __m256i) -> __m256 {
    match KIND {
        F32 => _mm256_castsi256_ps(raw),
        BF16 => {
            let wide = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(raw));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
        _ => _mm256_cvtph_ps(_mm256_castsi256_si128(raw)),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn halves(x: __m256) -> Halves {
    [_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x))]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn add(sum: &mut Halves, x: Halves) {
    for half in 0..2 {
        sum[half] = _mm256_add_pd(sum[half], x[half]);
    }
}

/// Adds products that are exact.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn add_products(sum: &mut Halves, x: Halves, y: Halves) {
    for half in 0..2 {
        sum[half] = _mm256_fmadd_pd(x[half], y[half], sum[half]);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn abs(x: __m256) -> __m256 {
    _mm256_andnot_ps(_mm256_set1_ps(-0.0), x)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn abs_wide(x: __m256d) -> __m256d {
    _mm256_andnot_pd(_mm256_set1_pd(-0.0), x)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn finite_lanes(x: __m256) -> __m256 {
    _mm256_cmp_ps::<_CMP_LT_OQ>(abs(x), _mm256_set1_ps(f32::INFINITY))
}

/// Lanes that are NaN, +Inf and -Inf.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn classes(x: __m256) -> [i32; 3] {
    [
        _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x)),
        _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(x, _mm256_set1_ps(f32::INFINITY))),
        _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(x, _mm256_set1_ps(f32::NEG_INFINITY))),
    ]
}

/// Adds one in every lane of `mask`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn counted(count: __m256i, mask: __m256) -> __m256i {
    _mm256_sub_epi32(count, _mm256_castps_si256(mask))
}

/// `x` with NaN from lane `rest` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn with_nan_from(rest: usize, x: __m256) -> __m256 {
    let mut lanes = floats(x);
    lanes[rest..].fill(f32::NAN);
    // SAFETY: the array has 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_ps(lanes.as_ptr()) }
}

#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn floats(x: __m256) -> [f32; STEP] {
    let mut lanes = [0.0; STEP];
    // SAFETY: the array has 32 bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), x) };
    lanes
}

#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn lanes([low, high]: Halves) -> [f64; LANES] {
    let mut lanes = [0.0; LANES];
    let (first, last) = lanes.split_at_mut(4);
    // SAFETY: this half has 32 bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_pd(first.as_mut_ptr(), low) };
    // SAFETY: this half has 32 bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_pd(last.as_mut_ptr(), high) };
    lanes
}

#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn integers(x: __m256i) -> [u32; STEP] {
    let mut lanes = [0; STEP];
    // SAFETY: the array has 32 bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), x) };
    lanes
}

#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn total(counts: __m256i) -> u64 {
    integers(counts).into_iter().map(u64::from).sum()
}

#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn largest(x: __m256) -> f64 {
    floats(x).into_iter().fold(f32::NEG_INFINITY, |most, lane| if lane > most { lane } else { most }).into()
}

/// Sums of a block of one tensor; see [`super::portable::side`].
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(crate) fn side<const KIND: u8>(masked: bool, bytes: &[u8]) -> SideSums {
    if masked { side_on::<KIND, true>(bytes) } else { side_on::<KIND, false>(bytes) }
}

#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn side_on<const KIND: u8, const MASKED: bool>(bytes: &[u8]) -> SideSums {
    let (mut sum, mut squares) = ([_mm256_setzero_pd(); 2], [_mm256_setzero_pd(); 2]);
    let (infinity, neg_infinity) = (_mm256_set1_ps(f32::INFINITY), _mm256_set1_ps(f32::NEG_INFINITY));
    let (mut min, mut max, mut zeros) = (infinity, neg_infinity, _mm256_setzero_si256());
    let mut special = [0_u64; 3];
    let mut one_step = |x: __m256| {
        let (mut low, mut high, mut term) = (x, x, x);
        if MASKED {
            let finite = finite_lanes(x);
            low = _mm256_blendv_ps(infinity, x, finite);
            high = _mm256_blendv_ps(neg_infinity, x, finite);
            term = _mm256_and_ps(x, finite);
            if _mm256_movemask_ps(finite) != 0xff {
                for (count, mask) in special.iter_mut().zip(classes(x)) {
                    *count += u64::from(mask.count_ones());
                }
            }
        }
        let wide = halves(term);
        add(&mut sum, wide);
        add_products(&mut squares, wide, wide);
        min = _mm256_min_ps(low, min);
        max = _mm256_max_ps(high, max);
        zeros = counted(zeros, _mm256_cmp_ps::<_CMP_EQ_OQ>(x, _mm256_setzero_ps()));
    };
    let steps = bytes.chunks_exact(STEP * size_of_kind(KIND));
    let rest = steps.remainder();
    for raw in steps {
        fetch_ahead(raw.as_ptr());
        one_step(widen::<KIND>(load::<KIND>(raw)));
    }
    let mut padding = 0;
    if !rest.is_empty() {
        // NaN beyond the end: left out of everything, and taken off the count of NaN below.
        let elements = rest.len() / size_of_kind(KIND);
        padding = (STEP - elements) as u64;
        one_step(with_nan_from(elements, widen::<KIND>(load_rest::<KIND>(rest))));
    }
    let [nan, pos_inf, neg_inf] = special;
    SideSums {
        sum: fold(lanes(sum)),
        squares: fold(lanes(squares)),
        min: -largest(_mm256_xor_ps(min, _mm256_set1_ps(-0.0))) + 0.0,
        max: largest(max) + 0.0,
        zeros: total(zeros),
        nan: nan - padding,
        pos_inf,
        neg_inf,
    }
}

/// Sums of a block of pairs; see [`super::portable::pair`].
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(crate) fn pair<const KIND: u8>(path: Path, b: &[u8], c: &[u8]) -> BlockSums {
    match path {
        Path::Plain => pair_on::<KIND, false, false>(b, c),
        Path::ZeroAware => pair_on::<KIND, true, false>(b, c),
        Path::Masked => pair_on::<KIND, true, true>(b, c),
    }
}

#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn pair_on<const KIND: u8, const ZEROS: bool, const MASKED: bool>(b: &[u8], c: &[u8]) -> BlockSums {
    let (baseline, candidate) = (side_on::<KIND, MASKED>(b), side_on::<KIND, MASKED>(c));
    let none = [_mm256_setzero_pd(); 2];
    let (mut dot, mut distance_squares, mut sum_abs, mut sum_rel) = (none, none, none, none);
    let (mut baseline_squares, mut candidate_squares) = (none, none);
    let (mut max_rel, mut max_abs, mut max_abs_wide) = (_mm256_setzero_ps(), _mm256_setzero_ps(), none);
    let count = _mm256_setzero_si256();
    let (mut within_1e3, mut within_5e3, mut different, mut ulp, mut signs) =
        (count, count, count, count, count);
    let (mut finite, mut mismatch, mut zero_baseline) = (0_u64, 0_u64, 0_u64);
    let zero = _mm256_setzero_ps();
    let mut one_step = |(raw_b, raw_c): (__m256i, __m256i), (b, c): (__m256, __m256)| {
        let mut both = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
        let (mut b, mut c) = (b, c);
        if MASKED {
            both = _mm256_and_ps(finite_lanes(b), finite_lanes(c));
            let lanes = _mm256_movemask_ps(both);
            finite += u64::from(lanes.count_ones());
            if lanes != 0xff {
                let (classes_b, classes_c) = (classes(b), classes(c));
                let unlike = (0..3).fold(0, |unlike, class| unlike | (classes_b[class] ^ classes_c[class]));
                mismatch += u64::from(unlike.count_ones());
            }
            b = _mm256_and_ps(b, both);
            c = _mm256_and_ps(c, both);
        }
        let (wide_b, wide_c) = (halves(b), halves(c));
        if MASKED {
            add_products(&mut baseline_squares, wide_b, wide_b);
            add_products(&mut candidate_squares, wide_c, wide_c);
        }
        add_products(&mut dot, wide_b, wide_c);
        let difference = [0, 1].map(|half| _mm256_sub_pd(wide_c[half], wide_b[half]));
        add(&mut distance_squares, difference.map(|half| _mm256_mul_pd(half, half)));
        let distance = difference.map(|half| abs_wide(half));
        add(&mut sum_abs, distance);
        let difference = _mm256_sub_ps(c, b);
        if KIND == F32 {
            max_abs = _mm256_max_ps(abs(difference), max_abs);
        } else {
            // Narrow types are full of ties: exact, so that one is not taken for a record.
            for half in 0..2 {
                max_abs_wide[half] = _mm256_max_pd(distance[half], max_abs_wide[half]);
            }
        }
        let quotient = if ZEROS {
            let empty = _mm256_cmp_ps::<_CMP_EQ_OQ>(b, zero);
            let epsilon = _mm256_set1_ps(f32::EPSILON);
            let divisor = _mm256_blendv_ps(b, epsilon, empty);
            let raised = _mm256_blendv_ps(c, _mm256_add_ps(c, epsilon), empty);
            let unlike = _mm256_and_ps(empty, _mm256_cmp_ps::<_CMP_NEQ_OQ>(c, zero));
            zero_baseline += u64::from(_mm256_movemask_ps(unlike).count_ones());
            _mm256_div_ps(_mm256_sub_ps(raised, divisor), divisor)
        } else {
            _mm256_div_ps(difference, b)
        };
        let rel = abs(quotient);
        add(&mut sum_rel, halves(rel));
        max_rel = _mm256_max_ps(rel, max_rel);
        let below = |limit| _mm256_and_ps(both, _mm256_cmp_ps::<_CMP_LT_OQ>(rel, _mm256_set1_ps(limit)));
        within_1e3 = counted(within_1e3, below(0.001));
        within_5e3 = counted(within_5e3, below(0.005));
        different = counted(different, _mm256_cmp_ps::<_CMP_NEQ_OQ>(b, c));
        // Where the signs agree, bit patterns are as far apart as the numbers they stand for.
        let both = _mm256_castps_si256(both);
        if KIND == F32 {
            let distance = _mm256_abs_epi32(_mm256_sub_epi32(raw_b, raw_c));
            ulp = _mm256_max_epu32(ulp, _mm256_and_si256(distance, both));
            signs = _mm256_or_si256(signs, _mm256_and_si256(_mm256_xor_si256(raw_b, raw_c), both));
        } else {
            let (raw_b, raw_c) = (_mm256_castsi256_si128(raw_b), _mm256_castsi256_si128(raw_c));
            let both = _mm_packs_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
            let distance = _mm_and_si128(_mm_abs_epi16(_mm_sub_epi16(raw_b, raw_c)), both);
            ulp = _mm256_max_epu16(ulp, _mm256_zextsi128_si256(distance));
            let unlike = _mm_and_si128(_mm_xor_si128(raw_b, raw_c), both);
            signs = _mm256_or_si256(signs, _mm256_zextsi128_si256(unlike));
        }
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
    let split = |x: __m256i, of: fn(u32) -> [u32; 2]| integers(x).into_iter().flat_map(of).max().unwrap_or(0);
    let by_kind: fn(u32) -> [u32; 2] =
        if KIND == F32 { |lane| [lane, 0] } else { |lane| [lane & 0xffff, lane >> 16] };
    let sign_bit = if KIND == F32 { 1 << 31 } else { 1 << 15 };
    let unlike = integers(signs).into_iter().flat_map(by_kind).any(|lane| lane & sign_bit != 0);
    let max_ulp = if unlike { ulp_across_signs::<KIND>(b, c) } else { u64::from(split(ulp, by_kind)) };
    if !MASKED {
        finite = (b.len() / size_of_kind(KIND)) as u64;
    }
    let squares = |masked: Halves, side: &SideSums| if MASKED { fold(lanes(masked)) } else { side.squares };
    let pair = PairSums {
        finite,
        dot: fold(lanes(dot)),
        baseline_squares: squares(baseline_squares, &baseline),
        candidate_squares: squares(candidate_squares, &candidate),
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
    BlockSums { baseline, candidate, pair, max_abs_hint, max_ulp }
}

/// Adds a block to the sketch of its tensor; see [`super::portable::sketch`].
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(crate) fn sketch<const KIND: u8, const MASKED: bool>(bytes: &[u8], sums: &mut SignedSums) {
    let row = ROW * size_of_kind(KIND);
    let rows = bytes.chunks_exact(row);
    let rest = rows.remainder();
    for bytes in rows {
        sketch_row::<KIND, MASKED>(bytes, sums);
    }
    if !rest.is_empty() {
        // Zeros change no lane.
        let mut whole = [0; ROW * 4];
        whole[..rest.len()].copy_from_slice(rest);
        sketch_row::<KIND, MASKED>(&whole[..row], sums);
    }
}

/// The words of a row's signs as they lie in memory: bit `j` of byte `k` is the sign of element `8 k + j`.
fn bytes_of(signs: &[u64; ROW / 64 + 1]) -> &[u8; ROW / 8 + 8] {
    // SAFETY: both have 40 bytes, any of which is a byte, and bytes need no alignment. The CPU is little endian.
    unsafe { &*std::ptr::from_ref(signs).cast() }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn sketch_row<const KIND: u8, const MASKED: bool>(bytes: &[u8], sums: &mut SignedSums) {
    let (key, lanes) = sums.next_row();
    // Moves bit `lane` of a step's signs to the place of the sign.
    let to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    let steps = lanes.as_chunks_mut::<STEP>().0.iter_mut().zip(bytes.chunks_exact(STEP * size_of_kind(KIND)));
    // A step needs the first of four bytes; four are what one instruction loads into every lane.
    for ((lanes, bytes), signs) in steps.zip(bytes_of(&key.signs).windows(4)) {
        let x = widen::<KIND>(load::<KIND>(bytes));
        let x = if MASKED { _mm256_and_ps(x, finite_lanes(x)) } else { x };
        let signs = _mm256_sllv_epi32(
            _mm256_set1_epi32(i32::from_le_bytes([signs[0], signs[1], signs[2], signs[3]])),
            to_top,
        );
        let signed = _mm256_xor_ps(x, _mm256_and_ps(_mm256_castsi256_ps(signs), _mm256_set1_ps(-0.0)));
        for (lanes, terms) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(halves(signed)) {
            // SAFETY: the array has 32 bytes, and the load needs no alignment.
            let sum = _mm256_add_pd(unsafe { _mm256_loadu_pd(lanes.as_ptr()) }, terms);
            // SAFETY: as above, for the store.
            unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), sum) };
        }
    }
}

/// First element with the largest absolute error above `floor`; `hint` is that of the block's sums.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
#[expect(clippy::cast_possible_truncation, reason = "the hint was a binary32")]
pub(crate) fn locate<const KIND: u8>(hint: f64, floor: Option<f64>, b: &[u8], c: &[u8]) -> Option<Record> {
    let mut best: Option<Record> = None;
    let mut above = floor.unwrap_or(-1.0);
    let hint = _mm256_set1_ps(hint as f32);
    let mut look = |first: usize, b: __m256, c: __m256| {
        // Rounded to binary32, the largest error is the hint: few steps come further than this.
        let difference = abs(_mm256_sub_ps(c, b));
        let at_hint = _mm256_cmp_ps::<_CMP_EQ_OQ>(difference, hint);
        let at_hint = _mm256_and_ps(at_hint, _mm256_and_ps(finite_lanes(b), finite_lanes(c)));
        let mut at_hint = _mm256_movemask_ps(at_hint);
        if at_hint == 0 {
            return;
        }
        let (b, c) = (floats(b), floats(c));
        while at_hint != 0 {
            let lane = at_hint.trailing_zeros() as usize;
            at_hint &= at_hint - 1;
            let (b, c) = (f64::from(b[lane]), f64::from(c[lane]));
            if (c - b).abs() > above {
                above = (c - b).abs();
                let error = Magnitude { rounded: above, exact: 0 };
                best = Some(Record { error, index: (first + lane) as u64, values: (b, c) });
            }
        }
    };
    let step = STEP * size_of_kind(KIND);
    let (steps_b, steps_c) = (b.chunks_exact(step), c.chunks_exact(step));
    let (rest_b, rest_c) = (steps_b.remainder(), steps_c.remainder());
    let mut first = 0;
    for (b, c) in steps_b.zip(steps_c) {
        look(first, widen::<KIND>(load::<KIND>(b)), widen::<KIND>(load::<KIND>(c)));
        first += STEP;
    }
    if !rest_b.is_empty() {
        let rest = rest_b.len() / size_of_kind(KIND);
        let (b, c) = (widen::<KIND>(load_rest::<KIND>(rest_b)), widen::<KIND>(load_rest::<KIND>(rest_c)));
        look(first, with_nan_from(rest, b), with_nan_from(rest, c));
    }
    best
}

/// The portable body, compiled for these instructions. No multiplication is fused with an addition here.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn pair_lanes<A: Arithmetic>(path: Path, b: &[A::Item], c: &[A::Item]) -> BlockSums {
    portable::pair::<A>(path, b, c)
}

/// As [`pair_lanes`], for one tensor.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn side_lanes<A: Arithmetic>(masked: bool, x: &[A::Item]) -> SideSums {
    portable::side::<A>(masked, x)
}

/// As [`pair_lanes`], for the sketch of one tensor.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn sketch_lanes<A: Arithmetic>(masked: bool, x: &[A::Item], sums: &mut SignedSums) {
    portable::sketch::<A>(masked, x, sums);
}

/// As [`pair_lanes`], for decoding.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn decode<T: Decode>(dtype: DType, bytes: &[u8], out: &mut Vec<T>) {
    T::decode(dtype, bytes, out);
}

/// As [`pair_lanes`], for the distance in units in the last place.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn largest_ulp(dtype: DType, b: &[u8], c: &[u8]) -> u64 {
    ulp::largest(dtype, b, c)
}
