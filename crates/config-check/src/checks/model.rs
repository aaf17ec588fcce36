//! Structure of the model: modules, and the shapes of their tensors.

use std::collections::{HashMap, HashSet};

use super::modules;
use super::rows::Rows;
use crate::expectations::Ruling;
use crate::pack::{Declared, Model};
use crate::part::Verdict;
use crate::value;

/// Compares two models.
pub(super) fn check(rows: &mut Rows<'_>, a: &Model, b: &Model) {
    modules::check(rows, &a.modules, &b.modules);
    tensors(rows, &a.tensors, &b.tensors);
    tied(rows, a, b);
    match (&a.compiled, &b.compiled) {
        (None, None) => {}
        (x, y) => {
            let mode = |side: &Option<String>| side.clone().unwrap_or_else(|| "eager".into());
            let (x, y) = (mode(x), mode(y));
            // The rule that pairs the compilers of GPU and NPU belongs to the switch of that name.
            let subject = crate::expectations::Subject {
                part: crate::Part::Flags,
                key: "compiler",
                baseline: Some(&x),
                candidate: Some(&y),
            };
            match rows.expectations().ruling(rows.pair(), subject) {
                Some(ruling) if x != y => rows.push("compiled", Some(x.clone()), Some(y.clone()), ruling),
                _ => rows.text("compiled", &x, &y),
            }
        }
    }
}

fn tensors(rows: &mut Rows<'_>, a: &[Declared], b: &[Declared]) {
    let names = |side: &[Declared]| -> Vec<String> {
        side.iter().map(|tensor| rows.common_name(&tensor.name)).collect()
    };
    let (names_a, names_b) = (names(a), names(b));
    let index: HashMap<&str, &Declared> = names_b.iter().map(|name| &**name).zip(b).collect();
    let known: HashSet<&str> = names_a.iter().map(|name| &**name).collect();
    let mut equal = 0_usize;
    for (name, tensor) in names_a.iter().zip(a) {
        let Some(other) = index.get(&**name) else {
            rows.one_sided(name, Some(declared(tensor)), None);
            continue;
        };
        let (x, y) = (declared(tensor), declared(other));
        if x == y {
            equal += 1;
            continue;
        }
        let default = rows.default_ruling(true);
        let what = if tensor.shape != other.shape {
            "different shapes"
        } else if value::dtype(&tensor.dtype) != value::dtype(&other.dtype) {
            "different element types: one side computes in a different precision"
        } else if tensor.requires_grad != other.requires_grad {
            "one side trains it, the other does not"
        } else {
            "a parameter on one side, a buffer on the other"
        };
        rows.push(name, Some(x), Some(y), Ruling { why: format!("{what}: {}", default.why), ..default });
    }
    for (name, tensor) in names_b.iter().zip(b).filter(|(name, _)| !known.contains(&***name)) {
        rows.one_sided(name, None, Some(declared(tensor)));
    }
    if equal > 0 {
        let count = |side: &[Declared]| format!("{} tensors", side.len());
        rows.equal(
            "parameters and buffers",
            &count(a),
            &count(b),
            &format!("{equal} are the same in name, type and shape"),
        );
    }
}

fn declared(tensor: &Declared) -> String {
    let frozen = if tensor.requires_grad || tensor.kind != crate::pack::TensorKind::Parameter {
        ""
    } else {
        ", frozen"
    };
    format!("{} {} {:?}{frozen}", tensor.kind.name(), value::dtype(&tensor.dtype), tensor.shape)
}

fn tied(rows: &mut Rows<'_>, a: &Model, b: &Model) {
    let groups = |side: &Model| {
        let mut groups: Vec<String> = side
            .tied
            .iter()
            .map(|group| {
                let mut names: Vec<String> = group.iter().map(|name| rows.common_name(name)).collect();
                names.sort_unstable();
                names.join(" = ")
            })
            .collect();
        groups.sort_unstable();
        groups.join("; ")
    };
    let (x, y) = (groups(a), groups(b));
    if x.is_empty() && y.is_empty() {
        return;
    }
    if x == y {
        rows.equal("tied weights", &x, &y, "");
        return;
    }
    let shown = |text: String| Some(if text.is_empty() { "none".to_owned() } else { text });
    let ruling =
        Ruling::new(Verdict::Diff, "tied weights share one gradient; untied, they become different weights")
            .todo("tie the same weights on both sides");
    rows.push("tied weights", shown(x), shown(y), ruling);
}
