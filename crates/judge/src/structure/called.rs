//! Arguments in which two calls differ without another result: dimensions counted from the end, a cast by device or
//! by type, a view of another shape.

use std::collections::HashSet;

use super::converging::Agreement;
use super::{Candidate, Cause, Flow, Node};
use crate::difference::{Difference, Fact};
use crate::one_sided;
use crate::ops::{is_dimension, parameter};
use probe_dump::{Number, Scalar, Slot, Value};

/// Removes the arguments of ops that make the same with others; returns those of these ops of which nothing else was found.
pub(super) fn without_same_calls(
    flow: &Flow<'_>,
    agreement: &Agreement<'_, '_>,
    candidates: &mut Vec<Candidate>,
) -> HashSet<usize> {
    let named = candidates.iter().filter(|candidate| candidate.cause == Cause::Argument);
    let same: HashSet<usize> =
        named.map(|candidate| candidate.op).filter(|&op| is_same(flow, agreement, op)).collect();
    candidates.retain(|candidate| candidate.cause != Cause::Argument || !same.contains(&candidate.op));
    let others: HashSet<usize> = candidates.iter().map(|candidate| candidate.op).collect();
    &same - &others
}

fn is_same(flow: &Flow<'_>, agreement: &Agreement<'_, '_>, op: usize) -> bool {
    let node = &flow.nodes[op];
    let is_weighed = || node.given().any(|slot| one_sided::weighs_classes(flow, (op, slot)));
    if node.is_module() || node.traits.optimizes || is_weighed() {
        return false;
    }
    let differing: Vec<usize> =
        node.given().filter(|&slot| is_argument(flow.fact((op, slot)), flow, (op, slot))).collect();
    let keeps = differing.iter().any(|&slot| name(flow, (op, slot)) == Some("keepdim"));
    let same_dimensions = differing.iter().all(|&slot| is_same_dimension(flow, (op, slot)));
    // Whatever the results, nothing else was asked for.
    if same_dimensions && !keeps && !differing.is_empty() {
        return true;
    }
    // A factor of a value that the other side has without it.
    if agreement.undoes(op) {
        return true;
    }
    // A copy of the same elements in another order has the same statistics: what reads it tells.
    let rearranges =
        || node.traits.rearranges && (resolves(flow, op, node) || agreement.region(&[op]).is_some());
    agreement.makes_the_same(op) && (same_dimensions || rearranges())
}

/// Returns the name of an argument, if it is known.
fn name<'f>(flow: &'f Flow<'_>, (op, slot): (usize, usize)) -> Option<&'f str> {
    let (b, c) = flow.pair.slot_at(op, slot);
    parameter(flow.nodes[op].base, b.or(c).map_or("", |slot| &*slot.path))
}

/// Returns true if the record of an op's results tells the order of their elements.
fn resolves(flow: &Flow<'_>, op: usize, node: &Node<'_>) -> bool {
    node.results().map(|slot| flow.fact((op, slot))).all(|fact| fact.exact || !fact.statistics_only)
}

fn is_argument(fact: &Fact, flow: &Flow<'_>, (op, slot): (usize, usize)) -> bool {
    let (b, c) = flow.pair.slot_at(op, slot);
    let scalar = b.or(c).is_some_and(|slot| matches!(slot.value, Value::Scalar(_)));
    match fact.difference {
        Difference::Argument | Difference::ComputedArgument => true,
        Difference::Missing => scalar,
        _ => false,
    }
}

/// Returns true for numbers of dimensions that mean the same, counted from either end, and for whether a dimension is
/// kept.
fn is_same_dimension(flow: &Flow<'_>, (op, slot): (usize, usize)) -> bool {
    let (b, c) = flow.pair.slot_at(op, slot);
    let path = b.or(c).map_or("", |slot| &*slot.path);
    let function = flow.nodes[op].base;
    let name = name(flow, (op, slot));
    if name == Some("keepdim") {
        return true;
    }
    if !is_dimension(function, path) {
        return false;
    }
    let (Some(b), Some(c)) = (b.and_then(integers), c.and_then(integers)) else { return false };
    // A dimension that is put in counts itself.
    let ranks = (0..flow.nodes[op].slot_count()).map(|slot| flow.shape((op, slot)).len());
    let rank = ranks.max().and_then(|rank| i64::try_from(rank).ok()).unwrap_or(0);
    let from_the_start = |numbers: Vec<i64>| {
        let mut found: Vec<i64> =
            numbers.into_iter().map(|number| if number < 0 { number + rank } else { number }).collect();
        // Sizes have an order, dimensions to be summed have none.
        if name == Some("dim") {
            found.sort_unstable();
        }
        found
    };
    from_the_start(b) == from_the_start(c)
}

/// Returns an integer, or those of a list.
fn integers(slot: &Slot) -> Option<Vec<i64>> {
    match &slot.value {
        Value::Scalar(Scalar::Number(Number::Int(number))) => Some(vec![*number]),
        Value::Scalar(Scalar::Printed(printed)) => {
            let inner = printed.text.trim_matches(['[', ']', '(', ')']);
            inner.split(',').map(|number| number.trim().parse().ok()).collect()
        }
        _ => None,
    }
}
