//! Arguments that a program computes from the sizes of a rank's shard, or from its place among the ranks.

use std::collections::{HashMap, HashSet};

use probe_dump::{DType, Number, Op, OpKind, Printed, Scalar, SeenAs, Slot, Value};

use super::remark::{Remark, Remarks};

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

/// Replaces sizes that a program computes from those of a shard (`view(b, t, heads / ranks, -1)`) by the other run's, in calls with sharded
/// values, and what only one side gives by name (a mask for a rank's part of the sequence stands for the flag `is_causal`).
pub(crate) fn whole(ops: &mut [Op], others: &HashMap<&str, &Op>, remarks: &Remarks) {
    for (place, op) in ops.iter_mut().enumerate() {
        let sharded =
            (0..op.slots.len()).any(|slot| matches!(remarks.get(&(place, slot)), Some(Remark::Sharded(_))));
        let Some(partner) = others.get(op.name.as_str()).filter(|_| sharded) else { continue };
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
