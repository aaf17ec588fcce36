//! Values that are marked for gradients on one side only, and make no difference to any: inside a function with a
//! backward of its own, nothing is marked.

use std::collections::HashSet;

use super::candidate::Candidate;
use super::difference::Difference;
use super::flow::{Flow, Place};
use super::{Cause, Verdict};
use probe_dump::Phase;

/// Removes marks that differ where nothing else does, if all gradients of both sides were compared; returns a remark on
/// them.
pub(super) fn settle(flow: &mut Flow<'_>, candidates: &mut Vec<Candidate>) -> Option<String> {
    // The numbers of one that is marked on one side may differ as well.
    let is_mark = |candidate: &Candidate| {
        let differs = |slot| flow.fact((candidate.op, slot)).difference == Difference::RequiresGrad;
        candidate.cause == Cause::Argument && candidate.slot.is_some_and(differs)
    };
    let all =
        (0..flow.nodes.len()).flat_map(|op| (0..flow.nodes[op].slot_count()).map(move |slot| (op, slot)));
    let marks = |place: &Place| flow.fact(*place).difference == Difference::RequiresGrad;
    let marked: Vec<Place> = all.filter(marks).collect();
    let &(op, slot) = marked.first()?;
    if !candidates.iter().all(is_mark) || !compares_gradients(flow) {
        return None;
    }
    let ops: HashSet<usize> = marked.iter().map(|place| place.0).collect();
    let path = flow.slot((op, slot)).map_or("", |slot| &*slot.path);
    let said = format!(
        "requires_grad differs at {} {}, first {} {path}, and all gradients agree",
        ops.len(),
        if ops.len() == 1 { "op" } else { "ops" },
        flow.nodes[op].op.name.as_str()
    );
    candidates.clear();
    for place in marked {
        let fact = flow.fact_mut(place);
        fact.allowed = true;
        fact.judgement.verdict = Verdict::Close;
    }
    Some(said)
}

/// Returns true if gradients were recorded, and those of every parameter on both sides.
fn compares_gradients(flow: &Flow<'_>) -> bool {
    let mut gradients = flow.nodes.iter().enumerate().filter(|(_, node)| node.makes_gradients()).peekable();
    let is_missing = |op: usize| flow.facts(op).any(|fact| fact.difference == Difference::Missing);
    gradients.peek().is_some()
        && gradients.all(|(op, node)| {
            node.op.name.phase() != Phase::ParameterGradient || (node.is_paired && !is_missing(op))
        })
}
