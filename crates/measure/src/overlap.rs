//! Rows of indices as sets: two runs may choose the same experts or tokens in a different order.
//!
//! A second pass over a pair of integer tensors that is known to differ, on one thread.

use probe_dump::TensorRef;

use super::elements::for_each_pair;

/// Length of the longest row that counts as a set of choices, such as those of `topk`.
const LONGEST_ROW: usize = 1024;

/// Number of elements up to which a tensor gets the second pass.
const MAX_ELEMENTS: usize = 1 << 26;

/// Two tensors of indices, row by row along their last dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overlap {
    /// Rows.
    pub rows: u64,
    /// Rows that do not hold the same numbers, equally often, on both sides, in any order.
    pub apart: u64,
    /// Numbers that both sides hold in the same row, over all rows.
    pub shared: u64,
}

/// Returns the overlap of the rows of two integer tensors. `None` for other dtypes, for tensors without rows
/// of at least two elements, and if the shapes differ.
pub(super) fn overlap(baseline: TensorRef<'_>, candidate: TensorRef<'_>) -> Option<Overlap> {
    let integers = baseline.dtype().is_integer() && candidate.dtype().is_integer();
    let (&width, outer) = baseline.shape().split_last()?;
    let is_row = !outer.is_empty() && (2..=LONGEST_ROW).contains(&width);
    if !integers || !is_row || baseline.shape() != candidate.shape() || baseline.len() > MAX_ELEMENTS {
        return None;
    }
    let mut found = Overlap::default();
    let (mut b_row, mut c_row) = (Vec::with_capacity(width), Vec::with_capacity(width));
    for_each_pair(baseline, candidate, |b, c| {
        b_row.push(b);
        c_row.push(c);
        if b_row.len() == width {
            found.add(&mut b_row, &mut c_row);
        }
    });
    Some(found)
}

impl Overlap {
    /// Adds a row and clears it.
    fn add(&mut self, b: &mut Vec<f64>, c: &mut Vec<f64>) {
        b.sort_by(f64::total_cmp);
        c.sort_by(f64::total_cmp);
        let (mut left, mut right, mut shared) = (b.iter().peekable(), c.iter().peekable(), 0_usize);
        while let (Some(x), Some(y)) = (left.peek(), right.peek()) {
            match x.total_cmp(y) {
                std::cmp::Ordering::Less => drop(left.next()),
                std::cmp::Ordering::Greater => drop(right.next()),
                std::cmp::Ordering::Equal => {
                    left.next();
                    right.next();
                    shared += 1;
                }
            }
        }
        self.rows += 1;
        self.apart += u64::from(shared < b.len());
        self.shared += shared as u64;
        b.clear();
        c.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_dump::{DType, contiguous_strides};

    fn found(shape: &[usize], b: &[i64], c: &[i64]) -> Option<Overlap> {
        let bytes = |values: &[i64]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let (b, c) = (bytes(b), bytes(c));
        let strides = contiguous_strides(shape);
        let view = |storage| TensorRef::strided(storage, DType::I64, shape, &strides, 0).unwrap();
        overlap(view(&b), view(&c))
    }

    #[test]
    fn rows_are_sets_in_which_numbers_may_stand_more_than_once() {
        let b = [1, 2, 3, 4, 5, 6, 7, 7, 8];
        assert_eq!(
            found(&[3, 3], &b, &[3, 1, 2, 4, 9, 6, 7, 8, 8]),
            Some(Overlap { rows: 3, apart: 2, shared: 7 })
        );
        assert_eq!(found(&[3, 3], &b, &b), Some(Overlap { rows: 3, apart: 0, shared: 9 }));
        assert_eq!(found(&[9], &b, &b), None);
        assert_eq!(found(&[9, 1], &b, &b), None);
        assert_eq!(found(&[0, 3], &[], &[]), Some(Overlap::default()));
    }

    #[test]
    fn rows_that_cross_blocks_are_whole() {
        let b: Vec<i64> = (0..3 * 70_001).collect();
        let mut c: Vec<i64> = b.chunks(3).flat_map(|row| row.iter().rev().copied()).collect();
        c[100_000] = -1;
        let expected = Overlap { rows: 70_001, apart: 1, shared: 3 * 70_001 - 1 };
        assert_eq!(found(&[70_001, 3], &b, &c), Some(expected));
    }
}
