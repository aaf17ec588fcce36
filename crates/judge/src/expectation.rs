//! Expected errors of a part's values.

/// Error and expected error of a value, all relative to its scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expectation {
    /// The error, 0 or more.
    pub error: f64,
    /// The error the op may have on its own: rounding, the level of its kind of call, measured noise.
    pub floor: f64,
    /// The error the op may have, including what its inputs explain.
    pub expected: f64,
}

/// The expectations of a part, for the weighed values: fewer than half of its slots.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expectations(
    /// By op and slot, ascending.
    Vec<((u32, u32), Expectation)>,
);

impl Expectations {
    /// Returns the expectation for a slot of an op, if it was weighed.
    pub fn at(&self, op: usize, slot: usize) -> Option<&Expectation> {
        let place = place(op, slot)?;
        let found = self.0.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        self.0.get(found).map(|(_, expectation)| expectation)
    }
}

/// Built from ops and slots in any order, without duplicates.
impl FromIterator<((usize, usize), Expectation)> for Expectations {
    fn from_iter<I: IntoIterator<Item = ((usize, usize), Expectation)>>(found: I) -> Self {
        let placed = found.into_iter().filter_map(|((op, slot), found)| Some((place(op, slot)?, found)));
        let mut all: Vec<_> = placed.collect();
        all.sort_by_key(|(place, _)| *place);
        all.shrink_to_fit();
        Self(all)
    }
}

/// Returns `None` for a position beyond 2^32, which no part has.
fn place(op: usize, slot: usize) -> Option<(u32, u32)> {
    Some((op.try_into().ok()?, slot.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_found_by_op_and_slot() {
        let of = |error| Expectation { error, floor: 1.0, expected: 2.0 };
        let all: Expectations =
            [((2, 1), of(0.3)), ((0, 4), of(0.1)), ((2, 0), of(0.2))].into_iter().collect();
        for (place, error) in
            [((0, 4), Some(0.1)), ((2, 0), Some(0.2)), ((2, 1), Some(0.3)), ((1, 0), None), ((2, 2), None)]
        {
            assert_eq!(all.at(place.0, place.1).copied(), error.map(of));
        }
    }
}
