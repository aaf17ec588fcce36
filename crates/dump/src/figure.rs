//! A number that may not be known.

use std::fmt;

/// An `Option<f64>` in half the memory.
#[derive(Clone, Copy)]
pub struct Figure(
    /// [`NONE`] if unknown.
    f64,
);

/// Bits of a NaN that no arithmetic produces, and that is never stored as a number.
const NONE: u64 = 0x7ff4_6e6f_6e65_0000;

impl Figure {
    /// An unknown number.
    pub const NONE: Self = Self(f64::from_bits(NONE));

    /// Returns the number, if known.
    pub const fn get(self) -> Option<f64> {
        if self.0.to_bits() == NONE { None } else { Some(self.0) }
    }
}

impl From<f64> for Figure {
    fn from(number: f64) -> Self {
        Self(if number.to_bits() == NONE { f64::NAN } else { number })
    }
}

impl From<Option<f64>> for Figure {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::NONE, Self::from)
    }
}

impl Default for Figure {
    fn default() -> Self {
        Self::NONE
    }
}

impl PartialEq for Figure {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_but_one_nan_is_kept() {
        for number in [0.0, -0.0, 1.5, f64::INFINITY, f64::NAN, -f64::NAN, f64::MIN_POSITIVE / 2.0] {
            assert_eq!(Figure::from(number).get().map(f64::to_bits), Some(number.to_bits()));
        }
        assert!(Figure::from(f64::from_bits(NONE)).get().is_some_and(f64::is_nan));
        assert_eq!((Figure::NONE.get(), Figure::from(None), size_of::<Figure>()), (None, Figure::NONE, 8));
        assert!(Figure::from(f64::NAN) != Figure::from(f64::NAN) && Figure::NONE != Figure::from(0.0));
    }
}
