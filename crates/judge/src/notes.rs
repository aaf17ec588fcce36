//! Statements about a whole part, each made once.

use super::candidate::Candidate;
use super::difference::Difference;
use super::expected::ExpectedErrors;
use super::flow::{Flow, Place};
use super::marks::{foreign, largest_error};
use super::median::median;
use super::precision::product_precision;
use super::products::shows_more;
use super::setting::Setting;
use super::value::{Excess, ExpectedError};
use super::{Cause, SlotJudgement};
use probe_dump::{DType, OpKind, Phase};
use probe_measure::Evidence;
use probe_pair::BySlot;

/// Weights and buffers that differ because of earlier steps.
pub(super) struct Drift {
    /// Their places.
    pub(super) places: Vec<Place>,
    /// No step before this one was recorded.
    pub(super) late: bool,
}

/// Fraction of the products that must show a coarse precision for a note about it.
const MOST: f64 = 0.6;

/// Beginning of the note on values that the run did not compute.
pub const OWN_INPUTS: &str = "the run's own inputs or weights already differ";

/// Returns all statements.
pub(super) fn of(
    flow: &Flow<'_>,
    setting: &Setting,
    expected: &ExpectedErrors,
    excess: &[Excess],
    candidates: &[Candidate],
    slots: &BySlot<SlotJudgement>,
    drift: &Drift,
) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((b, c, count)) = setting.mixed {
        notes.push(format!(
            "mixed-precision pair: the baseline computes in {b}, the candidate in {c} ({count} tensors); errors are judged at the precision of the coarser type"
        ));
    }
    if let Some((name, (b, c))) = setting.lists.first_key_value() {
        let others = setting.lists.len() - 1;
        let more = if others == 0 { String::new() } else { format!(" (and {others} more functions)") };
        notes.push(format!(
            "autocast leaves {name} in {b} in the baseline and in {c} in the candidate, in every call{more}: the devices' lists differ"
        ));
    }
    notes.extend(products(&expected.values, excess, drift));
    let collection = flow.nodes.first().is_some_and(|node| node.op.name.kind() == OpKind::Tensor);
    if candidates.iter().any(|candidate| candidate.cause == Cause::Input) && !collection {
        let (parameters, inputs) = foreign(flow, expected, slots);
        notes.push(format!(
            "{OWN_INPUTS} (parameters: {parameters}, inputs: {inputs}); each op is judged by its output error relative to its input error"
        ));
    }
    notes.extend(drifted(flow, drift));
    if flow.late_checksums > 0 {
        notes.push(format!(
            "the hashes of {} inputs differ although their statistics and all results of their ops agree: the capture computed them late, from memory that was already overwritten",
            flow.late_checksums
        ));
    }
    notes.extend(flipped(flow, candidates));
    notes.extend(non_finite(flow));
    notes.extend(flow.pair.baseline.notes.iter().chain(&flow.pair.candidate.notes).cloned());
    notes
}

fn drifted(flow: &Flow<'_>, drift: &Drift) -> Option<String> {
    if drift.places.is_empty() {
        return None;
    }
    let (count, largest) = (drift.places.len(), largest_error(flow, drift.places.iter()));
    Some(if drift.late {
        format!(
            "{count} weights differ by up to {largest:.1e} where this recording begins: effects of earlier steps are not judged; record from step 0 to see where they diverge"
        )
    } else {
        format!(
            "{count} weights have drifted since the previous compared step, by up to {largest:.1e}: their last updates agree as well as their gradients do"
        )
    })
}

/// Describes choices that rounding flipped, starting from the first op that made one.
fn flipped(flow: &Flow<'_>, candidates: &[Candidate]) -> Option<String> {
    let chosen = |position: usize| {
        let node = &flow.nodes[position];
        let differs = |&slot: &usize| flow.fact((position, slot)).difference == Difference::Elements;
        let given = flow.given(position).into_iter().any(|place| flow.fact(place).flipped > 0.0);
        // An op that only passes on or counts earlier choices makes none of its own.
        node.results().find(differs).filter(|_| !given && !node.is_module()).map(|slot| (position, slot))
    };
    let at_fault = |place: &Place| {
        candidates.iter().any(|candidate| candidate.op == place.0 && candidate.slot == Some(place.1))
    };
    let chosen: Vec<Place> =
        (0..flow.nodes.len()).filter_map(chosen).filter(|place| !at_fault(place)).collect();
    let first = *chosen.first()?;
    let ops = if chosen.len() == 1 { "one op".to_owned() } else { format!("{} ops", chosen.len()) };
    Some(format!(
        "rounding flipped choices (argmax, routing) in {ops}, first in {}: {}; only excess error downstream is judged",
        flow.nodes[first.0].op.name.as_str(),
        flow.fact(first).judgement.reason
    ))
}

