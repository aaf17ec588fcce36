//! Checks every layout against an element-wise walk.

use proptest::prelude::*;

use crate::{DType, TensorRef};

/// One dtype of every size.
const SIZES: [DType; 5] = [DType::U8, DType::Bf16, DType::F32, DType::F64, DType::C128];

/// Bytes that differ from their neighbours, near and far.
fn storage(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 13).to_le_bytes()[0]).collect()
}

/// Returns the elements of the view, copied one by one.
fn walk(bytes: &[u8], view: TensorRef<'_>) -> Vec<u8> {
    let size = view.dtype().size();
    let mut out = Vec::new();
    for index in 0..view.len() {
        let (mut rest, mut at) = (index, view.offset());
        for (&length, &stride) in view.shape().iter().zip(view.strides()).rev() {
            at += rest % length * stride;
            rest /= length;
        }
        out.extend_from_slice(&bytes[at * size..][..size]);
    }
    out
}

/// Checks the whole view, the part `from..to` (in thousandths), and windows as requested by a reader of blocks.
fn check(dtype: DType, shape: &[usize], strides: &[usize], offset: usize, (from, to): (usize, usize)) {
    let last: usize = shape.iter().zip(strides).map(|(&length, &stride)| (length - 1) * stride).sum();
    let bytes = storage((offset + last + 1) * dtype.size());
    let view = TensorRef::strided(&bytes, dtype, shape, strides, offset).unwrap();
    let (expected, size) = (walk(&bytes, view), dtype.size());
    assert!(view.to_bytes() == expected, "{view:?}");
    let gathered = |range: std::ops::Range<usize>| {
        let mut out = vec![0xa5; range.len() * size];
        view.gather(range.clone(), &mut out);
        assert!(out == expected[range.start * size..range.end * size], "{view:?} {range:?}");
    };
    let place = |thousandths: usize| view.len() * thousandths / 1000;
    gathered(place(from.min(to))..place(from.max(to)));
    let mut start = 0;
    while start < view.len() {
        let range = start..view.len().min(start + 2048);
        let window = view.window(range.clone(), view.len());
        assert!(window.start <= range.start && window.end >= range.end && window.end <= view.len());
        gathered(window.clone());
        start = window.end;
    }
}

/// Returns strides of dimensions stored in the order `order`, innermost last, with `gap` times the space needed.
fn permuted(shape: &[usize], order: &[usize], gap: usize) -> Vec<usize> {
    let (mut strides, mut next) = (vec![0; shape.len()], gap);
    for &axis in order.iter().rev() {
        strides[axis] = next;
        next *= shape[axis];
    }
    strides
}

#[test]
fn edges_of_squares_and_tiles() {
    for dtype in SIZES {
        for rows in [2, 3, 15, 16, 17, 63, 64, 65, 130] {
            for across in [2, 3, 4, 7, 8, 9, 16, 31, 32, 33, 65] {
                check(dtype, &[rows, across], &[1, rows], 0, (100, 900));
                check(dtype, &[rows, across], &[1, rows + 5], 3, (333, 777));
            }
        }
    }
}

#[test]
fn rows_longer_than_any_window() {
    check(DType::F64, &[3, 200_000], &[1, 3], 0, (100, 900));
    check(DType::U8, &[40, 50_000], &[1, 40], 1, (0, 1000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn permuted_dimensions(
        size in 0..SIZES.len(),
        (shape, order) in prop::collection::vec(1_usize..24, 1..5).prop_flat_map(|shape| {
            let axes = (0..shape.len()).collect::<Vec<_>>();
            (Just(shape), Just(axes).prop_shuffle())
        }),
        gap in 1_usize..4,
        offset in 0_usize..20,
        part in (0_usize..=1000, 0_usize..=1000),
    ) {
        check(SIZES[size], &shape, &permuted(&shape, &order, gap), offset, part);
    }

    #[test]
    fn transposed_matrices(
        size in 0..SIZES.len(),
        (batch, rows, across) in (1_usize..4, 1_usize..200, 1_usize..120),
        pad in 0_usize..3,
        offset in 0_usize..20,
        part in (0_usize..=1000, 0_usize..=1000),
    ) {
        let stride = rows + pad;
        check(SIZES[size], &[batch, rows, across], &[across * stride, 1, stride], offset, part);
    }

    #[test]
    fn any_strides(
        size in 0..SIZES.len(),
        dims in prop::collection::vec((1_usize..20, 0_usize..40), 0..4),
        offset in 0_usize..20,
        part in (0_usize..=1000, 0_usize..=1000),
    ) {
        let (shape, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        check(SIZES[size], &shape, &strides, offset, part);
    }
}
