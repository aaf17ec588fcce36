//! How far the steps before a recording have moved the weights of the two runs apart, in changes of the first step that was
//! recorded. Noise moves them little, and what differs from the start as far as updates go that have nothing in common.

use std::collections::HashMap;

use super::super::difference::{Identities, Identity};
use super::super::flow::{Flow, Place};
use super::super::median::median;
use super::super::wiring::extremes;
use super::{Change, Given, State, Written, changes_parameters, written};
use probe_dump::SlotSide;

/// Multiple of the usual distance of matrices, in steps, beyond which one stands out: earlier steps may have been larger
/// than this one, but for all alike.
const APART: f64 = 4.0;

/// Cosine below which two matrices were drawn by themselves, and above which half of all must be for that to tell something. What
/// both sides have learned alike makes the cosine of unrelated ones more than zero.
const RELATED: (f64, f64) = (0.3, 0.6);

/// Distance of half of all matrices, in steps for each step so far, from which on the updates of both sides had nothing in common:
/// those make `sqrt(2)`. Sound runs showed up to 0.25.
const UNRELATED: f64 = 0.7;

/// The last step at which that is asked: later ones may be smaller by a schedule, and noise has grown.
const FIRST_STEPS: f64 = 8.0;

/// Least number of matrices whose median is asked.
const MANY_MATRICES: usize = 3;

/// A parameter that a recorded optimizer changed.
struct Moved {
    identity: Identity,
    is_matrix: bool,
    /// Distance of the two sides before the change, in changes of this step.
    steps: f64,
    /// Cosine of the two sides.
    cosine: f64,
}

/// Returns the matrices that recorded ops changed, as they were before.
fn moved_matrices(flow: &Flow<'_>) -> Vec<Moved> {
    let mut moved = moved(flow);
    moved.retain(|moved| moved.is_matrix);
    moved
}

/// Returns the parameters that recorded ops changed, as they were before.
fn moved(flow: &Flow<'_>) -> Vec<Moved> {
    let mut moved = Vec::new();
    for position in (0..flow.nodes.len()).filter(|&position| changes_parameters(flow, position)) {
        for Written { place, before, .. } in written(flow, position, &Given::of(flow, position)) {
            let fact = flow.fact(before);
            let states = State::of(flow, before).zip(State::of(flow, place));
            let (Some(identity), Some((State::Sketched(was), State::Sketched(is)))) = (fact.identity, states)
            else {
                continue;
            };
            let is_matrix = flow.is_matrix(before);
            let (b, c) = fact.norms;
            let cosine = (b * b + c * c - fact.distance * fact.distance) / (2.0 * b * c);
            moved.extend(Change::of(&was, &is).map(|change| {
                let steps = fact.distance / change.size[0].max(change.size[1]);
                Moved { identity, is_matrix, steps, cosine }
            }));
        }
    }
    moved
}

impl Moved {
    /// Returns true if no run of as many steps of this size moves a matrix as far apart, on both sides and in opposite
    /// directions.
    fn is_beyond(&self, flow: &Flow<'_>) -> bool {
        self.steps > 2.0 * flow.pair.step as f64
    }
}

/// Matrices that the steps before the recording have moved.
pub(in super::super) struct Apart {
    pub(in super::super) matrices: Identities,
    /// These are all: the updates of the two runs had nothing in common.
    pub(in super::super) all: bool,
}

/// Returns the matrices that were not the same when the runs began: they are further apart than earlier steps have moved them, and
/// have next to nothing in common with their partners, though the others have or are much less apart.
pub(in super::super) fn unlike_from_the_start(flow: &Flow<'_>) -> Identities {
    let moved = moved_matrices(flow);
    let usual = median(&mut moved.iter().map(|moved| moved.steps).collect::<Vec<f64>>());
    let alike = median(&mut moved.iter().map(|moved| moved.cosine).collect::<Vec<f64>>());
    let (unrelated, related) = RELATED;
    let stands_out =
        |moved: &Moved| moved.cosine < unrelated && (alike > related || moved.steps > APART * usual);
    let unlike = moved.into_iter().filter(|moved| moved.is_beyond(flow) && stands_out(moved));
    unlike.map(|moved| moved.identity).collect()
}

/// Multiple of the usual distance of the extremes of matrices beyond which those of one stand out, and their least
/// distance relative to the larger.
const OTHER_EXTREMES: (f64, f64) = (64.0, 0.1);

/// Returns the matrices among these of which statistics tell that they were not the same when the runs began: their largest
/// and their least element are both far off, and hardly those of the others.
pub(in super::super) fn unlike_by_extremes(flow: &Flow<'_>, weights: &[Place]) -> Identities {
    let off = |b: f64, c: f64| (b - c).abs() / b.abs().max(c.abs()).max(f64::MIN_POSITIVE);
    let told = |&(op, slot): &Place| {
        let fact = flow.fact((op, slot));
        let (b, c) = flow.pair.slot_at(op, slot);
        let (b, c) = (extremes(b?)?, extremes(c?)?);
        let is_asked = fact.statistics_only && flow.is_matrix((op, slot));
        Some((fact.identity.filter(|_| is_asked)?, off(b[0], c[0]).min(off(b[1], c[1]))))
    };
    let mut matrices: HashMap<Identity, f64> = weights.iter().filter_map(told).collect();
    if matrices.len() < MANY_MATRICES {
        return Identities::default();
    }
    // A result that no function was recorded for requires a gradient as well: where modules say which values are parameters,
    // others are none.
    let places = flow
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(op, node)| (0..node.slot_count()).map(move |slot| (op, slot)));
    let parameters = places.filter(|&place| flow.side(place) == SlotSide::Parameter);
    let owned: Identities = parameters.filter_map(|place| flow.fact(place).identity).collect();
    matrices.retain(|identity, _| owned.is_empty() || owned.contains(identity));
    let usual = median(&mut matrices.values().copied().collect::<Vec<f64>>());
    let (times, least) = OTHER_EXTREMES;
    let is_told = matrices.len() >= MANY_MATRICES;
    let others = matrices.into_iter().filter(|&(_, off)| is_told && off > least.max(times * usual));
    others.map(|(identity, _)| identity).collect()
}

/// Returns the matrices that stand out by how far earlier steps would have had to move them, or all if the first few steps have
/// moved most of them apart by as much as updates do that have nothing in common.
pub(in super::super) fn gone_apart(flow: &Flow<'_>) -> Apart {
    let step = flow.pair.step as f64;
    // Before the first step nothing has moved.
    let moved = if flow.pair.step > 0 { moved_matrices(flow) } else { Vec::new() };
    let usual = median(&mut moved.iter().map(|moved| moved.steps).collect::<Vec<f64>>());
    let is_told = step <= FIRST_STEPS && moved.len() >= MANY_MATRICES;
    let all = is_told && usual > UNRELATED * step;
    let stands_out = |moved: &Moved| moved.is_beyond(flow) && moved.steps > APART * usual;
    let apart = moved.into_iter().filter(|moved| all || stands_out(moved));
    Apart { matrices: apart.map(|moved| moved.identity).collect(), all }
}

/// Returns the parameters that are no further apart than as many steps make. Beside weights that are equal to the bit it is noise that
/// turned steps there: all of them would differ if one had from the start.
pub(in super::super) fn turned(flow: &Flow<'_>) -> Identities {
    let within = moved(flow).into_iter().filter(|moved| !moved.is_beyond(flow));
    within.map(|moved| moved.identity).collect()
}