/// Describes binary32 products that are all off alike, as in a precision that devices use by default.
fn products(values: &[ExpectedError], excess: &[Excess], drift: &Drift) -> Option<String> {
    let of = |modules: bool| -> Vec<(&ExpectedError, &Excess)> {
        let products = values.iter().zip(excess).filter(|(value, _)| {
            value.is_product()
                && value.family.is_module == modules
                && value.family.dtype == DType::F32
                && value.family.phase == Phase::Forward
                && value.precision.unit <= 1e-6
        });
        products.collect()
    };
    let functions = of(false);
    let products = if functions.is_empty() { of(true) } else { functions };
    let coarse = || products.iter().filter(|(_, excess)| product_precision(excess.floor).is_some());
    if products.is_empty() || (coarse().count() as f64) < MOST * products.len() as f64 {
        return None;
    }
    // Statistics do not tell a product's own error from that of weights which have drifted.
    if !drift.places.is_empty() && products.iter().all(|(value, _)| value.statistics_only) {
        return None;
    }
    // What led to a product says nothing about its precision, and explains somewhat more or less than it is off by: a product
    // whose own error is larger shows it. Without such, the others tell, but for weights that have drifted.
    let own = |value: &ExpectedError| {
        (value.error * value.error - value.explained * value.explained).max(0.0).sqrt()
    };
    let (clear, carried): (Vec<&ExpectedError>, Vec<&ExpectedError>) = coarse()
        .map(|(value, _)| *value)
        .filter(|value| !value.statistics_only && own(value) > 0.0)
        .partition(|value| own(value) > value.explained);
    let telling = if clear.is_empty() && drift.places.is_empty() { carried } else { clear };
    let mut seen: Vec<f64> = telling.into_iter().map(own).collect();
    let (middle, known) = if products.iter().all(|(value, _)| value.statistics_only) {
        // An allowance for what statistics do not show is no evidence of it.
        let shown = coarse().filter(|(value, _)| shows_more(value)).count();
        let mut errors: Vec<f64> = coarse().map(|(value, _)| value.error).collect();
        let known = product_precision(coarse().next()?.1.floor).filter(|_| 2 * shown > errors.len())?;
        (median(&mut errors), known)
    } else {
        let middle = median(&mut seen);
        (middle, product_precision(middle)?)
    };
    if middle <= 0.0 || middle >= known.range.1 {
        return None;
    }
    let all = match products.len() {
        1 => "the only matrix product or convolution is".to_owned(),
        count => format!("all {count} matrix products and convolutions are"),
    };
    Some(format!("{all} off by about {middle:.1e}, {}; {}", known.name, known.repair))
}

fn non_finite(flow: &Flow<'_>) -> Vec<String> {
    let (mut alike, mut recorded) = (0_usize, 0_usize);
    for position in 0..flow.nodes.len() {
        for (fact, evidence) in flow.facts(position).zip(flow.evidence.of_op(position)) {
            if fact.difference == Difference::NonFinite {
                continue;
            }
            match evidence {
                Evidence::Data(kept) if kept.metrics().baseline.non_finite() > 0 => alike += 1,
                Evidence::Recorded(found) if found.baseline_non_finite && found.sketch.is_none() => {
                    recorded += 1;
                }
                _ => {}
            }
        }
    }
    let mut notes = Vec::new();
    if alike > 0 {
        notes.push(format!(
            "{alike} tensors hold the same non-finite values on both sides; their other elements were compared"
        ));
    }
    if recorded > 0 {
        notes.push(format!(
            "{recorded} tensors hold non-finite values on both sides; their statistics show neither the places nor the other elements"
        ));
    }
    notes
}
