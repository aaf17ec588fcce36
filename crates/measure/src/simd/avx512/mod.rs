//! The body for x86-64 with AVX-512 (F, BW, DQ, VL): sixteen elements per step, one sweep over the block.
//!
//! Sums are eight binary64 lanes; a step adds its first eight elements, then its last eight, to the same
//! lanes, which is the lane order of the portable body. Products of two binary32 values are exact in binary64,
//! so the fused multiply-add gives the bits of a product and a sum; the squared difference is not exact and is
//! not fused.

#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::arithmetic::Arithmetic;
use crate::decode::Decode;
use crate::sketch::{ROW, SignedSums};
use crate::sums::{BlockSums, LANES, SideSums, fold};
use crate::ulp;
use probe_dump::DType;

mod locate;
mod pair;

pub(crate) use locate::locate;
pub(crate) use pair::pair;

use super::{BF16, F32, Path, fetch_ahead, portable, size_of_kind};

/// Number of elements per step.
const STEP: usize = 16;

/// All lanes.
const ALL: __mmask16 = !0;

/// The raw bits of sixteen elements: full width for binary32, the lower half for the 16-bit types.
type Raw = __m512i;

/// Loads sixteen elements; `bytes` must be exactly that long.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn load<const KIND: u8>(bytes: &[u8]) -> Raw {
    debug_assert_eq!(bytes.len(), STEP * size_of_kind(KIND));
    if KIND == F32 {
        // SAFETY: the slice has 64 bytes (callers cut it by `chunks_exact`), and the load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    } else {
        // SAFETY: the slice has 32 bytes (callers cut it by `chunks_exact`), and the load needs no alignment.
        _mm512_castsi256_si512(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
    }
}

/// Widens to binary32, exactly.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn widen<const KIND: u8>(raw: Raw) -> __m512 {
    match KIND {
        F32 => _mm512_castsi512_ps(raw),
        BF16 => {
            let wide = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(raw));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
        _ => _mm512_cvtph_ps(_mm512_castsi512_si256(raw)),
    }
}

/// Loads up to sixteen elements, raw and widened. The rest is NaN, which is excluded from every sum; the third
/// result is its count, to be subtracted from the counts of NaN.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn load_padded<const KIND: u8>(bytes: &[u8]) -> (Raw, __m512, u64) {
    let length = STEP * size_of_kind(KIND);
    if bytes.len() == length {
        let raw = load::<KIND>(bytes);
        return (raw, widen::<KIND>(raw), 0);
    }
    let mut whole = [0_u8; 64];
    whole[..bytes.len()].copy_from_slice(bytes);
    let raw = load::<KIND>(&whole[..length]);
    let elements = bytes.len() / size_of_kind(KIND);
    let beyond = ALL << elements;
    (raw, _mm512_mask_mov_ps(widen::<KIND>(raw), beyond, _mm512_set1_ps(f32::NAN)), (STEP - elements) as u64)
}

/// First and last eight elements as binary64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn halves(x: __m512) -> [__m512d; 2] {
    [_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(x))]
}

/// Returns a one that is opaque to the compiler. Adding `x * 1` is adding `x`, but uses the multipliers
/// instead of the adders, which are the bottleneck.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn hidden_one() -> __m512d {
    _mm512_set1_pd(std::hint::black_box(1.0))
}

/// Adds exact products.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn add_products(sum: __m512d, x: [__m512d; 2], y: [__m512d; 2]) -> __m512d {
    _mm512_fmadd_pd(x[1], y[1], _mm512_fmadd_pd(x[0], y[0], sum))
}

/// Vectors of one side.
struct SideVectors {
    one: __m512d,
    sum: __m512d,
    squares: __m512d,
    min: __m512,
    max: __m512,
    zeros: u32,
    nan: u32,
    pos_inf: u32,
    neg_inf: u32,
}

impl SideVectors {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn new(one: __m512d) -> Self {
        Self {
            one,
            sum: _mm512_setzero_pd(),
            squares: _mm512_setzero_pd(),
            min: _mm512_set1_ps(f32::INFINITY),
            max: _mm512_set1_ps(f32::NEG_INFINITY),
            zeros: 0,
            nan: 0,
            pos_inf: 0,
            neg_inf: 0,
        }
    }

