//! Dtypes of recorded tensors.

use std::fmt;

/// Dtype of a tensor whose bytes `probe` can interpret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// Upper half of a binary32.
    Bf16,
    /// 8-bit float, 4 exponent and 3 mantissa bits, finite only (no infinity, one NaN pattern per sign).
    F8E4M3,
    /// 8-bit float, 5 exponent and 2 mantissa bits, IEEE-like with infinities.
    F8E5M2,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// One byte per element; zero is false, anything else is true.
    Bool,
    /// Two binary32 numbers: real, imaginary.
    C64,
    /// Two binary64 numbers: real, imaginary.
    C128,
}

/// Every [`DType`], in declaration order; for tests and tables.
pub const ALL_DTYPES: [DType; 17] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
    DType::C64,
    DType::C128,
];

impl DType {
    /// Returns the size of one element in bytes (both parts of a complex element).
    pub const fn size(self) -> usize {
        match self {
            Self::F8E4M3 | Self::F8E5M2 | Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// Returns the framework's name without its prefix, such as `float32`.
    pub const fn name(self) -> &'static str {
        self.torch_name().split_at("torch.".len()).1
    }

    /// Returns the framework's name, such as `torch.float32`.
    pub const fn torch_name(self) -> &'static str {
        match self {
            Self::F64 => "torch.float64",
            Self::F32 => "torch.float32",
            Self::F16 => "torch.float16",
            Self::Bf16 => "torch.bfloat16",
            Self::F8E4M3 => "torch.float8_e4m3fn",
            Self::F8E5M2 => "torch.float8_e5m2",
            Self::I8 => "torch.int8",
            Self::I16 => "torch.int16",
            Self::I32 => "torch.int32",
            Self::I64 => "torch.int64",
            Self::U8 => "torch.uint8",
            Self::U16 => "torch.uint16",
            Self::U32 => "torch.uint32",
            Self::U64 => "torch.uint64",
            Self::Bool => "torch.bool",
            Self::C64 => "torch.complex64",
            Self::C128 => "torch.complex128",
        }
    }

    /// Parses a framework name: PyTorch's with or without the prefix `torch.`, MindSpore's (`Float32`, `BFloat16`)
    /// with or without `mindspore.`.
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_prefix("torch.").or_else(|| text.strip_prefix("mindspore.")).unwrap_or(text);
        let lower: String;
        let name = if name.starts_with(|first: char| first.is_ascii_uppercase()) {
            lower = name.to_ascii_lowercase();
            &lower
        } else {
            name
        };
        let name = match name {
            "float" => "float32",
            "double" => "float64",
            "half" => "float16",
            "long" => "int64",
            "int" => "int32",
            "short" => "int16",
            other => other,
        };
        ALL_DTYPES.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Returns true for real floating-point types of any width.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::Bf16 | Self::F8E4M3 | Self::F8E5M2)
    }

    /// Returns true for complex types.
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C64 | Self::C128)
    }

    /// Returns true for signed and unsigned integers, but not for `bool`.
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::U8 | Self::U16 | Self::U32 | Self::U64
        )
    }

    /// Returns the stored mantissa bits of a floating-point or complex type (23 for float32),
    /// `None` for the others.
    pub const fn mantissa_bits(self) -> Option<u32> {
        match self {
            Self::F64 | Self::C128 => Some(52),
            Self::F32 | Self::C64 => Some(23),
            Self::F16 => Some(10),
            Self::Bf16 => Some(7),
            Self::F8E4M3 => Some(3),
            Self::F8E5M2 => Some(2),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Dtype that a dump states for a tensor: one known to `probe`, or the original text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RecordedDType {
    /// A type whose values can be compared.
    Known(DType),
    /// A type that is recognised by name only (`float8_e8m0fnu`, `quint8`), without its `torch.`
    /// prefix.
    Other(Box<str>),
}

impl RecordedDType {
    /// Parses the text of a dump; never fails, unknown text is kept.
    pub fn parse(text: &str) -> Self {
        DType::parse(text)
            .map_or_else(|| Self::Other(text.strip_prefix("torch.").unwrap_or(text).into()), Self::Known)
    }

    /// Returns the dtype, if known.
    pub const fn known(&self) -> Option<DType> {
        match self {
            Self::Known(dtype) => Some(*dtype),
            Self::Other(_) => None,
        }
    }
}

impl fmt::Display for RecordedDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(dtype) => dtype.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_with_and_without_prefix() {
        for dtype in ALL_DTYPES {
            assert_eq!(DType::parse(dtype.name()), Some(dtype));
            assert_eq!(DType::parse(&format!("torch.{dtype}")), Some(dtype));
        }
        assert_eq!(DType::parse("torch.float8_e8m0fnu"), None);
        assert_eq!(RecordedDType::parse("torch.quint8").to_string(), "quint8");
    }
}
