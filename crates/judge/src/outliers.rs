//! Outliers among the calls of a family: how well errors are explained elsewhere in this pair.
//!
//! Effects that the transfer rules do not model (a sharp softmax, heavy tails) concern all calls of a family:
//! they exceed the expectation together. A call that exceeds it alone is at fault at a smaller excess than one
//! without peers, and gradients with an unrecorded amount of cancellation are compared with those that cancel
//! as much.
//!
//! The bounds are in bits, and held for 202,000 results, 44,000 results of statistics, and 450 arriving
//! gradients of sound pairs of 14 public models (`benches/answers`).

use std::collections::HashMap;

use super::flow::Flow;
use super::value::{By, Excess, ExpectedError, Family, LEAST_CALLS, Remnant, ValueKind};
use probe_dump::Phase;

/// Threshold for a result that stands out alone: a factor of 4.8. In sound pairs none exceeded 2.01.
const ALONE: f64 = 2.25;

/// Distance in bits between its excess and that of every other call.
const BEYOND_OTHERS: f64 = 2.0;

/// Thresholds for the extremes of statistics: both elements, each a sample of the error of all. In sound pairs
/// the largest were 3.25 bits beyond the expectation, and none was 3 bits beyond all others.
const EXTREMES: f64 = 3.0;
const EXTREMES_BEYOND_OTHERS: f64 = 4.0;

/// Bits by which an arriving gradient is magnified more than all others that cancel as much. At most 1.96 in
/// sound pairs.
const MAGNIFIED: f64 = 3.0;

/// Gradients cancel as much if their remaining shares agree within a factor of 4.
const AS_MUCH: f64 = 2.0;

/// Gradients remembered for the next step.
const REMEMBERED: usize = 64;

/// Excesses seen in earlier steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    results: HashMap<Family, Others>,
    extremes: HashMap<Family, Others>,
    /// Share and magnification of gradients that arrived, most recent first.
    remnants: Vec<(f64, f64)>,
}

/// Number of other calls, and the largest excess among them.
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

    /// Returns true if there are enough others and all are far below `excess`.
    fn leave_alone(self, excess: f64, by: f64) -> bool {
        self.calls >= LEAST_CALLS && excess - self.furthest > by
    }
}

/// Calls of one family in this part, each with its excess.
#[derive(Debug, Default)]
struct Calls {
    /// Sorted, without duplicates.
    calls: Vec<(usize, f64)>,
    /// The two with the largest excess.
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

    /// Returns the other calls.
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

/// All values of a part that others of their family are compared with.
pub(super) struct Outliers<'a> {
    results: HashMap<&'a Family, Calls>,
    extremes: HashMap<&'a Family, Calls>,
    /// Share, call and magnification of arriving gradients, sorted by share.
    remnants: Vec<(f64, usize, f64)>,
    seen: &'a Seen,
}

/// Returns the excess of a value's extremes if only statistics are known and its inputs explain more than its
/// own error: statistics do not show the extremes' own error.
fn excess_of_extremes(value: &ExpectedError, floor: f64) -> Option<f64> {
    let known = value.statistics_only && value.family.role == ValueKind::Result && value.explained > floor;
    known.then(|| (value.extremes.max(f64::MIN_POSITIVE) / floor.hypot(value.explained)).log2())
}

impl<'a> Outliers<'a> {
    /// Built from the values that are judged at all. `raw` is the excess of each, in bits.
    pub(super) fn of(
        values: &'a [ExpectedError],
        floors: &[(f64, bool)],
        raw: &[f64],
        seen: &'a Seen,
        unjudged: f64,
    ) -> Self {
        let mut peers =
            Self { results: HashMap::new(), extremes: HashMap::new(), remnants: Vec::new(), seen };
        let judged = |value: &ExpectedError| value.explained < unjudged && value.error.is_finite();
        for ((value, (floor, _)), &raw) in
            values.iter().zip(floors).zip(raw).filter(|((value, _), _)| judged(value))
        {
            if let Some(excess) = excess_of_extremes(value, *floor) {
                peers.extremes.entry(&value.family).or_default().calls.push((value.call, excess));
            } else if value.family.role == ValueKind::Result && !value.statistics_only {
                peers.results.entry(&value.family).or_default().calls.push((value.call, raw));
            }
            if let Some(remnant) = value.remnant.as_deref() {
                peers.remnants.push((remnant.share, value.call, remnant.magnified()));
            }
        }
        peers.results.values_mut().chain(peers.extremes.values_mut()).for_each(Calls::finish);
        peers.remnants.sort_by(|a, b| a.0.total_cmp(&b.0));
        peers
    }

