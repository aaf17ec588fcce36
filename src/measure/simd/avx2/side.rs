//! Sums of a block of one tensor.

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::measure::sums::{SideSums, fold};

use super::super::{fetch_ahead, size_of_kind};
use super::{
    STEP, add, add_products, classes, counted, finite_lanes, halves, lanes, largest, load, load_rest, total,
    widen, with_nan_from,
};

/// Sums of a block of one tensor; see [`super::portable::side`].
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
pub(crate) fn side<const KIND: u8>(masked: bool, bytes: &[u8]) -> SideSums {
    if masked { side_on::<KIND, true>(bytes) } else { side_on::<KIND, false>(bytes) }
}

#[target_feature(enable = "avx2,fma,f16c,popcnt")]
fn side_on<const KIND: u8, const MASKED: bool>(bytes: &[u8]) -> SideSums {
    let (mut sum, mut squares) = ([_mm256_setzero_pd(); 2], [_mm256_setzero_pd(); 2]);
    let (infinity, neg_infinity) = (_mm256_set1_ps(f32::INFINITY), _mm256_set1_ps(f32::NEG_INFINITY));
    let (mut min, mut max, mut zeros) = (infinity, neg_infinity, _mm256_setzero_si256());
    let mut special = [0_u64; 3];
    let mut one_step = |x: __m256| {
        let (mut low, mut high, mut term) = (x, x, x);
        if MASKED {
            let finite = finite_lanes(x);
            low = _mm256_blendv_ps(infinity, x, finite);
            high = _mm256_blendv_ps(neg_infinity, x, finite);
            term = _mm256_and_ps(x, finite);
            if _mm256_movemask_ps(finite) != 0xff {
                for (count, mask) in special.iter_mut().zip(classes(x)) {
                    *count += u64::from(mask.count_ones());
                }
            }
        }
        let wide = halves(term);
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
        // NaN beyond the end: left out of everything, and taken off the count of NaN below.
        let elements = rest.len() / size_of_kind(KIND);
        padding = (STEP - elements) as u64;
        one_step(with_nan_from(elements, widen::<KIND>(load_rest::<KIND>(rest))));
    }
    let [nan, pos_inf, neg_inf] = special;
    SideSums {
        sum: fold(lanes(sum)),
        squares: fold(lanes(squares)),
        min: -largest(_mm256_xor_ps(min, _mm256_set1_ps(-0.0))) + 0.0,
        max: largest(max) + 0.0,
        zeros: total(zeros),
        nan: nan - padding,
        pos_inf,
        neg_inf,
    }
}
