//! Judges one step of one rank: facts, flow, expected errors, excess, and the conclusions, in this order.

use std::collections::{HashMap, HashSet};

use super::candidate::{Beyond, Candidate};
use super::excess::{self, Granted};
use super::expected::{ExpectedErrors, broken};
use super::flow::Flow;
use super::hard_faults::{HardFaults, numeric};
use super::history::{History, are_apart, weigh};
use super::noise::{self, Noise};
use super::outliers;
use super::replayed::Replayed;
use super::rulebook::RuleBook;
use super::setting::Setting;
use super::structure::Agreement;
use super::tolerance::Rules;
use super::value::{By, Excess, ExpectedError, ValueKind};
use super::{
    Cause, Counts, Expectation, Expectations, Finding, OpJudgement, PartEvidence, PartJudgement,
    ReferenceErrors, SlotJudgement, backward_only, closing, collectives, ends, finding, gradient_marks,
    incomplete, marks, notes, origin, reference, repeated, replayed, structure, unread, unwritten,
};
use probe_dump::Ordinal;
use probe_pair::{BySlot, Paired, PartPair};

/// Inputs to a judgement besides the two runs.
#[derive(Debug, Clone, Copy)]
pub struct PriorKnowledge<'a> {
    /// The user's tolerance rules.
    pub rules: &'a Rules,
    /// Measured noise between runs of the baseline.
    pub noise: &'a Noise,
    /// Errors of the part against a reference run, by op and slot; empty without one.
    pub reference: &'a BySlot<ReferenceErrors>,
    /// Calls that were replayed in float64.
    pub replayed: &'a Replayed,
}

/// Judges a part. `evidence` is that of [`PartPair::ops`], slot by slot; `history` is the state left by this
/// rank's previous step, the default for the first. `explain` changes the judgement by what the caller knows besides:
/// a later step is told of the findings that it leaves.
pub fn judge_part(
    pair: &PartPair,
    evidence: &PartEvidence,
    known: PriorKnowledge<'_>,
    history: &History,
    explain: impl FnOnce(&mut PartJudgement),
) -> (PartJudgement, History) {
    let setting = Setting::of(pair);
    let mut book = RuleBook::default();
    let mut flow = Flow::of(pair, evidence, &setting, known.rules, &mut book);
    let noise = known.noise.of_part(pair);
    let reference = reference::OfPart(known.reference);
    noise.forgive(&mut flow);
    unwritten::set_aside(&mut flow);
    repeated::bring_together(&mut flow);
    backward_only::set_aside(&mut flow);
    let unread = unread::set_aside(&mut flow);
    flow.arrived_before = history.arrived(&flow);
    let (expected, drifted) = weigh(&flow, &setting, history);
    let granted = granted(&flow, &expected.values, noise);
    let (mut excess, learned) =
        excess::of(&expected.values, (&history.learned.0, &history.learned.1), &granted, history.any);
    outliers::acquit(&flow, &expected.values, &mut excess);
    let acquitted = reference.acquit(&expected.values, &mut excess);
    let replayed = known.replayed.of_part(pair.step, pair.rank);
    let apart = !history.any && are_apart(&flow, &drifted);
    let mut weighed = Weighed { expected: &expected, excess: &mut excess, setting: &setting, apart };
    let mut ways = history.ways().clone();
    let (mut candidates, remarks) =
        suspects(&mut flow, &mut weighed, (noise, reference, replayed), history, &mut ways);
    let (mut ops, mut slots) = marks::of(&flow, &expected, &excess, &candidates, history.diverged);
    if candidates.is_empty() && !history.diverged {
        candidates.extend(closing::unnamed(&flow, &slots));
    }
    // Must precede completing the values' reasons, which repeat some of this.
    let mut findings = described(pair, evidence, (&ops, &slots), &candidates, reference);
    tell_slots(&candidates, &mut slots);
    for place in acquitted {
        slots[place.0][place.1].reason = reference.errors(place).text().into();
    }
    let expectations = expectations(&expected.values, &excess);
    name_rules(&flow, &expected.values, &excess, &mut slots, &mut book);
    tell_ops(&mut ops, &mut findings);
    let drift = notes::Drift { places: drifted, late: !history.any };
    let mut notes = notes::of(&flow, &setting, &expected, &excess, &candidates, &slots, &drift);
    notes.extend(unread);
    notes.extend(remarks);
    let counts = count(pair, &ops, &slots);
    let incomplete = incomplete::of(&flow);
    let rules = book.into_texts();
    let reference = BySlot::default();
    let mut judged =
        PartJudgement { ops, slots, expectations, rules, findings, notes, incomplete, reference, counts };
    explain(&mut judged);
    let diverged = history.diverged || !judged.findings.is_empty();
    let next = History::after(&flow, (expected.gradients, &expected.arrivals), learned, ways, diverged);
    (judged, next)
}

/// A part with its errors, and how far each is beyond the expectation.
struct Weighed<'w> {
    expected: &'w ExpectedErrors,
    excess: &'w mut [Excess],
    setting: &'w Setting,
    /// The runs have gone apart before the recording begins.
    apart: bool,
}

