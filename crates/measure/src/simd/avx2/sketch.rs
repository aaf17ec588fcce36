//! The sketch of a tensor, block by block.

#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::sketch::{ROW, SignedSums};

use super::super::size_of_kind;
use super::{Halves, STEP, finite_lanes, halves, load, widen};

/// Signs of four elements in binary64, indexed by four bits: a set bit is a minus.
#[repr(align(32))]
struct Signs([u64; 4]);

static SIGNS: [Signs; 16] = {
    const NONE: Signs = Signs([0; 4]);
    let mut table = [NONE; 16];
    let mut bits = 0;
    while bits < 16 {
        let mut lane = 0;
        while lane < 4 {
            table[bits].0[lane] = ((bits as u64 >> lane) & 1) << 63;
            lane += 1;
        }
        bits += 1;
    }
    table
};

/// A row being added to the sketch of its tensor.
pub(super) struct SignedRow<'a> {
    lanes: &'a mut [[f64; STEP]; ROW / STEP],
    signs: &'a [u8; ROW / STEP],
}

impl<'a> SignedRow<'a> {
    #[inline]
    pub(super) fn next(sums: &'a mut SignedSums) -> Self {
        let (key, lanes) = sums.next_row();
        let (lanes, _) = lanes.as_chunks_mut::<STEP>();
        let (lanes, _) = lanes.as_chunks_mut();
        let (signs, _) = bytes_of(&key.signs).as_chunks();
        Self { lanes: &mut lanes[0], signs: &signs[0] }
    }

    /// Adds the finite elements of step `index`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,popcnt")]
    pub(super) fn add(&mut self, index: usize, terms: Halves) {
        let bits = self.signs[index];
        let signs = [&SIGNS[usize::from(bits & 15)], &SIGNS[usize::from(bits >> 4)]];
        let lanes = self.lanes[index].as_chunks_mut::<4>().0.iter_mut();
        for ((lanes, terms), signs) in lanes.zip(terms).zip(signs) {
            // SAFETY: the array has 32 bytes, and is aligned to them.
            let signed = _mm256_xor_pd(terms, unsafe { _mm256_load_pd(signs.0.as_ptr().cast()) });
            // SAFETY: the array has 32 bytes, and the load needs no alignment.
            let sum = _mm256_add_pd(unsafe { _mm256_loadu_pd(lanes.as_ptr()) }, signed);
            // SAFETY: as above, for the store.
            unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), sum) };
        }
    }
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

/// Returns the words of a row's signs as stored in memory: bit `j` of byte `k` is the sign of element
/// `8 k + j`.
fn bytes_of(signs: &[u64; ROW / 64 + 1]) -> &[u8; ROW / 8 + 8] {
    // SAFETY: both have 40 bytes, any of which is a byte, and bytes need no alignment. The CPU is little endian.
    unsafe { &*std::ptr::from_ref(signs).cast() }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn sketch_row<const KIND: u8, const MASKED: bool>(bytes: &[u8], sums: &mut SignedSums) {
    let mut row = SignedRow::next(sums);
    for (index, bytes) in bytes.chunks_exact(STEP * size_of_kind(KIND)).enumerate() {
        let x = widen::<KIND>(load::<KIND>(bytes));
        row.add(index, halves(if MASKED { _mm256_and_ps(x, finite_lanes(x)) } else { x }));
    }
}
