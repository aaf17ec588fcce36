//! Element types and formats, numbered as in dumps. These numbers are not those of ACL.

use std::sync::OnceLock;

use probe_dump::DType;

/// Type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementType {
    /// A dtype, stored as is.
    Known(DType),
    /// One byte each, decoded to binary32, which represents all its values.
    HiFloat8,
    /// A type that is recognised but not decoded: 4-bit, quantised, or without a public definition.
    Named(&'static str),
    /// Missing, or an unassigned number: raw bytes.
    Bytes,
}

impl ElementType {
    /// Returns the type with this number.
    pub(super) const fn of(number: u64) -> Self {
        match number {
            1 => Self::Known(DType::F32),
            2 => Self::Known(DType::F16),
            3 => Self::Known(DType::I8),
            4 => Self::Known(DType::U8),
            5 => Self::Known(DType::I16),
            6 => Self::Known(DType::U16),
            7 => Self::Known(DType::I32),
            8 | 23 => Self::Known(DType::I64),
            9 => Self::Known(DType::U32),
            10 => Self::Known(DType::U64),
            11 => Self::Known(DType::Bool),
            12 => Self::Known(DType::F64),
            13 => Self::Named("string"),
            16 => Self::Known(DType::C64),
            17 => Self::Known(DType::C128),
            18 => Self::Named("qint8"),
            19 => Self::Named("qint16"),
            20 => Self::Named("qint32"),
            21 => Self::Named("quint8"),
            22 => Self::Named("quint16"),
            25 => Self::Named("dual"),
            26 => Self::Named("variant"),
            27 => Self::Known(DType::Bf16),
            28 => Self::Named("int4"),
            29 => Self::Named("uint1"),
            30 => Self::Named("int2"),
            31 => Self::Named("uint2"),
            32 => Self::Named("complex32"),
            33 => Self::HiFloat8,
            34 => Self::Known(DType::F8E5M2),
            35 => Self::Known(DType::F8E4M3),
            36 => Self::Named("float8_e8m0"),
            37 => Self::Named("float6_e3m2"),
            38 => Self::Named("float6_e2m3"),
            39 => Self::Named("float4_e2m1"),
            40 => Self::Named("float4_e1m2"),
            _ => Self::Bytes,
        }
    }

    /// Returns the stored bytes per element; `None` if unknown.
    pub(super) const fn size(self) -> Option<usize> {
        match self {
            Self::Known(dtype) => Some(dtype.size()),
            Self::HiFloat8 | Self::Bytes => Some(1),
            Self::Named(_) => None,
        }
    }
}

/// Formats of tensors.
pub(super) mod format {
    pub(in crate::cann) const NCHW: u64 = 0;
    pub(in crate::cann) const NHWC: u64 = 1;
    pub(in crate::cann) const ND: u64 = 2;
    pub(in crate::cann) const NC1HWC0: u64 = 3;
    pub(in crate::cann) const FRACTAL_Z: u64 = 4;
    pub(in crate::cann) const HWCN: u64 = 16;
    pub(in crate::cann) const NDHWC: u64 = 27;
    pub(in crate::cann) const FRACTAL_NZ: u64 = 29;
    pub(in crate::cann) const NCDHW: u64 = 30;
    pub(in crate::cann) const DHWCN: u64 = 31;
    pub(in crate::cann) const NDC1HWC0: u64 = 32;
}

/// Returns the name of a format, or its number if it has none.
pub(super) fn format_name(number: u64) -> String {
    let name = match number {
        format::NCHW => "NCHW",
        format::NHWC => "NHWC",
        format::ND => "ND",
        format::NC1HWC0 => "NC1HWC0",
        format::FRACTAL_Z => "FRACTAL_Z",
        12 => "NC1HWC0_C04",
        13 => "FRACTAL_Z_C04",
        format::HWCN => "HWCN",
        format::NDHWC => "NDHWC",
        format::FRACTAL_NZ => "FRACTAL_NZ",
        format::NCDHW => "NCDHW",
        format::DHWCN => "DHWCN",
        format::NDC1HWC0 => "NDC1HWC0",
        33 => "FRACTAL_Z_3D",
        other => return format!("format {other}"),
    };
    name.to_owned()
}

/// Decodes a `HiFloat8` code: "Ascend `HiFloat8` Format for Deep Learning", arXiv 2409.16626. A sign; a prefix that gives the number of
/// exponent bits; the exponent, as sign and magnitude without its leading 1; the mantissa.
fn hifloat8(code: u8) -> f32 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let rest = code & 0x7F;
    match rest {
        0 if code == 0 => return 0.0,
        0 => return f32::NAN,
        0x6F => return sign * f32::INFINITY,
        _ => {}
    }
    // Prefix, exponent and mantissa have 7 bits in total.
    let (exponent_bits, mantissa_bits) = match rest {
        0x60..=0x7F => (4, 1),
        0x40..=0x5F => (3, 2),
        0x20..=0x3F => (2, 3),
        0x10..=0x1F => (1, 3),
        0x08..=0x0F => (0, 3),
        _ => return sign * 2_f32.powi(i32::from(rest) - 23),
    };
    let mantissa = rest & ((1 << mantissa_bits) - 1);
    let field = i32::from(rest >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let exponent = if exponent_bits == 0 {
        0
    } else {
        let top = 1 << (exponent_bits - 1);
        let magnitude = top | (field & (top - 1));
        if field & top == 0 { magnitude } else { -magnitude }
    };
    let significand = 1.0 + f32::from(mantissa) / f32::from(1_u8 << mantissa_bits);
    sign * significand * 2_f32.powi(exponent)
}

/// Decodes `HiFloat8` elements to little-endian binary32.
pub(super) fn decode_hifloat8(codes: &[u8]) -> Vec<u8> {
    static TABLE: OnceLock<[[u8; 4]; 256]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = [[0; 4]; 256];
        for (code, value) in (0..=u8::MAX).zip(&mut table) {
            *value = hifloat8(code).to_le_bytes();
        }
        table
    });
    codes.iter().flat_map(|&code| table[usize::from(code)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hifloat8_has_the_published_values() {
        for (code, value) in [
            (0x00, 0.0),
            (0x01, 2_f32.powi(-22)),
            (0x08, 1.0),
            (0x09, 1.125),
            (0x10, 2.0),
            (0x18, 0.5),
            (0x6E, 32768.0),
            (0x6F, f32::INFINITY),
            (0xEF, f32::NEG_INFINITY),
            (0x88, -1.0),
        ] {
            assert_eq!(hifloat8(code).to_bits(), f32::to_bits(value), "{code:#x}");
        }
        assert!(hifloat8(0x80).is_nan());
        // Positive finite codes run from 2^-22 to 2^15 without duplicates, and negative codes are their negatives.
        let mut positive: Vec<f32> = (1..0x80).filter(|code| *code != 0x6F).map(hifloat8).collect();
        positive.sort_by(f32::total_cmp);
        assert!(positive.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(
            (positive[0].to_bits(), positive[positive.len() - 1].to_bits()),
            (2_f32.powi(-22).to_bits(), 2_f32.powi(15).to_bits())
        );
        for code in 1..0x80 {
            assert_eq!(hifloat8(code | 0x80).to_bits(), (-hifloat8(code)).to_bits());
        }
    }
}
