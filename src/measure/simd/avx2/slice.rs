//! A slice of a block: elements in binary32, widened to binary64 as they are loaded.

use std::mem::MaybeUninit;

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use super::super::{F32, size_of_kind};
use super::{Halves, STEP, load, widen};

/// Elements of a slice.
pub(super) const SLICE: usize = 256;

/// Eight elements in binary32, as they lie in memory.
pub(super) type Singles = [u8; 32];

/// Room for a slice in binary32.
#[repr(align(32))]
pub(super) struct Scratch(pub(super) [MaybeUninit<__m256>; SLICE / STEP]);

impl Scratch {
    pub(super) const fn new() -> Self {
        Self([MaybeUninit::uninit(); SLICE / STEP])
    }

    /// The first `steps` steps.
    ///
    /// # Safety
    /// They must have been written.
    pub(super) const unsafe fn filled(&self, steps: usize) -> &[Singles] {
        assert!(steps <= SLICE / STEP);
        // SAFETY: they are written, as the caller says, and any bytes are singles.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), steps) }
    }

    /// The elements of `bytes`, at most a slice: where they are if that is binary32, else widened to it here.
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
