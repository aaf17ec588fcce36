//! The sketch of a tensor: signed sums of its elements in 256 lanes.
//!
//! For two tensors the norm of the difference of their sketches estimates the norm of their difference. The function
//! depends on nothing but values and their places, so that any program can compute it; `docs/formats.md` defines it.

use std::sync::LazyLock;

use crate::dump::{DType, SKETCH_LANES, Sketch};

use super::sums::SEGMENT;

pub use crate::dump::SKETCH_VERSION;

/// Elements of a row: as many as there are lanes, so that no two elements of a row share one.
pub(crate) const ROW: usize = SKETCH_LANES;

/// Sign words of a row.
const WORDS: usize = ROW / 64;

/// Keys of the first rows, which every tensor has: a quarter of the time goes into keys where they are made for each.
static FIRST_KEYS: LazyLock<Vec<RowKey>> = LazyLock::new(|| (0..4096).map(RowKey::of).collect());

/// Output function of splitmix64, after one step of its state.
pub(crate) const fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Running signed sums of one segment; its rows are added in order.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct SignedSums {
    /// Twice the lanes: a row is added from its rotation on, without wrapping around. [`Lanes::append`] folds.
    lanes: [f64; 2 * ROW],
    /// Keys of the first rows.
    known: &'static [RowKey],
    /// Number of the segment's first row.
    first: u64,
    /// Number of the next row.
    row: u64,
    /// The key of a row beyond the known ones.
    key: RowKey,
}

/// Signs and place of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowKey {
    /// Bit `j` of word `k` is the sign of element `64 k + j`; one is negative. A zero follows, so that the signs of the
    /// last elements can be loaded as part of a whole word.
    pub(crate) signs: [u64; WORDS + 1],
    /// Lane of the row's first element.
    pub(crate) rotation: usize,
}

impl RowKey {
    /// The key of row `row`.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a remainder below 256")]
    pub(crate) const fn of(row: u64) -> Self {
        let word = row.wrapping_mul(WORDS as u64);
        Self {
            signs: [
                mix(word),
                mix(word.wrapping_add(1)),
                mix(word.wrapping_add(2)),
                mix(word.wrapping_add(3)),
                0,
            ],
            rotation: (mix(row ^ 0x00ab_cdef) % ROW as u64) as usize,
        }
    }
}

impl SignedSums {
    /// Sums of nothing, before the first row of segment `segment` of a tensor of `dtype`.
    pub(crate) fn of_segment(segment: usize, dtype: DType) -> Self {
        let numbers = if dtype.is_complex() { 2 } else { 1 };
        let row = (segment * (SEGMENT * numbers / ROW)) as u64;
        Self { lanes: [0.0; 2 * ROW], known: &FIRST_KEYS, first: row, row, key: RowKey::of(0) }
    }

    /// Sums of nothing again, before the row that was the first.
    pub(crate) fn restart(&mut self) {
        self.lanes.fill(0.0);
        self.row = self.first;
    }

    /// The key of the next row and the lanes it adds to, in the order of its elements.
    #[inline]
    pub(crate) fn next_row(&mut self) -> (&RowKey, &mut [f64; ROW]) {
        let known = usize::try_from(self.row).ok().and_then(|row| self.known.get(row));
        let key = known.unwrap_or_else(|| {
            self.key = RowKey::of(self.row);
            &self.key
        });
        self.row += 1;
        let (lanes, _) = self.lanes[key.rotation..].as_chunks_mut();
        (key, &mut lanes[0])
    }
}

/// The lanes of a whole tensor, before they are rounded.
#[derive(Debug, Clone)]
pub(crate) struct Lanes([f64; ROW]);

impl Lanes {
    /// Lanes of nothing.
    pub(crate) const EMPTY: Self = Self([0.0; ROW]);

    /// Adds the segment that follows.
    pub(crate) fn append(&mut self, segment: &SignedSums) {
        let (first, second) = segment.lanes.split_at(ROW);
        for (lane, (first, second)) in self.0.iter_mut().zip(first.iter().zip(second)) {
            *lane += first + second;
        }
    }

    /// The sketch.
    #[expect(clippy::cast_possible_truncation, reason = "a sketch is stored in binary32")]
    pub(crate) fn finish(&self) -> Sketch {
        let mut sketch = Box::new([0.0; ROW]);
        for (lane, &sum) in sketch.iter_mut().zip(&self.0) {
            let sum = sum as f32;
            *lane = if sum.is_finite() { sum } else { f32::NAN };
        }
        Sketch(sketch)
    }
}

/// Estimate of the norm of the difference of two tensors of equal shape: `sqrt(sum((a_i - b_i)^2))` over the lanes.
///
/// Its square is unbiased. The relative standard error is about `1 / sqrt(2 * 256)` = 4.4 % where many elements differ;
/// where few do, two of them may meet in one lane, and it is larger. NaN when a lane of either sketch is beyond binary32.
pub fn sketch_distance(a: &Sketch, b: &Sketch) -> f64 {
    let square = |(&a, &b): (&f32, &f32)| {
        let difference = f64::from(a) - f64::from(b);
        difference * difference
    };
    a.0.iter().zip(b.0.iter()).map(square).sum::<f64>().sqrt()
}
