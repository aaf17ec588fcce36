//! Values that a capture could not measure. Each is unknown, and a comparison that holds one is incomplete: nothing may pass for
//! equal because nobody looked.

use super::Incomplete;
use super::difference::Difference;
use super::flow::Flow;
use probe_dump::{Slot, TensorRecord};

/// Why nothing is known of a value that both sides hold, in words; `None` where something is.
pub(super) fn reason((b, c): (&TensorRecord, &TensorRecord)) -> Option<String> {
    match (b.unmeasured(), c.unmeasured()) {
        (Some(b), Some(c)) if b == c => Some(format!("not measured by either side: {b}")),
        (Some(b), Some(c)) => Some(format!("not measured by the baseline: {b}; nor by the candidate: {c}")),
        (Some(b), None) => Some(format!("not measured by the baseline: {b}")),
        (None, Some(c)) => Some(format!("not measured by the candidate: {c}")),
        (None, None) => None,
    }
}

/// Values of one reason.
struct Group<'a> {
    reason: &'a str,
    first: String,
    values: u64,
}

/// All that could not be measured, each reason once with its first place and the number of values.
pub(super) fn of(flow: &Flow<'_>) -> Vec<Incomplete> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (position, (node, op_pair)) in flow.nodes.iter().zip(&flow.pair.ops).enumerate() {
        for (fact, slots) in flow.facts(position).zip(op_pair.slots.iter()) {
            let reason = &*fact.judgement.reason;
            let (b, c) = flow.pair.slot(op_pair, slots);
            let record =
                |slot: Option<&'_ Slot>| slot.and_then(|slot| slot.value.tensor()?.unmeasured()).is_some();
            if fact.difference != Difference::Unreadable || !(record(b) || record(c)) {
                continue;
            }
            if let Some(group) = groups.iter_mut().find(|group| group.reason == reason) {
                group.values += 1;
            } else {
                let path = b.or(c).map_or("", |slot| &*slot.path);
                groups.push(Group { reason, first: format!("{} {path}", node.op.name.as_str()), values: 1 });
            }
        }
    }
    let part = format!("step {} rank {}", flow.pair.step, flow.pair.rank);
    let told = |group: Group<'_>| {
        let more = match group.values - 1 {
            0 => String::new(),
            1 => "; 1 more value too".to_owned(),
            more => format!("; {more} more values too"),
        };
        Incomplete { place: format!("{part} {}", group.first), reason: format!("{}{more}", group.reason) }
    };
    groups.into_iter().map(told).collect()
}
