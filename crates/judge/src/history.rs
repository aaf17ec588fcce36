//! State that a step passes to the next, and the weighing of a step that has it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::candidate::Candidate;
use super::difference::Identities;
use super::expected::{ExpectedErrors, GradientErrors, Walk, broken};
use super::family::{self, Learned};
use super::flow::{Flow, Node, Place};
use super::marks;
use super::median::median;
use super::ops::Kind;
use super::outliers::Seen;
use super::setting::Setting;
use super::tolerance::DTypeTolerance;
use super::update::{self, Weights};
use super::value::{ExpectedError, ValueKind};
use super::views::{Extremes, extremes};
use probe_dump::{OpKind, Phase, SlotSide};
use probe_pair::slot_key;

/// Fraction of weights that must be equal to the bit (within rounding) for the others to stand out: more than
/// half.
const MAJORITY: f64 = 0.5;

/// Error of weights that is no noise of a few steps: five roundings to bfloat16, the coarsest type that keeps weights.
pub(super) const APART: f64 = 0.02;

/// Error of a value that is plainly another one: other data, and no state that follows the weights.
pub(super) const ANOTHER: f64 = 0.1;

/// State that the judgement of one step of a rank passes to the next.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub(super) learned: (Learned, Seen),
    weights: Weights,
    gradients: GradientErrors,
    /// Values that differ and that an op made: the next step may read them again, as it does a codebook that follows a
    /// moving mean.
    made: HashSet<Extremes>,
    /// Keys of the values of each side that no recorded op made: weights, and the buffers of a program.
    arrived: Arc<[HashSet<u64>; 2]>,
    /// Ops by name of which a step has shown that they compute the same in another way.
    ways: Arc<HashSet<Box<str>>>,
    /// Updates were judged at the optimizer.
    optimizer_seen: bool,
    /// An op was at fault.
    pub(super) diverged: bool,
    /// A step was judged.
    pub(super) any: bool,
}

impl History {
    /// Builds the state left by a weighed part.
    pub(super) fn after(
        flow: &Flow<'_>,
        (gradients, arrivals): (GradientErrors, &[Place]),
        learned: (Learned, Seen),
        ways: HashSet<Box<str>>,
        diverged: bool,
    ) -> Self {
        Self {
            ways: Arc::new(ways),
            arrived: Arc::new(arrived(flow, arrivals)),
            learned,
            weights: update::weights(flow),
            optimizer_seen: flow.nodes.iter().any(|node| node.traits.optimizes && node.is_paired),
            made: made(flow),
            gradients,
            diverged,
            any: true,
        }
    }
}

impl History {
    /// Returns the keys of what arrived in the previous step, if that was recorded.
    pub(super) fn arrived(&self, flow: &Flow<'_>) -> Arc<[HashSet<u64>; 2]> {
        if flow.pair.since == Some(1) { self.arrived.clone() } else { Arc::default() }
    }

    /// Returns the ops by name of which an earlier step has shown that they compute the same in another way.
    pub(super) fn ways(&self) -> &HashSet<Box<str>> {
        &self.ways
    }

    /// Returns a weight that follows others at another rate.
    pub(super) fn follower(&self, flow: &Flow<'_>) -> Option<Candidate> {
        let consecutive = flow.pair.since == Some(1) && self.any;
        consecutive.then(|| update::follower(flow, &self.weights, &self.gradients)).flatten()
    }
}

fn arrived(flow: &Flow<'_>, arrivals: &[Place]) -> [HashSet<u64>; 2] {
    let mut keys = [HashSet::new(), HashSet::new()];
    for &(op, slot) in arrivals {
        let (b, c) = flow.pair.slot_at(op, slot);
        for (keys, slot) in keys.iter_mut().zip([b, c]) {
            keys.extend(slot.and_then(slot_key));
        }
    }
    keys
}

