//! Decodes the bytes of a block into numbers for the kernels. Every conversion to a wider float is exact.

#![expect(
    clippy::inline_always,
    reason = "a loop of a kernel is vectorised only when everything in it is inlined"
)]

use probe_dump::DType;

/// Converts a binary16 to binary32: exact, NaN stays NaN.
#[inline]
pub const fn f32_of_f16(bits: u16) -> f32 {
    // Moves exponent and mantissa into place, then corrects the exponent's bias by one exact multiplication, which
    // also makes subnormals normal.
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = (bits & 0x7fff) as u32;
    let scaled = f32::from_bits(magnitude << 13) * REBIAS;
    let finite = scaled.to_bits();
    let special = if magnitude >= 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(finite | special | (((bits & 0x8000) as u32) << 16))
}

/// Converts a bfloat16 to binary32.
#[inline]
pub const fn f32_of_bf16(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Converts a float8 with 5 exponent bits, the upper half of a binary16, to binary32.
#[inline]
pub const fn f32_of_f8e5m2(bits: u8) -> f32 {
    f32_of_f16((bits as u16) << 8)
}

/// Converts a finite-only float8 with 4 exponent bits to binary32.
#[inline]
pub const fn f32_of_f8e4m3(bits: u8) -> f32 {
    const REBIAS: f32 = f32::from_bits((127 + 120) << 23);
    let magnitude = (bits & 0x7f) as u32;
    let scaled = f32::from_bits(magnitude << 20) * REBIAS;
    let special = if magnitude == 0x7f { 0x7fc0_0000 } else { 0 };
    f32::from_bits(scaled.to_bits() | special | (((bits & 0x80) as u32) << 24))
}

/// Table of all values of a one-byte type.
macro_rules! table {
    ($of:ident) => {{
        let mut table = [0.0; 256];
        let mut bits = u8::MAX;
        while bits > 0 {
            table[bits as usize] = $of(bits);
            bits -= 1;
        }
        table[0] = $of(0);
        table
    }};
}

/// Every float8 with 5 exponent bits. A table, because subnormals cost some CPUs a hundred cycles each.
static F8E5M2: [f32; 256] = table!(f32_of_f8e5m2);

/// Every finite-only float8 with 4 exponent bits.
static F8E4M3: [f32; 256] = table!(f32_of_f8e4m3);

/// A type that blocks can be decoded to.
pub(crate) trait Decode: Sized {
    /// Replaces the contents of `out` with the elements of `bytes`, whose type is `dtype`.
    ///
    /// # Panics
    /// If values of `dtype` do not fit `Self`; `Pairing::of` is the one place that chooses the decoding type.
    fn decode(dtype: DType, bytes: &[u8], out: &mut Vec<Self>);
}

/// Converts floats of 8 or 16 bits, little endian, to binary32, which represents all of them.
///
/// # Panics
/// If `dtype` is another type.
pub fn widened(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut out = Vec::new();
    f32::decode(dtype, bytes, &mut out);
    out
}

/// Converts real numbers, little endian, to binary64; 64-bit integers are rounded.
///
/// # Panics
/// If `dtype` is complex.
pub fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let mut out = Vec::new();
    f64::decode(dtype, bytes, &mut out);
    out
}

/// Applies `of` to every `N` bytes.
#[inline(always)]
fn fill<const N: usize, T>(bytes: &[u8], out: &mut Vec<T>, of: impl Fn([u8; N]) -> T) {
    out.clear();
    out.extend(bytes.as_chunks::<N>().0.iter().map(|&element| of(element)));
}

/// Converts every element with `$wrap` after reading it as its own type.
macro_rules! numbers {
    ($dtype:expr, $bytes:expr, $out:expr, $self:ident; $($variant:ident $type:ident)*) => {
        match $dtype {
            $(DType::$variant => {
                fill($bytes, $out, |element| $self::from($type::from_le_bytes(element)));
                return;
            })*
            DType::Bool => {
                fill($bytes, $out, |[byte]| $self::from(u8::from(byte != 0)));
                return;
            }
            _ => {}
        }
    };
}

impl Decode for f32 {
    #[inline(always)]
    fn decode(dtype: DType, bytes: &[u8], out: &mut Vec<Self>) {
        match dtype {
            DType::F32 => fill(bytes, out, Self::from_le_bytes),
            DType::F16 => fill(bytes, out, |element| f32_of_f16(u16::from_le_bytes(element))),
            DType::Bf16 => fill(bytes, out, |element| f32_of_bf16(u16::from_le_bytes(element))),
            DType::F8E4M3 => fill(bytes, out, |[byte]| F8E4M3[usize::from(byte)]),
            DType::F8E5M2 => fill(bytes, out, |[byte]| F8E5M2[usize::from(byte)]),
            other => unreachable!("{other} is not held by binary32"),
        }
    }
}

