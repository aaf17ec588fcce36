//! Optimizer, clipping, accumulation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::rows::Rows;
use super::settings;
use crate::expectations::Ruling;
use crate::pack::{Accumulated, Clip, Group, Optimizer};
use crate::part::Verdict;
use crate::value::Meaning;

/// Largest number of names shown from a list.
const SHOWN: usize = 5;

/// Compares two optimizers.
pub(super) fn check(rows: &mut Rows<'_>, a: &Optimizer, b: &Optimizer) {
    class(rows, &a.class, &b.class);
    if a.groups.len() != b.groups.len() {
        let count = |side: &Optimizer| format!("{} groups", side.groups.len());
        rows.differ("groups", count(a), count(b));
    }
    for (number, (a, b)) in a.groups.iter().zip(&b.groups).enumerate() {
        options(rows, number, a, b);
        parameters(rows, number, a, b);
    }
    outside(rows, a.outside, b.outside);
    let kinds: BTreeSet<&String> = a.state_dtypes.keys().chain(b.state_dtypes.keys()).collect();
    for kind in kinds {
        let key = format!("state {kind}");
        rows.fact(&key, a.state_dtypes.get(kind).map(|x| &**x), b.state_dtypes.get(kind).map(|x| &**x));
    }
    let common = common_steps(a, b);
    clipping(rows, a.clipping.as_deref(), b.clipping.as_deref(), common.as_ref());
    accumulation(rows, a.accumulation.as_deref(), b.accumulation.as_deref(), common.as_ref());
}

/// Returns the forward calls that both sides watched, if known.
fn common_steps(a: &Optimizer, b: &Optimizer) -> Option<BTreeSet<u64>> {
    let steps = |side: &Optimizer| -> Option<BTreeSet<u64>> {
        Some(side.accumulation.as_ref()?.iter().map(|step| step.step).collect())
    };
    Some(steps(a)?.intersection(&steps(b)?).copied().collect())
}

fn class(rows: &mut Rows<'_>, a: &str, b: &str) {
    match rows.expectations().classes(a, b) {
        Some(ruling) if a != b => rows.push("class", Some(a.into()), Some(b.into()), ruling),
        _ => rows.text("class", a, b),
    }
}

fn options(rows: &mut Rows<'_>, number: usize, a: &Group, b: &Group) {
    let (x, y) = (a.options.leaves(), b.options.leaves());
    let find = |side: &[(String, &crate::pack::Setting)], key: &str| {
        side.iter().find(|(known, _)| known == key).map(|(_, value)| (*value).clone())
    };
    let names = x.iter().chain(y.iter().filter(|(key, _)| !x.iter().any(|(known, _)| known == key)));
    for (key, _) in names {
        let row = format!("group {number}.{key}");
        settings::value_row(rows, &row, find(&x, key).as_ref(), find(&y, key).as_ref(), Meaning::Any);
    }
}

fn parameters(rows: &mut Rows<'_>, number: usize, a: &Group, b: &Group) {
    let key = format!("group {number} parameters");
    let names =
        |side: &Group| -> Vec<String> { side.parameters.iter().map(|name| rows.common_name(name)).collect() };
    let (x, y) = (names(a), names(b));
    let count = |names: &[String]| format!("{} parameters", names.len());
    if x == y {
        rows.equal(&key, &count(&x), &count(&y), "");
        return;
    }
    let only = |side: &[String], other: &[String]| {
        let other: BTreeSet<&String> = other.iter().collect();
        let only: Vec<&str> = side.iter().filter(|name| !other.contains(name)).map(|name| &**name).collect();
        let more =
            if only.len() > SHOWN { format!(" and {} more", only.len() - SHOWN) } else { String::new() };
        (!only.is_empty()).then(|| format!("{}{more}", only[..only.len().min(SHOWN)].join(", ")))
    };
    let (only_x, only_y) = (only(&x, &y), only(&y, &x));
    if only_x.is_none() && only_y.is_none() && x.len() == y.len() {
        let why = "the same parameters in a different order, which the optimizer's state follows";
        rows.push(&key, Some(count(&x)), Some(count(&y)), Ruling::new(Verdict::Note, why));
        return;
    }
    let shown = |names: &[String], only: Option<String>| {
        only.map_or_else(|| count(names), |only| format!("{}, only here: {only}", count(names)))
    };
    rows.differ(&key, shown(&x, only_x), shown(&y, only_y));
}

