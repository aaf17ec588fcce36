//! Sums over pairs of blocks.

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::sums::{BlockSums, PairSums, fold};

use super::super::{F32, Path, fetch_ahead, size_of_kind};
use super::{
    ALL, Raw, STEP, SideVectors, add_products, classes, finite_lanes, halves, hidden_one, lanes, load,
    load_padded, widen,
};

/// Running largest ULP distance of lanes whose signs agree, and the signs of the others.
#[derive(Clone, Copy)]
struct Ulp {
    largest: __m512i,
    signs: __m512i,
}

impl Ulp {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn new() -> Self {
        Self { largest: _mm512_setzero_si512(), signs: _mm512_setzero_si512() }
    }

    /// Adds the lanes `both`. If the signs agree, bit patterns are as far apart as the numbers they represent.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn add<const KIND: u8, const SIGNS: bool>(&mut self, b: Raw, c: Raw, both: __mmask16) {
        if KIND == F32 {
            let distance = _mm512_abs_epi32(_mm512_sub_epi32(b, c));
            self.largest = if SIGNS {
                let signs = _mm512_maskz_xor_epi32(both, b, c);
                self.signs = _mm512_or_si512(self.signs, signs);
                _mm512_mask_max_epu32(self.largest, both, self.largest, distance)
            } else {
                _mm512_max_epu32(self.largest, distance)
            };
        } else {
            let (b, c) = (_mm512_castsi512_si256(b), _mm512_castsi512_si256(c));
            let largest = _mm512_castsi512_si256(self.largest);
            let distance = _mm256_abs_epi16(_mm256_sub_epi16(b, c));
            let largest = if SIGNS {
                let signs = _mm256_maskz_mov_epi16(both, _mm256_xor_si256(b, c));
                self.signs = _mm512_or_si512(self.signs, _mm512_castsi256_si512(signs));
                _mm256_mask_max_epu16(largest, both, largest, distance)
            } else {
                _mm256_max_epu16(largest, distance)
            };
            self.largest = _mm512_castsi256_si512(largest);
        }
    }

    /// Returns the largest distance, and true if some signs differed (the distance is then invalid).
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn finish<const KIND: u8>(self) -> (u64, bool) {
        if KIND == F32 {
            let largest = _mm512_reduce_max_epu32(self.largest);
            (u64::from(largest), _mm512_movepi32_mask(self.signs) != 0)
        } else {
            let mut lanes = [0_u16; 16];
            let largest = _mm512_castsi512_si256(self.largest);
            // SAFETY: the array has 32 bytes, and the store needs no alignment.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), largest) };
            let signs = _mm256_movepi16_mask(_mm512_castsi512_si256(self.signs));
            (lanes.into_iter().max().unwrap_or(0).into(), signs != 0)
        }
    }
}

/// Vectors of the pair.
struct Pair {
    one: __m512d,
    dot: __m512d,
    baseline_squares: __m512d,
    candidate_squares: __m512d,
    distance_squares: __m512d,
    abs: __m512d,
    rel: __m512d,
    max_rel: __m512,
    max_abs: __m512,
    /// The same in binary64, for the types whose coarse differences would constantly tie in binary32.
    max_abs_wide: __m512d,
    within_1e3: u32,
    within_5e3: u64,
    different: u32,
    finite: u32,
    mismatch: u32,
    zero_baseline: u32,
    ulp: Ulp,
}

impl Pair {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn new(one: __m512d) -> Self {
        let zero = _mm512_setzero_pd();
        Self {
            one,
            dot: zero,
            baseline_squares: zero,
            candidate_squares: zero,
            distance_squares: zero,
            abs: zero,
            rel: zero,
            max_rel: _mm512_setzero_ps(),
            max_abs: _mm512_setzero_ps(),
            max_abs_wide: zero,
            within_1e3: 0,
            within_5e3: 0,
            different: 0,
            finite: 0,
            mismatch: 0,
            zero_baseline: 0,
            ulp: Ulp::new(),
        }
    }

