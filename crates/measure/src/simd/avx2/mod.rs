//! The body for x86-64 with AVX2, FMA and F16C. A sum is two registers of four lanes. The AVX-512 body's
//! remarks on fused multiply-add apply here too.

#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::arithmetic::Arithmetic;
use crate::decode::Decode;
use crate::sketch::SignedSums;
use crate::sums::{BlockSums, LANES, SideSums};
use crate::ulp;
use probe_dump::DType;

use super::{BF16, F32, portable, size_of_kind};

mod locate;
mod pair;
mod places;
mod side;
mod sketch;
mod slice;
mod sweeps;

pub(crate) use locate::locate;
pub(crate) use pair::pair;
pub(crate) use side::{side, side_and_sketch};
pub(crate) use sketch::sketch;

/// Number of elements per step.
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

/// Adds exact products.
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

/// Masks of the lanes that are NaN, +Inf and -Inf.
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

/// The portable body, compiled for these instructions. No multiplication is fused with an addition here.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn pair_lanes<A: Arithmetic>(path: super::Path, b: &[A::Item], c: &[A::Item]) -> BlockSums {
    portable::pair::<A>(path, b, c)
}

/// Like [`pair_lanes`], for one tensor.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn side_lanes<A: Arithmetic>(masked: bool, x: &[A::Item]) -> SideSums {
    portable::side::<A>(masked, x)
}

/// Like [`pair_lanes`], for the sketch of one tensor.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn sketch_lanes<A: Arithmetic>(masked: bool, x: &[A::Item], sums: &mut SignedSums) {
    portable::sketch::<A>(masked, x, sums);
}

/// Like [`pair_lanes`], for decoding.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn decode<T: Decode>(dtype: DType, bytes: &[u8], out: &mut Vec<T>) {
    T::decode(dtype, bytes, out);
}

/// Like [`pair_lanes`], for the distance in units in the last place.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) fn largest_ulp(dtype: DType, b: &[u8], c: &[u8]) -> u64 {
    ulp::largest(dtype, b, c)
}
