//! Modules of a model: names, classes, settings and order.

use std::collections::{HashMap, HashSet};

use super::rows::Rows;
use crate::expectations::Ruling;
use crate::pack::Module;
use crate::part::Verdict;

/// A module with the name used for comparison.
struct Named<'a> {
    name: String,
    module: &'a Module,
}

/// Compares the modules of two models.
pub(super) fn check(rows: &mut Rows<'_>, a: &[Module], b: &[Module]) {
    let (a, b) = (named(rows, a), named(rows, b));
    let index: HashMap<&str, &Module> = b.iter().map(|named| (&*named.name, named.module)).collect();
    let known: HashSet<&str> = a.iter().map(|named| &*named.name).collect();
    let mut alone_b: Vec<&Named<'_>> = b.iter().filter(|named| !known.contains(&*named.name)).collect();
    let mut equal = 0_usize;
    for named in &a {
        if let Some(other) = index.get(&*named.name) {
            equal += usize::from(pair(rows, &named.name, named.module, other));
        } else {
            alone(rows, named, &mut alone_b);
        }
    }
    for other in alone_b {
        rows.one_sided(&module_key(&other.name), None, Some(describe(other.module)));
    }
    let in_b: HashSet<&str> = index.keys().copied().collect();
    let common = |side: &'_ [Named<'_>], other: &HashSet<&str>| -> Vec<String> {
        side.iter().map(|named| named.name.clone()).filter(|name| other.contains(&**name)).collect()
    };
    let (order_a, order_b) = (common(&a, &in_b), common(&b, &known));
    if let Some((x, y)) = order_a.iter().zip(&order_b).find(|(x, y)| x != y) {
        let why = "the modules are registered in a different order, which parameters and their random initial values follow";
        let ruling = Ruling::new(Verdict::Diff, why).todo("define the modules in the same order");
        rows.push("order of modules", Some(module_key(x)), Some(module_key(y)), ruling);
    } else {
        let count = |side: &[Named<'_>]| format!("{} modules", side.len());
        let reason = format!("{equal} are the same in name, class and settings");
        rows.equal("modules", &count(&a), &count(&b), &reason);
    }
}

/// Returns the modules by bare name, without duplicates. A wrapper and the module it wraps share one bare name; the inner
/// one, which comes last, is the model's own.
fn named<'a>(rows: &Rows<'_>, modules: &'a [Module]) -> Vec<Named<'a>> {
    let mut seen = HashSet::new();
    let mut named: Vec<Named<'a>> = modules
        .iter()
        .rev()
        .map(|module| Named { name: rows.expectations().bare_name(&module.name), module })
        .filter(|named| seen.insert(named.name.clone()))
        .collect();
    named.reverse();
    named
}

/// Adds a row for a module whose name the other side lacks; renamed if an unpaired one there has the same class
/// and settings.
fn alone(rows: &mut Rows<'_>, named: &Named<'_>, others: &mut Vec<&Named<'_>>) {
    let module = named.module;
    let alike = |other: &&Named<'_>| other.module.class == module.class && other.module.extra == module.extra;
    let shown = Some(describe(module));
    match others.iter().position(alike).map(|place| others.remove(place)) {
        Some(other) => {
            let ruling = Ruling::new(Verdict::Note, "of the same class and settings under a different name");
            let key = format!("{} -> {}", named.name, other.name);
            rows.push(&key, shown, Some(describe(other.module)), ruling);
        }
        None => rows.one_sided(&module_key(&named.name), shown, None),
    }
}

fn describe(module: &Module) -> String {
    format!("{}({})", module.class, module.extra)
}

/// Adds rows for a module that both sides have; returns true if nothing differs.
fn pair(rows: &mut Rows<'_>, name: &str, a: &Module, b: &Module) -> bool {
    let key = module_key(name);
    let mut equal = true;
    if a.class != b.class {
        equal = false;
        let ruling =
            rows.expectations().classes(&a.class, &b.class).unwrap_or_else(|| rows.default_ruling(true));
        rows.push(&key, Some(describe(a)), Some(describe(b)), ruling);
    } else if a.extra != b.extra {
        equal = false;
        let default = rows.default_ruling(true);
        let ruling = Ruling { why: format!("the module has different settings: {}", default.why), ..default };
        rows.push(&key, Some(describe(a)), Some(describe(b)), ruling);
    }
    if let (Some(x), Some(y)) = (a.training, b.training)
        && x != y
    {
        equal = false;
        let word = |training: bool| Some(if training { "training" } else { "evaluation" }.to_owned());
        let ruling = Ruling::new(Verdict::Diff, "dropout and batch norm behave differently in each mode")
            .todo("call train() or eval() on both sides");
        rows.push(&format!("{key} mode"), word(x), word(y), ruling);
    }
    equal
}

/// Returns the row key of a module.
fn module_key(name: &str) -> String {
    if name.is_empty() { "(model)".into() } else { name.into() }
}