    /// Returns the way in which a judged value stands out, if it does.
    pub(super) fn stands_out(&self, value: &ExpectedError, floor: f64, raw: f64) -> Option<By> {
        let others = |calls: &HashMap<&Family, Calls>, seen: &HashMap<Family, Others>| {
            let here = calls.get(&*value.family).map_or(Others::NONE, |calls| calls.but(value.call));
            here.with(seen.get(&value.family).copied().unwrap_or(Others::NONE))
        };
        if let Some(excess) = excess_of_extremes(value, floor) {
            let alone = excess > EXTREMES
                && others(&self.extremes, &self.seen.extremes).leave_alone(excess, EXTREMES_BEYOND_OTHERS);
            return alone.then_some(By::Extremes);
        }
        if let Some(&remnant) = value.remnant.as_deref() {
            let magnified = remnant.magnified();
            let alone =
                magnified > MAGNIFIED && self.as_much(value.call, remnant).leave_alone(magnified, MAGNIFIED);
            return alone.then_some(By::Remnant);
        }
        let alone = value.family.role == ValueKind::Result
            && !value.statistics_only
            && raw > ALONE
            && others(&self.results, &self.seen.results).leave_alone(raw, BEYOND_OTHERS);
        alone.then_some(By::Alone)
    }

    /// Returns the other gradients that cancel as much.
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

