//! Distance of two floats of one type in units in the last place: how many representable numbers apart they
//! are.
//!
//! Bits are mapped to integers that count representable numbers upwards from zero; -0 and +0 are both number
//! 0.

use probe_dump::DType;

/// Largest distance for floats of one width; the caller passes the bits of infinity.
macro_rules! largest {
    ($bytes_b:expr, $bytes_c:expr, $finite:expr, $unsigned:ident, $signed:ident) => {{
        const MAGNITUDE: $unsigned = $unsigned::MAX >> 1;
        let (b, _) = $bytes_b.as_chunks::<{ size_of::<$unsigned>() }>();
        let (c, _) = $bytes_c.as_chunks::<{ size_of::<$unsigned>() }>();
        let mut largest = 0;
        for (&b, &c) in b.iter().zip(c) {
            let (b, c) = ($unsigned::from_le_bytes(b), $unsigned::from_le_bytes(c));
            let finite = (b & MAGNITUDE) < $finite && (c & MAGNITUDE) < $finite;
            let order = |bits: $unsigned| {
                let bits = bits.cast_signed();
                if bits < 0 { $signed::MIN.wrapping_sub(bits) } else { bits }
            };
            let distance = order(c).abs_diff(order(b));
            largest = if finite && distance > largest { distance } else { largest };
        }
        u64::from(largest)
    }};
}

/// Returns the largest distance over positions finite on both sides; 0 for types that are not real floats.
#[inline(always)]
#[expect(clippy::inline_always, reason = "takes the instruction set of the body it is called from")]
pub(crate) fn largest(dtype: DType, b: &[u8], c: &[u8]) -> u64 {
    match dtype {
        DType::F64 => largest!(b, c, 0x7ff0_0000_0000_0000, u64, i64),
        DType::F32 => largest!(b, c, 0x7f80_0000, u32, i32),
        DType::Bf16 => largest!(b, c, 0x7f80, u16, i16),
        DType::F16 => largest!(b, c, 0x7c00, u16, i16),
        DType::F8E5M2 => largest!(b, c, 0x7c, u8, i8),
        DType::F8E4M3 => largest!(b, c, 0x7f, u8, i8),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_f32(b: f32, c: f32) -> u64 {
        largest(DType::F32, &b.to_le_bytes(), &c.to_le_bytes())
    }

    #[test]
    fn distance_counts_representable_numbers_across_zero() {
        assert_eq!(of_f32(1.0, 1.0), 0);
        assert_eq!(of_f32(1.0, 1.0 + f32::EPSILON), 1);
        assert_eq!(of_f32(-0.0, 0.0), 0);
        assert_eq!(of_f32(-f32::from_bits(1), f32::from_bits(2)), 3);
        assert_eq!(of_f32(f32::MIN, f32::MAX), 2 * u64::from(f32::MAX.to_bits()));
        assert_eq!(of_f32(f32::NAN, 1.0), 0);
        assert_eq!(of_f32(f32::INFINITY, f32::MAX), 0);
        let (b, c) = (f64::MIN.to_le_bytes(), f64::MAX.to_le_bytes());
        assert_eq!(largest(DType::F64, &b, &c), 2 * f64::MAX.to_bits());
        assert_eq!(largest(DType::F8E4M3, &[0x81], &[0x7e]), 0x7f);
    }
}
