//! Rows smaller than the others, whose errors a norm over all rows hides. Normalisations bring every row to
//! the same size and reveal them: padding that a mask has set to zero before a residual connection adds the
//! noise of a product to it, a class token that starts at zero next to the patches of an image.

use std::collections::HashMap;

use super::difference::{Fact, Identity};
use super::flow::{Flow, Node, Place};
use super::ops::Kind;
use super::transfer::{Inputs, root};
use probe_dump::{Phase, SlotSide};

/// Some of the elements of a value.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Their fraction of all elements.
    share: f64,
    /// Root mean square of the elements, and of their errors.
    rms: f64,
    error: f64,
}

impl Part {
    /// Returns the error relative to the part itself.
    fn relative(self) -> f64 {
        if self.rms > 0.0 { (self.error / self.rms).min(1.0) } else { 0.0 }
    }

    /// Returns the part's contribution to the error of all elements once all rows have the same size.
    fn shown(self) -> f64 {
        self.relative() * self.share.sqrt()
    }

    fn larger(self, other: Self) -> Self {
        if other.shown() > self.shown() { other } else { self }
    }
}

/// The part of each value, by identity, that would show the largest error.
#[derive(Debug, Default)]
pub(super) struct SmallRows {
    parts: HashMap<Identity, Part>,
}

impl SmallRows {
    /// Returns the relative error that a normalisation at `place` reveals of a part of its inputs; 0 for other
    /// ops.
    pub(super) fn shown(&self, flow: &Flow<'_>, place: Place, given: &Inputs, saved: &Inputs) -> f64 {
        let node = &flow.nodes[place.0];
        if node.traits.kind != Kind::Normalisation {
            return 0.0;
        }
        if !node.is_backward() {
            return given.first().and_then(|(place, _)| self.of(flow, *place)).map_or(0.0, Part::shown);
        }
        // Gradients are divided by the size of a row: those of small rows dominate.
        let parts = given.iter().chain(saved).filter_map(|(place, _)| self.of(flow, *place));
        parts.map(Part::relative).fold(0.0, f64::max)
    }

    /// Records the part of the result at `place` that has a size of its own.
    pub(super) fn note(&mut self, flow: &Flow<'_>, place: Place, given: &Inputs) {
        let node = &flow.nodes[place.0];
        let Some(identity) = flow.fact(place).identity.filter(|_| node.op.name.phase() == Phase::Forward)
        else {
            return;
        };
        let Some(part) = self.made(flow, node, place, given).filter(|part| part.shown() > 0.0) else {
            return;
        };
        self.parts.entry(identity).and_modify(|known| *known = known.larger(part)).or_insert(part);
    }

    fn of(&self, flow: &Flow<'_>, place: Place) -> Option<Part> {
        self.parts.get(&flow.fact(place).identity?).copied()
    }

    fn made(&self, flow: &Flow<'_>, node: &Node<'_>, place: Place, given: &Inputs) -> Option<Part> {
        let len = flow.fact(place).len;
        let usable = |fact: &Fact| fact.is_float && !fact.swamped && fact.len > 1.0;
        let whole = |(place, error): &(Place, super::transfer::InputError)| {
            let fact = flow.fact(*place);
            Part {
                share: (fact.len / len).min(1.0),
                rms: fact.norm / fact.len.sqrt(),
                error: error.absolute / fact.len.sqrt(),
            }
        };
        let inputs: Vec<_> = given.iter().filter(|(place, _)| usable(flow.fact(*place))).collect();
        let inherited = |input: Place, part: Part| {
            let share = part.share * (flow.fact(input).len / len).max(f64::MIN_POSITIVE);
            let copied = inputs.len() == 1 && flow.fact(input).len < len;
            Part { share: if copied { part.share } else { share.min(1.0) }, ..part }
        };
        let found: Vec<Part> = match node.traits.kind {
            Kind::Copy => inputs
                .iter()
                .flat_map(|input| {
                    let beside = (inputs.len() > 1 && flow.fact(input.0).len < len).then(|| whole(input));
                    beside.into_iter().chain(self.of(flow, input.0).map(|part| inherited(input.0, part)))
                })
                .collect(),
            Kind::Add => inputs
                .iter()
                .enumerate()
                .flat_map(|(index, input)| {
                    let others = || {
                        let others = inputs.iter().enumerate().filter(move |(other, _)| *other != index);
                        others.map(|(_, input)| whole(input))
                    };
                    let added = Part {
                        share: flow.zero_shares(input.0)[0].unwrap_or(0.0),
                        rms: root(others().map(|part| part.rms)),
                        error: root(others().map(|part| part.error)),
                    };
                    let part = self.of(flow, input.0).map(|part| Part {
                        rms: part.rms.hypot(added.rms),
                        error: part.error.hypot(added.error),
                        ..part
                    });
                    [Some(added), part]
                })
                .flatten()
                .collect(),
            // Values that a composite module makes from its own parameters are concatenated with its inputs,
            // or added to them.
            _ if node.is_composite() => {
                let repeated = flow.shape(place).first().map_or(1.0, |&size| size as f64);
                let own = inputs.iter().filter(|input| flow.side(input.0) == SlotSide::Parameter);
                own.map(|input| whole(input))
                    .map(|part| Part { share: (part.share * repeated).min(1.0), ..part })
                    .collect()
            }
            _ => Vec::new(),
        };
        found.into_iter().reduce(Part::larger)
    }
}
