//! Transposes small squares of elements in 16-byte vectors.

#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use std::ops::Range;

use super::{ACROSS, ROWS};

/// Bytes of a vector.
const VECTOR: usize = 16;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod vector {
    use core::arch::x86_64::{
        __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_storeu_si128, _mm_unpackhi_epi8,
        _mm_unpackhi_epi16, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi8, _mm_unpacklo_epi16,
        _mm_unpacklo_epi32, _mm_unpacklo_epi64,
    };

    /// Sixteen bytes.
    #[derive(Clone, Copy)]
    pub(super) struct Vector(__m128i);

    impl Vector {
        /// All bits zero.
        // SAFETY: any bits are a valid vector.
        pub(super) const ZERO: Self = Self(unsafe { std::mem::zeroed() });

        /// # Safety
        /// Sixteen bytes must be readable; they need no alignment.
        #[inline]
        pub(super) unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller guarantees the bytes, and every x86-64 CPU has SSE2.
            Self(unsafe { _mm_loadu_si128(from.cast()) })
        }

        /// # Safety
        /// Sixteen bytes must be writable; they need no alignment.
        #[inline]
        pub(super) unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller guarantees the bytes, and every x86-64 CPU has SSE2.
            unsafe { _mm_storeu_si128(to.cast(), self.0) };
        }

        /// Interleaves elements of `N` bytes from `self` and `other`: from their first halves, and from their
        /// second.
        #[inline]
        pub(super) fn interleave<const N: usize>(self, other: Self) -> [Self; 2] {
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe { interleave::<N>(self.0, other.0) }.map(Self)
        }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn interleave<const N: usize>(a: __m128i, b: __m128i) -> [__m128i; 2] {
        match N {
            1 => [_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)],
            2 => [_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)],
            4 => [_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)],
            _ => [_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)],
        }
    }

    /// Prefetches the cache line that holds `byte`.
    #[inline]
    pub(super) fn prefetch(byte: *const u8) {
        // SAFETY: a hint, valid for any address; every x86-64 CPU has SSE.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(byte.cast()) };
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod vector {
    use super::VECTOR;

    /// Sixteen bytes.
    #[derive(Clone, Copy)]
    pub(super) struct Vector([u8; VECTOR]);

    impl Vector {
        /// All bits zero.
        pub(super) const ZERO: Self = Self([0; VECTOR]);

        /// # Safety
        /// Sixteen bytes must be readable; they need no alignment.
        #[inline]
        pub(super) unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller guarantees the bytes.
            Self(unsafe { from.cast::<[u8; VECTOR]>().read() })
        }

        /// # Safety
        /// Sixteen bytes must be writable; they need no alignment.
        #[inline]
        pub(super) unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller guarantees the bytes.
            unsafe { to.cast::<[u8; VECTOR]>().write(self.0) };
        }

        /// Interleaves elements of `N` bytes from `self` and `other`: from their first halves, and from their
        /// second.
        #[inline]
        pub(super) fn interleave<const N: usize>(self, other: Self) -> [Self; 2] {
            [0, VECTOR / 2].map(|half| {
                Self(std::array::from_fn(|at| {
                    let from = if (at / N).is_multiple_of(2) { &self.0 } else { &other.0 };
                    from[half + at / N / 2 * N + at % N]
                }))
            })
        }
    }

    /// Does nothing on this architecture, instead of prefetching the cache line that holds `byte`.
    #[inline]
    pub(super) fn prefetch(_: *const u8) {}
}

use vector::Vector;

/// Prefetches `bytes`, one line every `step` bytes.
#[inline]
pub(super) fn prefetch(bytes: &[u8], step: usize) {
    for byte in bytes.iter().step_by(step) {
        vector::prefetch(byte);
    }
}

/// Performs one round of a transpose: moves a bit of the row number into the position within the
/// row.
#[inline]
fn round<const N: usize>(rows: [Vector; VECTOR]) -> [Vector; VECTOR] {
    let half = const { VECTOR / N / 2 };
    let mut next = rows;
    for index in 0..half {
        [next[2 * index], next[2 * index + 1]] = rows[index].interleave::<N>(rows[half + index]);
    }
    next
}

/// Transposes a square: one round for each bit of the number of a row.
#[inline]
fn turned<const N: usize>(mut square: [Vector; VECTOR]) -> [Vector; VECTOR] {
    let side = const { VECTOR / N };
    if side >= 2 {
        square = round::<N>(square);
    }
    if side >= 4 {
        square = round::<N>(square);
    }
    if side >= 8 {
        square = round::<N>(square);
    }
    if side >= 16 {
        square = round::<N>(square);
    }
    square
}

/// Writes elements `..rows` of columns `..across` as rows, one every `span` elements of `out`. `meanwhile` is called
/// with the rows that are written next.
///
/// # Panics
/// If there are not that many, or `out` is too short.
pub(super) fn transpose<const N: usize>(
    columns: &[[[u8; N]; ROWS]; ACROSS],
    rows: usize,
    across: usize,
    out: &mut [[u8; N]],
    span: usize,
    mut meanwhile: impl FnMut(Range<usize>),
) {
    const { assert!(ROWS.is_multiple_of(VECTOR / N)) };
    let side = const { VECTOR / N };
    if rows == 0 || across == 0 {
        return;
    }
    assert!(rows <= ROWS && across <= ACROSS && across <= span, "beyond the columns");
    let before_last = out.len().checked_sub(across).map(|rest| rest / span);
    assert!(before_last.is_some_and(|before| before >= rows - 1), "output too short");
    let whole_across = across / side * side;
    let whole_rows = if whole_across > 0 { rows / side * side } else { 0 };
    let from = columns.as_flattened().as_ptr();
    let to = out.as_mut_ptr();
    for row in (0..whole_rows).step_by(side) {
        meanwhile(row..row + side);
        for column in (0..whole_across).step_by(side) {
            let mut square = [Vector::ZERO; VECTOR];
            for (index, vector) in square.iter_mut().take(side).enumerate() {
                // SAFETY: `row + side <= ROWS` and `column + index < ACROSS`: in bounds of the columns.
                let from = unsafe { from.add((column + index) * ROWS + row) };
                // SAFETY: from here on, the column has `side` more elements, which are as many bytes as a vector.
                *vector = unsafe { Vector::load(from.cast()) };
            }
            for (index, vector) in turned::<N>(square).into_iter().take(side).enumerate() {
                // SAFETY: `row + index < rows` and `column + side <= across`: before the end, as asserted.
                let to = unsafe { to.add((row + index) * span + column) };
                // SAFETY: from here on, the row has `side` more elements, which are as many bytes as a vector.
                unsafe { vector.store(to.cast()) };
            }
        }
    }
    meanwhile(whole_rows..rows);
    if (whole_rows, whole_across) == (rows, across) {
        return;
    }
    for (row, out) in out.chunks_mut(span).take(rows).enumerate() {
        let done = if row < whole_rows { whole_across } else { 0 };
        for (out, column) in out[done..across].iter_mut().zip(&columns[done..]) {
            *out = column[row];
        }
    }
}
