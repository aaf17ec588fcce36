//! What errors of the incoming gradient, and of what the forward pass left, become in a gradient.

use super::super::ops::Kind;
use super::super::scale::size_of_other;
use super::super::slope;
use super::{
    BOTH_SIDES, InputError, Inputs, Passage, Place, SLOPE, flipped_gates, is_logarithm, largest, of_divisor,
    positive, root, spread_out,
};

impl Passage<'_, '_> {
    /// Returns the error of a gradient, relative to its scale.
    pub(super) fn to_gradient(&self) -> f64 {
        let Self { flow, node, fact, scale, relative, of_saved, absolute, .. } = *self;
        match node.traits.kind {
            Kind::Copy | Kind::Embedding => {
                let elements = largest(self.given.iter().map(|(place, _)| self.len(*place)));
                if fact.len <= elements { relative.max(absolute / scale) } else { relative }
            }
            Kind::Distance => self.to_gradient_of_distance(),
            Kind::Sloped if !node.is_dispatcher() => self.to_gradient_of_slope(),
            Kind::LogSoftmax if node.base.contains("logsumexp") => {
                let (incoming, rest) = node.incoming(&self.given, &self.saved);
                // The incoming gradient times probabilities, which change by themselves times the change of their logit.
                let logits =
                    rest.iter().map(|(place, error)| error.absolute / self.len(*place).max(1.0).sqrt());
                largest(incoming.iter().map(|(_, error)| error.relative)) + BOTH_SIDES * root(logits)
            }
            Kind::LogSoftmax => {
                let (incoming, rest) = node.incoming(&self.given, &self.saved);
                let probabilities = BOTH_SIDES
                    * positive(flow, self.place)
                    * root(rest.iter().map(|(_, error)| error.absolute));
                largest(incoming.iter().map(|(_, error)| error.relative)).max(probabilities / scale)
            }
            Kind::Normalisation => self.to_gradient_of_normalised(),
            // The other factor may remove most of the gradient, and none of its error.
            Kind::Multiply => {
                let places: Vec<Place> = self.saved.iter().map(|(place, _)| *place).collect();
                let other = size_of_other(flow, self.place, &places).unwrap_or(0.0);
                (relative + of_saved).max(absolute * other / scale)
            }
            // A choice may do the same.
            Kind::Lipschitz => {
                let incoming = node.incoming(&self.given, &self.saved).0;
                let incoming = root(incoming.iter().map(|(_, error)| error.absolute));
                (relative + of_saved).max(SLOPE * incoming / scale)
            }
            Kind::Sampled => {
                let (incoming, read) = node.incoming(&self.given, &self.saved);
                let off = self.off_by(read);
                // A place that moves past an element lies between two others.
                let moved = flipped_gates(fact.len, off);
                let image = read.first().map_or(0.0, |(_, error)| error.relative);
                largest(incoming.iter().map(|(_, error)| error.relative)) + image + (2.0 * off).max(moved)
            }
            Kind::Logarithm if is_logarithm(node.base) => {
                let (incoming, read) = node.incoming(&self.given, &self.saved);
                let argument = read.iter().filter(|(place, _)| !flow.side(*place).is_result());
                let divisor = |&(place, error): &(Place, InputError)| of_divisor(flow, place, error);
                largest(incoming.iter().map(|(_, error)| error.relative)) + largest(argument.map(divisor))
            }
            Kind::Root | Kind::Divide => {
                let (incoming, read) = node.incoming(&self.given, &self.saved);
                // The root, or the divisor, which has the largest influence where it is small.
                let divisor = |&(place, error): &(Place, InputError)| {
                    let divides = node.traits.kind == Kind::Divide || flow.side(place).is_result();
                    if divides { of_divisor(flow, place, error) } else { error.relative }
                };
                largest(incoming.iter().map(|(_, error)| error.relative)) + largest(read.iter().map(divisor))
            }
            _ => self.relative_errors(),
        }
    }

    /// The scale is that of the larger value.
    fn to_gradient_of_distance(&self) -> f64 {
        let (incoming, rest) = self.node.incoming(&self.given, &self.saved);
        let as_long = self.len(self.place).to_bits();
        let same = || rest.iter().filter(|(place, _)| self.len(*place).to_bits() == as_long);
        let size = largest(same().map(|(place, _)| self.flow.fact(*place).norm)).max(f64::MIN_POSITIVE);
        let apart = root(same().map(|(_, error)| error.absolute)) / size;
        largest(incoming.iter().map(|(_, error)| error.relative)) + apart
    }

    fn to_gradient_of_slope(&self) -> f64 {
        let rms = |place: Place| self.flow.fact(place).norm / self.len(place).sqrt();
        let incoming = largest(self.given.iter().map(|(place, _)| rms(*place)));
        let read = self.saved.iter().filter(|(place, _)| !self.flow.side(*place).is_result());
        let slopes = read.map(|&(place, error)| match slope::curvature(self.flow, place) {
            Some(curvature) => incoming * curvature * error.absolute / self.scale,
            None => error.relative,
        });
        self.relative + root(slopes)
    }

    /// A shift does not enter any gradient; next to the scale it is small, or as large as its error says.
    fn to_gradient_of_normalised(&self) -> f64 {
        let split = |inputs: &Inputs| -> (Vec<_>, Vec<_>) {
            inputs.iter().copied().partition(|(place, _)| self.flow.shape(*place).len() <= 1)
        };
        let ((given_rows, given), (mut rows, others)) = (split(&self.given), split(&self.saved));
        rows.extend(given_rows);
        let size = largest(rows.iter().map(|(place, _)| self.flow.fact(*place).norm));
        let of_rows = rows.iter().map(|(_, error)| error.relative.min(error.absolute / size));
        let incoming = largest(given.iter().map(|(_, error)| error.relative));
        let all = incoming + largest(of_rows.chain(others.iter().map(|(_, error)| error.relative)));
        all.max(self.to_gradient_of_groups())
    }

    /// A group that varies less than the others has a gradient that is larger by as much, and so is the part of it that
    /// an error of the same size is off by: the gradient shows by how much its groups exceed what all elements would
    /// make of the incoming one. What the groups add to the gradient of a weight is off by as much.
    fn to_gradient_of_groups(&self) -> f64 {
        let (incoming, read) = self.node.incoming(&self.given, &self.saved);
        let alike = |x: Place| {
            let mut results = self.node.results().map(|slot| (self.place.0, slot));
            results.find(|result| self.flow.shape(*result) == self.flow.shape(x))
        };
        let is_input = |place: Place| self.flow.shape(place).len() > 1 && !self.flow.side(place).is_result();
        let of_input =
            |&(x, error): &(Place, InputError)| Some((x, error, alike(x).filter(|_| is_input(x))?));
        let Some((x, error, result)) = read.iter().find_map(of_input) else { return 0.0 };
        let rms = |place: Place| self.flow.fact(place).norm / self.len(place).sqrt();
        let named = |place: Place| self.flow.slot(place).is_some_and(|slot| slot.path.ends_with("weight"));
        let weight = read.iter().find(|(place, _)| named(*place)).map_or(1.0, |(place, _)| rms(*place));
        let arriving = largest(incoming.iter().map(|(place, _)| rms(*place))) * weight;
        if arriving <= 0.0 {
            return 0.0;
        }
        let deviation = rms(x) / spread_out(self.flow, x);
        let exceeds = (rms(result) * deviation / arriving).max(1.0);
        largest(incoming.iter().map(|(_, error)| error.relative)) + error.relative * exceeds
    }
}
