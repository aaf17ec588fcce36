//! The sketch of a tensor: signed sums of its elements in lanes.
//!
//! The norm of the difference of two sketches estimates the norm of the difference of their tensors. The
//! function depends only on values and their positions, so that any program can compute it; `docs/formats.md`
//! defines it.

use std::sync::LazyLock;

use probe_dump::{DType, SKETCH_LANES, Sketch, SketchVersion};

use super::sums::SEGMENT;

/// Number of elements in a row: as many as there are lanes, so that no two elements of a row share one.
pub(crate) const ROW: usize = SKETCH_LANES;

/// Number of sign words in a row.
const WORDS: usize = ROW / 64;

/// Keys of the first rows, which every tensor has: computing them for each tensor would take a quarter of the
/// time.
static FIRST_KEYS: LazyLock<[Vec<RowKey>; 2]> = LazyLock::new(|| {
    [SketchVersion::First, SketchVersion::Second]
        .map(|version| (0..4096).map(|row| RowKey::of(version, row)).collect())
});

/// Number of rows after which the signs of version 2 repeat: a device keeps them all as a table of 16 MiB.
const SIGN_ROWS: u64 = 1 << 16;

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
    /// Twice the lanes: a row is added starting at its rotation, without wrapping around. [`Lanes::append`]
    /// folds.
    lanes: [f64; 2 * ROW],
    version: SketchVersion,
    /// Keys of the first rows.
    known: &'static [RowKey],
    /// Number of the segment's first row.
    first: u64,
    /// Number of the next row.
    row: u64,
    /// The key of a row beyond the known ones.
    key: RowKey,
}

/// Signs and position of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowKey {
    /// Bit `j` of word `k` is the sign of element `64 k + j`; one is negative. A zero follows, so that the
    /// signs of the last elements can be loaded as part of a whole word.
    pub(crate) signs: [u64; WORDS + 1],
    /// Lane of the row's first element.
    pub(crate) rotation: usize,
}

impl RowKey {
    /// Returns the key of row `row`.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a remainder below 256")]
    pub(crate) const fn of(version: SketchVersion, row: u64) -> Self {
        let lanes = version.lanes() as u64;
        let (of_signs, rotation) = match version {
            SketchVersion::First => (row, mix(row ^ 0x00ab_cdef) % lanes),
            // Element `i` is in lane `i mod 251`.
            SketchVersion::Second => (row % SIGN_ROWS, row % lanes * (ROW as u64) % lanes),
        };
        let word = of_signs.wrapping_mul(WORDS as u64);
        Self {
            signs: [
                mix(word),
                mix(word.wrapping_add(1)),
                mix(word.wrapping_add(2)),
                mix(word.wrapping_add(3)),
                0,
            ],
            rotation: rotation as usize,
        }
    }
}

impl SignedSums {
    /// Returns empty sums before the first row of segment `segment` of a tensor of `dtype`.
    pub(crate) fn of_segment(version: SketchVersion, segment: usize, dtype: DType) -> Self {
        let numbers = if dtype.is_complex() { 2 } else { 1 };
        let row = (segment * (SEGMENT * numbers / ROW)) as u64;
        let known = match version {
            SketchVersion::First => &FIRST_KEYS[0],
            SketchVersion::Second => &FIRST_KEYS[1],
        };
        Self { lanes: [0.0; 2 * ROW], version, known, first: row, row, key: RowKey::of(version, 0) }
    }

    /// Resets the sums to empty, before the first row.
    pub(crate) fn restart(&mut self) {
        self.lanes.fill(0.0);
        self.row = self.first;
    }

    /// Returns the key of the next row and the lanes it adds to, in the order of its elements.
    #[inline]
    pub(crate) fn next_row(&mut self) -> (&RowKey, &mut [f64; ROW]) {
        let known = usize::try_from(self.row).ok().and_then(|row| self.known.get(row));
        let key = known.unwrap_or_else(|| {
            self.key = RowKey::of(self.version, self.row);
            &self.key
        });
        self.row += 1;
        let (lanes, _) = self.lanes[key.rotation..].as_chunks_mut();
        (key, &mut lanes[0])
    }
}

/// The lanes of a whole tensor, before they are rounded.
#[derive(Debug, Clone)]
pub(crate) struct Lanes {
    sums: [f64; ROW],
    pub(crate) version: SketchVersion,
}

impl Lanes {
    /// Returns empty lanes.
    pub(crate) const fn empty(version: SketchVersion) -> Self {
        Self { sums: [0.0; ROW], version }
    }

    /// Adds the next segment.
    pub(crate) fn append(&mut self, segment: &SignedSums) {
        let lanes = self.version.lanes();
        // A row that begins in the last lane extends beyond twice the lanes if there are fewer lanes than its
        // elements.
        let (first, rest) = segment.lanes.split_at(lanes);
        let (second, third) = rest.split_at(lanes);
        let third = third.iter().copied().chain(std::iter::repeat(0.0));
        for (lane, ((first, second), third)) in self.sums.iter_mut().zip(first.iter().zip(second).zip(third))
        {
            *lane += first + (second + third);
        }
    }

    /// Returns the sketch.
    #[expect(clippy::cast_possible_truncation, reason = "a sketch is stored in binary32")]
    pub(crate) fn finish(&self) -> Sketch {
        let mut sketch = Box::new([0.0; ROW]);
        for (lane, &sum) in sketch.iter_mut().zip(&self.sums) {
            let sum = sum as f32;
            *lane = if sum.is_finite() { sum } else { f32::NAN };
        }
        Sketch { lanes: sketch, version: self.version }
    }
}

/// Estimates the norm of the difference of two tensors of equal shape: `sqrt(sum((a_i - b_i)^2))` over the
/// lanes.
///
/// Its square is unbiased. The relative standard error is about `1 / sqrt(2 * 251)` = 4.5 % if many elements
/// differ; if few do, two of them may share a lane, and it is larger. NaN if a lane of either sketch exceeds
/// binary32, or if the versions differ.
pub fn sketch_distance(a: &Sketch, b: &Sketch) -> f64 {
    let square = |(&a, &b): (&f32, &f32)| {
        let difference = f64::from(a) - f64::from(b);
        difference * difference
    };
    if a.version != b.version {
        return f64::NAN;
    }
    a.lanes.iter().zip(b.lanes.iter()).map(square).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_take_the_lanes_in_turns_and_their_signs_come_again() {
        let lanes = SketchVersion::Second.lanes() as u64;
        for row in [0, 1, 250, 251, 4095, SIGN_ROWS, SIGN_ROWS + 7, 1 << 40] {
            let key = RowKey::of(SketchVersion::Second, row);
            assert_eq!(key.rotation as u64, row % lanes * ROW as u64 % lanes);
            assert_eq!(key.signs, RowKey::of(SketchVersion::Second, row % SIGN_ROWS).signs);
            assert_eq!(key.signs, RowKey::of(SketchVersion::First, row % SIGN_ROWS).signs);
        }
    }
}
