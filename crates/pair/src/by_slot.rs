//! A value for each slot of each op of a part.

use std::ops::{Index, IndexMut};

/// Values by op and slot, in the order of [`PartPair::ops`](super::PartPair::ops) and
/// [`OpPair::slots`](super::OpPair::slots). All are in one allocation: a part has a hundred thousand ops of a
/// few slots each.
#[derive(Debug, Clone, PartialEq)]
pub struct BySlot<T> {
    /// End of each op's values.
    ends: Vec<usize>,
    values: Vec<T>,
}

impl<T> BySlot<T> {
    /// Returns an empty collection with room for this many ops and slots.
    pub fn with_capacity(ops: usize, slots: usize) -> Self {
        Self { ends: Vec::with_capacity(ops), values: Vec::with_capacity(slots) }
    }

    /// Adds the values of the next op.
    pub fn push(&mut self, values: impl IntoIterator<Item = T>) {
        self.values.extend(values);
        self.ends.push(self.values.len());
    }

    /// Number of ops.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if it has no ops.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the values of an op; `None` if there is no such op.
    pub fn get(&self, op: usize) -> Option<&[T]> {
        let end = *self.ends.get(op)?;
        self.values.get(self.start(op)..end)
    }

    /// Returns the value of a slot.
    pub fn at(&self, op: usize, slot: usize) -> Option<&T> {
        self.get(op)?.get(slot)
    }

    /// Returns the value of a slot, for changes.
    pub fn at_mut(&mut self, op: usize, slot: usize) -> Option<&mut T> {
        let (start, end) = (self.start(op), *self.ends.get(op)?);
        self.values.get_mut(start..end)?.get_mut(slot)
    }

    /// Iterates over the values, op by op.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[T]> {
        (0..self.ends.len()).map(|op| &self[op])
    }

    /// Returns all values, regardless of op.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    fn start(&self, op: usize) -> usize {
        op.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }
}

impl<T> Default for BySlot<T> {
    fn default() -> Self {
        Self { ends: Vec::new(), values: Vec::new() }
    }
}

impl<T> Index<usize> for BySlot<T> {
    type Output = [T];

    /// Returns the values of an op.
    ///
    /// # Panics
    /// If there is no such op.
    fn index(&self, op: usize) -> &[T] {
        &self.values[self.start(op)..self.ends[op]]
    }
}

impl<T> IndexMut<usize> for BySlot<T> {
    fn index_mut(&mut self, op: usize) -> &mut [T] {
        let range = self.start(op)..self.ends[op];
        &mut self.values[range]
    }
}

/// Built from the values of each op.
impl<T, Op: IntoIterator<Item = T>> FromIterator<Op> for BySlot<T> {
    fn from_iter<Ops: IntoIterator<Item = Op>>(ops: Ops) -> Self {
        let mut all = Self::default();
        ops.into_iter().for_each(|values| all.push(values));
        all.ends.shrink_to_fit();
        all.values.shrink_to_fit();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_op_and_slot() {
        let mut table: BySlot<u32> = [vec![1, 2], vec![], vec![3]].into_iter().collect();
        assert_eq!((table.len(), &table[0], &table[1], &table[2]), (3, &[1, 2][..], &[][..], &[3][..]));
        assert_eq!(
            (table.at(0, 1), table.at(1, 0), table.at(2, 0), table.at(3, 0)),
            (Some(&2), None, Some(&3), None)
        );
        assert_eq!(table.iter().map(<[u32]>::len).collect::<Vec<_>>(), [2, 0, 1]);
        table[2][0] = 4;
        *table.at_mut(0, 0).unwrap() = 5;
        assert!(table.at_mut(1, 0).is_none());
        assert_eq!(table.values(), [5, 2, 4]);
        assert!(BySlot::<u32>::default().is_empty());
    }
}
