//! Verdicts of values and roles of ops, once the faulty ops are known: a value counts as different if it is at
//! fault itself, or if a fault reaches it and its error exceeds rounding.

use std::collections::{HashMap, HashSet};

use super::candidate::Candidate;
use super::difference::{ByIdentity, Difference, Fact};
use super::excess::BEYOND;
use super::expected::{ExpectedErrors, Results};
use super::flow::{Flow, Node, Place};
use super::transfer::{self, InputError, largest};
use super::value::{Excess, ExpectedError};
use super::{Cause, OpJudgement, Role, SlotJudgement, Verdict};
use probe_dump::{Figure, Ordinal, Remark, SlotSide};
use probe_pair::BySlot;

/// Least relative error at which a value without a known floor counts as different.
const LEAST: f64 = 1e-5;

/// The faulty op that a mark comes from, by position; `None` if it comes from an earlier step or is unknown.
type Source = Option<Ordinal>;

/// Marks of values that are at fault, or reached by a fault.
struct Marks<'f, 'a> {
    flow: &'f Flow<'a>,
    values: ByIdentity<Source>,
    /// Module calls with something marked inside.
    around: Vec<Option<Source>>,
    places: BySlot<Option<Source>>,
}

impl<'f, 'a> Marks<'f, 'a> {
    fn none(flow: &'f Flow<'a>) -> Self {
        let places = flow.nodes.iter().map(|node| std::iter::repeat_n(None, node.slot_count())).collect();
        Self { flow, values: ByIdentity::default(), around: vec![None; flow.nodes.len()], places }
    }

    fn has(&self, place: Place) -> bool {
        self.source(place).is_some()
    }

    /// Returns the source of a value's mark, if it has one.
    fn source(&self, place: Place) -> Option<Source> {
        let fact = self.flow.fact(place);
        let known = self.places[place.0][place.1].or_else(|| self.values.get(&fact.identity?).copied());
        known.or_else(|| (!fact.difference.is_open()).then_some(None))
    }

    fn set(&mut self, place: Place, source: Source) {
        self.places[place.0][place.1] = Some(source);
        for outer in self.flow.around(place.0) {
            self.around[outer].get_or_insert(source);
        }
        // A fault does not reach equal values, whatever made them.
        if let Some(identity) = self.flow.fact(place).identity.filter(|_| !self.flow.fact(place).exact) {
            self.values.entry(identity).or_insert(source);
        }
    }
}

/// Judges all ops and slots; the causes of ops are those of `candidates`. `diverged`: an earlier step was at
/// fault.
pub(super) fn of(
    flow: &Flow<'_>,
    expected: &ExpectedErrors,
    excess: &[Excess],
    candidates: &[Candidate],
    diverged: bool,
) -> (Vec<OpJudgement>, BySlot<SlotJudgement>) {
    let weighed = Weighed::of(flow, expected, excess, candidates);
    let mut marks = Marks::none(flow);
    let arrivals: HashSet<Place> = expected.arrivals.iter().copied().collect();
    let any_fault = !candidates.is_empty();
    let named: HashMap<usize, &Candidate> =
        candidates.iter().map(|candidate| (candidate.op, candidate)).collect();
    let mut ops = Vec::with_capacity(flow.nodes.len());
    let count = flow.nodes.iter().map(Node::slot_count).sum();
    let mut slots = BySlot::with_capacity(flow.nodes.len(), count);
    // Ops at fault so far.
    let mut at_fault: Vec<usize> = Vec::new();
    for (position, node) in flow.nodes.iter().enumerate() {
        if !node.is_paired {
            at_fault.extend(named.contains_key(&position).then_some(position));
            ops.push(unpaired());
            slots.push(flow.facts(position).map(|fact| fact.judgement.clone()));
            continue;
        }
        let here = Ordinal::of(position);
        for slot in node.given() {
            let place = (position, slot);
            let fact = flow.fact(place);
            let drifted = (diverged || any_fault) && arrivals.contains(&place) && fact.relative() > LEAST;
            if fact.difference == Difference::Numbers && (weighed.faults.contains(&place) || drifted) {
                marks.set(place, named.contains_key(&position).then_some(here));
            }
        }
        let given = flow.given(position);
        let saved = flow.saved(position);
        let led: Vec<Source> = given
            .iter()
            .chain(&saved)
            .filter_map(|&place| marks.source(place))
            .chain(marks.around[position])
            .collect();
        let reached = !led.is_empty() || named.contains_key(&position);
        // The path may not have been recorded; if only one op was at fault so far, nothing else can be the
        // cause.
        let only = match *at_fault.as_slice() {
            [only] if !led.is_empty() && !diverged => Some(only),
            _ => None,
        };
        let earlier = led.into_iter().flatten().min().or(only.map(Ordinal::of));
        let source = match named.get(&position) {
            Some(candidate) if candidate.cause == Cause::Argument => Some(here),
            Some(_) => earlier.or(Some(here)),
            None => earlier,
        };
        let read = reached.then_some([&*given, &*saved]);
        for slot in node.results() {
            if weighed.differs((position, slot), &marks, read) {
                marks.set((position, slot), source);
            }
        }
        slots.push((0..node.slot_count()).map(|slot| judge_slot(flow, &marks, (position, slot), any_fault)));
        let mut judged =
            judge(flow, expected, &marks, position, named.get(&position).copied(), &slots[position]);
        let follows = matches!(judged.role, Role::Propagates | Role::Amplifies);
        judged.follows = source.filter(|&source| follows && source != here);
        at_fault.extend(named.contains_key(&position).then_some(position));
        ops.push(judged);
    }
    (ops, slots)
}

