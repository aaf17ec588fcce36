//! The evidence of a part.

use probe_measure::Evidence;
use probe_pair::BySlot;

/// Evidence for every pair of slots of a part. Evidence shared by several slots is stored once: two of three
/// slots hold tensors that another one holds too.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartEvidence {
    known: Vec<Evidence>,
    /// Positions in `known`; [`PartEvidence::NOTHING`] for slots without evidence.
    of_slots: BySlot<u32>,
}

impl PartEvidence {
    /// Position that stands for no evidence.
    pub const NOTHING: u32 = u32::MAX;

    /// Builds the evidence of slots with these positions in `known`. A position out of range stands for no
    /// evidence.
    pub const fn new(known: Vec<Evidence>, of_slots: BySlot<u32>) -> Self {
        Self { known, of_slots }
    }

    /// Adds the evidence of the next op's slots.
    pub fn push(&mut self, of_op: impl IntoIterator<Item = Evidence>) {
        let first = self.known.len();
        self.known.extend(of_op);
        let places = first..self.known.len();
        self.of_slots.push(places.map(|place| u32::try_from(place).unwrap_or(Self::NOTHING)));
    }

    /// Returns the evidence of a slot; [`Evidence::Nothing`] if there is no such slot.
    pub fn at(&self, op: usize, slot: usize) -> &Evidence {
        self.of_slots.at(op, slot).map_or(&Evidence::Nothing, |&place| self.of(place))
    }

    /// Takes the evidence of a slot away; [`PartEvidence::restore`] takes what is returned.
    pub fn forget(&mut self, (op, slot): (usize, usize)) -> u32 {
        self.of_slots.at_mut(op, slot).map_or(Self::NOTHING, |place| std::mem::replace(place, Self::NOTHING))
    }

    /// Gives a slot the evidence back that it had before it was forgotten.
    pub fn restore(&mut self, (op, slot): (usize, usize), forgotten: u32) {
        if let Some(place) = self.of_slots.at_mut(op, slot) {
            *place = forgotten;
        }
    }

    /// Iterates over the evidence of an op's slots.
    pub fn of_op(&self, op: usize) -> impl Iterator<Item = &Evidence> {
        self.of_slots.get(op).unwrap_or(&[]).iter().map(|&place| self.of(place))
    }

    /// Iterates over the evidence of all slots, op by op.
    pub fn of_slots(&self) -> impl Iterator<Item = &Evidence> {
        self.of_slots.values().iter().map(|&place| self.of(place))
    }

    fn of(&self, place: u32) -> &Evidence {
        self.known.get(place as usize).unwrap_or(&Evidence::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_measure::RecordedComparison;

    #[test]
    fn what_slots_share_is_found_by_each() {
        let recorded = |moved| {
            Evidence::Recorded(Box::new(RecordedComparison { moved, ..RecordedComparison::default() }))
        };
        let places = [vec![1, PartEvidence::NOTHING], vec![], vec![0, 1, 7]];
        let mut all = PartEvidence::new(vec![recorded(false), recorded(true)], places.into_iter().collect());
        all.push([recorded(false)]);
        assert_eq!((all.at(0, 0), all.at(0, 1)), (&recorded(true), &Evidence::Nothing));
        assert_eq!(all.of_op(2).collect::<Vec<_>>(), [&recorded(false), &recorded(true), &Evidence::Nothing]);
        assert_eq!(
            (all.at(3, 0), all.at(3, 1), all.at(4, 0)),
            (&recorded(false), &Evidence::Nothing, &Evidence::Nothing)
        );
        assert_eq!(all.of_slots().count(), 6);
        let forgotten = all.forget((2, 1));
        assert_eq!(all.at(2, 1), &Evidence::Nothing);
        all.restore((2, 1), forgotten);
        assert_eq!(all.at(2, 1), &recorded(true));
    }
}
