//! Values that only one side repeats, by its own ops, before both sides compute the same: a kernel that shares
//! keys and values of grouped attention between heads reads them as they are, one that does not gets them
//! repeated for each head. Their shapes differ, and so do those of their gradients: one side makes one per
//! head and sums them itself.

use std::collections::{HashMap, HashSet};

use super::difference::{Difference, Fact};
use super::flow::{Flow, Place};
use super::ops::Kind;
use super::{SlotJudgement, Verdict};
use probe_dump::{Figure, TensorRecord};
use probe_pair::{PartPair, Substitution, value_key};

/// Value keys of the baseline and of the candidate.
type Sides = [Option<u64>; 2];

/// Gives values whose shapes differ for that reason the facts of the same values where both sides have one
/// shape: the inputs or the results of one side's copies.
pub(super) fn bring_together(flow: &mut Flow<'_>) {
    let reshaped: Vec<Place> = (0..flow.nodes.len())
        .filter(|&op| flow.nodes[op].is_paired)
        .flat_map(|op| (0..flow.nodes[op].slot_count()).map(move |slot| (op, slot)))
        .filter(|&place| flow.fact(place).difference == Difference::Shape && ends_there(flow, place))
        .collect();
    if reshaped.is_empty() {
        return;
    }
    let groups: Vec<Copies> =
        flow.pair.substitutions.iter().filter_map(|group| Copies::of(flow, group)).collect();
    let mut known: HashMap<(u64, u64), Place> = HashMap::new();
    for op in (0..flow.nodes.len()).filter(|&op| flow.nodes[op].is_paired) {
        for slot in 0..flow.nodes[op].slot_count() {
            let fact = flow.fact((op, slot));
            if fact.is_tensor
                && fact.is_measured
                && fact.difference.is_open()
                && let [Some(b), Some(c)] = sides(flow, (op, slot))
            {
                known.entry((b, c)).or_insert((op, slot));
            }
        }
    }
    let known = &known;
    let together: Vec<(Place, Place)> = reshaped
        .into_iter()
        .filter_map(|place| {
            let [Some(b), Some(c)] = sides(flow, place) else { return None };
            let more = more_elements(flow, place)?;
            // The first in execution order, independent of set order.
            let same = groups
                .iter()
                .filter(|group| group.side == more)
                .flat_map(|group| {
                    let own = if group.side == 0 { b } else { c };
                    let key = move |other| if group.side == 0 { (other, c) } else { (b, other) };
                    group.across(own).filter_map(move |other| known.get(&key(other)))
                })
                .min()
                .copied();
            Some((place, same?))
        })
        .collect();
    for (place, same) in together {
        let mut fact = Fact { difference: Difference::None, ..Fact::clone(flow.fact(same)) };
        let shapes = flow.fact(place).judgement.reason.clone();
        let name = flow.nodes[same.0].op.name.as_str();
        let path = flow.slot(same).map_or("", |slot| &*slot.path);
        fact.judgement.verdict = Verdict::Unknown;
        fact.judgement.error = Figure::NONE;
        fact.judgement.reason =
            format!("{shapes}: one side repeats it with extra ops; judged as {path} of {name}").into();
        *flow.fact_mut(place) = fact;
    }
}

/// Returns true if the different shape does not reach the op's results: for inputs, its results have equal
/// shapes; a gradient has the shape of its value.
fn ends_there(flow: &Flow<'_>, (op, slot): Place) -> bool {
    let node = &flow.nodes[op];
    let reshaped = |slot: usize| flow.fact((op, slot)).difference == Difference::Shape;
    if node.results().any(|result| result == slot) {
        node.is_backward()
    } else {
        !node.results().any(reshaped)
    }
}

/// Returns the side with an integer multiple of the other's elements: 0 for the baseline, 1 for the candidate.
fn more_elements(flow: &Flow<'_>, place: Place) -> Option<usize> {
    let [b, c] = records(flow, place).map(|record| record.map(TensorRecord::len));
    let (b, c) = (b?, c?);
    match (b.min(c), b.max(c)) {
        (few, many) if few == 0 || few == many || many % few > 0 => None,
        _ => Some(usize::from(c > b)),
    }
}

/// Returns the paths of an op's inputs that one side repeats.
pub(super) fn inputs<'a>(pair: &'a PartPair, op: usize, judged: &[SlotJudgement]) -> Vec<&'a str> {
    let slots = judged.iter().enumerate().filter_map(|(slot, judged)| {
        let (b, c) = pair.slot_at(op, slot);
        let (b, c) = (b?, c?);
        // Shapes that differ for another reason have their own verdict.
        let is_other =
            b.value.tensor()?.len() != c.value.tensor()?.len() && judged.verdict == Verdict::Unknown;
        (is_other && !b.side.is_result()).then_some(&*b.path)
    });
    slots.collect()
}

/// A group of unpaired ops of one side that copy what they read, or pass on gradients of such copies.
struct Copies {
    /// 0 for the baseline, 1 for the candidate.
    side: usize,
    read: HashSet<u64>,
    made: HashSet<u64>,
}

impl Copies {
    fn of(flow: &Flow<'_>, group: &Substitution) -> Option<Self> {
        let (side, members) = match (&*group.baseline, &*group.candidate) {
            (members, []) => (0, members),
            ([], members) => (1, members),
            _ => return None,
        };
        if !members.iter().all(|&op| flow.nodes[op].traits.kind == Kind::Copy) {
            return None;
        }
        let values = |results: bool| -> HashSet<u64> {
            let slots = members.iter().flat_map(|&op| &flow.nodes[op].op.slots);
            slots
                .filter(|slot| slot.side.is_result() == results)
                .filter_map(|slot| slot.value.tensor().and_then(value_key))
                .collect()
        };
        Some(Self { side, read: values(false), made: values(true) })
    }

    /// Returns the values at the other end of the group: its inputs for one of its results, its results for
    /// one of its inputs.
    fn across(&self, value: u64) -> impl Iterator<Item = u64> {
        let ends = match (self.made.contains(&value), self.read.contains(&value)) {
            (true, _) => Some(&self.read),
            (false, true) => Some(&self.made),
            (false, false) => None,
        };
        ends.into_iter().flatten().copied()
    }
}

fn sides(flow: &Flow<'_>, place: Place) -> Sides {
    records(flow, place).map(|record| record.and_then(value_key))
}

fn records<'a>(flow: &Flow<'a>, (op, slot): Place) -> [Option<&'a TensorRecord>; 2] {
    let (b, c) = flow.pair.slot_at(op, slot);
    [b, c].map(|slot| slot.and_then(|slot| slot.value.tensor()))
}