/// Errors of results beside what is allowed, and the values at fault.
struct Weighed<'w, 'a> {
    flow: &'w Flow<'a>,
    values: &'w [ExpectedError],
    excess: &'w [Excess],
    results: Results<'w>,
    faults: HashSet<Place>,
}

impl<'w, 'a> Weighed<'w, 'a> {
    fn of(
        flow: &'w Flow<'a>,
        expected: &'w ExpectedErrors,
        excess: &'w [Excess],
        candidates: &[Candidate],
    ) -> Self {
        let values = expected.values.iter().zip(excess);
        let at_fault = values.filter(|(_, excess)| excess.is_fault).map(|(value, _)| value.place);
        let named = candidates.iter().filter_map(|candidate| Some((candidate.op, candidate.slot?)));
        let faults = at_fault.chain(named.filter(|&place| flow.fact(place).differs())).collect();
        Self { flow, values: &expected.values, excess, results: expected.results(), faults }
    }

    /// Returns true if a result is at fault, or if a fault that reaches its op by what it has `read` (its inputs, and what
    /// its forward call saved) shows in it.
    fn differs(&self, place: Place, marks: &Marks<'_, '_>, read: Option<[&[Place]; 2]>) -> bool {
        let fact = self.flow.fact(place);
        if fact.allowed {
            return false;
        }
        if fact.difference != Difference::Numbers {
            return !fact.difference.is_open();
        }
        if self.faults.contains(&place) {
            return true;
        }
        let Some(read) = read else { return false };
        let Some(index) = self.results.index(place) else {
            return marks.has(place) || fact.relative() > LEAST.max(fact.floor);
        };
        let (value, excess) = (&self.values[index], &self.excess[index]);
        let [given, saved] = read.map(|places| -> Vec<(Place, InputError)> {
            places.iter().map(|&place| (place, clean_error(self.flow, marks, place))).collect()
        });
        let explained = transfer::explained(self.flow, place, fact.distance / value.error, &given, &saved);
        value.error > BEYOND * excess.floor.hypot(explained)
    }
}

/// Returns the error of an input, as far as no fault led to it.
fn clean_error(flow: &Flow<'_>, marks: &Marks<'_, '_>, place: Place) -> InputError {
    let fact = flow.fact(place);
    if marks.has(place) || !fact.is_float {
        return InputError::default();
    }
    InputError { relative: fact.relative(), absolute: fact.distance }
}

fn judge_slot(flow: &Flow<'_>, marks: &Marks<'_, '_>, place: Place, any_fault: bool) -> SlotJudgement {
    let fact = flow.fact(place);
    let mut judgement = fact.judgement.clone();
    let follows = match fact.difference {
        _ if fact.allowed => "",
        Difference::ComputedArgument => "computed from values that carry noise",
        // Nobody chose a number that an op returns.
        Difference::Argument if flow.side(place).is_result() => "computed from values that carry noise",
        // Arguments here are sizes only: for anything else an op would have been accused.
        Difference::Elements | Difference::Shape | Difference::Argument => "choices that noise has flipped",
        _ => "",
    };
    if !follows.is_empty() && !any_fault {
        judgement.verdict = Verdict::Close;
        judgement.reason = format!("{}, {follows}", judgement.reason).into();
    }
    if fact.difference == Difference::Numbers
        && judgement.verdict == Verdict::Close
        && marks.has(place)
        && any_fault
    {
        judgement.verdict = Verdict::Differs;
        judgement.follows = true;
    }
    judgement
}

