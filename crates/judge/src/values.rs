//! Def-use index of a part: on each side, the places where a value is made and read.
//!
//! A value is recognised by [`slot_key`]: by its hash, or by statistics that are equal to the bit. Equal values
//! of several ops (zeros, a copy) share a key, so that a value may have several makers.

use probe_pair::{PartPair, slot_key};

use super::flow::Place;

/// Marks a result in [`Use::slot`].
const RESULT: u32 = 1 << 31;

/// One appearance of a value: 16 bytes, because a part may have a million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    key: u64,
    op: u32,
    slot: u32,
}

impl Use {
    const fn is_result(self) -> bool {
        self.slot & RESULT != 0
    }

    const fn place(self) -> Place {
        (self.op as usize, (self.slot & !RESULT) as usize)
    }
}

/// Appearances of the values of both sides, the baseline's first, sorted by value and then by place.
#[derive(Debug)]
pub(super) struct Values([Vec<Use>; 2]);

impl Values {
    /// Indexes all tensors of a part that can be recognised.
    pub(super) fn of(pair: &PartPair) -> Self {
        let mut sides = [Vec::new(), Vec::new()];
        for (position, op_pair) in pair.ops.iter().enumerate() {
            for index in 0..op_pair.slots.len() {
                let (b, c) = pair.slot_at(position, index);
                for (slot, uses) in [b, c].into_iter().zip(&mut sides) {
                    let Some((slot, key)) = slot.and_then(|slot| Some((slot, slot_key(slot)?))) else {
                        continue;
                    };
                    // More ops and slots than that do not fit in memory.
                    let (Ok(op), Ok(index)) = (u32::try_from(position), u32::try_from(index)) else {
                        continue;
                    };
                    let side = if slot.side.is_result() { RESULT } else { 0 };
                    uses.push(Use { key, op, slot: index | side });
                }
            }
        }
        for uses in &mut sides {
            uses.sort_unstable();
            uses.shrink_to_fit();
        }
        Self(sides)
    }

    fn uses(&self, side: usize, key: u64) -> impl Iterator<Item = Use> + '_ {
        let uses = &self.0[side];
        let first = uses.partition_point(|used| used.key < key);
        uses[first..].iter().copied().take_while(move |used| used.key == key)
    }

    /// Iterates over the places where `side` (0 for the baseline) makes a value, in execution order.
    pub(super) fn makers(&self, side: usize, key: u64) -> impl Iterator<Item = Place> + '_ {
        self.uses(side, key).filter(|used| used.is_result()).map(Use::place)
    }

    /// Iterates over the places where `side` reads a value, in execution order.
    pub(super) fn readers(&self, side: usize, key: u64) -> impl Iterator<Item = Place> + '_ {
        self.uses(side, key).filter(|used| !used.is_result()).map(Use::place)
    }
}
