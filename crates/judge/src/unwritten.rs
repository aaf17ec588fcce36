//! Memory that was never written. A buffer is handed out as it was left, viewed, and filled later: by functions that were not recorded,
//! or by a storage that is given its size again. What it held before differs from run to run and means nothing.

use std::collections::HashSet;

use super::Verdict;
use super::alone::MadeAlone;
use super::difference::{Difference, Identity};
use super::flow::{Flow, Place};
use super::ops::Kind;

/// Takes what holds such memory out of the judgement: copies and views of what `empty` handed out, and what arrives from nowhere and
/// is viewed, but never read by anything that computes.
pub(super) fn set_aside(flow: &mut Flow<'_>) {
    let used = used(flow);
    let alone = MadeAlone::of(flow, |_| true);
    let mut unwritten: HashSet<Known> = HashSet::new();
    let mut made: HashSet<Known> = HashSet::new();
    for op in 0..flow.nodes.len() {
        let values: Vec<Option<Known>> = known(flow, op).collect();
        let weights: Vec<bool> = (0..values.len()).map(|slot| flow.is_weight((op, slot))).collect();
        let node = &flow.nodes[op];
        let results: Vec<usize> = node.results().collect();
        if node.traits.kind == Kind::Uninitialised {
            unwritten.extend(results.iter().filter_map(|&slot| values[slot]));
        } else if hands_on(flow, op) {
            let given: Vec<usize> = node.given().collect();
            for &slot in &given {
                let arrives =
                    values[slot].is_some_and(|value| !made.contains(&value) && !used.contains(&value));
                let from_nowhere = arrives && !weights[slot] && !alone.arrives_at(flow, (op, slot));
                if from_nowhere && set(flow, (op, slot)) {
                    unwritten.extend(values[slot]);
                }
            }
            let reads = |slot: usize| values[slot].is_some_and(|value| unwritten.contains(&value));
            let read: Vec<usize> = given
                .into_iter()
                .filter(|&slot| reads(slot) && !flow.fact((op, slot)).is_overwritten)
                .collect();
            // Also what is read of it: a module would be blamed for what it seems to hand to the ops inside.
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
        }
        made.extend(results.iter().filter_map(|&slot| values[slot]));
    }
}

/// Marks a value that differs; `false` for one that does not.
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

/// Values that something reads which computes, directly or through views and copies, and what modules hand out.
fn used(flow: &Flow<'_>) -> HashSet<Known> {
    let mut used = HashSet::new();
    for (op, node) in flow.nodes.iter().enumerate().rev() {
        let values: Vec<Option<Known>> = known(flow, op).collect();
        let results = || node.results().filter_map(|slot| values[slot]);
        if node.is_module() {
            used.extend(results());
        }
        if !hands_on(flow, op) || results().any(|value| used.contains(&value)) {
            used.extend(node.given().filter_map(|slot| values[slot]));
        }
    }
    used
}

/// Whether an op does nothing but hand on a tensor: what `item` and `tolist` read goes to the program.
fn hands_on(flow: &Flow<'_>, op: usize) -> bool {
    let node = &flow.nodes[op];
    let tensors = |slot: usize| flow.fact((op, slot)).is_tensor;
    node.traits.kind == Kind::Copy && !node.is_module() && node.is_paired && node.results().any(tensors)
}

/// What a value is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Known {
    Content(Identity),
    Number(Identity),
}

/// What the values of an op are known by: what they hold, or of those that nothing can be said of, as of NaN and sentinels that a device
/// measured, their numbers.
fn known<'f>(flow: &'f Flow<'_>, op: usize) -> impl Iterator<Item = Option<Known>> + 'f {
    flow.facts(op).enumerate().map(move |(slot, fact)| {
        fact.identity.map(Known::Content).or_else(|| flow.numbered((op, slot)).map(Known::Number))
    })
}
