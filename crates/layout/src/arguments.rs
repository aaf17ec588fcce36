//! Arguments that a program computes from the sizes of a rank's shard, or from its place among the ranks.

use std::collections::{HashMap, HashSet};

use probe_dump::{DType, Number, Op, OpKind, Phase, Printed, Rank, Scalar, SeenAs, Slot, SlotSide, Value};

use super::remark::{Remark, Remarks};

/// Functions that cut a tensor into a list of parts.
pub(crate) const SPLITS: [&str; 5] = ["split", "split_with_sizes", "chunk", "tensor_split", "unbind"];

/// Functions that join a list of parts.
const JOINS: [&str; 3] = ["cat", "concat", "stack"];

/// Takes out whole numbers on which ranks disagree, offsets and sizes that each rank has for itself, and the masks and indices that are made of them.
pub(crate) fn without_own(ops: &mut [Op], ranks: &[HashMap<&str, &Op>]) {
    let number =
        |value: &Value| matches!(value, Value::Scalar(Scalar::Number(Number::Int(_)) | Scalar::Printed(_)));
    // Tensors that each rank has for itself.
    let mut own: HashSet<SeenAs> = HashSet::new();
    for op in ops.iter_mut().filter(|op| op.name.kind() == OpKind::Api) {
        let calls: Vec<&Op> = ranks.iter().filter_map(|ops| ops.get(op.name.as_str()).copied()).collect();
        let mut of_rank = false;
        for (place, held) in op.slots.iter_mut().enumerate().filter(|(_, slot)| !slot.side.is_result()) {
            let differs = |call: &&Op| {
                let same = call.slots.get(place).filter(|slot| slot.path == held.path);
                same.is_some_and(|slot| slot.value != held.value)
            };
            let is_own = match &held.value {
                Value::Tensor(_) => held.identity.is_some_and(|seen| own.contains(&seen)),
                value => number(value) && calls.iter().any(differs),
            };
            if is_own {
                held.value = Value::Unsupported;
                of_rank = true;
            }
        }
        for held in op.slots.iter_mut().filter(|slot| of_rank && slot.side.is_result()) {
            if let Value::Tensor(record) = &held.value
                && !record.dtype.known().is_some_and(DType::is_float)
            {
                own.extend(held.identity);
                held.value = Value::Unsupported;
            }
        }
    }
}

/// Takes out calls outside of all modules that are given a list as long as a rank's part of the model (the norms of its parameters, to clip by their
/// norm), and what is made of their results before these are reduced. The other run's list is that of another part.
pub(crate) fn without_lists_of_parts(ranks: &mut [Rank], other: &Rank) {
    let length = |op: &Op| op.slots.iter().filter(|slot| is_element(slot)).count();
    let due: HashMap<&str, usize> = other.ops.iter().map(|op| (op.name.as_str(), length(op))).collect();
    for rank in ranks {
        let mut made: HashSet<SeenAs> = HashSet::new();
        rank.ops.retain(|op| {
            let outside = op.name.kind() == OpKind::Api && op.parent.is_none() && !op.name.is_collective();
            let other = due.get(op.name.as_str()).copied().unwrap_or(0);
            let seen = |slot: &Slot| slot.identity.is_some_and(|seen| made.contains(&seen));
            let reads = op.slots.iter().any(|slot| !slot.side.is_result() && seen(slot));
            let is_own = outside && (reads || (other > 0 && length(op) != other));
            if is_own {
                made.extend(
                    op.slots.iter().filter(|slot| slot.side.is_result()).filter_map(|slot| slot.identity),
                );
            }
            !is_own
        });
    }
}

/// Returns true for an element of a list that a call is given: `input.0.3`.
pub(crate) fn is_element(slot: &Slot) -> bool {
    let mut parts = slot.path.split('.').skip(1);
    slot.side == SlotSide::Input
        && parts.next().is_some()
        && parts.next().is_some_and(|part| part.parse::<u32>().is_ok())
}

/// Replaces sizes that a program computes from those of a shard (`view(b, t, heads / ranks, -1)`) by the other run's, in calls with sharded
/// values, and what only one side gives by name (a mask for a rank's part of the sequence stands for the flag `is_causal`).
pub(crate) fn whole(ops: &mut [Op], others: &HashMap<&str, &Op>, remarks: &Remarks) {
    for (place, op) in ops.iter_mut().enumerate() {
        let sharded =
            (0..op.slots.len()).any(|slot| matches!(remarks.get(&(place, slot)), Some(Remark::Sharded(_))));
        // Of memory that nothing was written to, the sizes alone tell that it is a shard's.
        let part = sharded || op.slots.iter().any(|slot| slot.value == Value::Unsupported);
        let Some(partner) = others.get(op.name.as_str()).filter(|_| part) else { continue };
        if op.name.kind() == OpKind::Api {
            by_name(op, partner);
        }
        for slot in &mut op.slots {
            let other = partner.slots.iter().find(|other| other.path == slot.path).map(|other| &other.value);
            if let Some(other) = other.filter(|other| is_size_of_part(&slot.value, other)) {
                slot.value = other.clone();
            }
        }
    }
}

