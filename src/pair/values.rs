//! Numbers for the values of a part: equal where the same tensor was seen, so that whoever reads a result sees what was handed from op
//! to op.

use std::collections::HashMap;

use super::{PartPair, value_key};
use crate::dump::Slot;

/// How a value is known again.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    /// As the capture saw it: the same memory, not written to in between.
    Seen(u64),
    /// By a hash of its bytes, or by statistics that are equal to the bit.
    Content(u64),
}

/// A number from 0 for each slot of each op of `pair`, in the order of [`PartPair::ops`] and
/// [`OpPair::slots`](super::OpPair::slots); `None` for what is no tensor, and where nothing tells it.
///
/// The baseline's value counts, the candidate's where only that has the slot.
pub fn value_numbers(pair: &PartPair) -> Vec<Vec<Option<u32>>> {
    let mut known: HashMap<(bool, Key), u32> = HashMap::new();
    let mut number = |is_baseline: bool, slot| {
        let key = (is_baseline, key(slot)?);
        let next = u32::try_from(known.len()).ok()?;
        Some(*known.entry(key).or_insert(next))
    };
    let ops = pair.ops.iter().map(|op| {
        let slots = op.slots.iter().map(|&slots| match pair.slot(op, slots) {
            (Some(slot), _) => number(true, slot),
            (None, Some(slot)) => number(false, slot),
            (None, None) => None,
        });
        slots.collect()
    });
    ops.collect()
}

fn key(slot: &Slot) -> Option<Key> {
    let record = slot.value.tensor()?;
    slot.identity.map(Key::Seen).or_else(|| value_key(record).map(Key::Content))
}