/// Returns the ops to name, in execution order, and remarks on what is not named; accepts in `flow` what only
/// was written in another way, and in `weighed` what replaying cleared.
fn suspects(
    flow: &mut Flow<'_>,
    weighed: &mut Weighed<'_>,
    (noise, reference, replayed): (noise::OfPart<'_>, reference::OfPart<'_>, Option<replayed::OfPart<'_>>),
    history: &History,
    ways: &mut HashSet<Box<str>>,
) -> (Vec<Candidate>, Vec<String>) {
    let Weighed { expected, excess, setting, apart } = weighed;
    let mut candidates = HardFaults::of(flow, expected, setting, noise);
    candidates.extend(faults(flow, &expected.values, excess));
    candidates.extend(history.follower(flow));
    candidates.retain(|candidate| !reference.acquits(flow, candidate));
    let cleared = replayed.map(|replayed| replayed.apply(flow, &expected.values, excess, &mut candidates));
    let mut remarks = cleared.unwrap_or_default();
    let agreement = Agreement::of(flow, expected, excess, setting.coarsest, *apart);
    let structure = structure::of(flow, &agreement, &mut candidates);
    candidates.extend(structure.fault);
    let of_one_side = structure.rewritten.iter().map(|&op| &flow.nodes[op]).filter(|node| !node.is_paired);
    ways.extend(of_one_side.map(|node| Box::from(node.op.name.as_str())));
    flow.excuse(&structure.rewritten, structure.excuse);
    let mut candidates = origin::of_candidates(flow, candidates);
    remarks.extend(gradient_marks::settle(flow, &mut candidates));
    let settled = ends::settle(flow, &mut candidates, expected, setting, (history.ways(), ways));
    if candidates.is_empty() && !history.diverged && settled.is_none() {
        let unexplained = closing::unexplained(flow, expected, excess)
            .filter(|candidate| !structure.rewritten.contains(&candidate.op));
        candidates.extend(unexplained.filter(|candidate| !reference.acquits(flow, candidate)));
        let begins = !history.any && candidates.is_empty();
        candidates
            .extend(begins.then(|| closing::gone_apart(flow, expected, structure.other_call)).flatten());
    }
    remarks.extend(settled);
    remarks.extend(structure.note);
    flow.forget_values();
    (candidates, remarks)
}

/// Describes the ops to name.
fn described(
    pair: &PartPair,
    evidence: &PartEvidence,
    judged: (&[OpJudgement], &BySlot<SlotJudgement>),
    candidates: &[Candidate],
    reference: reference::OfPart<'_>,
) -> Vec<Finding> {
    let collectives = collectives::collectives(pair);
    let described = candidates.iter().map(|candidate| {
        let mut finding = finding::describe(pair, evidence, judged, candidate);
        finding.collectives = collectives.partition_point(|&place| place < candidate.op) as u64;
        finding.compare_with(candidate.slot.map(|slot| reference.errors((candidate.op, slot))));
        finding
    });
    described.collect()
}

/// Gives the values of the candidates their reasons, unless they have one.
fn tell_slots(candidates: &[Candidate], slots: &mut BySlot<SlotJudgement>) {
    for candidate in candidates {
        if let Some(slot) = candidate.slot.and_then(|slot| slots.at_mut(candidate.op, slot))
            && slot.reason.is_empty()
        {
            slot.reason = candidate.said.as_str().into();
        }
    }
}

/// Counts the followers of each finding, and tells its op the reason.
fn tell_ops(ops: &mut [OpJudgement], findings: &mut [Finding]) {
    let mut followers: HashMap<usize, u64> = HashMap::new();
    for source in ops.iter().filter_map(|op| op.follows).map(Ordinal::place) {
        *followers.entry(source).or_default() += 1;
    }
    for finding in findings {
        finding.followers = followers.get(&finding.order).copied().unwrap_or(0);
        if let Some(op) = ops.get_mut(finding.order) {
            op.reason = finding.reason.as_str().into();
            op.cause = Some(finding.cause);
        }
    }
}

/// Returns the own errors that noise and user rules let the ops of values make.
fn granted(flow: &Flow<'_>, values: &[ExpectedError], noise: noise::OfPart<'_>) -> Vec<Granted> {
    let of = |value| Granted { measured: noise.floor(flow, value), by_rule: by_rule(flow, value) };
    values.iter().map(of).collect()
}

/// Returns the own error that a user rule lets the op of a value make, relative to the value's scale.
fn by_rule(flow: &Flow<'_>, value: &ExpectedError) -> f64 {
    let fact = flow.fact(value.place);
    match value.family.role {
        ValueKind::Result | ValueKind::Arrival if fact.distance > 0.0 => {
            fact.floor * fact.norm * value.error / fact.distance
        }
        _ => fact.floor,
    }
}

/// Returns the faulty values as candidates.
fn faults<'v>(
    flow: &'v Flow<'_>,
    values: &'v [ExpectedError],
    excess: &'v [Excess],
) -> impl Iterator<Item = Candidate> + 'v {
    values
        .iter()
        .zip(excess)
        .filter(|(value, excess)| excess.is_fault && !flow.fact(value.place).allowed)
        .map(|(value, excess)| {
            let node = &flow.nodes[value.place.0];
            let (op, slot) = value.place;
            let arrived = value.family.role == ValueKind::Arrival;
            let cause = match value.family.role {
                ValueKind::Update | ValueKind::UpdateSize => Cause::Optimizer,
                ValueKind::Arrival if node.is_backward() => Cause::Gradient,
                ValueKind::Arrival => Cause::Input,
                ValueKind::Result => numeric(node),
            };
            let mut candidate = Candidate { arrived, ..Candidate::at(op, Some(slot), cause) };
            candidate.said = said(flow, value, excess);
            candidate.beyond = Some(Beyond::of(value, excess));
            candidate
        })
}

