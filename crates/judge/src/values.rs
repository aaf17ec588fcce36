//! Def-use index of a part: on each side, the places where a value is made and read.
//!
//! A value is recognised by [`slot_key`]: by its hash, or by statistics that are equal to the bit. Equal values
//! of several ops (a copy) share a key, so that a value may have several makers. Most sound pairs ask for none of
//! it, so each table is made when it is first needed.

use std::cell::OnceCell;

use probe_dump::Slot;
use probe_pair::{Paired, PartPair, slot_key};

/// Address of a value: positions of the op and the slot.
pub(super) type Place = (usize, usize);

/// Marks an op that both sides have in [`Use::op`]: the others come first.
const PAIRED: u32 = 1 << 31;

/// One appearance of a value: 16 bytes, because a part may have a million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    key: u64,
    op: u32,
    slot: u32,
}

impl Use {
    const fn place(self) -> Place {
        ((self.op & !PAIRED) as usize, self.slot as usize)
    }
}

/// Appearances of values, sorted by value, whether both sides have the op, and place.
type Uses = OnceCell<Vec<Use>>;

/// Index of the values of both sides, the baseline's first.
#[derive(Debug)]
pub(super) struct Values<'a> {
    pair: &'a PartPair,
    made: [Uses; 2],
    read: [Uses; 2],
    has_unpaired: bool,
}

impl<'a> Values<'a> {
    pub(super) fn of(pair: &'a PartPair) -> Self {
        let has_unpaired = pair.ops.iter().any(|op| !matches!(op.ops, Paired::Both(..)));
        Self { pair, made: Default::default(), read: Default::default(), has_unpaired }
    }

    /// Indexes the results or inputs of one side that can be recognised.
    fn index(&self, side: usize, results: bool) -> Vec<Use> {
        let mut uses = Vec::new();
        for (position, op_pair) in self.pair.ops.iter().enumerate() {
            let paired = if matches!(op_pair.ops, Paired::Both(..)) { PAIRED } else { 0 };
            for index in 0..op_pair.slots.len() {
                let (b, c) = self.pair.slot_at(position, index);
                let slot = [b, c][side].filter(|slot| slot.side.is_result() == results);
                // More ops and slots than that do not fit in memory.
                if let (Some(key), Ok(op @ 0..PAIRED), Ok(slot)) =
                    (slot.and_then(slot_key), u32::try_from(position), u32::try_from(index))
                {
                    uses.push(Use { key, op: op | paired, slot });
                }
            }
        }
        uses.sort_unstable();
        uses.shrink_to_fit();
        uses
    }

    fn made(&self, side: usize, key: u64) -> impl Iterator<Item = Use> + '_ {
        of_key(self.made[side].get_or_init(|| self.index(side, true)), key)
    }

    /// Iterates over the places where `side` (0 for the baseline) makes a value: first those in ops that it alone
    /// has, each in execution order.
    pub(super) fn makers(&self, side: usize, slot: &Slot) -> impl Iterator<Item = Place> + '_ {
        slot_key(slot).into_iter().flat_map(move |key| self.made(side, key)).map(Use::place)
    }

    /// Returns the first op that `side` alone has and that makes a value.
    pub(super) fn made_unpaired(&self, side: usize, slot: &Slot) -> Option<usize> {
        let key = slot_key(slot).filter(|_| self.has_unpaired)?;
        self.made(side, key).next().filter(|used| used.op < PAIRED).map(|used| used.place().0)
    }

    /// Iterates over the places where `side` reads a value: first those in ops that it alone has, each in
    /// execution order.
    pub(super) fn readers(&self, side: usize, slot: &Slot) -> impl Iterator<Item = Place> + '_ {
        let read = move |key| of_key(self.read[side].get_or_init(|| self.index(side, false)), key);
        slot_key(slot).into_iter().flat_map(read).map(Use::place)
    }
}

fn of_key(uses: &[Use], key: u64) -> impl Iterator<Item = Use> + '_ {
    let first = uses.partition_point(|used| used.key < key);
    uses[first..].iter().copied().take_while(move |used| used.key == key)
}
