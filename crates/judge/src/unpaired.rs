//! Values made by ops without a partner.

use std::collections::HashMap;

use super::flow::{Flow, Node, Place};
use probe_pair::slot_key;

/// Values made by unpaired ops, the baseline's and the candidate's, each with the position of the first op
/// that made it.
pub(super) struct MadeUnpaired([HashMap<u64, usize>; 2]);

impl MadeUnpaired {
    /// Collects the results of the unpaired ops for which `counts` holds.
    pub(super) fn of(flow: &Flow<'_>, counts: impl Fn(&Node<'_>) -> bool) -> Self {
        let mut made = [HashMap::new(), HashMap::new()];
        for (position, pair) in flow.pair.ops.iter().enumerate().filter(|&(op, _)| counts(&flow.nodes[op])) {
            let (side, op) = match flow.pair.op(pair) {
                (Some(op), None) => (0, op),
                (None, Some(op)) => (1, op),
                _ => continue,
            };
            let results = op.slots.iter().filter(|slot| slot.side.is_result());
            for key in results.filter_map(slot_key) {
                made[side].entry(key).or_insert(position);
            }
        }
        Self(made)
    }

    /// Returns true if unpaired ops of `side` (0 for the baseline) made a value with this `key`.
    pub(super) fn has(&self, side: usize, key: u64) -> bool {
        self.0[side].contains_key(&key)
    }

    /// Returns true if the value read at a place was made earlier by an unpaired op of either side.
    pub(super) fn arrives_at(&self, flow: &Flow<'_>, (op, slot): Place) -> bool {
        let (b, c) = flow.pair.slot_at(op, slot);
        [b, c].into_iter().enumerate().any(|(side, slot)| {
            slot.and_then(slot_key).and_then(|key| self.0[side].get(&key)).is_some_and(|&made| made < op)
        })
    }
}
