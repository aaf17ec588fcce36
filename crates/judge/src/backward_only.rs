//! Values that a kernel saves for its own backward pass only: the mean of a layer norm, the indices of a
//! pooling. Devices keep them in different dtypes and shapes, and some compute gradients that nobody
//! requested. The values that other ops read show whether the kernels agree.

use std::collections::HashMap;

use super::difference::Difference;
use super::flow::{Flow, Place};
use super::ops::Kind;
use probe_dump::{OpName, Phase, Slot};
use probe_pair::slot_key;

/// Allows dispatcher ops to differ in dtype, shape and presence of results that only their own backward ops
/// read, and allows the same for those reads: the values keep their verdicts but are no divergence. The first
/// result is the purpose of the op, so it is not exempt; the first gradient is, if only one side has it and
/// nobody reads it.
pub(super) fn set_aside(flow: &mut Flow<'_>) {
    for place in places(flow) {
        let fact = flow.fact_mut(place);
        fact.allowed = true;
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
    let sides = [Readers::of(flow, 0), Readers::of(flow, 1)];
    let mut found = Vec::new();
    for (position, slot) in differing {
        let (b, c) = flow.pair.slot_at(position, slot);
        let made = || [b, c].into_iter().zip(&sides).filter_map(|(made, readers)| Some((made?, readers)));
        if made().all(|(made, readers)| readers.only_backward(position, made)) {
            found.push((position, slot));
            let read = made().flat_map(|(made, readers)| readers.behind(position, made));
            found.extend(read.filter(|&place| hides(flow.fact(place).difference)));
        }
    }
    found
}

fn hides(difference: Difference) -> bool {
    matches!(difference, Difference::DType | Difference::Shape | Difference::Missing)
}

/// Places where the values of one side are read, by value key.
struct Readers<'f, 'a> {
    flow: &'f Flow<'a>,
    places: HashMap<u64, Vec<Place>>,
}

impl<'f, 'a> Readers<'f, 'a> {
    fn of(flow: &'f Flow<'a>, side: usize) -> Self {
        let mut places: HashMap<u64, Vec<Place>> = HashMap::new();
        for (position, pair) in flow.pair.ops.iter().enumerate() {
            let (b, c) = flow.pair.op(pair);
            // An op that only copies its input is not a reader; the ops that read the copy are.
            if flow.nodes[position].traits.kind == Kind::Copy || [b, c][side].is_none() {
                continue;
            }
            for slot in 0..flow.nodes[position].slot_count() {
                let (b, c) = flow.pair.slot_at(position, slot);
                let read = [b, c][side].filter(|slot| !slot.side.is_result());
                if let Some(key) = read.and_then(slot_key) {
                    places.entry(key).or_default().push((position, slot));
                }
            }
        }
        Self { flow, places }
    }

    /// Returns the places where later ops read what the op at `position` made. Earlier reads may have seen the
    /// same elements: memory that is not written to keeps its contents.
    fn behind(&self, position: usize, made: &Slot) -> impl Iterator<Item = Place> {
        let places = slot_key(made).and_then(|key| self.places.get(&key));
        places.into_iter().flatten().copied().filter(move |place| place.0 > position)
    }

    /// Returns true if nothing but an op's backward pass reads its result.
    fn only_backward(&self, position: usize, made: &Slot) -> bool {
        let name = |op: usize| &self.flow.nodes[op].op.name;
        self.behind(position, made).all(|(reader, _)| is_backward_of(name(reader), name(position)))
    }
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
