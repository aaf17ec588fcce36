//! Non-tensor arguments, and CANN's numbers of dtypes.

use probe_capture::{SlotRecord, SlotValue};
use probe_dump::{DType, Number, Scalar, SlotSide};

use crate::handles;
use crate::plan::Argument;

/// Adds a non-tensor argument; a list gets a slot for each member.
pub(super) fn plain(slots: &mut Vec<SlotRecord>, path: &str, argument: &Argument) {
    let side = if path.starts_with("output") { SlotSide::Output } else { SlotSide::Input };
    let mut push = |path: String, value: SlotValue| slots.push(SlotRecord { path, side, value });
    let number = |number: Number| SlotValue::Scalar(Scalar::Number(number));
    let at = |index: usize| format!("{path}.{index}");
    match argument {
        Argument::Tensor(_) | Argument::Tensors(_) => {}
        Argument::Scalar(scalar) => push(path.into(), scalar_value(scalar)),
        Argument::Scalars(scalars) => {
            for (index, scalar) in scalars.iter().enumerate() {
                push(at(index), scalar_value(scalar));
            }
        }
        Argument::Integers(values) => {
            for (index, &value) in values.iter().enumerate() {
                push(at(index), number(Number::Int(value)));
            }
        }
        Argument::Reals(values) => {
            for (index, &value) in values.iter().enumerate() {
                push(at(index), number(Number::Float(f64::from(value))));
            }
        }
        Argument::Truths(values) => {
            for (index, &value) in values.iter().enumerate() {
                push(at(index), number(Number::Bool(value)));
            }
        }
        Argument::Integer(value) => push(path.into(), number(Number::Int(*value))),
        Argument::Real(value) => push(path.into(), number(Number::Float(*value))),
        Argument::Truth(value) => push(path.into(), number(Number::Bool(*value))),
        Argument::Text(text) => push(path.into(), SlotValue::Scalar(Scalar::Text(text.as_str().into()))),
        Argument::Absent => push(path.into(), SlotValue::None),
    }
}

fn scalar_value(scalar: &handles::Scalar) -> SlotValue {
    let bytes = scalar.bytes;
    macro_rules! read {
        ($kind:ty) => {{
            let mut first = [0; size_of::<$kind>()];
            first.copy_from_slice(&bytes[..size_of::<$kind>()]);
            <$kind>::from_le_bytes(first)
        }};
    }
    let number = match dtype(scalar.dtype) {
        Some(DType::F32) => Number::Float(f64::from(read!(f32))),
        Some(DType::F64) => Number::Float(read!(f64)),
        Some(DType::Bf16) => Number::Float(f64::from(f32::from_bits(u32::from(read!(u16)) << 16))),
        Some(DType::I8) => Number::Int(read!(i8).into()),
        Some(DType::I16) => Number::Int(read!(i16).into()),
        Some(DType::I32) => Number::Int(read!(i32).into()),
        Some(DType::I64) => Number::Int(read!(i64)),
        Some(DType::U8) => Number::Int(read!(u8).into()),
        Some(DType::U16) => Number::Int(read!(u16).into()),
        Some(DType::U32) => Number::Int(read!(u32).into()),
        Some(DType::U64) => Number::UInt(read!(u64)),
        Some(DType::Bool) => Number::Bool(read!(u8) != 0),
        kind => {
            let kind =
                kind.map_or_else(|| format!("acl.{}", scalar.dtype), |kind| kind.torch_name().to_owned());
            let text = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
            return SlotValue::Scalar(Scalar::printed(kind, text));
        }
    };
    SlotValue::Scalar(Scalar::Number(number))
}

/// Returns the dtype with this number in CANN.
pub(super) const fn dtype(number: i32) -> Option<DType> {
    Some(match number {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::I8,
        3 => DType::I32,
        4 => DType::U8,
        6 => DType::I16,
        7 => DType::U16,
        8 => DType::U32,
        9 => DType::I64,
        10 => DType::U64,
        11 => DType::F64,
        12 => DType::Bool,
        16 => DType::C64,
        17 => DType::C128,
        27 => DType::Bf16,
        35 => DType::F8E5M2,
        36 => DType::F8E4M3,
        _ => return None,
    })
}