/// Weighs the values of a part, including updates; also returns the weights and buffers that have drifted.
pub(super) fn weigh(flow: &Flow<'_>, setting: &Setting, history: &History) -> (ExpectedErrors, Vec<Place>) {
    let mut expected = Walk::over(flow, setting, 0.0);
    let coarse = family::coarse_statistics(&expected.values);
    if coarse > 0.0 {
        drop(expected);
        expected = Walk::over(flow, setting, coarse);
    }
    let drifted = choose_arrivals(flow, &mut expected, flow.pair.step, !history.any);
    let consecutive = flow.pair.since == Some(1) && history.any;
    if consecutive {
        let is_carried =
            |place: Place| extremes(flow, place).is_some_and(|value| history.made.contains(&value));
        expected.values.retain(|value| value.family.role != ValueKind::Arrival || !is_carried(value.place));
    }
    with_unseen_drift(flow, &drifted, &mut expected);
    without_flow(flow, &mut expected);
    update::within(flow, &mut expected.values);
    if consecutive && !history.optimizer_seen {
        update::across(flow, &history.weights, &history.gradients, &mut expected.values);
    }
    (expected, drifted)
}

/// Returns true if half of the weights that have drifted are off by more than noise leaves in a few steps.
pub(super) fn are_apart(flow: &Flow<'_>, drifted: &[Place]) -> bool {
    let mut errors: Vec<f64> = drifted.iter().map(|&place| flow.fact(place).relative()).collect();
    median(&mut errors) > APART
}

/// Keeps the arrivals that can be judged; returns the weights and buffers that have drifted.
///
/// Weights are equal to the bit before the first step. Later they carry the effect of earlier steps and are
/// judged by their changes; if the recording begins late, a weight that differs stands out only if most do not
/// differ.
fn choose_arrivals(flow: &Flow<'_>, expected: &mut ExpectedErrors, step: u64, begins: bool) -> Vec<Place> {
    let is_weight = |place: Place| {
        // Unpaired ops made it.
        if flow.is_made_unpaired(place) {
            return false;
        }
        let forward = flow.nodes[place.0].op.name.phase() == Phase::Forward;
        // Running statistics are read by functions inside a module, and every step changes them.
        let normalises = flow.nodes[place.0].traits.kind == Kind::Normalisation
            && flow.slot(place).is_some_and(|slot| &*slot.path != "input.0");
        let buffer = (begins || normalises) && step > 0 && forward && flow.parent(place.0).is_some();
        flow.is_weight(place) || (buffer && !flow.modules_alone)
    };
    let weights: Vec<&ExpectedError> = expected
        .values
        .iter()
        .filter(|value| value.family.role == ValueKind::Arrival && is_weight(value.place))
        .collect();
    let rewritten = rewritten_weights(flow, &weights);
    let differing = |value: &&&ExpectedError| !flow.fact(value.place).exact;
    let apart: Vec<Place> = weights.iter().filter(differing).map(|value| value.place).collect();
    let most = apart.len() as f64 > MAJORITY * weights.len() as f64;
    let judges_weights = begins && (step == 0 || !most);
    let mut unlike = Identities::default();
    if begins && !judges_weights {
        unlike = update::unlike_from_the_start(flow);
        unlike.extend(update::unlike_by_extremes(flow, &apart));
    }
    let turned = if judges_weights && step > 0 { update::turned(flow) } else { Identities::default() };
    let is_turned =
        |place: Place| flow.fact(place).identity.is_some_and(|identity| turned.contains(&identity));
    let is_unlike =
        |place: Place| flow.fact(place).identity.is_some_and(|identity| unlike.contains(&identity));
    // After the first step, what a program keeps from step to step differs as its weights do.
    let drifted = apart.iter().filter(|&&place| !is_unlike(place));
    let drift = marks::largest_error(flow, drifted).min(ANOTHER);
    let is_kept = |value: &ExpectedError| {
        step > 0 && !judges_weights && value.error <= drift && !flow.is_made_unpaired(value.place)
    };
    let first_backward = flow.nodes.iter().position(|node| node.op.name.phase() == Phase::Backward);
    expected.values.retain(|value| {
        if value.family.role != ValueKind::Arrival {
            return true;
        }
        let node = &flow.nodes[value.place.0];
        if node.traits.optimizes || node.op.name.kind() == OpKind::Tensor {
            return false;
        }
        if is_weight(value.place) {
            let is_judged = judges_weights && !rewritten.contains(&value.place) && !is_turned(value.place);
            return is_judged || is_unlike(value.place);
        }
        // After the backward pass, functions outside all modules change weights and optimizer state.
        let mut around = flow.around(value.place.0);
        let outside = !node.is_backward() && around.all(|outer| flow.nodes[outer].traits.optimizes);
        if outside && first_backward.is_some_and(|first| first < value.place.0) {
            return false;
        }
        if is_kept(value) && !node.is_backward() && broken(flow, value.place).is_none() {
            return false;
        }
        // Between functions everything is recorded except sums of gradients; in later steps only data arrive.
        flow.modules_alone || (begins && value.error > 0.0) || node.op.name.phase() == Phase::Forward
    });
    // No error that arrived before it made such a weight.
    let unlike_weights = expected.values.iter_mut().filter(|value| {
        value.family.role == ValueKind::Arrival && is_weight(value.place) && is_unlike(value.place)
    });
    unlike_weights.for_each(|value| value.explained = 0.0);
    if judges_weights { Vec::new() } else { apart.into_iter().filter(|&place| !is_unlike(place)).collect() }
}

