//! Computations that an engine fuses: projections, and norms with the sum in front of them.

use std::collections::{HashMap, HashSet};

use probe_dump::{DType, Op, OpName, Slot, SlotSide, TensorRecord};

use super::view::View;

/// Names of projections, and of those that they are made of, in their order. vLLM and `SGLang` name them so.
const FUSED: [(&str, &[&str]); 2] =
    [("qkv_proj", &["q_proj", "k_proj", "v_proj"]), ("gate_up_proj", &["gate_proj", "up_proj"])];

/// Puts the results of single projections side by side where the other side has them as one.
pub(super) fn join(views: &mut [View; 2]) {
    for side in 0..2 {
        let (left, right) = views.split_at_mut(1);
        let (whole, single) =
            if side == 0 { (&mut left[0], &mut right[0]) } else { (&mut right[0], &mut left[0]) };
        for op in &mut whole.ops {
            let Some((before, parts)) = parts_of(&op.name) else { continue };
            let places: Option<Vec<usize>> =
                parts.iter().map(|part| single.find(&format!("{before}{part}"))).collect();
            if let Some(places) = places
                && single.join(&places, &op.name).is_some()
            {
                op.slots.retain(|slot| slot.side != SlotSide::Parameter);
            }
        }
    }
}

/// Multiples that vocabularies are padded to.
const PADDED_TO: [usize; 6] = [64, 128, 256, 512, 1024, 2048];

/// Removes the padding of one side's results: logits of words that do not exist.
pub(super) fn unpad(views: &mut [View; 2]) {
    let width = |op: &Op| {
        let result = op.slots.iter().find(|slot| &*slot.path == "output.0")?.value.tensor()?;
        let &[_, width] = &result.shape[..] else { return None };
        usize::try_from(width).ok()
    };
    for (at, other) in twins(views) {
        let (Some(ours), Some(theirs)) = (width(&views[0].ops[at]), width(&views[1].ops[other])) else {
            continue;
        };
        let (less, more) = (ours.min(theirs), ours.max(theirs));
        if less < more && PADDED_TO.iter().any(|unit| less.next_multiple_of(*unit) == more) {
            let [(padded, op), (plain, twin)] =
                if ours > theirs { [(0, at), (1, other)] } else { [(1, other), (0, at)] };
            if views[padded].narrow(op, "output.0", less).is_some() {
                views[plain].ops[twin].slots.retain(|slot| slot.side != SlotSide::Parameter);
            }
        }
    }
}

/// Returns the places of the ops that both sides have.
fn twins(views: &[View; 2]) -> Vec<(usize, usize)> {
    let places: HashMap<&OpName, usize> =
        views[1].ops.iter().enumerate().map(|(place, op)| (&op.name, place)).collect();
    let ours = views[0].ops.iter().enumerate();
    ours.filter_map(|(place, op)| Some((place, *places.get(&op.name)?))).collect()
}

/// Returns the path in front of a joint projection, and the names of its parts.
fn parts_of(name: &OpName) -> Option<(&str, &'static [&'static str])> {
    let path = name.module_path()?;
    FUSED.iter().find_map(|(fused, parts)| Some((path.strip_suffix(fused)?, *parts)))
}

/// Leaves what can be compared. An engine has modules of its own, and some that do more than the trainer's at the same path, which
/// arguments of another shape show. Arguments in the same place may be others, or have a row for each token on one side alone (places of
/// a cache), and where one side returns what it adds and the sum before, the other returns the sum.
pub(super) fn reconcile(views: &mut [View; 2]) {
    let shape =
        |op: &Op| inputs(op).find(|(_, record)| is_float(record)).map(|(_, record)| record.shape.clone());
    let does_more =
        |op: &Op, other: &Op| shape(op).zip(shape(other)).is_some_and(|(ours, theirs)| ours != theirs);
    let names: HashSet<OpName> = twins(views)
        .into_iter()
        .map(|(ours, theirs)| (&views[0].ops[ours], &views[1].ops[theirs]))
        .filter(|(op, other)| !does_more(op, other))
        .map(|(op, _)| op.name.clone())
        .collect();
    for view in views.iter_mut() {
        view.retain(|op| names.contains(&op.name));
    }
    for (ours, theirs) in twins(views) {
        let [left, right] = views;
        let (op, other) = (&mut left.ops[ours], &mut right.ops[theirs]);
        match (results(op), results(other)) {
            (2, 1) => sum_first(op, other),
            (1, 2) => sum_first(other, op),
            _ => {}
        }
        let unlike = |slot: &Slot, of: &Op| {
            let partner = inputs(of).find(|(path, _)| *path == &*slot.path).map(|(_, record)| record);
            let other = |record: &TensorRecord| {
                partner.is_none_or(|partner| {
                    partner.shape != record.shape || is_float(partner) != is_float(record)
                })
            };
            slot.side == SlotSide::Input && slot.value.tensor().is_some_and(other)
        };
        let (ours, theirs) = (op.clone(), other.clone());
        op.slots.retain(|slot| !unlike(slot, &theirs));
        other.slots.retain(|slot| !unlike(slot, &ours));
    }
}

/// Returns the arguments that are tensors, by path.
fn inputs(op: &Op) -> impl Iterator<Item = (&str, &TensorRecord)> {
    let is_input = |slot: &&Slot| slot.side == SlotSide::Input;
    op.slots.iter().filter(is_input).filter_map(|slot| Some((&*slot.path, slot.value.tensor()?)))
}

/// Returns the number of results that are tensors.
fn results(op: &Op) -> usize {
    op.slots.iter().filter(|slot| slot.side.is_result() && slot.value.tensor().is_some()).count()
}

fn is_float(record: &TensorRecord) -> bool {
    record.dtype.known().is_some_and(DType::is_float)
}

/// Compares a norm that adds a residual first, and returns the sum as its second result, with one that was given the sum. Of other
/// modules that return two summands, results are not compared.
fn sum_first(two: &mut Op, one: &mut Op) {
    if !two.name.api().contains("Norm") {
        two.slots.retain(|slot| !slot.side.is_result());
        one.slots.retain(|slot| !slot.side.is_result());
        return;
    }
    let value = |path: &str| two.slots.iter().find(|slot| &*slot.path == path).map(|slot| slot.value.clone());
    let Some(sum) = value("output.1") else { return };
    let first =
        two.slots.iter_mut().find(|slot| slot.side == SlotSide::Input && slot.value.tensor().is_some());
    let Some(first) = first else { return };
    first.value = sum;
    let kept = first.path.clone();
    two.slots.retain(|slot| {
        &*slot.path != "output.1"
            && (slot.side != SlotSide::Input || slot.path == kept || slot.value.tensor().is_none())
    });
}
