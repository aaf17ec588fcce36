//! One element of a tensor as text.

use probe_dump::{DType, TensorRef};
use probe_measure::decode;

/// Returns the element at `index` in row-major order; floats with as many digits as distinguish them from their
/// neighbours.
#[expect(clippy::cast_possible_truncation, reason = "`raw` fills narrow types with zeros")]
pub(super) fn text(view: TensorRef<'_>, index: usize) -> String {
    let size = view.dtype().size();
    let mut bytes = vec![0; size];
    view.gather(index..index + 1, &mut bytes);
    let raw = |range: std::ops::Range<usize>| {
        let mut wide = [0_u8; 8];
        let part = bytes.get(range).unwrap_or_default();
        wide[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(wide)
    };
    let low = raw(0..size.min(8));
    let signed = |bits: u32| (low << (64 - bits)).cast_signed() >> (64 - bits);
    match view.dtype() {
        DType::F64 => format!("{:?}", f64::from_bits(low)),
        DType::Bool => (low != 0).to_string(),
        DType::I8 => signed(8).to_string(),
        DType::I16 => signed(16).to_string(),
        DType::I32 => signed(32).to_string(),
        DType::I64 => signed(64).to_string(),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => low.to_string(),
        DType::F32 => format!("{:?}", float32(low)),
        DType::F16 => format!("{:?}", decode::f32_of_f16(low as u16)),
        DType::Bf16 => format!("{:?}", decode::f32_of_bf16(low as u16)),
        DType::F8E4M3 => format!("{:?}", decode::f32_of_f8e4m3(low as u8)),
        DType::F8E5M2 => format!("{:?}", decode::f32_of_f8e5m2(low as u8)),
        DType::C64 => format!("{:?}{:+?}j", float32(low), float32(low >> 32)),
        DType::C128 => format!("{:?}{:+?}j", f64::from_bits(low), f64::from_bits(raw(8..16))),
    }
}

/// Returns the lower half of `bits` as binary32.
#[expect(clippy::cast_possible_truncation, reason = "the upper half is not meant")]
fn float32(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}
