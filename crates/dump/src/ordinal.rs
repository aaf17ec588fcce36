//! Positions in lists.

use std::num::NonZeroU32;

/// A position in a list, from 0, whose `Option` also takes 4 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(
    /// The position plus 1.
    NonZeroU32,
);

impl Ordinal {
    /// Wraps a position; no list of a part is long enough to saturate it.
    pub fn of(place: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(u32::try_from(place).unwrap_or(u32::MAX)))
    }

    /// Returns the position.
    pub const fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        for place in [0, 1, 77, 1 << 20] {
            assert_eq!(Ordinal::of(place).place(), place);
        }
        assert_eq!(size_of::<Option<Ordinal>>(), 4);
    }
}
