//! Groups of unpaired ops: what they pass on to the ops of both sides.

use std::cell::OnceCell;
use std::collections::HashSet;

use probe_pair::Substitution;

use super::converging::Agreement;
use super::unpaired::{are_same_calls, computing};
use super::{comes_to_the_same, ends_alike, hands_on, is_behind, is_within_update};
use crate::candidate::Candidate;
use crate::difference::Difference;
use crate::flow::{Flow, Place};

/// Groups of unpaired ops, and what is known of all of them.
pub(super) struct Groups<'g, 'f, 'a> {
    pub(super) flow: &'g Flow<'a>,
    pub(super) agreement: &'g Agreement<'f, 'a>,
    pub(super) idle: HashSet<usize>,
    pub(super) answered: Vec<bool>,
}

impl Groups<'_, '_, '_> {
    /// Returns true if what a group passes on differs, or if one side alone computes in it. `first` is its first op.
    pub(super) fn differ(&self, place: usize, first: usize, candidates: &[Candidate]) -> bool {
        let (flow, group) = (self.flow, &self.flow.pair.substitutions[place]);
        let differs = if group.boundary.is_empty() && !group.feeds.is_empty() {
            // The values made from it there decide.
            false
        } else if group.boundary.is_empty() && computing(flow, group) == [None, None] {
            // Copies that nobody reads.
            false
        } else if group.boundary.is_empty() {
            // No recorded op reads it: the values that both sides made from it decide, and the results of the
            // surrounding module.
            let around: Vec<usize> = flow.around(first).take(1).collect();
            let reached = candidates.iter().any(|candidate| {
                let inside = flow.around(candidate.op).take(1).eq(around.iter().copied());
                candidate.op >= first && (around.contains(&candidate.op) || inside)
            });
            // If the other side computes there too, the op that shows the difference is named itself. Between
            // modules nothing else can be named.
            let is_told = self.answered[place] && reached && !flow.modules_alone;
            !is_told && (reached || !ends_alike(flow, group))
        } else {
            // The same calls on both sides pass on the size of what they read.
            let same_calls = OnceCell::new();
            let certain = |&place: &Place| {
                let difference = flow.fact(place).difference;
                if difference == Difference::Shape && *same_calls.get_or_init(|| are_same_calls(flow, group))
                {
                    return false;
                }
                (difference.hides_numbers() || difference == Difference::DType)
                    && !comes_to_the_same(flow, self.agreement, place.0, candidates)
            };
            candidates.iter().any(|candidate| is_behind(flow, group, candidate))
                || group.boundary.iter().any(certain)
        };
        // Values that hide what is computed of them are no evidence that it is the same.
        let is_hidden = self.agreement.apart
            && !flow.nodes[first].is_backward()
            && computing(flow, group) != [None, None];
        let differs = differs || is_hidden || !(self.answered[place] || hands_on(flow, group, &self.idle));
        differs && !is_within_update(flow, group)
    }

    /// Iterates over the ops that read infinities of a group where the other side has numbers, and make the same of
    /// them: elements that are masked.
    pub(super) fn readers_of_infinities(&self, group: &Substitution) -> impl Iterator<Item = usize> {
        let is_other = |place: &&Place| self.flow.fact(**place).difference == Difference::NonFinite;
        let readers = group.boundary.iter().filter(is_other).map(|place| place.0);
        readers.filter(|&op| self.agreement.makes_the_same(op))
    }
}