    /// Returns the state that the next step of this rank may use.
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

/// Clears gradients that may have passed through a choice flipped by noise: that makes an error of its own.
pub(super) fn acquit(flow: &Flow<'_>, values: &[ExpectedError], excess: &mut [Excess]) {
    for (value, excess) in values.iter().zip(excess) {
        if excess.is_fault && excess.by == By::Remnant && is_behind_choice(flow, value.place.0) {
            excess.is_fault = false;
        }
    }
}

/// Returns true if a choosing function lies on the path of a gradient that arrives at the backward op at
/// `position`: after its forward call, in the innermost surrounding module from which gradients of later parts
/// were recorded.
fn is_behind_choice(flow: &Flow<'_>, position: usize) -> bool {
    let Some(mut from) = flow.forward_of(position) else { return true };
    loop {
        let outer = flow.parent(from);
        // A module is recorded when it ends: ops that ran since then are inside it.
        let later = from + 1..outer.unwrap_or(flow.nodes.len()).max(from + 1);
        let forward = || later.clone().filter(|&op| flow.nodes[op].op.name.phase() == Phase::Forward);
        if forward().any(|op| flow.nodes[op].traits.chooses) {
            return true;
        }
        let is_recorded = |op: usize| {
            flow.backward_of(op).is_some_and(|backward| {
                flow.nodes[backward].given().any(|slot| flow.fact((backward, slot)).is_float)
            })
        };
        if forward().any(is_recorded) {
            return false;
        }
        let Some(outer) = outer else { return false };
        from = outer;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ops::Kind;
    use crate::precision::Precision;
    use probe_dump::DType;

    /// Returns a result of call `call` with an error as expected.
    pub(in super::super) fn result(call: usize) -> ExpectedError {
        let family = Family {
            role: ValueKind::Result,
            name: "softmax".into(),
            is_module: false,
            phase: Phase::Forward,
            slot: "output".into(),
            dtype: DType::F32,
        };
        ExpectedError {
            place: (call, 0),
            family: Arc::new(family),
            kind: Kind::Exponential,
            precision: Precision::of(DType::F32).unwrap(),
            error: 1e-3,
            explained: 1e-3,
            least: 1e-7,
            unknown: 1e-7,
            call,
            clean: false,
            statistics_only: false,
            elements: 4096.0,
            terms: 1.0,
            share: 1.0,
            gain: None,
            is_directed: false,
            remnant: None,
            extremes: 0.0,
        }
    }

    /// Returns how the last of some values stands out, given the excess of each.
    fn last(values: &[ExpectedError], raw: &[f64], seen: &Seen) -> (Option<By>, Seen) {
        let floors = vec![(1e-7, false); values.len()];
        let peers = Outliers::of(values, &floors, raw, seen, 0.3);
        (peers.stands_out(values.last().unwrap(), 1e-7, *raw.last().unwrap()), peers.seen())
    }

    #[test]
    fn a_result_that_alone_is_beyond_what_is_expected_stands_out() {
        let values: Vec<ExpectedError> = (0..4).map(result).collect();
        let by = |raw: &[f64]| last(&values[4 - raw.len()..], raw, &Seen::default()).0;
        assert_eq!(by(&[0.1, -0.5, -3.0, 2.4]), Some(By::Alone));
        assert_eq!(by(&[0.1, -0.5, -3.0, 2.2]), None, "so much is seen in sound pairs");
        assert_eq!(by(&[0.1, 0.5, -3.0, 2.4]), None, "another is beyond as well");
        assert_eq!(by(&[-0.5, -3.0, 2.4]), None, "two others say little");
    }

    #[test]
    fn values_of_one_call_are_one_and_no_peers_of_one_another() {
        let mut values: Vec<ExpectedError> = (0..4).map(result).collect();
        values[2].call = 1;
        assert_eq!(last(&values, &[0.0, 0.0, 0.0, 2.4], &Seen::default()).0, None, "two other calls");
        values.insert(0, result(7));
        values[1].call = 3;
        values[4].call = 3;
        let found = last(&values, &[0.0, 2.3, 0.0, 0.0, 2.4], &Seen::default()).0;
        assert_eq!(found, None, "calls 7 and 1 alone are others");
    }

    #[test]
    fn calls_of_the_step_before_are_others_too() {
        let values: Vec<ExpectedError> = (0..2).map(result).collect();
        let (found, seen) = last(&values, &[0.0, -0.1], &Seen::default());
        assert_eq!(found, None);
        let (found, seen) = last(&values, &[0.0, 2.4], &seen);
        assert_eq!(found, Some(By::Alone));
        assert_eq!(last(&values, &[0.0, 2.4], &seen).0, None, "it was so in the step before");
    }

    #[test]
    fn both_extremes_of_statistics_give_away_what_a_norm_hides() {
        let statistics_only = |call: usize, extremes: f64| ExpectedError {
            statistics_only: true,
            extremes,
            error: 1e-6,
            ..result(call)
        };
        let with = |extremes: f64, other: f64| {
            let values = [
                statistics_only(0, 1e-4),
                statistics_only(1, other),
                statistics_only(2, 5e-4),
                statistics_only(3, extremes),
            ];
            last(&values, &[-10.0; 4], &Seen::default()).0
        };
        assert_eq!(with(1e-2, 1e-4), Some(By::Extremes));
        assert_eq!(with(7e-3, 1e-4), None, "less than 3 bits beyond what its inputs explain");
        assert_eq!(with(1e-2, 1e-3), None, "less than 4 bits beyond another call");
        let values = [
            statistics_only(0, 0.0),
            statistics_only(1, 0.0),
            statistics_only(2, 0.0),
            ExpectedError { explained: 0.0, ..statistics_only(3, 1e-2) },
        ];
        assert_eq!(last(&values, &[-10.0; 4], &Seen::default()).0, None, "what it makes itself is not known");
    }

    #[test]
    fn a_gradient_is_held_against_those_that_cancel_as_much() {
        let arrives = |call: usize, own: f64, share: f64| {
            let family =
                Family { role: ValueKind::Arrival, phase: Phase::Backward, ..(*result(call).family).clone() };
            let remnant = Some(Remnant { own, share, before: 1e-5 });
            ExpectedError {
                family: Arc::new(family),
                remnant: remnant.map(Box::new),
                explained: 0.05,
                error: own * share,
                ..result(call)
            }
        };
        let with = |own: f64, shares: [f64; 3]| {
            let others = shares.iter().enumerate().map(|(call, &share)| arrives(call, 2e-5, share));
            let values: Vec<ExpectedError> = others.chain([arrives(3, own, 1e-3)]).collect();
            last(&values, &[-10.0; 4], &Seen::default()).0
        };
        assert_eq!(with(3e-3, [1e-3, 2e-3, 5e-4]), Some(By::Remnant));
        assert_eq!(with(1.5e-4, [1e-3, 2e-3, 5e-4]), None, "less than 3 bits more than the others");
        assert_eq!(with(3e-3, [1e-3, 2e-3, 1e-1]), None, "one of them hardly cancels");
    }
}
