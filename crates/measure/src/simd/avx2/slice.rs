//! A slice of a block: elements in binary32, widened to binary64 as they are loaded.

use std::mem::MaybeUninit;

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use super::super::{BF16, F32, size_of_kind};
use super::{Halves, STEP, halves, load, widen};

/// Number of elements in a slice.
pub(super) const SLICE: usize = 256;

/// Number of elements in a group: two steps.
pub(super) const GROUP: usize = 2 * STEP;

/// Eight elements in binary32, as stored in memory.
pub(super) type Singles = [u8; 32];

/// Room for a slice in binary32.
#[repr(align(32))]
pub(super) struct Scratch(pub(super) [MaybeUninit<__m256>; SLICE / STEP]);

impl Scratch {
    pub(super) const fn new() -> Self {
        Self([MaybeUninit::uninit(); SLICE / STEP])
    }

    /// Returns the first `steps` steps.
    ///
    /// # Safety
    /// They must have been written.
    pub(super) const unsafe fn filled(&self, steps: usize) -> &[Singles] {
        assert!(steps <= SLICE / STEP);
        // SAFETY: they are written, as the caller guarantees, and any bytes are singles.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), steps) }
    }

    /// Returns the elements of `bytes`, at most a slice: in place if they are binary32, else widened to it
    /// here.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn widened<'a, const KIND: u8>(&'a mut self, bytes: &'a [u8]) -> &'a [Singles] {
        if KIND == F32 {
            return bytes.as_chunks().0;
        }
        let steps = bytes.chunks_exact(STEP * size_of_kind(KIND));
        let count = steps.len();
        for (step, bytes) in self.0.iter_mut().zip(steps) {
            step.write(widen::<KIND>(load::<KIND>(bytes)));
        }
        // SAFETY: just written.
        unsafe { self.filled(count) }
    }
}

/// Loads eight elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(super) fn singles(at: &Singles) -> __m256 {
    // SAFETY: the array has 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_ps(at.as_ptr().cast()) }
}

/// Loads eight elements and widens them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(super) fn doubles(at: &Singles) -> Halves {
    let (halves, _) = at.as_chunks::<16>();
    // SAFETY: a half has 16 bytes, and the load needs no alignment.
    [0, 1].map(|half| _mm256_cvtps_pd(unsafe { _mm_loadu_ps(halves[half].as_ptr().cast()) }))
}

/// Loads a group of elements as stored in memory and widens it: two steps.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(super) fn group_of_doubles<const KIND: u8>(bytes: &[u8]) -> [Halves; 2] {
    match KIND {
        F32 => {
            let (steps, _) = bytes.as_chunks();
            [doubles(&steps[0]), doubles(&steps[1])]
        }
        BF16 => {
            // Elements 0 to 3 and 8 to 11, 4 to 7 and 12 to 15.
            let (raw, zero) = (load::<F32>(bytes), _mm256_setzero_si256());
            let low = halves(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, raw)));
            let high = halves(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, raw)));
            [[low[0], high[0]], [low[1], high[1]]]
        }
        _ => {
            let (first, second) = bytes.split_at(2 * STEP);
            [halves(widen::<KIND>(load::<KIND>(first))), halves(widen::<KIND>(load::<KIND>(second)))]
        }
    }
}
