//! Pairing of the slots of two ops.

use super::Paired;

/// The slot pairs of an op. Nearly always both sides list the same slots in the same order, which takes no
/// memory.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotPairs(Form);

/// Each list has exactly one form: lists are equal if their forms are.
#[derive(Debug, Clone, PartialEq)]
enum Form {
    /// This many, each paired with the slot at the same position.
    InOrder(usize),
    /// Any other list.
    Listed(Box<[Paired]>),
}

impl SlotPairs {
    /// Pairs the first `count` slots of either side by position.
    pub const fn in_order(count: usize) -> Self {
        Self(Form::InOrder(count))
    }

    /// Returns the number of pairs.
    pub const fn len(&self) -> usize {
        match &self.0 {
            Form::InOrder(count) => *count,
            Form::Listed(pairs) => pairs.len(),
        }
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the pair at a position.
    pub fn get(&self, place: usize) -> Option<Paired> {
        match &self.0 {
            Form::InOrder(count) => (place < *count).then_some(Paired::Both(place, place)),
            Form::Listed(pairs) => pairs.get(place).copied(),
        }
    }

    /// Iterates over the pairs in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Paired> {
        (0..self.len()).map(|place| self.get(place).unwrap_or(Paired::Both(place, place)))
    }
}

impl FromIterator<Paired> for SlotPairs {
    fn from_iter<I: IntoIterator<Item = Paired>>(pairs: I) -> Self {
        let pairs: Box<[Paired]> = pairs.into_iter().collect();
        let in_order = pairs.iter().enumerate().all(|(place, pair)| *pair == Paired::Both(place, place));
        Self(if in_order { Form::InOrder(pairs.len()) } else { Form::Listed(pairs) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_what_they_were_made_of() {
        use Paired::{BaselineOnly, Both, CandidateOnly};
        let lists: [&[Paired]; 4] =
            [&[], &[Both(0, 0), Both(1, 1)], &[Both(1, 0), Both(0, 1)], &[BaselineOnly(0), CandidateOnly(0)]];
        for list in lists {
            let pairs: SlotPairs = list.iter().copied().collect();
            assert_eq!((pairs.len(), pairs.is_empty()), (list.len(), list.is_empty()));
            assert_eq!(pairs.iter().collect::<Vec<_>>(), list);
            assert_eq!(pairs.get(list.len()), None);
        }
        assert_eq!([Both(0, 0), Both(1, 1)].into_iter().collect::<SlotPairs>(), SlotPairs::in_order(2));
    }
}
