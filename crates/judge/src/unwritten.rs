//! Memory that was never written. A buffer is returned uninitialised, viewed, and filled later: by functions
//! that were not recorded, or by a storage that is resized. Its previous contents differ from run to run and
//! mean nothing.

use std::collections::HashSet;

use super::Verdict;
use super::difference::{Difference, Identity};
use super::flow::{Flow, Place};
use super::ops::Kind;
use probe_dump::{Scalar, Slot, Value};

/// Relative error from which a value is another one.
const ANOTHER: f64 = 0.1;

/// Excludes values with such memory from the judgement: copies and views of what `empty` returned, and values
/// of unknown origin that are viewed but never read by a computation.
pub(super) fn set_aside(flow: &mut Flow<'_>) {
    let (used, written) = used(flow);
    let mut unwritten: HashSet<Known> = HashSet::new();
    let mut made: HashSet<Known> = HashSet::new();
    for op in 0..flow.nodes.len() {
        let values: Vec<Option<Known>> = known(flow, op).collect();
        let weights: Vec<bool> = (0..values.len()).map(|slot| flow.is_weight((op, slot))).collect();
        let node = &flow.nodes[op];
        let results: Vec<usize> = node.results().collect();
        if node.traits.kind == Kind::Uninitialised {
            unwritten.extend(results.iter().filter_map(|&slot| values[slot]));
        } else if let Some(slot) = times_zero(flow, op) {
            set(flow, (op, slot));
        } else if hands_on(flow, op) {
            let given: Vec<usize> = node.given().collect();
            for &slot in &given {
                let arrives =
                    values[slot].is_some_and(|value| !made.contains(&value) && !used.contains(&value));
                let is_weight = weights[slot] && !is_another(flow, (op, slot));
                let from_nowhere = arrives && !is_weight && !flow.is_made_unpaired((op, slot));
                if from_nowhere && set(flow, (op, slot)) {
                    unwritten.extend(values[slot]);
                }
            }
            let reads = |slot: usize| values[slot].is_some_and(|value| unwritten.contains(&value));
            let read: Vec<usize> = given
                .into_iter()
                .filter(|&slot| reads(slot) && !flow.fact((op, slot)).is_overwritten)
                .collect();
            // The reads are marked too: otherwise a module would be blamed for values that it seems to pass to
            // its inner ops.
            for &slot in &read {
                set(flow, (op, slot));
            }
            if !read.is_empty() {
                for &slot in &results {
                    if set(flow, (op, slot)) {
                        unwritten.extend(values[slot]);
                    }
                }
            }
            // A view that is only written to.
            for &slot in &results {
                let is_only_written =
                    values[slot].is_some_and(|value| !used.contains(&value) && written.contains(&value));
                if is_only_written && is_another(flow, (op, slot)) {
                    set(flow, (op, slot));
                }
            }
        }
        made.extend(results.iter().filter_map(|&slot| values[slot]));
    }
}

/// Returns true for a value that is another on the other side, and not the same with noise.
fn is_another(flow: &Flow<'_>, place: Place) -> bool {
    let fact = flow.fact(place);
    match fact.difference {
        Difference::NonFinite => true,
        Difference::Numbers => fact.relative() > ANOTHER,
        _ => false,
    }
}

/// Returns true for an input of which an op that passes on tensors needs nothing: it takes a part, and that agrees, as of
/// memory that is filled piece by piece; or it writes over it.
fn is_spared(flow: &Flow<'_>, (op, slot): Place) -> bool {
    let node = &flow.nodes[op];
    let is_taken =
        |made: usize| flow.fact((op, made)).len < flow.fact((op, slot)).len && !is_another(flow, (op, made));
    let is_first = node.given().next() == Some(slot);
    (node.base == "copy" && is_first) || (is_another(flow, (op, slot)) && node.results().all(is_taken))
}

/// Marks a value that differs; returns `false` for one that does not.
fn set(flow: &mut Flow<'_>, place: Place) -> bool {
    let differs = matches!(
        flow.fact(place).difference,
        Difference::Numbers | Difference::NonFinite | Difference::Elements
    );
    if differs {
        let fact = flow.fact_mut(place);
        fact.unwritten = true;
        fact.allowed = true;
        fact.judgement.verdict = Verdict::Unknown;
        fact.judgement.reason = "memory never written to, not judged".into();
    }
    differs
}

/// Returns the values read by a computation, directly or through views and copies, and the results of modules; and those
/// that a copy writes over.
fn used(flow: &Flow<'_>) -> (HashSet<Known>, HashSet<Known>) {
    let (mut used, mut written) = (HashSet::new(), HashSet::new());
    for (op, node) in flow.nodes.iter().enumerate().rev() {
        let values: Vec<Option<Known>> = known(flow, op).collect();
        let results = || node.results().filter_map(|slot| values[slot]);
        if node.is_module() {
            used.extend(results());
        }
        if !hands_on(flow, op) {
            let times_zero = times_zero(flow, op);
            used.extend(
                node.given().filter(|&slot| Some(slot) != times_zero).filter_map(|slot| values[slot]),
            );
            continue;
        }
        if node.base == "copy" {
            written.extend(node.given().next().and_then(|slot| values[slot]));
        }
        if results().any(|value| used.contains(&value)) {
            let needed = node.given().filter(|&slot| !is_spared(flow, (op, slot)));
            used.extend(needed.filter_map(|slot| values[slot]));
        }
    }
    (used, written)
}

/// Returns the term that a product and sum multiply by a `beta` of zero, and then do not read: not even NaN arrives in the result
/// (torch's documentation of `addmm` and `baddbmm`). Programs pass memory there that nobody has written.
fn times_zero(flow: &Flow<'_>, op: usize) -> Option<usize> {
    let node = &flow.nodes[op];
    if !matches!(node.base, "addmm" | "addbmm" | "baddbmm" | "addmv" | "addr") || node.is_backward() {
        return None;
    }
    let is_zero = |slot: &Slot| {
        &*slot.path == "kwarg.beta"
            && matches!(&slot.value, Value::Scalar(Scalar::Number(beta)) if beta.as_f64() == 0.0)
    };
    let of_both = (0..node.slot_count()).any(|slot| {
        let (b, c) = flow.pair.slot_at(op, slot);
        b.is_some_and(is_zero) && c.is_some_and(is_zero)
    });
    node.given().next().filter(|_| of_both)
}

/// Returns true if an op only passes on a tensor; results of `item` and `tolist` go to the program instead.
fn hands_on(flow: &Flow<'_>, op: usize) -> bool {
    let node = &flow.nodes[op];
    let tensors = |slot: usize| flow.fact((op, slot)).is_tensor;
    node.traits.kind == Kind::Copy && !node.is_module() && node.is_paired && node.results().any(tensors)
}

/// Key of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Known {
    Content(Identity),
    Number(Identity),
}

/// Returns the keys of an op's values: their contents, or their tensor numbers if the contents are unknown, as
/// for NaN and sentinels that a device measured.
fn known<'f>(flow: &'f Flow<'_>, op: usize) -> impl Iterator<Item = Option<Known>> + 'f {
    flow.facts(op).enumerate().map(move |(slot, fact)| {
        fact.identity.map(Known::Content).or_else(|| flow.numbered((op, slot)).map(Known::Number))
    })
}
