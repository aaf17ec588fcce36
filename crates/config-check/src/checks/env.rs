//! Environment variables.

use std::collections::BTreeSet;

use super::rows::Rows;
use super::settings;
use crate::expectations::Ruling;
use crate::pack::{Env, Setting};
use crate::part::Verdict;

/// Compares the variables of two ranks.
pub(super) fn check(rows: &mut Rows<'_>, a: &Env, b: &Env) {
    let values = |env: &Env| -> Vec<(String, Setting)> {
        env.values.iter().map(|(name, value)| (name.clone(), Setting::Text(value.clone()))).collect()
    };
    settings::compare(rows, values(a), values(b));
    others(rows, a, b);
}

/// Compares variables whose values are not shown.
fn others(rows: &mut Rows<'_>, a: &Env, b: &Env) {
    let names = |env: &Env| -> BTreeSet<String> {
        let listed = env.names.iter().filter(|name| !env.values.contains_key(*name));
        env.hidden.keys().chain(listed).cloned().collect()
    };
    let (in_a, in_b) = (names(a), names(b));
    let set = || Some("set".to_owned());
    let (mut equal, mut unseen) = (0_usize, 0_usize);
    for name in in_a.union(&in_b) {
        let hidden = || Some("value not shown".to_owned());
        match (a.hidden.get(name), b.hidden.get(name)) {
            (Some(x), Some(y)) if x == y => equal += 1,
            (Some(_), Some(_)) => {
                let ruling = rows.ruling_of_difference(name, Some(""), Some(""));
                rows.push(name, hidden(), hidden(), ruling);
            }
            _ if in_a.contains(name) && in_b.contains(name) => unseen += 1,
            _ => {
                // One side has the value, the other only the name: the packs' allow lists differ.
                let known = |env: &Env| env.values.contains_key(name).then(set).flatten();
                let (x, y) = (
                    if in_a.contains(name) { set() } else { known(a) },
                    if in_b.contains(name) { set() } else { known(b) },
                );
                let ruling = rows.ruling_of_difference(name, x.as_deref(), y.as_deref());
                rows.push(name, x, y, ruling);
            }
        }
    }
    if equal > 0 {
        let count = format!("{equal} variables");
        rows.equal("other variables", &count, &count, "the same values on both sides; they are not shown");
    }
    if unseen > 0 {
        let count = || Some(format!("{unseen} variables"));
        let why = "set on both sides; their values are never recorded, so they were not compared";
        rows.push("unrecorded variables", count(), count(), Ruling::new(Verdict::Note, why));
    }
}