fn judge(
    flow: &Flow<'_>,
    expected: &ExpectedErrors,
    marks: &Marks<'_, '_>,
    position: usize,
    named: Option<&Candidate>,
    slots: &[SlotJudgement],
) -> OpJudgement {
    let node = &flow.nodes[position];
    let wrong = |slot: &usize| {
        !slots[*slot].verdict.is_fine()
            && slots[*slot].verdict != Verdict::Unreadable
            && !is_dtype_of_mixed(flow.fact((position, *slot)))
    };
    let results: Vec<usize> = node.results().filter(wrong).collect();
    let given: Vec<usize> = node.given().filter(wrong).collect();
    let worst = |slots: &[usize]| {
        slots.iter().copied().reduce(|best, next| {
            if severity(flow.fact((position, next))) > severity(flow.fact((position, best))) {
                next
            } else {
                best
            }
        })
    };
    let role = match named {
        Some(candidate) if candidate.arrived || candidate.cause == Cause::Input => {
            if results.is_empty() {
                Role::Recovers
            } else {
                Role::Propagates
            }
        }
        Some(candidate) if candidate.cause == Cause::Argument => Role::Introduces,
        Some(_)
            if flow.given(position).iter().chain(&flow.saved(position)).any(|&place| marks.has(place)) =>
        {
            Role::Amplifies
        }
        Some(_) => Role::Introduces,
        None if !results.is_empty() => Role::Propagates,
        None if is_dark(flow, position) => Role::Unknown,
        None if !given.is_empty() => Role::Recovers,
        None => Role::Clean,
    };
    let errors = node
        .results()
        .map(|slot| flow.fact((position, slot)))
        .filter(|fact| fact.is_tensor)
        .filter_map(|fact| fact.judgement.error.get());
    OpJudgement {
        role,
        cause: named.map(|candidate| candidate.cause),
        verdict: slots.iter().map(|slot| slot.verdict).max().unwrap_or(Verdict::Unknown),
        input_error: expected.input_errors[position],
        output_error: errors.reduce(f64::max).into(),
        worst: named
            .and_then(|candidate| candidate.slot)
            .or_else(|| worst(&results))
            .or_else(|| worst(&given))
            .map(Ordinal::of),
        reason: Remark::default(),
        follows: None,
    }
}

/// Returns true if nothing shows that its results agree: some could not be compared, or there are none and an
/// input could not be.
fn is_dark(flow: &Flow<'_>, position: usize) -> bool {
    let node = &flow.nodes[position];
    let unknown = |slot: usize| flow.fact((position, slot)).difference == Difference::Unreadable;
    match node.results().next() {
        Some(_) => node.results().any(unknown),
        None => node.given().any(unknown),
    }
}

/// Returns true for dtypes that differ throughout the run, which is no fault.
fn is_dtype_of_mixed(fact: &Fact) -> bool {
    fact.judgement.verdict == Verdict::DType && fact.difference.is_open()
}

/// Ranks kinds of difference from mild to severe, then by size.
fn severity(fact: &Fact) -> (u8, f64) {
    let kind = match fact.difference {
        Difference::NonFinite => 4,
        Difference::Numbers | Difference::Elements | Difference::Checksum => 3,
        Difference::Shape | Difference::DType | Difference::Missing => 2,
        _ => 1,
    };
    (kind, fact.judgement.error.get().unwrap_or(0.0))
}

fn unpaired() -> OpJudgement {
    OpJudgement {
        role: Role::Unpaired,
        cause: None,
        verdict: Verdict::Missing,
        input_error: Figure::NONE,
        output_error: Figure::NONE,
        worst: None,
        reason: Remark::default(),
        follows: None,
    }
}

/// Counts the differing weights and inputs that no recorded op made.
pub(super) fn foreign(
    flow: &Flow<'_>,
    expected: &ExpectedErrors,
    slots: &BySlot<SlotJudgement>,
) -> (usize, usize) {
    let differs = expected.arrivals.iter().filter(|(op, slot)| !slots[*op][*slot].verdict.is_fine());
    let (parameters, inputs): (Vec<&Place>, Vec<&Place>) =
        differs.partition(|place| flow.side(**place) == SlotSide::Parameter);
    (parameters.len(), inputs.len())
}

/// Returns the largest relative error among values.
pub(super) fn largest_error<'p>(flow: &Flow<'_>, places: impl Iterator<Item = &'p Place>) -> f64 {
    largest(places.map(|&place| flow.fact(place).relative()))
}
