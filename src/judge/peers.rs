//! What the other calls of a kind show of how well their errors are explained, in this very pair.
//!
//! What the rules of transfer leave out (a sharp softmax, heavy tails) they leave out of all calls of a family: these are beyond
//! what is expected together. A call that is so alone is at fault at a smaller excess than one that has no others to be held
//! against, and gradients of which nobody recorded how much cancels are held against those that cancel as much.
//!
//! The bounds are in bits, and were met by 240,000 results, 44,000 results of statistics, and 450 arriving gradients of sound pairs
//! of 14 public models (`benches/answers`).

use std::collections::HashMap;

use super::excess::{By, Excess};
use super::family::LEAST_CALLS;
use super::flow::Flow;
use super::weigh::{Family, Role, Weighed};
use crate::dump::Phase;

/// Excess of a result that stands out alone: a factor of 4.8. In sound pairs none that did was beyond 2.01.
const ALONE: f64 = 2.25;

/// Bits that are between it and the excess of every other call.
const BEYOND_OTHERS: f64 = 2.0;

/// The same of the extremes of statistics: of two elements, each a sample of what all are off by, both. In sound pairs the furthest were
/// 3.25 bits beyond what is expected, and none 3 bits beyond all others.
const EXTREMES: f64 = 3.0;
const EXTREMES_BEYOND_OTHERS: f64 = 4.0;

/// By how many bits a gradient that arrives is magnified more than all others that cancel as much. In sound pairs at most 1.96.
const MAGNIFIED: f64 = 3.0;

/// Gradients cancel as much where what is left of the gradient beside them is as large, within a factor of 4.
const AS_MUCH: f64 = 2.0;

/// Gradients remembered for the next step.
const REMEMBERED: usize = 64;

/// A gradient that arrives, beside others of which it may be what is left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remnant {
    /// Error relative to its own norm.
    pub(super) own: f64,
    /// Its norm over that of the largest gradient beside it, in (0, 1].
    pub(super) share: f64,
    /// Largest error before it, without what flipped choices make of that; at least what rounding leaves.
    pub(super) before: f64,
}

impl Remnant {
    /// By how much error is magnified on the way to it, in bits.
    fn magnified(self) -> f64 {
        (self.own.max(f64::MIN_POSITIVE) / self.before).log2()
    }
}

/// What the steps before have shown.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    results: HashMap<Family, Others>,
    extremes: HashMap<Family, Others>,
    /// Share and magnification of gradients that arrived, the last ones first.
    remnants: Vec<(f64, f64)>,
}

/// How many other calls there are, and how far the furthest is beyond what is expected.
#[derive(Debug, Clone, Copy)]
struct Others {
    calls: usize,
    furthest: f64,
}

impl Others {
    const NONE: Self = Self { calls: 0, furthest: f64::NEG_INFINITY };

    fn with(self, other: Self) -> Self {
        Self { calls: self.calls + other.calls, furthest: self.furthest.max(other.furthest) }
    }

    /// Whether so many others are so far below `excess`.
    fn leave_alone(self, excess: f64, by: f64) -> bool {
        self.calls >= LEAST_CALLS && excess - self.furthest > by
    }
}

/// Calls of one family in this part, each with its excess.
#[derive(Debug, Default)]
struct Calls {
    /// In order, each once.
    calls: Vec<(usize, f64)>,
    /// The two furthest.
    furthest: [(usize, f64); 2],
}

impl Calls {
    fn finish(&mut self) {
        self.calls.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        self.calls.dedup_by_key(|(call, _)| *call);
        self.furthest = [(usize::MAX, f64::NEG_INFINITY); 2];
        for &one in &self.calls {
            if one.1 > self.furthest[0].1 {
                self.furthest = [one, self.furthest[0]];
            } else if one.1 > self.furthest[1].1 {
                self.furthest[1] = one;
            }
        }
    }

    /// All calls but this one.
    fn but(&self, call: usize) -> Others {
        let is_mine = self.calls.binary_search_by_key(&call, |(other, _)| *other).is_ok();
        let [first, second] = self.furthest;
        let furthest = if first.0 == call { second.1 } else { first.1 };
        Others { calls: self.calls.len() - usize::from(is_mine), furthest }
    }

    fn all(&self) -> Others {
        Others { calls: self.calls.len(), furthest: self.furthest[0].1 }
    }
}

/// All values of a part that others of their kind are held against.
pub(super) struct Peers<'a> {
    results: HashMap<&'a Family, Calls>,
    extremes: HashMap<&'a Family, Calls>,
    /// Share, call and magnification of gradients that arrive, by share.
    remnants: Vec<(f64, usize, f64)>,
    seen: &'a Seen,
}

/// Excess of the extremes of a value of which statistics alone are known, where its inputs explain more than it makes itself: what
/// they are off by of its own, statistics do not tell.
fn excess_of_extremes(value: &Weighed, floor: f64) -> Option<f64> {
    let known = value.blind && value.family.role == Role::Result && value.explained > floor;
    known.then(|| (value.extremes.max(f64::MIN_POSITIVE) / floor.hypot(value.explained)).log2())
}

