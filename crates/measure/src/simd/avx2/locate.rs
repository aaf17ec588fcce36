//! Finds the largest error of a block.

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::sums::{Magnitude, Record};

use super::super::size_of_kind;
use super::{STEP, abs, finite_lanes, floats, load, load_rest, widen, with_nan_from};

/// Returns the first element with the largest absolute error above `floor`; `hint` is that of the block's
/// sums.
#[target_feature(enable = "avx2,fma,f16c,popcnt")]
#[expect(clippy::cast_possible_truncation, reason = "the hint was a binary32")]
pub(crate) fn locate<const KIND: u8>(hint: f64, floor: Option<f64>, b: &[u8], c: &[u8]) -> Option<Record> {
    let mut best: Option<Record> = None;
    let mut above = floor.unwrap_or(-1.0);
    let hint = _mm256_set1_ps(hint as f32);
    let mut look = |first: usize, b: __m256, c: __m256| {
        // Rounded to binary32, the largest error equals the hint: few steps get past this check.
        let difference = abs(_mm256_sub_ps(c, b));
        let at_hint = _mm256_cmp_ps::<_CMP_EQ_OQ>(difference, hint);
        let at_hint = _mm256_and_ps(at_hint, _mm256_and_ps(finite_lanes(b), finite_lanes(c)));
        let mut at_hint = _mm256_movemask_ps(at_hint);
        if at_hint == 0 {
            return;
        }
        let (b, c) = (floats(b), floats(c));
        while at_hint != 0 {
            let lane = at_hint.trailing_zeros() as usize;
            at_hint &= at_hint - 1;
            let (b, c) = (f64::from(b[lane]), f64::from(c[lane]));
            if (c - b).abs() > above {
                above = (c - b).abs();
                let error = Magnitude { rounded: above, exact: 0 };
                best = Some(Record { error, index: (first + lane) as u64, values: (b, c) });
            }
        }
    };
    let step = STEP * size_of_kind(KIND);
    let (steps_b, steps_c) = (b.chunks_exact(step), c.chunks_exact(step));
    let (rest_b, rest_c) = (steps_b.remainder(), steps_c.remainder());
    let mut first = 0;
    for (b, c) in steps_b.zip(steps_c) {
        look(first, widen::<KIND>(load::<KIND>(b)), widen::<KIND>(load::<KIND>(c)));
        first += STEP;
    }
    if !rest_b.is_empty() {
        let rest = rest_b.len() / size_of_kind(KIND);
        let (b, c) = (widen::<KIND>(load_rest::<KIND>(rest_b)), widen::<KIND>(load_rest::<KIND>(rest_c)));
        look(first, with_nan_from(rest, b), with_nan_from(rest, c));
    }
    best
}
