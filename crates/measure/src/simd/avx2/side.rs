//! Sums of a block of one tensor, and its sketch on the way.

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::sketch::{ROW, SignedSums};
use crate::sums::{BLOCK, SideSums, fold};

use super::super::{fetch_ahead, size_of_kind};
use super::places::Extent;
use super::sketch::SignedRow;
use super::slice::{GROUP, group_of_doubles};
use super::{
    Halves, STEP, add, add_products, classes, counted, finite_lanes, halves, lanes, largest, load, load_rest,
    total, widen, with_nan_from,
};

/// Sums of a block of one tensor; see [`super::super::portable::side`].
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(crate) fn side<const KIND: u8>(masked: bool, bytes: &[u8]) -> SideSums {
    if masked { any::<KIND>(bytes) } else { finite::<KIND>(bytes, None) }
}

/// Sums of a block of finite elements, whole rows, which are added to the sketch as well.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(crate) fn side_and_sketch<const KIND: u8>(bytes: &[u8], signed: &mut SignedSums) -> SideSums {
    debug_assert!(bytes.len().is_multiple_of(ROW * size_of_kind(KIND)));
    finite::<KIND>(bytes, Some(signed))
}

/// Finite elements, a multiple of two steps.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn finite<const KIND: u8>(bytes: &[u8], mut signed: Option<&mut SignedSums>) -> SideSums {
    let (mut sum, mut squares) = ([_mm256_setzero_pd(); 2], [_mm256_setzero_pd(); 2]);
    let mut extent = Extent::<KIND>::new();
    // Without a sketch, short rows are not needed.
    let length = if signed.is_none() { BLOCK } else { ROW };
    for row in bytes.chunks(length * size_of_kind(KIND)) {
        let mut lanes = signed.as_mut().map(|signed| SignedRow::next(signed));
        for (index, group) in row.chunks_exact(GROUP * size_of_kind(KIND)).enumerate() {
            fetch_ahead(group.as_ptr());
            extent.add_all(group);
            for (step, wide) in group_of_doubles::<KIND>(group).into_iter().enumerate() {
                add(&mut sum, wide);
                add_products(&mut squares, wide, wide);
                if let Some(lanes) = &mut lanes {
                    lanes.add(2 * index + step, wide);
                }
            }
        }
    }
    finite_sums(sum, squares, &extent)
}

/// Combines the sums of finite elements.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(super) fn finite_sums<const KIND: u8>(sum: Halves, squares: Halves, extent: &Extent<KIND>) -> SideSums {
    let [min, max] = extent.extremes();
    SideSums { min, max, zeros: extent.zeros(), ..sums(sum, squares) }
}

/// Only the sums.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn sums(sum: Halves, squares: Halves) -> SideSums {
    SideSums { sum: fold(lanes(sum)), squares: fold(lanes(squares)), ..SideSums::EMPTY }
}

/// Any elements.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn any<const KIND: u8>(bytes: &[u8]) -> SideSums {
    let (mut sum, mut squares) = ([_mm256_setzero_pd(); 2], [_mm256_setzero_pd(); 2]);
    let (infinity, neg_infinity) = (_mm256_set1_ps(f32::INFINITY), _mm256_set1_ps(f32::NEG_INFINITY));
    let (mut min, mut max, mut zeros) = (infinity, neg_infinity, _mm256_setzero_si256());
    let mut special = [0_u64; 3];
    let mut one_step = |x: __m256| {
        let finite = finite_lanes(x);
        let low = _mm256_blendv_ps(infinity, x, finite);
        let high = _mm256_blendv_ps(neg_infinity, x, finite);
        if _mm256_movemask_ps(finite) != 0xff {
            for (count, mask) in special.iter_mut().zip(classes(x)) {
                *count += u64::from(mask.count_ones());
            }
        }
        let wide = halves(_mm256_and_ps(x, finite));
        add(&mut sum, wide);
        add_products(&mut squares, wide, wide);
        min = _mm256_min_ps(low, min);
        max = _mm256_max_ps(high, max);
        zeros = counted(zeros, _mm256_cmp_ps::<_CMP_EQ_OQ>(x, _mm256_setzero_ps()));
    };
    let steps = bytes.chunks_exact(STEP * size_of_kind(KIND));
    let rest = steps.remainder();
    for raw in steps {
        fetch_ahead(raw.as_ptr());
        one_step(widen::<KIND>(load::<KIND>(raw)));
    }
    let mut padding = 0;
    if !rest.is_empty() {
        // NaN beyond the end: excluded from everything, and subtracted from the count of NaN below.
        let elements = rest.len() / size_of_kind(KIND);
        padding = (STEP - elements) as u64;
        one_step(with_nan_from(elements, widen::<KIND>(load_rest::<KIND>(rest))));
    }
    let [nan, pos_inf, neg_inf] = special;
    SideSums {
        zeros: total(zeros),
        nan: nan - padding,
        pos_inf,
        neg_inf,
        // Adding zero makes a zero's sign, which depends on the order of elements, positive.
        min: -largest(_mm256_xor_ps(min, _mm256_set1_ps(-0.0))) + 0.0,
        max: largest(max) + 0.0,
        ..sums(sum, squares)
    }
}
