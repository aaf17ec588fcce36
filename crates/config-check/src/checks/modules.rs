//! Modules of a model: names, classes, settings and order.

use std::collections::{HashMap, HashSet};

use super::rows::Rows;
use crate::expectations::Ruling;
use crate::pack::Module;
use crate::part::Verdict;

/// Settings of modules that mean the same in both frameworks, by MindSpore's name and PyTorch's. MindSpore keeps the
/// momentum of batch norm as PyTorch does.
const NAMED: [(&str, &str); 8] = [
    ("epsilon", "eps"),
    ("eps", "eps"),
    ("momentum", "momentum"),
    ("kernel_size", "kernel_size"),
    ("stride", "stride"),
    ("dilation", "dilation"),
    ("num_layers", "num_layers"),
    ("bidirectional", "bidirectional"),
];

/// Relative difference of one number that two frameworks computed from a decimal text.
const SAME_NUMBER: f64 = 1e-6;

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

/// Returns the settings of `NAMED` in the text `eps=1e-05, stride=(1, 1)`, by PyTorch's name.
fn named_settings(extra: &str) -> HashMap<&'static str, &str> {
    let of = |(own, torch): (&str, &'static str)| {
        let at = extra.match_indices(own).map(|(at, _)| at).find(|at| {
            extra[..*at].chars().next_back().is_none_or(|before| before == ' ' || before == ',')
                && extra[at + own.len()..].starts_with('=')
        })?;
        let value = &extra[at + own.len() + 1..];
        let end = if value.starts_with('(') { value.find(')').map(|end| end + 1) } else { value.find(',') };
        Some((torch, value[..end.unwrap_or(value.len())].trim()))
    };
    NAMED.into_iter().filter_map(of).collect()
}

/// Returns true if a setting that both frameworks name has two values.
fn named_settings_differ(a: &str, b: &str) -> bool {
    let (a, b) = (named_settings(a), named_settings(b));
    a.iter().any(|(name, x)| {
        b.get(name).is_some_and(|y| match (x.parse::<f64>(), y.parse::<f64>()) {
            (Ok(x), Ok(y)) => (x - y).abs() > SAME_NUMBER * x.abs().max(y.abs()),
            _ => x != y,
        })
    })
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
    }
    let settings_differ = if rows.pair().across_frameworks {
        named_settings_differ(&a.extra, &b.extra)
    } else {
        a.class == b.class && a.extra != b.extra
    };
    if settings_differ {
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