/// Takes out the parts of calls that cut a value into as many as there are ranks, where the other run's call makes one, or into a rank's share of the
/// other run's parts (tokens of its experts), or into the parts of each rank: they belong to the layout. So does their number, and the order of a
/// value that is cut into the parts of each rank, or joined from them. A backward pass is given what the forward pass made.
pub(crate) fn without_parts_of_ranks(ops: &mut [Op], others: &HashMap<&str, &Op>, ranks: usize) {
    for op in ops.iter_mut().filter(|op| op.name.kind() == OpKind::Api) {
        let Some(partner) = others.get(op.name.as_str()) else { continue };
        let joins = JOINS.contains(&op.name.api());
        let made = (op.name.phase() == Phase::Forward) != joins;
        let is_part = |slot: &Slot| slot.side.is_result() == made;
        let parts =
            |op: &Op| op.slots.iter().filter(|slot| is_part(slot) && slot.value.tensor().is_some()).count();
        let (own, their) = (parts(op), parts(partner));
        let of_ranks = !joins && own > 1 && their == 1 && ranks.is_multiple_of(own);
        let times = |more: usize, less: usize| {
            more.checked_div(less).is_some_and(|by| by > 1 && by * less == more && ranks.is_multiple_of(by))
        };
        let cuts = SPLITS.contains(&op.name.api());
        let of_each = (cuts || joins) && their > 1 && times(own, their);
        if !(of_ranks || of_each || (cuts && (times(own, their) || times(their, own)))) {
            continue;
        }
        op.slots.retain_mut(|slot| {
            let other = partner.slots.iter().find(|other| other.path == slot.path);
            let is_part = is_part(slot);
            let is_other = other.is_some_and(|other| is_part || other.value != slot.value);
            // A joined value is again in the order of the whole.
            let in_order = !is_part && slot.value.tensor().is_some() && (joins || !of_each);
            if is_other && !in_order {
                slot.value = Value::Unsupported;
            }
            other.is_some()
        });
    }
}

/// Takes out memory that nothing was written to, and what is made of it alone (views).
pub(crate) fn without_unwritten(ops: &mut [Op]) {
    let mut unwritten: HashSet<SeenAs> = HashSet::new();
    for op in ops.iter_mut().filter(|op| op.name.kind() == OpKind::Api) {
        let (mut read, mut others) = (false, false);
        for held in op.slots.iter_mut().filter(|slot| !slot.side.is_result()) {
            if held.identity.is_some_and(|seen| unwritten.contains(&seen)) {
                held.value = Value::Unsupported;
                read = true;
            } else {
                others |= matches!(held.value, Value::Tensor(_));
            }
        }
        let writes = op.name.api().ends_with('_') && !op.name.api().starts_with('_');
        if op.name.only_allocates() || (read && !others && !writes) {
            for held in op.slots.iter_mut().filter(|slot| slot.side.is_result()) {
                unwritten.extend(held.identity);
                held.value = Value::Unsupported;
            }
        }
    }
}

/// Leaves out what only these ranks give by name, and adds what only the other run gives.
fn by_name(op: &mut Op, partner: &Op) {
    let given = |op: &Op, path: &str| op.slots.iter().any(|slot| &*slot.path == path);
    let named = |slot: &&Slot| slot.path.starts_with("kwarg.");
    let lacking = partner.slots.iter().filter(named).filter(|slot| !given(op, &slot.path));
    let lacking: Vec<Slot> =
        lacking.filter(|slot| !matches!(slot.value, Value::Tensor(_))).cloned().collect();
    for slot in &mut op.slots {
        if slot.path.starts_with("kwarg.") && !given(partner, &slot.path) {
            slot.value = Value::Unsupported;
        }
    }
    op.slots.extend(lacking);
}

/// Returns true for a size that divides the other run's, and for a text (a slice) that is the other's but for such sizes.
fn is_size_of_part(local: &Value, whole: &Value) -> bool {
    let divides = |local: i64, whole: i64| local > 0 && whole > local && whole % local == 0;
    match (local, whole) {
        (
            Value::Scalar(Scalar::Number(Number::Int(local))),
            Value::Scalar(Scalar::Number(Number::Int(whole))),
        ) => divides(*local, *whole),
        (Value::Scalar(Scalar::Printed(local)), Value::Scalar(Scalar::Printed(whole))) => {
            let words = |printed: &Printed| -> Vec<String> {
                printed.text.split([' ', ',', '(', ')', '[', ']']).map(str::to_owned).collect()
            };
            let (local, whole) = (words(local), words(whole));
            let fits = |(local, whole): (&String, &String)| {
                local == whole
                    || matches!((local.parse(), whole.parse()), (Ok(local), Ok(whole)) if divides(local, whole))
            };
            local.len() == whole.len() && local.iter().zip(&whole).all(fits)
        }
        _ => false,
    }
}