/// Describes the evidence for an excess.
fn said(flow: &Flow<'_>, value: &ExpectedError, excess: &Excess) -> String {
    let fact = flow.fact(value.place);
    let is_value = matches!(value.family.role, ValueKind::Result | ValueKind::Arrival);
    if let Some(said) = broken(flow, value.place).filter(|_| is_value) {
        return said;
    }
    match value.family.role {
        ValueKind::Update => {
            let kept = flow.slot(value.place).is_some_and(|slot| is_kept(&slot.path));
            let what = if kept { "what is kept of its gradients" } else { "the update of this parameter" };
            format!("{what} has a relative error of {:.1e}", value.error)
        }
        ValueKind::UpdateSize => format!("the update of this parameter differs in size by {:.1} %", 100.0 * value.error),
        _ if excess.by == By::Factor && fact.scales_norm_alone() => {
            format!("its norm is {:.5} times the baseline's: noise has no direction", 1.0 + fact.gain())
        }
        _ if excess.by == By::Factor => {
            format!("all elements are scaled by {:.5}: noise has no direction", 1.0 + fact.gain())
        }
        _ if excess.by == By::Alone => "no other call of this kind deviates like this".to_owned(),
        _ if excess.by == By::Extremes => {
            "both its largest and its smallest element are off, unlike in any other call of this kind".to_owned()
        }
        _ if excess.by == By::Remnant => "no other gradient that cancels as much deviates like this".to_owned(),
        _ if excess.by == By::Formula => {
            "other calls of this kind deviate similarly, by more than rounding explains: a different formula or precision"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// Returns true for optimizer state, and for no parameter: `output.exp_avg.layers.0.weight`.
fn is_kept(path: &str) -> bool {
    path.strip_prefix("output.").is_some_and(|rest| rest.contains('.') && !rest.starts_with("parameter."))
}

/// Returns the expectations of the judged values. Updates are excluded: they are relative to the gradient, not
/// to the size of the value.
fn expectations(values: &[ExpectedError], excess: &[Excess]) -> Expectations {
    let judged = values.iter().zip(excess);
    let held =
        judged.filter(|(value, _)| matches!(value.family.role, ValueKind::Result | ValueKind::Arrival));
    held.map(|(value, excess)| {
        let Beyond { error, expected } = Beyond::of(value, excess);
        (value.place, Expectation { error, floor: excess.floor, expected })
    })
    .collect()
}

/// Records for each judged value the rule that decided.
fn name_rules(
    flow: &Flow<'_>,
    values: &[ExpectedError],
    excess: &[Excess],
    slots: &mut BySlot<SlotJudgement>,
    book: &mut RuleBook,
) {
    for (value, excess) in values.iter().zip(excess) {
        let slot = &mut slots[value.place.0][value.place.1];
        if slot.rule.is_none() && value.error > 0.0 {
            slot.rule =
                Some(book.floor(value.family.dtype, (excess.floor, excess.is_measured), value.explained));
            if excess.is_fault {
                let text = match flow.fact(value.place).norm {
                    norm if norm > 0.0 => Beyond::of(value, excess).to_string(),
                    _ => finding::ALL_ZERO.to_owned(),
                };
                let separator = if slot.reason.is_empty() { "" } else { "; " };
                slot.reason = format!("{text}{separator}{}", slot.reason).into();
            }
        }
    }
}

fn count(pair: &PartPair, ops: &[OpJudgement], slots: &BySlot<SlotJudgement>) -> Counts {
    let mut counts = Counts { parts: 1, ..Counts::default() };
    for (op_pair, judged) in pair.ops.iter().zip(ops) {
        match op_pair.ops {
            Paired::Both(..) => counts.ops_paired += 1,
            Paired::BaselineOnly(_) => counts.ops_baseline_only += 1,
            Paired::CandidateOnly(_) => counts.ops_candidate_only += 1,
        }
        counts.roles[judged.role as usize] += 1;
    }
    for slot in slots.values() {
        counts.verdicts[slot.verdict as usize] += 1;
    }
    counts
}

#[cfg(test)]
mod tests;
