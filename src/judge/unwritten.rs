//! Memory that was never written. A buffer is handed out as it was left, viewed, and filled later: by functions that were not recorded,
//! or by a storage that is given its size again. What it held before differs from run to run and means nothing.

use std::collections::HashSet;

use super::Verdict;
use super::difference::{Difference, Fact, Identity};
use super::flow::{Flow, Node};
use super::ops::Kind;

/// Takes what holds such memory out of the judgement: copies and views of what `empty` handed out, and what arrives from nowhere and
/// is viewed, but never read by anything that computes.
pub(super) fn set_aside(flow: &mut Flow<'_>) {
    let used = used(flow);
    let weights: Vec<Vec<bool>> = flow
        .nodes
        .iter()
        .enumerate()
        .map(|(op, node)| (0..node.facts.len()).map(|slot| flow.is_weight((op, slot))).collect())
        .collect();
    let mut unwritten: HashSet<Known> = HashSet::new();
    let mut made: HashSet<Known> = HashSet::new();
    for (node, weights) in flow.nodes.iter_mut().zip(weights) {
        if node.traits.kind == Kind::Uninitialised {
            unwritten.extend(identities(node, true));
        } else if hands_on(node) {
            let idle = |fact: &Fact| known(fact).is_some_and(|value| !used.contains(&value));
            for (fact, is_weight) in node.facts.iter_mut().zip(weights) {
                let arrives = known(fact).is_some_and(|value| !made.contains(&value));
                if !fact.side.is_result() && arrives && idle(fact) && !is_weight && set(fact) {
                    unwritten.extend(known(fact));
                }
            }
            let reads = |fact: &Fact| known(fact).is_some_and(|value| unwritten.contains(&value));
            let read: Vec<usize> = node
                .given()
                .filter(|&slot| reads(&node.facts[slot]) && !node.facts[slot].is_overwritten)
                .collect();
            // Also what is read of it: a module would be blamed for what it seems to hand to the ops inside.
            for &slot in &read {
                set(&mut node.facts[slot]);
            }
            if !read.is_empty() {
                for fact in node.facts.iter_mut().filter(|fact| fact.side.is_result()) {
                    if set(fact) {
                        unwritten.extend(known(fact));
                    }
                }
            }
        }
        made.extend(identities(node, true));
    }
}

/// Marks a value that differs; `false` for one that does not.
fn set(fact: &mut Fact) -> bool {
    let differs =
        matches!(fact.difference, Difference::Numbers | Difference::NonFinite | Difference::Elements);
    if differs {
        fact.unwritten = true;
        fact.allowed = true;
        fact.judgement.verdict = Verdict::Unknown;
        fact.judgement.reason = "memory that was never written, not judged".into();
    }
    differs
}

/// Values that something reads which computes, directly or through views and copies, and what modules hand out.
fn used(flow: &Flow<'_>) -> HashSet<Known> {
    let mut used = HashSet::new();
    for node in flow.nodes.iter().rev() {
        if node.is_module() {
            used.extend(identities(node, true));
        }
        if !hands_on(node) || identities(node, true).any(|value| used.contains(&value)) {
            used.extend(identities(node, false));
        }
    }
    used
}

/// Whether an op does nothing but hand on a tensor: what `item` and `tolist` read goes to the program.
fn hands_on(node: &Node<'_>) -> bool {
    let tensors = |slot: usize| node.facts[slot].is_tensor;
    node.traits.kind == Kind::Copy && !node.is_module() && node.is_paired && node.results().any(tensors)
}

fn identities<'n>(node: &'n Node<'_>, results: bool) -> impl Iterator<Item = Known> + 'n {
    node.facts.iter().filter(move |fact| fact.side.is_result() == results).filter_map(known)
}

/// What a value is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Known {
    Content(Identity),
    Number(Identity),
}

/// By what it holds; what nothing can be said of, as of NaN and sentinels that a device measured, by its number.
fn known(fact: &Fact) -> Option<Known> {
    fact.identity.map(Known::Content).or(fact.numbered.map(Known::Number))
}
