//! Elements as their positions among all numbers of their type, counted from zero.
//!
//! Places are integers of the width of an element in the order of the numbers, and both zeros have place 0. So
//! extremes, zeros, equality and distances in units in the last place need no floating-point adder, which the
//! sums are short of, and 16-bit types take half the steps.

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use super::super::{BF16, F32, fetch_ahead};
use super::{STEP, integers, load};

/// Bytes of a register: elements of any type, as stored in memory.
const REGISTER: usize = 32;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Returns the places of elements, given their bit patterns. NaN and infinity lie beyond all numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(super) fn places<const KIND: u8>(raw: __m256i) -> __m256i {
    if KIND == F32 {
        _mm256_sign_epi32(_mm256_and_si256(raw, _mm256_set1_epi32(i32::MAX)), raw)
    } else {
        _mm256_sign_epi16(_mm256_and_si256(raw, _mm256_set1_epi16(i16::MAX)), raw)
    }
}

/// Returns the number at a place.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "places of 16-bit types have 16 bits")]
fn number<const KIND: u8>(place: i32) -> f32 {
    let (sign, magnitude) = (place < 0, place.unsigned_abs());
    let value = match KIND {
        F32 => f32::from_bits(magnitude),
        BF16 => f32::from_bits(magnitude << 16),
        _ => half::f16::from_bits(magnitude as u16).to_f32(),
    };
    if sign { -value } else { value }
}

/// Returns the lanes of places, duplicated if they have the full lane width.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn signed_lanes<const KIND: u8>(places: __m256i) -> [[i32; STEP]; 2] {
    let lanes = integers(places).map(u32::cast_signed);
    if KIND == F32 { [lanes; 2] } else { [lanes.map(|lane| lane << 16 >> 16), lanes.map(|lane| lane >> 16)] }
}

/// Adds one in every lane of `mask`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn counted<const KIND: u8>(count: __m256i, mask: __m256i) -> __m256i {
    if KIND == F32 { _mm256_sub_epi32(count, mask) } else { _mm256_sub_epi16(count, mask) }
}

/// Returns the lanes of counts or distances, followed by zeros if they have the full lane width.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn unsigned_lanes<const KIND: u8>(x: __m256i) -> [[u32; STEP]; 2] {
    let lanes = integers(x);
    if KIND == F32 {
        [lanes, [0; STEP]]
    } else {
        [lanes.map(|lane| lane & 0xffff), lanes.map(|lane| lane >> 16)]
    }
}

