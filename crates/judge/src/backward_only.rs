//! Values that a kernel saves for its own backward pass only: the mean of a layer norm, the indices of a
//! pooling. Devices keep them in different dtypes and shapes, and some compute gradients that nobody
//! requested. The values that other ops read show whether the kernels agree.

use super::Verdict;
use super::difference::Difference;
use super::flow::{Flow, Place};
use super::ops::Kind;
use probe_dump::{OpName, Phase, Slot};

/// Allows dispatcher ops to differ in dtype, shape and presence of results that only their own backward ops
/// read, and allows the same for those reads: the values keep their verdicts but are no divergence. The first
/// result is the purpose of the op, so it is not exempt; the first gradient is, if only one side has it and
/// nobody reads it.
pub(super) fn set_aside(flow: &mut Flow<'_>) {
    for place in places(flow) {
        let fact = flow.fact_mut(place);
        fact.allowed = true;
        if fact.judgement.verdict == Verdict::Shape {
            fact.judgement.verdict = Verdict::Unknown;
        }
        fact.judgement.reason =
            "kept in another form for the backward pass of this op, and read by nothing else".into();
    }
}

/// Returns the places where such results are made and read.
fn places(flow: &Flow<'_>) -> Vec<Place> {
    let ops = flow.nodes.iter().enumerate().filter(|(_, node)| node.is_paired && node.is_dispatcher());
    let results = ops.flat_map(|(position, node)| {
        node.results().enumerate().map(move |(index, slot)| (index, node, (position, slot)))
    });
    let differing = results.filter(|&(index, node, place)| {
        let difference = flow.fact(place).difference;
        hides(difference) && (index > 0 || (node.is_backward() && difference == Difference::Missing))
    });
    let differing: Vec<Place> = differing.map(|(_, _, place)| place).collect();
    if differing.is_empty() {
        return differing;
    }
    let mut found = Vec::new();
    for (position, slot) in differing {
        let (b, c) = flow.pair.slot_at(position, slot);
        let made = || [b, c].into_iter().enumerate().filter_map(|(side, made)| Some((side, made?)));
        if made().all(|(side, made)| only_backward(flow, side, position, made)) {
            found.push((position, slot));
            let read = made().flat_map(|(side, made)| behind(flow, side, position, made));
            found.extend(read.filter(|&place| hides(flow.fact(place).difference)));
        }
    }
    found
}

fn hides(difference: Difference) -> bool {
    matches!(difference, Difference::DType | Difference::Shape | Difference::Missing)
}

/// Returns the places where later ops of one side read what the op at `position` made. Earlier reads may have
/// seen the same elements: memory that is not written to keeps its contents. An op that only copies its input is
/// not a reader; the ops that read the copy are.
fn behind<'f>(
    flow: &'f Flow<'_>,
    side: usize,
    position: usize,
    made: &Slot,
) -> impl Iterator<Item = Place> + 'f {
    let places = flow.values.readers(side, made);
    places.filter(move |&(op, _)| op > position && flow.nodes[op].traits.kind != Kind::Copy)
}

/// Returns true if nothing but an op's backward pass reads its result on one side.
fn only_backward(flow: &Flow<'_>, side: usize, position: usize, made: &Slot) -> bool {
    let name = |op: usize| &flow.nodes[op].op.name;
    behind(flow, side, position, made).all(|(reader, _)| is_backward_of(name(reader), name(position)))
}

/// Returns true if a dispatcher op is the derivative of another one, by torch's naming:
/// `native_layer_norm_backward` belongs to `native_layer_norm`, `nll_loss_backward` to `nll_loss_forward`.
fn is_backward_of(reader: &OpName, maker: &OpName) -> bool {
    let stem = maker.stem();
    let stem = stem.strip_suffix("_forward").unwrap_or(stem);
    let rest = reader.stem().strip_prefix(stem);
    reader.phase() == Phase::Backward
        && rest.is_some_and(|rest| rest.contains("backward") || rest.contains("_grad"))
}
