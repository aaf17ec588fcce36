//! Statistics of a tensor as they were recorded.

use std::fmt;

use super::Figure;

/// A number as stated in a dump, without loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Integer that fits 64 signed bits.
    Int(i64),
    /// Integer above `i64::MAX`.
    UInt(u64),
    /// Floating-point number; NaN and infinities included.
    Float(f64),
    /// Truth value (statistics of bool tensors).
    Bool(bool),
}

impl Number {
    /// Returns the value as binary64; integers above 2^53 are rounded, false is 0 and true is 1.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(v) => v as f64,
            Self::UInt(v) => v as f64,
            Self::Float(v) => v,
            Self::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// Compares by value: 1 equals 1.0, NaN equals NaN, integers are compared exactly.
    pub fn same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::UInt(a), Self::UInt(b)) => a == b,
            (Self::Int(_), Self::UInt(_)) | (Self::UInt(_), Self::Int(_)) => false,
            (a, b) => {
                let (a, b) = (a.as_f64(), b.as_f64());
                a.total_cmp(&b).is_eq() || (a.is_nan() && b.is_nan()) || (a - b).abs().to_bits() == 0
            }
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(v) => v.fmt(f),
            Self::UInt(v) => v.fmt(f),
            Self::Float(v) => write!(f, "{v:?}"),
            Self::Bool(v) => v.fmt(f),
        }
    }
}

/// Statistics as recorded at capture. Missing ones were not recorded for this dtype or version.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RecordedStatistics {
    /// Largest element; for bool tensors true if any is true; for complex the largest modulus.
    pub max: Option<Number>,
    /// Smallest element; for bool tensors true if all are true; for complex the smallest modulus.
    pub min: Option<Number>,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Euclidean norm of all elements (for a 0-d tensor some tools record the value itself, with its
    /// sign).
    pub norm: Option<f64>,
}

impl RecordedStatistics {
    /// Returns true if nothing was recorded.
    pub const fn is_empty(&self) -> bool {
        self.max.is_none() && self.min.is_none() && self.mean.is_none() && self.norm.is_none()
    }
}

/// [`RecordedStatistics`] in less memory, as stored in records.
#[derive(Clone, Copy, Default)]
pub struct KeptStatistics {
    extremes: [u64; 2],
    kinds: [NumberKind; 2],
    mean: Figure,
    norm: Figure,
}

/// Interpretation of a [`Number`]'s bits.
#[derive(Debug, Clone, Copy, Default)]
enum NumberKind {
    #[default]
    None,
    Int,
    UInt,
    Float,
    Bool,
}

impl KeptStatistics {
    /// Returns the statistics.
    pub fn get(&self) -> RecordedStatistics {
        RecordedStatistics { max: self.max(), min: self.min(), mean: self.mean(), norm: self.norm() }
    }

    /// See [`RecordedStatistics::max`].
    pub const fn max(&self) -> Option<Number> {
        self.kinds[0].number(self.extremes[0])
    }

    /// See [`RecordedStatistics::min`].
    pub const fn min(&self) -> Option<Number> {
        self.kinds[1].number(self.extremes[1])
    }

    /// See [`RecordedStatistics::mean`].
    pub const fn mean(&self) -> Option<f64> {
        self.mean.get()
    }

    /// See [`RecordedStatistics::norm`].
    pub const fn norm(&self) -> Option<f64> {
        self.norm.get()
    }

    /// Returns true if nothing was recorded.
    pub const fn is_empty(&self) -> bool {
        self.max().is_none() && self.min().is_none() && self.mean().is_none() && self.norm().is_none()
    }
}

impl NumberKind {
    const fn number(self, bits: u64) -> Option<Number> {
        match self {
            Self::None => None,
            Self::Int => Some(Number::Int(bits.cast_signed())),
            Self::UInt => Some(Number::UInt(bits)),
            Self::Float => Some(Number::Float(f64::from_bits(bits))),
            Self::Bool => Some(Number::Bool(bits > 0)),
        }
    }

    const fn of(number: Option<Number>) -> (Self, u64) {
        match number {
            None => (Self::None, 0),
            Some(Number::Int(v)) => (Self::Int, v.cast_unsigned()),
            Some(Number::UInt(v)) => (Self::UInt, v),
            Some(Number::Float(v)) => (Self::Float, v.to_bits()),
            Some(Number::Bool(v)) => (Self::Bool, v as u64),
        }
    }
}

impl From<RecordedStatistics> for KeptStatistics {
    fn from(of: RecordedStatistics) -> Self {
        let ((max_kind, max), (min_kind, min)) = (NumberKind::of(of.max), NumberKind::of(of.min));
        Self { extremes: [max, min], kinds: [max_kind, min_kind], mean: of.mean.into(), norm: of.norm.into() }
    }
}

impl PartialEq for KeptStatistics {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for KeptStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_values_and_integers_exactly() {
        assert!(Number::Int(1).same(Number::Float(1.0)));
        assert!(Number::Float(f64::NAN).same(Number::Float(f64::NAN)));
        assert!(Number::Float(0.0).same(Number::Float(-0.0)));
        assert!(Number::Float(f64::INFINITY).same(Number::Float(f64::INFINITY)));
        assert!(!Number::Float(f64::INFINITY).same(Number::Float(f64::NEG_INFINITY)));
        assert!(!Number::Int(9_007_199_254_740_993).same(Number::Int(9_007_199_254_740_992)));
        assert!(!Number::Bool(true).same(Number::Bool(false)));
    }
}