    /// Adds finite elements; only the lanes `both` count, the others hold zeros on both sides.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn add<const KIND: u8, const ZEROS: bool>(
        &mut self,
        (b, c): (__m512, __m512),
        (wide_b, wide_c): ([__m512d; 2], [__m512d; 2]),
        both: __mmask16,
    ) {
        self.dot = add_products(self.dot, wide_b, wide_c);
        for half in 0..2 {
            let difference = _mm512_sub_pd(wide_c[half], wide_b[half]);
            let square = _mm512_mul_pd(difference, difference);
            self.distance_squares = _mm512_add_pd(self.distance_squares, square);
            let abs = _mm512_abs_pd(difference);
            self.abs = _mm512_add_pd(self.abs, abs);
            if KIND != F32 {
                self.max_abs_wide = _mm512_max_pd(abs, self.max_abs_wide);
            }
        }
        let difference = _mm512_sub_ps(c, b);
        if KIND == F32 {
            // The larger of the two moduli.
            self.max_abs = _mm512_range_ps::<0b1011>(self.max_abs, difference);
        }
        let quotient = if ZEROS {
            let zero = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(b, _mm512_setzero_ps());
            let epsilon = _mm512_set1_ps(f32::EPSILON);
            let divisor = _mm512_mask_mov_ps(b, zero, epsilon);
            let raised = _mm512_mask_add_ps(c, zero, c, epsilon);
            let unlike = _mm512_mask_cmp_ps_mask::<_CMP_NEQ_OQ>(zero, c, _mm512_setzero_ps());
            self.zero_baseline += unlike.count_ones();
            _mm512_div_ps(_mm512_sub_ps(raised, divisor), divisor)
        } else {
            _mm512_div_ps(difference, b)
        };
        let rel = _mm512_abs_ps(quotient);
        self.rel = add_products(self.rel, halves(rel), [self.one; 2]);
        self.max_rel = _mm512_max_ps(rel, self.max_rel);
        let below = |limit| _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(both, rel, _mm512_set1_ps(limit));
        self.within_1e3 += below(0.001).count_ones();
        // Counted as 64 bits only so that the compiler does not pair the two counts and emulate them.
        self.within_5e3 += u64::from(u64::from(below(0.005)).count_ones());
        self.different += _mm512_cmp_ps_mask::<_CMP_NEQ_OQ>(b, c).count_ones();
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn max_abs_hint<const KIND: u8>(&self) -> f64 {
        if KIND == F32 {
            _mm512_reduce_max_ps(self.max_abs).into()
        } else {
            _mm512_reduce_max_pd(self.max_abs_wide)
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    fn finish(self, finite: u64) -> PairSums {
        PairSums {
            finite,
            dot: fold(lanes(self.dot)),
            baseline_squares: fold(lanes(self.baseline_squares)),
            candidate_squares: fold(lanes(self.candidate_squares)),
            distance_squares: fold(lanes(self.distance_squares)),
            abs: fold(lanes(self.abs)),
            rel: fold(lanes(self.rel)),
            max_rel: _mm512_reduce_max_ps(self.max_rel).into(),
            within_1e3: self.within_1e3.into(),
            within_5e3: self.within_5e3,
            different: (self.different + self.mismatch).into(),
            mismatch: self.mismatch.into(),
            zero_baseline: self.zero_baseline.into(),
        }
    }
}

/// Sums of a block of pairs; see [`super::portable::pair`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
pub(crate) fn pair<const KIND: u8>(path: Path, b: &[u8], c: &[u8]) -> BlockSums {
    match path {
        Path::Plain => pair_finite::<KIND, false>(b, c),
        Path::ZeroAware => pair_finite::<KIND, true>(b, c),
        Path::Masked => pair_masked::<KIND>(b, c),
    }
}

/// A block of whole steps without NaN or infinities.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn pair_finite<const KIND: u8, const ZEROS: bool>(b: &[u8], c: &[u8]) -> BlockSums {
    let one = hidden_one();
    let (mut baseline, mut candidate, mut pair) =
        (SideVectors::new(one), SideVectors::new(one), Pair::new(one));
    let step = STEP * size_of_kind(KIND);
    for (raw_b, raw_c) in b.chunks_exact(step).zip(c.chunks_exact(step)) {
        fetch_ahead(raw_b.as_ptr());
        fetch_ahead(raw_c.as_ptr());
        let (raw_b, raw_c) = (load::<KIND>(raw_b), load::<KIND>(raw_c));
        let (b, c) = (widen::<KIND>(raw_b), widen::<KIND>(raw_c));
        let (wide_b, wide_c) = (halves(b), halves(c));
        baseline.add::<ZEROS>(b, wide_b);
        candidate.add::<ZEROS>(c, wide_c);
        pair.add::<KIND, ZEROS>((b, c), (wide_b, wide_c), ALL);
        pair.ulp.add::<KIND, ZEROS>(raw_b, raw_c, ALL);
    }
    let (mut max_ulp, mut signs) = pair.ulp.finish::<KIND>();
    let (baseline, mut candidate) = (baseline.finish(0), candidate.finish(0));
    let max_abs_hint = pair.max_abs_hint::<KIND>();
    let mut pair = pair.finish((b.len() / size_of_kind(KIND)) as u64);
    pair.baseline_squares = baseline.squares;
    pair.candidate_squares = candidate.squares;
    if !ZEROS && pair.max_rel >= 1.0 {
        // Only then can the candidate hold a zero or another sign. This keeps the check out of the loop.
        signs = true;
        candidate.zeros = zeros::<KIND>(c);
    }
    if signs {
        max_ulp = ulp_across_signs::<KIND>(b, c);
    }
    BlockSums { baseline, candidate, pair, max_abs_hint, max_ulp }
}

/// Any block.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn pair_masked<const KIND: u8>(b: &[u8], c: &[u8]) -> BlockSums {
    let one = hidden_one();
    let (mut baseline, mut candidate, mut pair) =
        (SideVectors::new(one), SideVectors::new(one), Pair::new(one));
    let step = STEP * size_of_kind(KIND);
    let mut one_step = |raw_b: Raw, raw_c: Raw, b: __m512, c: __m512| {
        let (finite_b, finite_c) = (baseline.add_masked(b), candidate.add_masked(c));
        let both = finite_b & finite_c;
        if both != ALL {
            let (classes_b, classes_c) = (classes(b), classes(c));
            let unlike = (0..3).fold(0, |unlike, class| unlike | (classes_b[class] ^ classes_c[class]));
            pair.mismatch += unlike.count_ones();
        }
        pair.finite += both.count_ones();
        let (b, c) = (_mm512_maskz_mov_ps(both, b), _mm512_maskz_mov_ps(both, c));
        let (wide_b, wide_c) = (halves(b), halves(c));
        pair.baseline_squares = add_products(pair.baseline_squares, wide_b, wide_b);
        pair.candidate_squares = add_products(pair.candidate_squares, wide_c, wide_c);
        pair.add::<KIND, true>((b, c), (wide_b, wide_c), both);
        pair.ulp.add::<KIND, true>(raw_b, raw_c, both);
    };
    let mut padding = 0;
    // One call, so that it is inlined and the sums stay in registers.
    for (bytes_b, bytes_c) in b.chunks(step).zip(c.chunks(step)) {
        fetch_ahead(bytes_b.as_ptr());
        fetch_ahead(bytes_c.as_ptr());
        let (raw_b, x, _) = load_padded::<KIND>(bytes_b);
        let (raw_c, y, beyond) = load_padded::<KIND>(bytes_c);
        padding += beyond;
        one_step(raw_b, raw_c, x, y);
    }
    let (mut max_ulp, signs) = pair.ulp.finish::<KIND>();
    if signs {
        max_ulp = ulp_across_signs::<KIND>(b, c);
    }
    let max_abs_hint = pair.max_abs_hint::<KIND>();
    let finite = pair.finite.into();
    BlockSums {
        baseline: baseline.finish(padding),
        candidate: candidate.finish(padding),
        pair: pair.finish(finite),
        max_abs_hint,
        max_ulp,
    }
}