/// Compares the number of trained parameters that were not packed.
fn outside(rows: &mut Rows<'_>, a: Option<u64>, b: Option<u64>) {
    let shown = |count: Option<u64>| count.map(|count| format!("{count} parameters"));
    let (a, b) = (a.filter(|count| *count > 0), b.filter(|count| *count > 0));
    if a.is_some() || b.is_some() {
        let why = "optimizers also train parameters outside the packed model: their values were not compared";
        let ruling = Ruling::new(Verdict::Unknown, why)
            .todo("pass a module that has all of them to probe.config_check.pack");
        rows.push("outside of the model", shown(a), shown(b), ruling);
    }
}

/// Adds one row per step whose calls differ, or a single row if none do.
fn by_step(
    rows: &mut Rows<'_>,
    key: &str,
    a: Option<BTreeMap<u64, String>>,
    b: Option<BTreeMap<u64, String>>,
    common: Option<&BTreeSet<u64>>,
    none: &str,
) {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (None, None) => return,
        (a, b) => {
            let watched = |side: Option<BTreeMap<u64, String>>| side.map(|_| "watched".to_owned());
            rows.one_sided(key, watched(a), watched(b));
            return;
        }
    };
    let of =
        |side: &BTreeMap<u64, String>, step: u64| side.get(&step).cloned().unwrap_or_else(|| none.to_owned());
    let watched = |step: &u64| common.is_none_or(|common| common.contains(step));
    let steps: BTreeSet<u64> = a.keys().chain(b.keys()).copied().filter(watched).collect();
    let differing: Vec<u64> = steps.iter().copied().filter(|step| of(&a, *step) != of(&b, *step)).collect();
    if differing.is_empty() {
        let shown: BTreeSet<String> = steps.iter().map(|step| of(&a, *step)).collect();
        let text =
            if shown.is_empty() { none.to_owned() } else { shown.into_iter().collect::<Vec<_>>().join("; ") };
        rows.equal(key, &text, &text, "");
    }
    for step in differing {
        rows.at_step(Some(step));
        rows.differ(key, of(&a, step), of(&b, step));
    }
    rows.at_step(None);
}

fn clipping(rows: &mut Rows<'_>, a: Option<&[Clip]>, b: Option<&[Clip]>, common: Option<&BTreeSet<u64>>) {
    let index = |calls: &[Clip]| {
        let mut steps: BTreeMap<u64, String> = BTreeMap::new();
        for call in calls {
            let kind = call.norm_type.as_ref().map_or_else(String::new, |kind| {
                let kind = match kind {
                    crate::pack::Setting::Integer(number) => format!("{number}.0"),
                    other => other.to_string(),
                };
                format!(", norm {kind}")
            });
            let text = steps.entry(call.step).or_default();
            if !text.is_empty() {
                text.push_str("; ");
            }
            _ = write!(text, "{} to {}{kind}", call.function, call.limit);
        }
        steps
    };
    by_step(rows, "clipping", a.map(index), b.map(index), common, "no clipping");
}

fn accumulation(
    rows: &mut Rows<'_>,
    a: Option<&[Accumulated]>,
    b: Option<&[Accumulated]>,
    common: Option<&BTreeSet<u64>>,
) {
    let index = |steps: &[Accumulated]| -> BTreeMap<u64, String> {
        let text =
            |step: &Accumulated| format!("{} backward, {} optimizer steps", step.backward, step.optimizer);
        steps.iter().map(|step| (step.step, text(step))).collect()
    };
    by_step(rows, "accumulation", a.map(index), b.map(index), common, "no forward call");
}
