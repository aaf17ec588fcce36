//! What belongs together across the passes of a step: the calls of a module, and the modules that have one parameter.

use std::collections::HashMap;

use super::{Flow, Place};
use crate::difference::ByIdentity;
use probe_dump::{Op, Phase};

/// Calls of one module in a step that are considered for a parameter gradient.
const MAX_CALLS: u32 = 64;

impl Flow<'_> {
    /// Returns the position of the same call in another phase. Dispatcher ops have none: those of the backward pass are
    /// calls of their own, counted by themselves.
    fn partner(&self, position: usize, phase: Phase) -> Option<usize> {
        let node = &self.nodes[position];
        self.named(&node.op.name.in_phase(phase).filter(|_| !node.is_dispatcher())?)
    }

    /// Returns an op's inputs: its own, plus the gradients that reached the modules whose parameter it is if it is a
    /// parameter gradient.
    pub(crate) fn given(&self, position: usize) -> Vec<Place> {
        let node = &self.nodes[position];
        let mut places: Vec<Place> = node.given().map(|slot| (position, slot)).collect();
        for backward in self.users(position, Phase::Backward) {
            places.extend(self.nodes[backward].given().map(|slot| (backward, slot)));
        }
        places
    }

    /// Returns true if a gradient was made from an unrecorded one: `given`, its inputs, contains no float.
    pub(crate) fn lacks_gradient(&self, position: usize, mut given: impl Iterator<Item = Place>) -> bool {
        let node = &self.nodes[position];
        node.is_backward() && !node.is_dispatcher() && !given.any(|place| self.fact(place).is_float)
    }

    /// Returns the position of a forward op's backward op.
    pub(crate) fn backward_of(&self, position: usize) -> Option<usize> {
        self.partner(position, Phase::Backward)
    }

    /// Returns the position of a backward op's forward op.
    pub(crate) fn forward_of(&self, position: usize) -> Option<usize> {
        self.partner(position, Phase::Forward)
    }

    /// Returns the other values that its results depend on: inputs and results of its forward op.
    pub(crate) fn saved(&self, position: usize) -> Vec<Place> {
        let node = &self.nodes[position];
        let forwards = match node.op.name.phase() {
            Phase::Backward => self.partner(position, Phase::Forward).into_iter().collect(),
            Phase::ParameterGradient => self.users(position, Phase::Forward),
            Phase::Forward | Phase::None => Vec::new(),
        };
        let all = |forward: usize| (0..self.nodes[forward].slot_count()).map(move |slot| (forward, slot));
        forwards.into_iter().flat_map(all).collect()
    }

    /// Returns all calls of a module in a phase, because they share its parameters.
    pub(crate) fn calls(&self, op: &Op, phase: Phase) -> Vec<usize> {
        let word = match phase {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::ParameterGradient | Phase::None => return Vec::new(),
        };
        (0..MAX_CALLS)
            .map_while(|call| self.by_name.get(&*format!("{}.{word}.{call}", op.name.stem())).copied())
            .filter(|&position| self.nodes[position].is_paired)
            .collect()
    }

    /// Returns the calls, in a phase, of all modules whose parameter has this gradient; none if it is no parameter gradient.
    fn users(&self, position: usize, phase: Phase) -> Vec<usize> {
        if self.nodes[position].op.name.phase() != Phase::ParameterGradient {
            return Vec::new();
        }
        let tied = self.tied.get(&position).into_iter().flatten();
        let owners = [position].into_iter().chain(tied.copied());
        owners.flat_map(|owner| self.calls(self.nodes[owner].op, phase)).collect()
    }

    /// Returns the parameter gradients that several modules have: each reports the sum of what all of them contribute.
    pub(super) fn tied_gradients(&self) -> HashMap<usize, Vec<usize>> {
        let nodes = self.nodes.iter().enumerate();
        let reported =
            nodes.filter(|(_, node)| node.is_paired && node.op.name.phase() == Phase::ParameterGradient);
        let mut owners: ByIdentity<Vec<usize>> = ByIdentity::default();
        for (position, node) in reported {
            let facts = node.results().map(|slot| self.fact((position, slot)));
            for identity in facts.filter(|fact| fact.norm > 0.0).filter_map(|fact| fact.identity) {
                owners.entry(identity).or_default().push(position);
            }
        }
        let mut tied: HashMap<usize, Vec<usize>> = HashMap::new();
        for owners in owners.into_values() {
            for &owner in &owners {
                let others = owners.iter().copied().filter(|&other| other != owner);
                tied.entry(owner).or_default().extend(others);
            }
        }
        tied.retain(|_, others| !others.is_empty());
        for others in tied.values_mut() {
            // A module may share more than one.
            others.sort_unstable();
            others.dedup();
        }
        tied
    }
}
