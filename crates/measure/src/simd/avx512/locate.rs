//! Places of the largest errors of pairs of blocks.

#[allow(
    clippy::wildcard_imports,
    reason = "sixty names with one prefix; the lint is silent in test builds"
)]
use core::arch::x86_64::*;

use crate::sums::{LANES, Magnitude, Record};

use super::super::size_of_kind;
use super::{STEP, finite_lanes, halves, lanes, load_padded};

/// Returns the first element with the largest absolute error above `floor`; `hint` is that of the block's
/// sums.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
#[expect(clippy::cast_possible_truncation, reason = "differences are compared after the same rounding")]
pub(crate) fn locate<const KIND: u8>(hint: f64, floor: Option<f64>, b: &[u8], c: &[u8]) -> Option<Record> {
    let mut best: Option<Record> = None;
    let mut above = floor.unwrap_or(-1.0);
    let hint = _mm512_set1_ps(hint as f32);
    let step = STEP * size_of_kind(KIND);
    let mut look = |first: usize, b: __m512, c: __m512| {
        let difference = _mm512_abs_ps(_mm512_sub_ps(c, b));
        // Rounded to binary32, the largest error equals the hint: few steps get past this check.
        if _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(difference, hint) == 0 {
            return;
        }
        let both = finite_lanes(b) & finite_lanes(c);
        let (wide_b, wide_c) = (halves(b), halves(c));
        for half in 0..2 {
            let error = _mm512_abs_pd(_mm512_sub_pd(wide_c[half], wide_b[half]));
            let larger = _mm512_cmp_pd_mask::<_CMP_GT_OQ>(error, _mm512_set1_pd(above));
            let mut larger = u16::from(larger) & (both >> (8 * half)) & 0xff;
            if larger == 0 {
                continue;
            }
            let (errors, b, c) = (lanes(error), lanes(wide_b[half]), lanes(wide_c[half]));
            while larger != 0 {
                let lane = larger.trailing_zeros() as usize;
                larger &= larger - 1;
                if errors[lane] > above {
                    above = errors[lane];
                    let error = Magnitude { rounded: above, exact: 0 };
                    let index = (first + half * LANES + lane) as u64;
                    best = Some(Record { error, index, values: (b[lane], c[lane]) });
                }
            }
        }
    };
    for (step, (b, c)) in b.chunks(step).zip(c.chunks(step)).enumerate() {
        look(step * STEP, load_padded::<KIND>(b).1, load_padded::<KIND>(c).1);
    }
    best
}
