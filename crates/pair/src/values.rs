//! Numbers for the values of a part: equal where the same tensor was seen, so that whoever reads a result sees what was handed from op
//! to op.

use std::collections::HashMap;

use super::{BySlot, PartPair, value_key};
use probe_dump::{SeenAs, Slot};

/// How a value is known again.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    /// As the capture saw it: the same memory, not written to in between.
    Seen(SeenAs),
    /// By a hash of its bytes, or by statistics that are equal to the bit.
    Content(u64),
}

/// A number from 0 for each slot of `pair`; `None` for what is no tensor, and where nothing tells it.
///
/// The baseline's value counts, the candidate's where only that has the slot.
pub fn value_numbers(pair: &PartPair) -> BySlot<Option<u32>> {
    // By side. The candidate's values go by the number of the baseline's that they are compared with.
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
