//! The unordered hash of a run of elements: one portable loop, compiled for the instructions of each body.
//!
//! Sums modulo 2^64 do not depend on order, so every body inherently gives the same number.

use crate::sketch::mix;

use super::Body;

/// Returns the sum modulo 2^64 of the mixed elements of `bytes`, each `width` bytes; `None` for widths without
/// such a hash.
pub(crate) fn unordered(body: Body, width: usize, bytes: &[u8]) -> Option<u64> {
    Some(match width {
        1 => on(body, bytes, portable::<1>, Wide::one),
        2 => on(body, bytes, portable::<2>, Wide::two),
        4 => on(body, bytes, portable::<4>, Wide::four),
        8 => on(body, bytes, portable::<8>, Wide::eight),
        _ => return None,
    })
}

fn on(body: Body, bytes: &[u8], plain: fn(&[u8]) -> u64, wide: fn(Wide, &[u8]) -> u64) -> u64 {
    Wide::of(body).map_or_else(|| plain(bytes), |body| wide(body, bytes))
}

/// A body with vector instructions that this CPU has.
#[derive(Debug, Clone, Copy)]
enum Wide {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Wide {
    fn of(body: Body) -> Option<Self> {
        match body {
            #[cfg(target_arch = "x86_64")]
            Body::Avx512 if body.is_supported() => Some(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            Body::Avx2 if body.is_supported() => Some(Self::Avx2),
            _ => None,
        }
    }
}

macro_rules! widths {
    ($($name:ident: $width:literal),*) => {
        #[expect(unsafe_code, reason = "calls code for instructions that not every CPU has")]
        impl Wide {
            $(fn $name(self, bytes: &[u8]) -> u64 {
                match self {
                    // SAFETY: `of` has checked that the CPU has the instructions.
                    #[cfg(target_arch = "x86_64")]
                    Self::Avx512 => unsafe { x86::avx512::<$width>(bytes) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    Self::Avx2 => unsafe { x86::avx2::<$width>(bytes) },
                }
            })*
        }
    };
}

widths!(one: 1, two: 2, four: 4, eight: 8);

#[inline(always)]
#[expect(clippy::inline_always, reason = "takes the instruction set of the body it is called from")]
fn portable<const WIDTH: usize>(bytes: &[u8]) -> u64 {
    let (elements, _) = bytes.as_chunks::<WIDTH>();
    elements.iter().fold(0, |sum: u64, element| {
        let mut bits = [0; 8];
        bits[..WIDTH].copy_from_slice(element);
        sum.wrapping_add(mix(u64::from_le_bytes(bits)))
    })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::portable;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn avx512<const WIDTH: usize>(bytes: &[u8]) -> u64 {
        portable::<WIDTH>(bytes)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2<const WIDTH: usize>(bytes: &[u8]) -> u64 {
        portable::<WIDTH>(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_elements_does_not_count_but_their_bits_do() {
        let bytes = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        for body in Body::ALL.into_iter().filter(|body| body.is_supported()) {
            assert_eq!(unordered(body, 4, &bytes(&[1, 2, 3])), Some(0x456d_78af_809b_437c));
            assert_eq!(unordered(body, 4, &bytes(&[3, 1, 2])), Some(0x456d_78af_809b_437c));
            assert_ne!(unordered(body, 4, &bytes(&[3, 1, 1])), Some(0x456d_78af_809b_437c));
            assert_eq!(unordered(body, 16, &bytes(&[1, 2, 3, 4])), None);
        }
    }

    #[test]
    fn every_body_gives_the_same_sum() {
        let bytes: Vec<u8> =
            (0..4099_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for width in [1, 2, 4, 8] {
            let wanted = unordered(Body::Portable, width, &bytes);
            for body in Body::ALL.into_iter().filter(|body| body.is_supported()) {
                assert_eq!(unordered(body, width, &bytes), wanted);
            }
        }
    }
}