/// Returns the results of a part that differ.
fn made(flow: &Flow<'_>) -> HashSet<Extremes> {
    let results = flow.nodes.iter().enumerate().filter(|(_, node)| node.is_paired && !node.traits.optimizes);
    let places = results.flat_map(|(op, node)| node.results().map(move |slot| (op, slot)));
    places.filter(|&place| flow.fact(place).is_float).filter_map(|place| extremes(flow, place)).collect()
}

/// Returns the parameters that a module reads changed, after an earlier call in the same step read them otherwise: the
/// program moved them in between.
fn rewritten_weights(flow: &Flow<'_>, weights: &[&ExpectedError]) -> HashSet<Place> {
    let mut first: HashMap<(&str, &str), Place> = HashMap::new();
    let moved = weights.iter().map(|value| value.place).filter(|&place| {
        let key = flow.nodes[place.0].op.name.module_path().zip(flow.slot(place).map(|slot| &*slot.path));
        key.is_some_and(|key| *first.entry(key).or_insert(place) != place)
    });
    moved.collect()
}

/// Expects of a module what weights have drifted by that one side alone recorded, in a module of its own inside.
fn with_unseen_drift(flow: &Flow<'_>, drifted: &[Place], expected: &mut ExpectedErrors) {
    let has_weights = |op: usize| {
        let node = &flow.nodes[op];
        !node.is_paired && (0..node.slot_count()).any(|slot| flow.side((op, slot)) == SlotSide::Parameter)
    };
    let owner = |op: usize| {
        let outer = flow.around(op).find(|&outer| flow.nodes[outer].is_paired)?;
        flow.nodes[outer].op.name.module_path()
    };
    if drifted.is_empty() || !flow.modules_alone {
        return;
    }
    let owners: HashSet<&str> =
        (0..flow.nodes.len()).filter(|&op| has_weights(op)).filter_map(owner).collect();
    let drift = marks::largest_error(flow, drifted.iter());
    for value in &mut expected.values {
        let is_owner = |node: &Node<'_>| node.op.name.module_path().is_some_and(|path| owners.contains(path));
        if value.family.role == ValueKind::Result && is_owner(&flow.nodes[value.place.0]) {
            value.explained = value.explained.hypot(drift);
        }
    }
}

/// Gives saved variables and the tensors of a collection fixed bounds by dtype: they follow from nothing that
/// was recorded.
fn without_flow(flow: &Flow<'_>, expected: &mut ExpectedErrors) {
    for value in &mut expected.values {
        let kind = flow.nodes[value.place.0].op.name.kind();
        if !matches!(kind, OpKind::Tensor | OpKind::Saved) {
            continue;
        }
        if let Some(tolerance) = DTypeTolerance::of(value.family.dtype) {
            // Values beyond 8 times the floor are at fault.
            let floor = tolerance.rel_l2 / 8.0;
            (value.least, value.unknown, value.explained) = (floor, floor, 0.0);
        }
    }
}
