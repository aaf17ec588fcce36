//! Arguments that one side alone was given: the other side has the function's default, no tensor, or a number in its
//! place.

use super::difference::{Difference, Fact};
use super::excess::BEYOND;
use super::flow::{Flow, Place};
use super::ops::{has_defaults, is_default, parameter};
use super::precision::{COARSEST_PRODUCT, Precision};
use probe_dump::{Number, Phase, Scalar, Slot, TensorRecord, Value};

/// Returns true for a number or text that one side alone passes and that makes a difference: the other side does
/// not pass it under another name (by position, or by keyword), and it is not the default of the function. One that
/// comes with inputs of another size belongs to these (`enable_gqa`, for keys that the other side repeats). Where
/// the default is not known, zeros, `False` and empty texts count as defaults. What leaves all results equal to the bit
/// makes no difference. An option of a group of parameters is held against the first group of the other side.
pub(super) fn argument(flow: &Flow<'_>, place: Place) -> bool {
    let (slot, other) = match flow.pair.slot_at(place.0, place.1) {
        (Some(slot), None) => (slot, flow.pair.op(&flow.pair.ops[place.0]).1),
        (None, Some(slot)) => (slot, flow.pair.op(&flow.pair.ops[place.0]).0),
        _ => return false,
    };
    let Value::Scalar(value @ (Scalar::Number(_) | Scalar::Text(_))) = &slot.value else { return false };
    let node = &flow.nodes[place.0];
    if let Some(option) = of_later_group(&slot.path).filter(|_| node.traits.optimizes) {
        // A later group of parameters is told where it differs from the first.
        let first = other
            .and_then(|op| op.slots.iter().find(|first| first.path.strip_prefix("kwarg.") == Some(option)));
        return first
            .is_some_and(|first| matches!(&first.value, Value::Scalar(first) if !is_equal(first, value)));
    }
    if node.op.name.phase() == Phase::Backward || reads_another_size(flow, place.0) {
        return false;
    }
    let is_known = slot.path.starts_with("kwarg.") || has_defaults(node.base);
    let Some(name) = parameter(node.base, &slot.path).filter(|_| is_known) else { return false };
    // One number for all dimensions, or a list of them.
    let is_part = |path: &str| {
        path.rsplit_once('.').is_some_and(|(whole, _)| parameter(node.base, whole) == Some(name))
    };
    let given = || other.into_iter().flat_map(|op| &op.slots).filter(|other| !other.side.is_result());
    let mut parts = given().filter(|other| is_part(&other.path)).peekable();
    if parts.peek().is_some() {
        return parts.any(|part| !matches!(&part.value, Value::Scalar(part) if is_equal(part, value)));
    }
    let same = |other: &&Slot| *other.path != *slot.path && parameter(node.base, &other.path) == Some(name);
    if let Some(passed) = given().find(same) {
        return matches!(&passed.value, Value::Scalar(passed) if !is_equal(passed, value));
    }
    let is_default = is_default(node.base, name, value).unwrap_or_else(|| is_nothing(value));
    !is_default && node.results().any(|slot| !flow.fact((place.0, slot)).exact)
}

/// Returns true for a tensor that one side alone passes to a function, where its results are others than what both sides
/// pass explains: a mask, weights of samples, a learned factor for which the other side has a number. `led` is what the
/// function reads.
pub(super) fn tensor(flow: &Flow<'_>, place: Place, led: &[Place]) -> bool {
    let node = &flow.nodes[place.0];
    let (b, c) = flow.pair.slot_at(place.0, place.1);
    let passes = |slot: Option<&Slot>| slot.is_some_and(|slot| slot.value.tensor().is_some());
    let is_number =
        |slot: Option<&Slot>| slot.is_some_and(|slot| matches!(slot.value, Value::Scalar(Scalar::Number(_))));
    let lacks =
        |slot: Option<&Slot>| slot.is_none_or(|slot| matches!(slot.value, Value::None)) || is_number(slot);
    let is_optional = (passes(b) && lacks(c)) || (lacks(b) && passes(c));
    if !is_optional || node.is_backward() || node.traits.optimizes || reads_another_size(flow, place.0) {
        return false;
    }
    let facts = || {
        let others = led.iter().filter(|&&other| other != place).map(|&other| flow.fact(other));
        others.filter(|fact| fact.is_tensor)
    };
    if facts().any(|fact| fact.difference.hides_numbers()) {
        return false;
    }
    if weighs_classes(flow, place) {
        return node.results().any(|slot| !flow.fact((place.0, slot)).exact);
    }
    let given = facts().map(Fact::relative).fold(0.0, f64::max);
    node.results().map(|slot| flow.fact((place.0, slot))).any(|fact| {
        let rounding = fact.dtype.and_then(Precision::of).map_or(0.0, |precision| precision.unknown);
        // Numbers that differ from the other side's number show at any size.
        let least = if is_number(b) || is_number(c) { 0.0 } else { COARSEST_PRODUCT };
        let bound = (BEYOND * given.max(rounding)).max(least);
        fact.difference == Difference::Numbers && fact.relative() > bound
    })
}

/// Returns true for the weights of a loss that one side alone gives, if they are not all alike: whatever the two runs have
/// drifted by, one of them has another loss.
pub(super) fn weighs_classes(flow: &Flow<'_>, place: Place) -> bool {
    let base = flow.nodes[place.0].base;
    let is_loss = base.ends_with("loss") || base.contains("cross_entropy");
    let name = flow.slot(place).and_then(|slot| parameter(base, &slot.path));
    let (b, c) = flow.pair.slot_at(place.0, place.1);
    let [b, c] = [b, c].map(|slot| slot.and_then(|slot| slot.value.tensor()));
    let is_varied = |record: &TensorRecord| record.statistics.min() != record.statistics.max();
    let is_of_one = b.xor(c).is_some_and(is_varied);
    is_loss && is_of_one && matches!(name, Some("weight" | "pos_weight"))
}

/// Returns the option that an argument of an optimizer sets for a group after the first: `lr` for `kwarg.1.lr`.
fn of_later_group(path: &str) -> Option<&str> {
    let (group, option) = path.strip_prefix("kwarg.")?.split_once('.')?;
    group.bytes().all(|digit| digit.is_ascii_digit()).then_some(option)
}

/// Returns true if an op reads a tensor with another number of elements on each side.
fn reads_another_size(flow: &Flow<'_>, op: usize) -> bool {
    flow.nodes[op].given().any(|slot| {
        let (b, c) = flow.pair.slot_at(op, slot);
        let size = |slot: Option<&Slot>| slot?.value.tensor().map(TensorRecord::len);
        matches!((size(b), size(c)), (Some(b), Some(c)) if b != c)
    })
}

fn is_equal(a: &Scalar, b: &Scalar) -> bool {
    match (a, b) {
        (Scalar::Number(a), Scalar::Number(b)) => a.same(*b),
        _ => a == b,
    }
}

fn is_nothing(value: &Scalar) -> bool {
    match value {
        Scalar::Number(Number::Bool(value)) => !value,
        Scalar::Number(number) => number.as_f64().to_bits() == 0,
        Scalar::Text(text) => text.is_empty(),
        _ => false,
    }
}
