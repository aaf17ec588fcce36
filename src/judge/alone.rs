//! What ops without a partner made.

use std::collections::HashSet;

use super::flow::{Flow, Node, Place};
use crate::dump::Slot;
use crate::pair::value_key;

/// Values that ops of one side alone made, the baseline's and the candidate's.
pub(super) struct MadeAlone([HashSet<u64>; 2]);

impl MadeAlone {
    /// What those of them made for which `counts` holds.
    pub(super) fn of(flow: &Flow<'_>, counts: impl Fn(&Node<'_>) -> bool) -> Self {
        let mut made = [HashSet::new(), HashSet::new()];
        for (pair, _) in flow.pair.ops.iter().zip(&flow.nodes).filter(|(_, node)| counts(node)) {
            let (side, op) = match flow.pair.op(pair) {
                (Some(op), None) => (0, op),
                (None, Some(op)) => (1, op),
                _ => continue,
            };
            let results = op.slots.iter().filter(|slot| slot.side.is_result());
            made[side].extend(results.filter_map(key));
        }
        Self(made)
    }

    /// Whether ops of `side` alone (0 for the baseline) made a value that is known by `key`.
    pub(super) fn has(&self, side: usize, key: u64) -> bool {
        self.0[side].contains(&key)
    }

    /// Whether what is read at a place was made by ops of one side alone, on either side.
    pub(super) fn arrives_at(&self, flow: &Flow<'_>, (op, slot): Place) -> bool {
        let (b, c) = flow.pair.slot_at(op, slot);
        [b, c]
            .into_iter()
            .enumerate()
            .any(|(side, slot)| slot.and_then(key).is_some_and(|key| self.has(side, key)))
    }
}

/// What a value is known by.
pub(super) fn key(slot: &Slot) -> Option<u64> {
    slot.value.tensor().and_then(value_key)
}