/// Returns the largest ULP distance over both-finite positions, for any signs.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn ulp_across_signs<const KIND: u8>(b: &[u8], c: &[u8]) -> u64 {
    let mut largest = _mm512_setzero_si512();
    let step = STEP * size_of_kind(KIND);
    for (b, c) in b.chunks(step).zip(c.chunks(step)) {
        let ((raw_b, b, _), (raw_c, c, _)) = (load_padded::<KIND>(b), load_padded::<KIND>(c));
        let both = finite_lanes(b) & finite_lanes(c);
        let (b, c) = (ordered::<KIND>(raw_b), ordered::<KIND>(raw_c));
        let distance = _mm512_sub_epi32(_mm512_max_epi32(b, c), _mm512_min_epi32(b, c));
        largest = _mm512_mask_max_epu32(largest, both, largest, distance);
    }
    _mm512_reduce_max_epu32(largest).into()
}

/// Bit patterns as integers that count representable numbers upwards from zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn ordered<const KIND: u8>(raw: Raw) -> __m512i {
    let (bits, lowest) = if KIND == F32 {
        (raw, i32::MIN)
    } else {
        (_mm512_cvtepi16_epi32(_mm512_castsi512_si256(raw)), i16::MIN.into())
    };
    _mm512_mask_sub_epi32(bits, _mm512_movepi32_mask(bits), _mm512_set1_epi32(lowest), bits)
}

/// Returns the number of zeros in whole steps.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn zeros<const KIND: u8>(bytes: &[u8]) -> u64 {
    let mut side = SideVectors::new(hidden_one());
    for raw in bytes.chunks_exact(STEP * size_of_kind(KIND)) {
        side.add_zeros(widen::<KIND>(load::<KIND>(raw)));
    }
    side.zeros.into()
}