impl<'a> Peers<'a> {
    /// Of values that are judged at all. `raw` is the excess of each, in bits.
    pub(super) fn of(
        values: &'a [Weighed],
        floors: &[(f64, bool)],
        raw: &[f64],
        seen: &'a Seen,
        unjudged: f64,
    ) -> Self {
        let mut peers =
            Self { results: HashMap::new(), extremes: HashMap::new(), remnants: Vec::new(), seen };
        let judged = |value: &Weighed| value.explained < unjudged && value.error.is_finite();
        for ((value, (floor, _)), &raw) in
            values.iter().zip(floors).zip(raw).filter(|((value, _), _)| judged(value))
        {
            if let Some(excess) = excess_of_extremes(value, *floor) {
                peers.extremes.entry(&value.family).or_default().calls.push((value.call, excess));
            } else if value.family.role == Role::Result && !value.blind {
                peers.results.entry(&value.family).or_default().calls.push((value.call, raw));
            }
            if let Some(remnant) = value.remnant {
                peers.remnants.push((remnant.share, value.call, remnant.magnified()));
            }
        }
        peers.results.values_mut().chain(peers.extremes.values_mut()).for_each(Calls::finish);
        peers.remnants.sort_by(|a, b| a.0.total_cmp(&b.0));
        peers
    }

    /// How a value that is judged stands out alone, if it does.
    pub(super) fn stands_out(&self, value: &Weighed, floor: f64, raw: f64) -> Option<By> {
        let others = |calls: &HashMap<&Family, Calls>, seen: &HashMap<Family, Others>| {
            let here = calls.get(&*value.family).map_or(Others::NONE, |calls| calls.but(value.call));
            here.with(seen.get(&value.family).copied().unwrap_or(Others::NONE))
        };
        if let Some(excess) = excess_of_extremes(value, floor) {
            let alone = excess > EXTREMES
                && others(&self.extremes, &self.seen.extremes).leave_alone(excess, EXTREMES_BEYOND_OTHERS);
            return alone.then_some(By::Extremes);
        }
        if let Some(remnant) = value.remnant {
            let magnified = remnant.magnified();
            let alone =
                magnified > MAGNIFIED && self.as_much(value.call, remnant).leave_alone(magnified, MAGNIFIED);
            return alone.then_some(By::Remnant);
        }
        let alone = value.family.role == Role::Result
            && !value.blind
            && raw > ALONE
            && others(&self.results, &self.seen.results).leave_alone(raw, BEYOND_OTHERS);
        alone.then_some(By::Alone)
    }

    /// Other gradients that cancel as much as one.
    fn as_much(&self, call: usize, remnant: Remnant) -> Others {
        let alike = |share: f64| (share / remnant.share).log2().abs() <= AS_MUCH;
        let first = self.remnants.partition_point(|(share, ..)| *share < remnant.share && !alike(*share));
        let here = self.remnants[first..].iter().take_while(|(share, ..)| alike(*share));
        let here = here.filter(|(_, other, _)| *other != call).map(|&(.., magnified)| magnified);
        let before =
            self.seen.remnants.iter().filter(|(share, _)| alike(*share)).map(|&(_, magnified)| magnified);
        here.chain(before)
            .fold(Others::NONE, |others, magnified| others.with(Others { calls: 1, furthest: magnified }))
    }

    /// What the next step of this rank may build on.
    pub(super) fn seen(&self) -> Seen {
        let add = |seen: &mut HashMap<Family, Others>, calls: &HashMap<&Family, Calls>| {
            for (family, calls) in calls {
                let before = seen.get(*family).copied().unwrap_or(Others::NONE);
                seen.insert((*family).clone(), before.with(calls.all()));
            }
        };
        let mut seen = self.seen.clone();
        add(&mut seen.results, &self.results);
        add(&mut seen.extremes, &self.extremes);
        let here = self.remnants.iter().map(|&(share, _, magnified)| (share, magnified));
        seen.remnants = here.chain(seen.remnants).take(REMEMBERED).collect();
        seen
    }
}

/// Takes back what was said of gradients that may have come through a choice which noise flipped: that makes an error of its own.
pub(super) fn acquit(flow: &Flow<'_>, values: &[Weighed], excess: &mut [Excess]) {
    for (value, excess) in values.iter().zip(excess) {
        if excess.is_fault && excess.by == By::Remnant && is_behind_choice(flow, value.place.0) {
            excess.is_fault = false;
        }
    }
}

/// Whether a function that chooses lies on the way of a gradient that arrives at the backward op at `position`: behind its forward call,
/// in the innermost module around it from which gradients of later parts were recorded.
fn is_behind_choice(flow: &Flow<'_>, position: usize) -> bool {
    let Some(mut from) = flow.forward_of(position) else { return true };
    loop {
        let outer = flow.parent(from);
        // A module is recorded when it ends: what ran since then is inside it.
        let later = from + 1..outer.unwrap_or(flow.nodes.len()).max(from + 1);
        let forward = || later.clone().filter(|&op| flow.nodes[op].op.name.phase() == Phase::Forward);
        if forward().any(|op| flow.nodes[op].traits.chooses) {
            return true;
        }
        let is_recorded = |op: usize| {
            let backward = flow.backward_of(op).map(|backward| &flow.nodes[backward]);
            backward.is_some_and(|node| node.given().any(|slot| node.facts[slot].is_float))
        };
        if forward().any(is_recorded) {
            return false;
        }
        let Some(outer) = outer else { return false };
        from = outer;
    }
}
