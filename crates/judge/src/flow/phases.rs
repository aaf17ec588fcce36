//! What belongs together across the passes of a step: the calls of a module, and the modules that have one parameter.

use std::collections::HashMap;

use super::{Flow, Place};
use crate::difference::{ByIdentity, Identities};
use probe_dump::{Op, Phase, SlotSide};

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

    /// Returns the parameter gradients that several modules have, each with ops of the other modules: these report the same gradient,
    /// the sum of what all of them contribute, or read the same parameter.
    pub(super) fn tied_gradients(&self) -> HashMap<usize, Vec<usize>> {
        let nodes = || self.nodes.iter().enumerate().filter(|(_, node)| node.is_paired);
        let mut owners: ByIdentity<Vec<usize>> = ByIdentity::default();
        for (position, node) in nodes() {
            let shared = (0..node.slot_count()).filter(|&slot| self.is_own((position, slot)));
            for identity in shared.filter_map(|slot| self.fact((position, slot)).identity) {
                owners.entry(identity).or_default().push(position);
            }
        }
        let stem = |position: usize| self.nodes[position].op.name.stem();
        let parameters = self.own_parameters();
        // Two biases that are added to the same value have the same gradient.
        let have_others = |position: usize, other: usize| {
            let known = parameters.get(stem(position)).zip(parameters.get(stem(other)));
            known.is_some_and(|(one, other)| one.is_disjoint(other))
        };
        let mut tied: HashMap<usize, Vec<usize>> = HashMap::new();
        for (position, _) in nodes().filter(|(_, node)| node.op.name.phase() == Phase::ParameterGradient) {
            let calls = self.calls(self.nodes[position].op, Phase::Forward);
            let own = calls
                .into_iter()
                .chain([position])
                .flat_map(|op| (0..self.nodes[op].slot_count()).map(move |slot| (op, slot)));
            let own = own.filter(|&place| self.is_own(place)).filter_map(|place| self.fact(place).identity);
            let alike = own.filter_map(|identity| owners.get(&identity)).flatten().copied();
            // A module may share more than one, and be called several times.
            let alike = alike.filter(|&other| stem(other) != stem(position) && !have_others(position, other));
            let mut others: Vec<usize> = alike.collect();
            others.sort_unstable_by_key(|&other| (stem(other), other));
            others.dedup_by_key(|other| stem(*other));
            if !others.is_empty() {
                tied.insert(position, others);
            }
        }
        tied
    }

    /// Returns the recorded parameters of each module, by the name of its op without the call.
    fn own_parameters(&self) -> HashMap<&str, Identities> {
        let mut parameters: HashMap<&str, Identities> = HashMap::new();
        for (position, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_paired) {
            let slots = node.given().filter(|&slot| self.side((position, slot)) == SlotSide::Parameter);
            let own = slots.filter(|&slot| self.is_own((position, slot)));
            for identity in own.filter_map(|slot| self.fact((position, slot)).identity) {
                parameters.entry(node.op.name.stem()).or_default().insert(identity);
            }
        }
        parameters
    }

    /// Returns true for a parameter of a module or its gradient that no other one equals by chance, as those that are constant do.
    fn is_own(&self, place: Place) -> bool {
        let is_gradient = self.nodes[place.0].op.name.phase() == Phase::ParameterGradient;
        match self.side(place) {
            SlotSide::Parameter => self.extremes(place).is_some_and(|(min, max)| min < max),
            side => is_gradient && side.is_result() && self.fact(place).norm > 0.0,
        }
    }
}
