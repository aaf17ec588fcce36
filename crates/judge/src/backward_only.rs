//! What a kernel hands to its own backward pass and to nobody else: the mean of a layer norm, the indices of a pooling. Devices keep it in other types
//! and shapes, and some make gradients that nobody asked for. What the kernels hand to others tells whether they agree.

use std::collections::HashMap;

use super::difference::Difference;
use super::flow::{Flow, Place};
use super::ops::Kind;
use probe_dump::{OpName, Phase, Slot};
use probe_pair::slot_key;

/// Lets ops of the dispatcher differ in element type, shape and presence of results that only their own backward passes read, and these of what they
/// read of them: the values keep their verdicts, and are no divergence. The first result is what the op is for; the first gradient may be there and nobody read it.
pub(super) fn set_aside(flow: &mut Flow<'_>) {
    for place in places(flow) {
        let fact = flow.fact_mut(place);
        fact.allowed = true;
        fact.judgement.reason =
            "kept in another form for the backward pass of this op, and read by nothing else".into();
    }
}

/// Where such results are made and read.
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

/// Where the values of one side are read, by what they are known by.
struct Readers<'f, 'a> {
    flow: &'f Flow<'a>,
    places: HashMap<u64, Vec<Place>>,
}

impl<'f, 'a> Readers<'f, 'a> {
    fn of(flow: &'f Flow<'a>, side: usize) -> Self {
        let mut places: HashMap<u64, Vec<Place>> = HashMap::new();
        for (position, pair) in flow.pair.ops.iter().enumerate() {
            let (b, c) = flow.pair.op(pair);
            // Who hands on what it reads is no reader: those of what it hands on are.
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

    /// Where later ops read what the op at `position` made. What was there before may have had the same elements: memory that is not written to
    /// holds what it held.
    fn behind(&self, position: usize, made: &Slot) -> impl Iterator<Item = Place> {
        let places = slot_key(made).and_then(|key| self.places.get(&key));
        places.into_iter().flatten().copied().filter(move |place| place.0 > position)
    }

    /// Whether nothing reads what an op made but its backward pass.
    fn only_backward(&self, position: usize, made: &Slot) -> bool {
        let name = |op: usize| &self.flow.nodes[op].op.name;
        self.behind(position, made).all(|(reader, _)| is_backward_of(name(reader), name(position)))
    }
}

/// Whether an op of the dispatcher is the derivative of another one, as torch names them: `native_layer_norm_backward` is of `native_layer_norm`,
/// `nll_loss_backward` of `nll_loss_forward`.
fn is_backward_of(reader: &OpName, maker: &OpName) -> bool {
    let stem = maker.stem();
    let stem = stem.strip_suffix("_forward").unwrap_or(stem);
    let rest = reader.stem().strip_prefix(stem);
    reader.phase() == Phase::Backward
        && rest.is_some_and(|rest| rest.contains("backward") || rest.contains("_grad"))
}