/// Returns the sum of the lanes of counts, none of which exceeds the number of elements of a block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn total<const KIND: u8>(counts: __m256i) -> u64 {
    unsigned_lanes::<KIND>(counts).as_flattened().iter().sum::<u32>().into()
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn equal<const KIND: u8>(x: __m256i, y: __m256i) -> __m256i {
    if KIND == F32 { _mm256_cmpeq_epi32(x, y) } else { _mm256_cmpeq_epi16(x, y) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn smaller<const KIND: u8>(x: __m256i, y: __m256i) -> __m256i {
    if KIND == F32 { _mm256_min_epi32(x, y) } else { _mm256_min_epi16(x, y) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn larger<const KIND: u8>(x: __m256i, y: __m256i) -> __m256i {
    if KIND == F32 { _mm256_max_epi32(x, y) } else { _mm256_max_epi16(x, y) }
}

/// Extremes and zeros of finite elements, at most a block.
#[derive(Clone, Copy)]
pub(super) struct Extent<const KIND: u8> {
    min: __m256i,
    max: __m256i,
    zeros: __m256i,
}

impl<const KIND: u8> Extent<KIND> {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn new() -> Self {
        // The place of infinity.
        let end = match KIND {
            F32 => _mm256_set1_epi32(0x7f80_0000),
            BF16 => _mm256_set1_epi16(0x7f80),
            _ => _mm256_set1_epi16(0x7c00),
        };
        let zero = _mm256_setzero_si256();
        let start = if KIND == F32 { _mm256_sub_epi32(zero, end) } else { _mm256_sub_epi16(zero, end) };
        Self { min: end, max: start, zeros: zero }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    fn add<const ZEROS: bool>(&mut self, places: __m256i) {
        self.min = smaller::<KIND>(self.min, places);
        self.max = larger::<KIND>(self.max, places);
        if ZEROS {
            self.zeros = counted::<KIND>(self.zeros, equal::<KIND>(places, _mm256_setzero_si256()));
        }
    }

    /// Adds elements as stored in memory, a multiple of a register.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn add_all(&mut self, bytes: &[u8]) {
        for bytes in bytes.as_chunks::<REGISTER>().0 {
            self.add::<true>(places::<KIND>(load::<F32>(bytes)));
        }
    }

    /// Returns the smallest and the largest element.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn extremes(&self) -> [f64; 2] {
        let (min, max) = (signed_lanes::<KIND>(self.min), signed_lanes::<KIND>(self.max));
        let min = min.as_flattened().iter().fold(i32::MAX, |min, &lane| min.min(lane));
        let max = max.as_flattened().iter().fold(i32::MIN, |max, &lane| max.max(lane));
        [min, max].map(|place| f64::from(number::<KIND>(place)))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn zeros(&self) -> u64 {
        total::<KIND>(self.zeros)
    }
}

/// Results from the places of a pair of at most a block of finite elements.
#[derive(Clone, Copy)]
pub(super) struct PairPlaces<const KIND: u8> {
    pub(super) baseline: Extent<KIND>,
    pub(super) candidate: Extent<KIND>,
    /// Largest distances, unsigned.
    largest: __m256i,
    equal: __m256i,
}

impl<const KIND: u8> PairPlaces<KIND> {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn new() -> Self {
        let zero = _mm256_setzero_si256();
        Self { baseline: Extent::new(), candidate: Extent::new(), largest: zero, equal: zero }
    }

    /// Adds pairs as stored in memory, a multiple of a register. Without `ZEROS`, no element of the baseline
    /// is zero.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn sweep<const ZEROS: bool>(mut self, b: &[u8], c: &[u8]) -> Self {
        let ((lines_b, rest_b), (lines_c, rest_c)) = (b.as_chunks::<LINE>(), c.as_chunks::<LINE>());
        for (b, c) in lines_b.iter().zip(lines_c) {
            fetch_ahead(b.as_ptr());
            fetch_ahead(c.as_ptr());
            self.add_all::<ZEROS>(b, c);
        }
        self.add_all::<ZEROS>(rest_b, rest_c);
        self
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    fn add_all<const ZEROS: bool>(&mut self, b: &[u8], c: &[u8]) {
        for (b, c) in b.as_chunks::<REGISTER>().0.iter().zip(c.as_chunks::<REGISTER>().0) {
            let (b, c) = (places::<KIND>(load::<F32>(b)), places::<KIND>(load::<F32>(c)));
            self.baseline.add::<ZEROS>(b);
            self.candidate.add::<true>(c);
            self.equal = counted::<KIND>(self.equal, equal::<KIND>(b, c));
            self.largest = larger_ulp::<KIND>(self.largest, b, c);
        }
    }

    /// Returns the number of equal pairs.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn equal(&self) -> u64 {
        total::<KIND>(self.equal)
    }

    /// Returns the largest distance in units in the last place.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn max_ulp(&self) -> u64 {
        largest_ulp::<KIND>(self.largest)
    }
}

/// Returns the larger of `largest` and the distances between places.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(super) fn larger_ulp<const KIND: u8>(largest: __m256i, b: __m256i, c: __m256i) -> __m256i {
    let (more, less) = (larger::<KIND>(b, c), smaller::<KIND>(b, c));
    if KIND == F32 {
        _mm256_max_epu32(largest, _mm256_sub_epi32(more, less))
    } else {
        _mm256_max_epu16(largest, _mm256_sub_epi16(more, less))
    }
}

/// Returns the largest element of the results of [`larger_ulp`].
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(super) fn largest_ulp<const KIND: u8>(distances: __m256i) -> u64 {
    unsigned_lanes::<KIND>(distances).as_flattened().iter().fold(0, |most, &lane| most.max(lane)).into()
}
