//! Collects what could not be measured, which makes a comparison incomplete: unmeasured values must not pass
//! for equal.

use super::Incomplete;
use super::difference::Difference;
use super::flow::Flow;
use probe_dump::Slot;

/// Values that share a reason.
struct Group<'a> {
    reason: &'a str,
    first: String,
    values: u64,
}

/// Returns everything that could not be measured, each reason once with its first place and the number of
/// values.
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
