//! Def-use index of a part: on each side, the places where a value is made and read.
//!
//! A value is recognised by [`slot_key`]: by its hash, or by statistics that are equal to the bit. Equal values
//! of several ops (a copy) share a key, so that a value may have several makers.

use probe_pair::{Paired, PartPair, slot_key};

use super::flow::Place;

/// Ways in which a value appears, in the order of the index; they take the upper two bits of [`Use::op`].
const MADE_UNPAIRED: u32 = 0;
const MADE: u32 = 1 << 30;
const READ: u32 = 2 << 30;
const WAYS: u32 = 3 << 30;

/// One appearance of a value: 16 bytes, because a part may have a million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    key: u64,
    op: u32,
    slot: u32,
}

impl Use {
    const fn place(self) -> Place {
        ((self.op & !WAYS) as usize, self.slot as usize)
    }
}

/// Appearances of the values of both sides, the baseline's first, sorted by value, way and place.
#[derive(Debug)]
pub(super) struct Values([Vec<Use>; 2]);

impl Values {
    /// Indexes all tensors of a part that can be recognised.
    pub(super) fn of(pair: &PartPair) -> Self {
        let mut sides = [Vec::new(), Vec::new()];
        for (position, op_pair) in pair.ops.iter().enumerate() {
            let made = if matches!(op_pair.ops, Paired::Both(..)) { MADE } else { MADE_UNPAIRED };
            for index in 0..op_pair.slots.len() {
                let (b, c) = pair.slot_at(position, index);
                for (slot, uses) in [b, c].into_iter().zip(&mut sides) {
                    let Some((slot, key)) = slot.and_then(|slot| Some((slot, slot_key(slot)?))) else {
                        continue;
                    };
                    // More ops and slots than that do not fit in memory.
                    let (Ok(op @ 0..MADE), Ok(index)) = (u32::try_from(position), u32::try_from(index))
                    else {
                        continue;
                    };
                    let way = if slot.side.is_result() { made } else { READ };
                    uses.push(Use { key, op: op | way, slot: index });
                }
            }
        }
        for uses in &mut sides {
            uses.sort_unstable();
            uses.shrink_to_fit();
        }
        Self(sides)
    }

    /// Iterates over the appearances of a value from the first of a way on.
    fn uses(&self, side: usize, key: u64, way: u32) -> impl Iterator<Item = Use> + '_ {
        let uses = &self.0[side];
        let first = uses.partition_point(|used| (used.key, used.op) < (key, way));
        uses[first..].iter().copied().take_while(move |used| used.key == key)
    }

    /// Iterates over the places where `side` (0 for the baseline) makes a value: first those in ops that it alone
    /// has, each in execution order.
    pub(super) fn makers(&self, side: usize, key: u64) -> impl Iterator<Item = Place> + '_ {
        self.uses(side, key, MADE_UNPAIRED).take_while(|used| used.op < READ).map(Use::place)
    }

    /// Returns the first op that `side` alone has and that makes a value.
    pub(super) fn made_unpaired(&self, side: usize, key: u64) -> Option<usize> {
        self.uses(side, key, MADE_UNPAIRED).next().filter(|used| used.op < MADE).map(|used| used.place().0)
    }

    /// Iterates over the places where `side` reads a value, in execution order.
    pub(super) fn readers(&self, side: usize, key: u64) -> impl Iterator<Item = Place> + '_ {
        self.uses(side, key, READ).map(Use::place)
    }
}
