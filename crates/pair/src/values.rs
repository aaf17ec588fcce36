//! Numbers for the values of a part: equal if the same tensor was seen, so that readers of a result can follow
//! values from op to op.

use std::collections::HashMap;

use super::{BySlot, PartPair, value_key};
use probe_dump::{SeenAs, Slot};

/// Identification of a value.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    /// By the capture: the same memory, not written to in between.
    Seen(SeenAs),
    /// By a hash of its bytes, or by statistics that are equal to the bit.
    Content(u64),
}

/// Returns a number from 0 for each slot of `pair`; `None` if it is not a tensor or cannot be identified.
///
/// The baseline's value counts, or the candidate's if only that has the slot.
pub fn value_numbers(pair: &PartPair) -> BySlot<Option<u32>> {
    // By side. The candidate's values take the number of the baseline's that they are compared with.
    let mut known: HashMap<(bool, Key), u32> = HashMap::new();
    let mut count = 0;
    let mut number = |baseline: Option<&Slot>, candidate: Option<&Slot>| {
        let keys = [(true, baseline), (false, candidate)];
        let mut keys = keys.into_iter().filter_map(|(side, slot)| Some((side, key(slot?)?)));
        let first = keys.next()?;
        let number = *known.entry(first).or_insert_with(|| {
            count += 1;
            count - 1
        });
        for other in keys {
            known.entry(other).or_insert(number);
        }
        Some(number)
    };
    let ops = pair.ops.iter().map(|op| {
        let slots = op.slots.iter().map(|slots| {
            let (baseline, candidate) = pair.slot(op, slots);
            number(baseline, candidate)
        });
        slots.collect::<Vec<_>>()
    });
    ops.collect()
}

fn key(slot: &Slot) -> Option<Key> {
    let record = slot.value.tensor()?;
    slot.identity.map(Key::Seen).or_else(|| value_key(record).map(Key::Content))
}
