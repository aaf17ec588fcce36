//! Errors that noise explains apart from their size: a single flipped choice, and a factor common to all
//! elements.

use super::super::ops::Kind;
use super::super::transfer;
use super::super::transfer::{FEW, InputError, ONE_FLIP, largest};
use super::{Place, Walk};
use probe_dump::DType;
use probe_measure::Evidence;

/// Fraction of the explained error that may be a factor: in sound pairs of public models, at most half of
/// this.
const DIRECTED: f64 = 0.1;

/// Fraction of an error from which on it counts as that of one element.
const ONE_ELEMENT: f64 = 0.9;

/// Distance of two whole numbers, and the rounding of a sketch.
const NEXT: f64 = 1.0 + 1e-3;

/// A factor of the inputs may be squared.
const SQUARED: f64 = 2.0;

impl Walk<'_, '_> {
    /// Returns true if the error of a gradient is that of one element that a choice let through on one side
    /// only, and noise may have flipped that choice.
    pub(super) fn may_be_one_choice(
        &self,
        place: Place,
        given: &[(Place, InputError)],
        saved: &[(Place, InputError)],
    ) -> bool {
        let node = &self.flow.nodes[place.0];
        if !(node.traits.chooses && (node.makes_gradients() || node.traits.is_gradient)) {
            return false;
        }
        let fact = self.flow.fact(place);
        let alone = transfer::largest_error(self.flow, place);
        let chosen = if node.is_dispatcher() { given.get(1..).unwrap_or_default() } else { saved };
        let near = largest(chosen.iter().map(|(_, error)| error.relative));
        let incoming = given.first().map_or(0.0, |(place, _)| self.flow.fact(*place).largest);
        alone.is_some_and(|alone| alone >= ONE_ELEMENT * fact.distance && alone <= SQUARED * incoming)
            && transfer::flips(fact.len, near) > ONE_FLIP
    }

    /// Returns true if one element of what is off was rounded to the next whole number, as one that lies at the threshold may
    /// be, however seldom that is.
    pub(super) fn is_rounded_to_the_next(&self, place: Place, given: &[(Place, InputError)]) -> bool {
        let node = &self.flow.nodes[place.0];
        node.traits.kind == Kind::Stepped
            && !node.is_backward()
            && given.iter().any(|(_, error)| error.relative > 0.0)
            && transfer::largest_error(self.flow, place).is_some_and(|alone| alone <= NEXT)
            && self.is_one_element(place)
    }

    /// Returns true if nearly all of the error of a value is that of one element.
    pub(super) fn is_one_element(&self, place: Place) -> bool {
        let fact = self.flow.fact(place);
        fact.distance > 0.0
            && transfer::largest_error(self.flow, place)
                .is_some_and(|alone| alone >= ONE_ELEMENT * fact.distance)
    }

    /// Returns true if unrecorded functions rounded a value to few numbers, as quantisation does, and what differs may be
    /// the few elements that noise carried over a threshold: the others are equal to the bit, although what the module
    /// was given is off.
    pub(super) fn was_rounded(&self, place: Place) -> bool {
        let Some(parent) = self.flow.parent(place.0).filter(|_| self.flow.modules_alone) else {
            return false;
        };
        let is_off = |place: &Place| self.flow.fact(*place).is_float && !self.flow.fact(*place).exact;
        let is_given_off = self.inside[parent] > 0.0 || self.flow.given(parent).iter().any(is_off);
        let counted = match self.flow.evidence.at(place.0, place.1) {
            Evidence::Data(kept) => Some((kept.metrics().different as f64, self.flow.fact(place).len)),
            Evidence::Recorded(recorded) => recorded
                .sketch
                .as_ref()
                .map(|sketch| (f64::from(sketch.lanes - sketch.equal_lanes), f64::from(sketch.lanes))),
            _ => None,
        };
        let flips = transfer::flips(self.flow.fact(place).len, self.worst);
        is_given_off
            && flips > ONE_FLIP
            && counted.is_some_and(|(changed, of)| changed <= FEW + flips && 2.0 * changed <= of)
    }

    /// Returns true if the error of an arriving gradient may be that of the few elements that unrecorded
    /// functions let through on one side only.
    pub(super) fn may_be_few_choices(&self, place: Place) -> bool {
        let fact = self.flow.fact(place);
        let flips = FEW + transfer::flips(fact.len, self.worst);
        let alone = transfer::largest_error(self.flow, place).unwrap_or(fact.distance);
        alone * flips.sqrt() >= ONE_ELEMENT * fact.distance
    }

