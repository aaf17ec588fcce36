//! Weights that follow others without a gradient of their own: the slow average that a teacher is of its student.

use crate::Cause;
use crate::candidate::Candidate;
use crate::expected::GradientErrors;
use crate::flow::{Flow, Place};
use crate::precision::Precision;
use probe_measure::{SKETCH_NOISE, sketch_distance};

use super::{State, Weights, moments, parameters};

/// Factor between the movements of a weight on both sides that noise in what it follows does not make.
const OTHER_RATE: f64 = 2.0;

/// Multiple of the resolution of sketches from which a movement is told.
const RESOLVED: f64 = 8.0;

/// Returns the first weight that no gradient reaches and that moved by another factor than its partner since the previous
/// step, if most such weights did: the average of a teacher that follows its student at another rate, or stands still.
pub(in super::super) fn follower(
    flow: &Flow<'_>,
    before: &Weights,
    gradients: &GradientErrors,
) -> Option<Candidate> {
    let followers = parameters(flow).filter(|(key, place)| {
        flow.shape(*place).len() > 1 && !gradients.is_empty() && !gradients.contains_key(key)
    });
    let moved = followers.filter_map(|(key, place)| {
        let factor = match (before.get(&key)?, State::of(flow, place)?) {
            (State::Sketched(then), State::Sketched(now)) => {
                let [b, c] = [0, 1].map(|side: usize| sketch_distance(&then[side], &now[side]));
                let fact = flow.fact(place);
                let resolution = Precision::of(fact.dtype?)?.least.max(SKETCH_NOISE) * fact.norm;
                (b.max(c) > RESOLVED * resolution).then(|| c / b)
            }
            (State::Told(then), State::Told(now)) => moments::factor(then, &now),
            _ => None,
        }?;
        Some((place, factor))
    });
    let moved: Vec<(Place, f64)> = moved.collect();
    let is_other = |factor: f64| !(1.0 / OTHER_RATE..=OTHER_RATE).contains(&factor);
    let (place, factor) = *moved.iter().find(|(_, factor)| is_other(*factor))?;
    let most = 2 * moved.iter().filter(|(_, factor)| is_other(*factor)).count() > moved.len();
    let said = format!(
        "moved {factor:.2} times as far as the baseline's since the previous step, and no gradient reaches it"
    );
    most.then(|| Candidate { said, arrived: true, ..Candidate::at(place.0, Some(place.1), Cause::Input) })
}