impl Decode for f64 {
    #[inline(always)]
    fn decode(dtype: DType, bytes: &[u8], out: &mut Vec<Self>) {
        numbers!(dtype, bytes, out, f64; F64 f64 F32 f32 I8 i8 I16 i16 I32 i32 U8 u8 U16 u16 U32 u32);
        match dtype {
            DType::I64 => fill(bytes, out, |element| i64::from_le_bytes(element) as Self),
            DType::U64 => fill(bytes, out, |element| u64::from_le_bytes(element) as Self),
            DType::F16 => fill(bytes, out, |element| Self::from(f32_of_f16(u16::from_le_bytes(element)))),
            DType::Bf16 => fill(bytes, out, |element| Self::from(f32_of_bf16(u16::from_le_bytes(element)))),
            DType::F8E4M3 => fill(bytes, out, |[byte]| Self::from(F8E4M3[usize::from(byte)])),
            DType::F8E5M2 => fill(bytes, out, |[byte]| Self::from(F8E5M2[usize::from(byte)])),
            other => unreachable!("{other} is not a real number"),
        }
    }
}

impl Decode for i64 {
    #[inline(always)]
    fn decode(dtype: DType, bytes: &[u8], out: &mut Vec<Self>) {
        numbers!(dtype, bytes, out, i64; I64 i64 I32 i32 I16 i16 I8 i8 U32 u32 U16 u16 U8 u8);
        unreachable!("{dtype} is not held by int64")
    }
}

impl Decode for u64 {
    #[inline(always)]
    fn decode(dtype: DType, bytes: &[u8], out: &mut Vec<Self>) {
        numbers!(dtype, bytes, out, u64; U64 u64 U32 u32 U16 u16 U8 u8);
        unreachable!("{dtype} is not held by uint64")
    }
}

impl Decode for i128 {
    #[inline(always)]
    fn decode(dtype: DType, bytes: &[u8], out: &mut Vec<Self>) {
        numbers!(dtype, bytes, out, i128; I64 i64 I32 i32 I16 i16 I8 i8 U64 u64 U32 u32 U16 u16 U8 u8);
        unreachable!("{dtype} is not an integer")
    }
}

impl Decode for [f64; 2] {
    #[inline(always)]
    fn decode(dtype: DType, bytes: &[u8], out: &mut Vec<Self>) {
        match dtype {
            DType::C64 => fill(bytes, out, |[a, b, c, d, e, f, g, h]| {
                [f32::from_le_bytes([a, b, c, d]).into(), f32::from_le_bytes([e, f, g, h]).into()]
            }),
            DType::C128 => fill(bytes, out, |element: [u8; 16]| {
                let bits = u128::from_le_bytes(element);
                #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
                [bits as u64, (bits >> 64) as u64].map(f64::from_bits)
            }),
            real => {
                let mut parts = Vec::with_capacity(bytes.len() / real.size());
                f64::decode(real, bytes, &mut parts);
                out.clear();
                out.extend(parts.into_iter().map(|re| [re, 0.0]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_floats_decode_as_their_crate_says() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f32_of_f16(bits), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn float8_follows_the_definition() {
        for bits in 0..=u8::MAX {
            let (sign, magnitude) = (if bits < 128 { 1.0 } else { -1.0 }, i32::from(bits & 0x7f));
            let value = |mantissa_bits: i32, bias: i32| {
                let (exponent, mantissa) =
                    (magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1));
                let one = 1 << mantissa_bits;
                let (significand, exponent) =
                    if exponent == 0 { (mantissa, 1) } else { (one + mantissa, exponent) };
                sign * f64::from(significand) * 2_f64.powi(exponent - bias - mantissa_bits)
            };
            let e4m3 = f64::from(f32_of_f8e4m3(bits));
            let e5m2 = f64::from(f32_of_f8e5m2(bits));
            if magnitude == 0x7f {
                assert!(e4m3.is_nan());
            } else {
                assert_eq!(e4m3.to_bits(), value(3, 7).to_bits(), "{bits:#x}");
            }
            match magnitude {
                0x7c => assert_eq!(e5m2.to_bits(), (sign * f64::INFINITY).to_bits()),
                0x7d.. => assert!(e5m2.is_nan()),
                _ => assert_eq!(e5m2.to_bits(), value(2, 15).to_bits(), "{bits:#x}"),
            }
        }
    }
}