    /// Returns true if few elements of an op's results are independent, so that noise may be a factor common
    /// to all: rows picked from a table, squares that an optimizer keeps, gradients of products, of which a
    /// few rows dominate, of rows that were picked or summed, and gradients behind choices, of which one may flip.
    pub(super) fn has_few_directions(&self, place: Place) -> bool {
        let node = &self.flow.nodes[place.0];
        let picks = node.traits.kind == Kind::Copy && self.flow.resizes(place.0);
        let gradient =
            node.traits.chooses || node.traits.kind == Kind::Product || picks || self.is_summed(place);
        node.is_backward() && gradient || node.traits.optimizes || node.traits.kind == Kind::Embedding
    }

    /// Returns true for a gradient that is summed over rows, as that of what was broadcast is: they share what they are off by.
    fn is_summed(&self, place: Place) -> bool {
        let node = &self.flow.nodes[place.0];
        let given = || largest(node.given().map(|slot| self.flow.fact((place.0, slot)).len));
        node.is_backward() && self.flow.fact(place).len < given()
    }

    /// Returns true if one of these is a weight that earlier steps have moved. What they moved has a direction, and statistics
    /// show the least of it.
    pub(super) fn reads_drifted_weight(&self, given: &[(Place, InputError)]) -> bool {
        let is_made = |place: Place| {
            self.flow.fact(place).identity.is_some_and(|identity| self.made.contains_key(&identity))
        };
        let is_drifted =
            |place: Place| self.flow.is_weight(place) && !is_made(place) && !self.flow.fact(place).exact;
        self.flow.pair.step > 0 && given.iter().any(|&(place, _)| is_drifted(place))
    }

    /// Returns the part of a common factor that comes from the inputs: factors they have, and noise that
    /// became one.
    pub(super) fn gain_explained(
        &self,
        place: Place,
        given: &[(Place, InputError)],
        saved: &[(Place, InputError)],
        explained: f64,
    ) -> f64 {
        let fact = self.flow.fact(place);
        let inputs = || given.iter().chain(saved);
        let factor = largest(inputs().map(|(place, _)| self.flow.fact(*place).gain().abs()));
        let error = largest(inputs().map(|(_, error)| error.relative));
        let magnified = if error > 0.0 { (explained / error).max(1.0) } else { 1.0 };
        // If a few elements dominate, their noise has a direction; norms are known as precisely as they were
        // written.
        let few = if self.is_summed(place) { 1.0 } else { DIRECTED.max(fact.largest / fact.norm) };
        let (directed, written) = match fact.norms {
            (b, c) if fact.statistics_only => {
                let written = rounded_by(b).hypot(rounded_by(c));
                (
                    few.max(1.0 / self.directions(place).sqrt()),
                    written.hypot(self.rounded_operands(place, given)),
                )
            }
            _ => (few, 0.0),
        };
        (SQUARED * factor * magnified).hypot(directed * explained).hypot(written)
    }

    /// Returns the common factor that rounding the operands of a product leaves, if the device rounds them as TF32 does:
    /// the errors of `n` factors, each uniform within half a unit of 10 bits, make a norm longer or shorter by the root of
    /// `1 / 3 n` of that.
    fn rounded_operands(&self, place: Place, given: &[(Place, InputError)]) -> f64 {
        let fact = self.flow.fact(place);
        if self.flow.nodes[place.0].traits.kind != Kind::Product || fact.dtype != Some(DType::F32) {
            return 0.0;
        }
        // A bias is added.
        let operands = given.iter().filter(|(place, _)| self.flow.shape(*place).len() > 1);
        let fewest = operands.map(|(place, _)| self.flow.fact(*place).len).fold(f64::INFINITY, f64::min);
        HALF_UNIT_OF_TF32 / (3.0 * fewest).sqrt()
    }

    /// Returns the maximum number of directions that noise of a result may have: the rank of a product is that
    /// of its smaller side.
    fn directions(&self, place: Place) -> f64 {
        if self.flow.nodes[place.0].traits.kind != Kind::Product {
            return f64::INFINITY;
        }
        let all = self.flow.fact(place).len;
        let longest = self.flow.shape(place).iter().copied().max().unwrap_or(1) as f64;
        longest.min(all / longest).max(1.0)
    }
}

/// Half a unit in the last of ten places behind the point, relative to one.
const HALF_UNIT_OF_TF32: f64 = 1.0 / 2048.0;

/// Returns the relative rounding of a number by the format it was written in, which shows in its last digits.
pub(super) fn rounded_by(number: f64) -> f64 {
    match number.to_bits().trailing_zeros() {
        45.. => f64::from(f32::EPSILON) * f64::from(1 << 15),
        42.. => f64::from(f32::EPSILON) * f64::from(1 << 12),
        // Sums of binary32 are off by more than their last digit.
        29.. => f64::from(f32::EPSILON) * 4.0,
        _ => 0.0,
    }
}