    /// Adds sums and extremes of finite elements; zeros only if `ZEROS`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn add<const ZEROS: bool>(&mut self, x: __m512, wide: [__m512d; 2]) {
        self.sum = add_products(self.sum, wide, [self.one; 2]);
        self.squares = add_products(self.squares, wide, wide);
        self.min = _mm512_min_ps(x, self.min);
        self.max = _mm512_max_ps(x, self.max);
        if ZEROS {
            self.add_zeros(x);
        }
    }

    /// Like [`SideVectors::add`], without non-finite elements. Returns the finite lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn add_masked(&mut self, x: __m512) -> __mmask16 {
        let finite = finite_lanes(x);
        let wide = halves(_mm512_maskz_mov_ps(finite, x));
        self.sum = add_products(self.sum, wide, [self.one; 2]);
        self.squares = add_products(self.squares, wide, wide);
        self.min = _mm512_mask_min_ps(self.min, finite, x, self.min);
        self.max = _mm512_mask_max_ps(self.max, finite, x, self.max);
        self.add_zeros(x);
        if finite != ALL {
            let [nan, pos_inf, neg_inf] = classes(x);
            self.nan += nan.count_ones();
            self.pos_inf += pos_inf.count_ones();
            self.neg_inf += neg_inf.count_ones();
        }
        finite
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn add_zeros(&mut self, x: __m512) {
        self.zeros += _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(x, _mm512_setzero_ps()).count_ones();
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn finish(self, padding: u64) -> SideSums {
        SideSums {
            sum: fold(lanes(self.sum)),
            squares: fold(lanes(self.squares)),
            min: f64::from(_mm512_reduce_min_ps(self.min)) + 0.0,
            max: f64::from(_mm512_reduce_max_ps(self.max)) + 0.0,
            zeros: self.zeros.into(),
            nan: u64::from(self.nan) - padding,
            pos_inf: self.pos_inf.into(),
            neg_inf: self.neg_inf.into(),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn finite_lanes(x: __m512) -> __mmask16 {
    _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(x), _mm512_set1_ps(f32::INFINITY))
}

/// Masks of the lanes that are NaN, +Inf and -Inf.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn classes(x: __m512) -> [__mmask16; 3] {
    [
        _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x),
        _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(x, _mm512_set1_ps(f32::INFINITY)),
        _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(x, _mm512_set1_ps(f32::NEG_INFINITY)),
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn lanes(x: __m512d) -> [f64; LANES] {
    let mut lanes = [0.0; LANES];
    // SAFETY: the array has 64 bytes, and the store needs no alignment.
    unsafe { _mm512_storeu_pd(lanes.as_mut_ptr(), x) };
    lanes
}

/// Sums of a block of one tensor with any elements; see [`super::portable::side`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
pub(crate) fn masked_side<const KIND: u8>(bytes: &[u8]) -> SideSums {
    let mut side = SideVectors::new(hidden_one());
    let mut padding = 0;
    for bytes in bytes.chunks(STEP * size_of_kind(KIND)) {
        fetch_ahead(bytes.as_ptr());
        let (_, x, beyond) = load_padded::<KIND>(bytes);
        padding += beyond;
        side.add_masked(x);
    }
    side.finish(padding)
}

/// Adds a block to the sketch of its tensor; see [`super::portable::sketch`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
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

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn sketch_row<const KIND: u8, const MASKED: bool>(bytes: &[u8], sums: &mut SignedSums) {
    let (key, lanes) = sums.next_row();
    let mut groups =
        lanes.as_chunks_mut::<STEP>().0.iter_mut().zip(bytes.chunks_exact(STEP * size_of_kind(KIND)));
    for mut word in key.signs {
        for (lanes, bytes) in groups.by_ref().take(64 / STEP) {
            let x = widen::<KIND>(load::<KIND>(bytes));
            let x = if MASKED { _mm512_maskz_mov_ps(finite_lanes(x), x) } else { x };
            // The low sixteen bits.
            #[expect(clippy::cast_possible_truncation, reason = "takes the signs of this step")]
            let signed = _mm512_mask_xor_ps(x, word as u16, x, _mm512_set1_ps(-0.0));
            word >>= STEP;
            for (lanes, terms) in lanes.as_chunks_mut::<LANES>().0.iter_mut().zip(halves(signed)) {
                // SAFETY: the array has 64 bytes, and the load needs no alignment.
                let sum = _mm512_add_pd(unsafe { _mm512_loadu_pd(lanes.as_ptr()) }, terms);
                // SAFETY: as above, for the store.
                unsafe { _mm512_storeu_pd(lanes.as_mut_ptr(), sum) };
            }
        }
    }
}

/// The portable body, compiled for these instructions. No multiplication is fused with an addition here.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
pub(crate) fn pair_lanes<A: Arithmetic>(path: Path, b: &[A::Item], c: &[A::Item]) -> BlockSums {
    portable::pair::<A>(path, b, c)
}

/// Like [`pair_lanes`], for one tensor.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
pub(crate) fn side_lanes<A: Arithmetic>(masked: bool, x: &[A::Item]) -> SideSums {
    portable::side::<A>(masked, x)
}

/// Like [`pair_lanes`], for the sketch of one tensor.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
pub(crate) fn sketch_lanes<A: Arithmetic>(masked: bool, x: &[A::Item], sums: &mut SignedSums) {
    portable::sketch::<A>(masked, x, sums);
}

/// Like [`pair_lanes`], for decoding.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
pub(crate) fn decode<T: Decode>(dtype: DType, bytes: &[u8], out: &mut Vec<T>) {
    T::decode(dtype, bytes, out);
}

/// Like [`pair_lanes`], for the distance in units in the last place.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
pub(crate) fn largest_ulp(dtype: DType, b: &[u8], c: &[u8]) -> u64 {
    ulp::largest(dtype, b, c)
}
