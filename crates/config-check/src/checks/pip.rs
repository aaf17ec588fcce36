//! Python packages.

use std::collections::BTreeMap;

use super::rows::Rows;
use crate::expectations::{PackageGrade, Ruling};
use crate::pack::{Package, Pip};
use crate::part::Verdict;
use crate::pip_name::{minor, normalised, public};

/// Compares the packages of two ranks.
pub(super) fn check(rows: &mut Rows<'_>, a: &Pip, b: &Pip) {
    let (a, b) = (by_name(a), by_name(b));
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for name in names {
        match (a.get(name), b.get(name)) {
            (Some(a), Some(b)) => both(rows, name, a, b),
            (Some(x), None) if is_other_framework(name, &a, &b) => {
                rows.push(name, Some(shown(x)), None, other_framework());
            }
            (None, Some(y)) if is_other_framework(name, &b, &a) => {
                rows.push(name, None, Some(shown(y)), other_framework());
            }
            (Some(a), None) => one(rows, name, Some(shown(a)), None),
            (None, Some(b)) => one(rows, name, None, Some(shown(b))),
            (None, None) => {}
        }
    }
    shadowed(rows, &a, &b);
    for (is_baseline, side) in [(true, &a), (false, &b)] {
        torch_npu(rows, is_baseline, side);
    }
}

/// Returns true if a package belongs to the framework of its side alone, and the other side has the other framework.
fn is_other_framework(
    name: &str,
    own: &BTreeMap<String, &Package>,
    other: &BTreeMap<String, &Package>,
) -> bool {
    let alone = |framework: &str, side: &BTreeMap<String, &Package>, lacking: &BTreeMap<String, &Package>| {
        side.contains_key(framework) && !lacking.contains_key(framework)
    };
    match name {
        "mindspore" => alone("mindspore", own, other) && other.contains_key("torch"),
        "torch" | "torch-npu" => alone("mindspore", other, own) && own.contains_key("torch"),
        _ => false,
    }
}

fn other_framework() -> Ruling {
    Ruling::new(Verdict::Expected, "one side runs PyTorch, the other MindSpore")
}

/// Returns packages by normalised name; of several copies the first is the one imported.
fn by_name(pip: &Pip) -> BTreeMap<String, &Package> {
    let mut packages = BTreeMap::new();
    for package in &pip.packages {
        packages.entry(normalised(&package.name)).or_insert(package);
    }
    packages
}

/// Returns the version that runs: that of the imported module, if known.
fn version(package: &Package) -> &str {
    package.imported.as_deref().unwrap_or(&package.version)
}

fn shown(package: &Package) -> String {
    let commit = package.commit.as_deref().map_or_else(String::new, |commit| format!(" ({commit})"));
    format!("{}{commit}", version(package))
}

fn both(rows: &mut Rows<'_>, name: &str, a: &Package, b: &Package) {
    let (shown_a, shown_b) = (shown(a), shown(b));
    if shown_a == shown_b {
        rows.equal(name, &shown_a, &shown_b, "");
        return;
    }
    let key = Some(name).filter(|_| public(version(a)) == public(version(b)));
    let commits_differ = matches!((&a.commit, &b.commit), (Some(a), Some(b)) if a != b);
    if key.is_some() && !commits_differ {
        let ruling = if version(a) == version(b) {
            Ruling::new(Verdict::Note, "the commit is recorded on one side only")
        } else {
            Ruling::new(
                Verdict::Expected,
                "only the local part of the version differs: built for a different device",
            )
        };
        rows.push(name, Some(shown_a), Some(shown_b), ruling);
        return;
    }
    let ruling = rows
        .rule(name, Some(&shown_a), Some(&shown_b))
        .or_else(|| rows.expectations().grade(name).map(PackageGrade::differs))
        .unwrap_or_else(|| rows.default_ruling(true));
    rows.push(name, Some(shown_a), Some(shown_b), ruling);
}

fn one(rows: &mut Rows<'_>, name: &str, a: Option<String>, b: Option<String>) {
    let pair = rows.pair();
    let ruling = rows
        .rule(name, a.as_deref(), b.as_deref())
        .or_else(|| rows.expectations().grade(name).map(|grade| grade.one_sided(pair, name)))
        .unwrap_or_else(|| rows.default_ruling(false));
    rows.push(name, a, b, ruling);
}

/// Compares copies that are never imported because another precedes them on the import path.
fn shadowed(rows: &mut Rows<'_>, a: &BTreeMap<String, &Package>, b: &BTreeMap<String, &Package>) {
    let copies = |side: &BTreeMap<String, &Package>, name: &String| {
        let package = side.get(name).filter(|package| !package.shadowed.is_empty())?;
        Some(format!("{} before {}", version(package), package.shadowed.join(", ")))
    };
    for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
        let (a, b) = (copies(a, name), copies(b, name));
        if a.is_none() && b.is_none() {
            continue;
        }
        let key = format!("{name} (copies)");
        let ruling = Ruling::new(
            Verdict::Note,
            "several copies are on the import path; the first one is imported, and that one was compared",
        );
        rows.push(&key, a, b, ruling.todo("remove the unintended copy"));
    }
}

/// Checks that `torch_npu` fits torch: it is built for one minor version.
fn torch_npu(rows: &mut Rows<'_>, is_baseline: bool, packages: &BTreeMap<String, &Package>) {
    let (Some(npu), Some(torch)) = (packages.get("torch-npu"), packages.get("torch")) else { return };
    let text = format!("torch {}, torch-npu {}", version(torch), version(npu));
    let ruling = if minor(version(npu)) == minor(version(torch)) {
        Ruling::new(Verdict::Match, "torch-npu belongs to this version of torch")
    } else {
        Ruling::new(
            Verdict::Diff,
            "torch-npu was built for a different version of torch: kernels may be missing or wrong",
        )
        .todo("install the torch-npu whose first two version numbers match torch")
    };
    let (a, b) = if is_baseline { (Some(text), None) } else { (None, Some(text)) };
    rows.push("torch-npu for torch", a, b, ruling);
}
