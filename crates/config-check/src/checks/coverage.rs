//! Reports what only one side has: steps, ranks, parts. Always as rows, never silently.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::context::Context;
use super::rows::Rows;
use crate::expectations::Ruling;
use crate::pack::{Origin, Pack};
use crate::part::{Part, Verdict};

/// Adds rows for everything that was not compared.
pub(super) fn check(rows: &mut Rows<'_>, context: &Context<'_>) {
    let (a, b) = (context.baseline, context.candidate);
    set(rows, "ranks", &a.ranks.keys().copied().collect(), &b.ranks.keys().copied().collect());
    let names = |pack: &Pack| pack.parts().into_iter().map(Part::name).collect::<BTreeSet<_>>();
    set(rows, "parts", &names(a), &names(b));
    set(rows, "steps", &a.steps(), &b.steps());
    for part in [Part::Dataset, Part::Weights] {
        steps(rows, context, part);
    }
    for part in Part::ALL {
        let (x, y) = (a.ranks_with(part), b.ranks_with(part));
        if !x.is_empty() && !y.is_empty() && x != y {
            set(rows, &format!("ranks of {part}"), &x, &y);
        }
    }
    for (is_baseline, pack) in [(true, a), (false, b)] {
        notes(rows, is_baseline, pack);
    }
    let older = |pack: &Pack| (pack.origin == Origin::Msprobe).then(|| pack.origin.name().to_owned());
    let (x, y) = (older(a), older(b));
    if x.is_some() || y.is_some() {
        let why = "a pack of msprobe holds no seed values, states of generators, buffers, shapes, element types, order of samples, \
                   scalar arguments, flags, optimizer or clipping: these were not compared";
        let ruling = Ruling::new(Verdict::Unknown, why).todo(COLLECT);
        rows.push("not recorded", x, y, ruling);
    }
}

/// Advice if a pack of the older tool recorded too little.
pub(super) const COLLECT: &str = "collect with probe.config_check, which records them";

/// Adds a row that compares two sets; equal sets match.
fn set<T: Ord + Display + Copy>(rows: &mut Rows<'_>, key: &str, a: &BTreeSet<T>, b: &BTreeSet<T>) {
    let list = |set: &BTreeSet<T>| set.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if a == b {
        if !a.is_empty() {
            rows.equal(key, &list(a), &list(b), "");
        }
        return;
    }
    let only = |set: &BTreeSet<T>, other: &BTreeSet<T>| list(&set.difference(other).copied().collect());
    let mut parts = Vec::new();
    for (side, missing) in [("baseline", only(a, b)), ("candidate", only(b, a))] {
        if !missing.is_empty() {
            parts.push(format!("only the {side} has {missing}"));
        }
    }
    let default = rows.ruling_of_difference(key, Some(""), Some(""));
    let ruling =
        Ruling::new(default.verdict, format!("{}: {}", parts.join("; "), default.why)).todo(default.todo);
    rows.push(key, Some(list(a)), Some(list(b)), ruling);
}

/// Reports steps that only one side has for this part although both have the same steps overall, and parts without a
/// common step.
fn steps(rows: &mut Rows<'_>, context: &Context<'_>, part: Part) {
    let of = |pack: &Pack| -> BTreeSet<u64> {
        let steps = pack.ranks.values().flat_map(|parts| match part {
            Part::Dataset => {
                parts.dataset.iter().flat_map(|part| &part.steps).map(|batch| batch.step).collect()
            }
            _ => parts.weights.iter().flat_map(|part| &part.steps).map(|step| step.step).collect::<Vec<_>>(),
        });
        steps.collect()
    };
    let (a, b) = (of(context.baseline), of(context.candidate));
    if !context.baseline.has(part) || !context.candidate.has(part) || a == b {
        return;
    }
    set(rows, &format!("steps of {part}"), &a, &b);
}

fn notes(rows: &mut Rows<'_>, is_baseline: bool, pack: &Pack) {
    let side = |text: &str| {
        let text = Some(text.to_owned());
        if is_baseline { (text, None) } else { (None, text) }
    };
    for (part, member) in &pack.altered {
        let (a, b) = side(member);
        let ruling = Ruling::new(
            Verdict::Unknown,
            format!(
                "the content of '{member}' ({part}) does not match the manifest: it was changed after packing"
            ),
        );
        rows.push("checksum", a, b, ruling.todo("write or copy the pack again"));
    }
    for note in &pack.notes {
        let (a, b) = side(note);
        rows.push("pack", a, b, Ruling::new(Verdict::Note, &**note));
    }
}
