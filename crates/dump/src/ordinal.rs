//! Places in lists.

use std::num::NonZeroU32;

/// A place in a list, from 0, in 4 bytes also where there may be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(
    /// The place plus 1.
    NonZeroU32,
);

impl Ordinal {
    /// Of this place; no list of a part has so many entries that it saturates.
    pub fn of(place: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(u32::try_from(place).unwrap_or(u32::MAX)))
    }

    /// The place.
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
