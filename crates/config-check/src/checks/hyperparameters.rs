//! Training arguments, from any source.
//!
//! Full names are compared first, then names that the table declares aliases. A shared last name alone never pairs two
//! arguments: `lr` and `data.lr` are different.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::rows::Rows;
use super::settings;
use crate::expectations::{Expectations, Ruling, SaysDtype};
use crate::pack::{Hyperparameters, Setting};
use crate::part::Verdict;
use crate::value;
use crate::value::Meaning;

/// A training argument.
#[derive(Debug)]
struct Item<'a> {
    source: &'a str,
    /// Full name with `-` replaced by `_`.
    path: String,
    value: &'a Setting,
}

impl Item<'_> {
    fn leaf(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    fn parent(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(parent, _)| parent)
    }
}

/// Compares the arguments of two ranks.
pub(super) fn check(rows: &mut Rows<'_>, a: &Hyperparameters, b: &Hyperparameters) {
    let (a, b) = (items(a), items(b));
    if a.is_empty() && b.is_empty() {
        let why = "neither program holds its arguments in a known form (argparse, TrainingArguments and so on), so none were \
                   compared";
        let todo = "pass them to probe.config_check.pack as extra or files if settings may differ";
        rows.push("arguments", None, None, Ruling::new(Verdict::Note, why).todo(todo));
    }
    dtype(rows, &a, &b);
    let says_dtype = |item: &&Item<'_>| {
        item.value.text().is_none()
            && matches!(rows.expectations().says_dtype(item.leaf()), Some(SaysDtype::Switch(_)))
    };
    let a: Vec<&Item<'_>> = a.iter().filter(|item| !says_dtype(item)).collect();
    let b: Vec<&Item<'_>> = b.iter().filter(|item| !says_dtype(item)).collect();
    let several = |side: &[&Item<'_>]| side.iter().map(|item| item.source).collect::<BTreeSet<_>>().len() > 1;
    let several = several(&a) || several(&b);
    let pairs = pair_up(rows.expectations(), &a, &b);
    let mut paired_b = vec![false; b.len()];
    for (item, partner) in a.iter().zip(&pairs) {
        let key = |item: &Item<'_>| {
            if several { format!("{}:{}", item.source, item.path) } else { item.path.clone() }
        };
        match partner.and_then(|place| Some((place, b.get(place)?))) {
            Some((place, other)) => {
                paired_b.get_mut(place).into_iter().for_each(|paired| *paired = true);
                let key = if item.path == other.path {
                    key(item)
                } else {
                    format!("{} / {}", item.path, other.path)
                };
                let meaning = match rows.expectations().says_dtype(item.leaf()) {
                    Some(SaysDtype::Value) => Meaning::Dtype,
                    _ => Meaning::Any,
                };
                settings::value_row(rows, &key, Some(item.value), Some(other.value), meaning);
            }
            None => alone(rows, &key(item), item, &b, true),
        }
    }
    for (item, _) in b.iter().zip(&paired_b).filter(|(_, paired)| !**paired) {
        let key = if several { format!("{}:{}", item.source, item.path) } else { item.path.clone() };
        alone(rows, &key, item, &a, false);
    }
}

fn items(side: &Hyperparameters) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    for source in &side.sources {
        for (key, value) in source.values.leaves() {
            let path = key.trim_start_matches('-').replace('-', "_");
            items.push(Item { source: &source.source, path, value });
        }
    }
    items
}

/// Criteria for pairing two arguments, closest first; each is tried on the arguments still
/// unpaired.
#[derive(Debug, Clone, Copy)]
enum Closeness {
    /// Same full name in the same kind of source.
    SameSource,
    /// Same full name in any source.
    SameName,
    /// Alias from the table, at the same place in the same kind of source.
    AliasInSource,
    /// Alias from the table, at the same place in any source.
    Alias,
}

impl Closeness {
    fn fits(self, expectations: &Expectations, x: &Item<'_>, y: &Item<'_>) -> bool {
        let alias =
            || x.parent() == y.parent() && expectations.aliases(x.leaf()).iter().any(|name| name == y.leaf());
        match self {
            Self::SameSource => x.source == y.source && x.path == y.path,
            Self::SameName => x.path == y.path,
            Self::AliasInSource => x.source == y.source && alias(),
            Self::Alias => alias(),
        }
    }
}

/// Returns the partner of each item of `a`, as an index into `b`.
fn pair_up(expectations: &Expectations, a: &[&Item<'_>], b: &[&Item<'_>]) -> Vec<Option<usize>> {
    let mut by_path: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, item) in b.iter().enumerate() {
        by_path.entry(&item.path).or_default().push(place);
    }
    let everywhere: Vec<usize> = (0..b.len()).collect();
    let mut pairs: Vec<Option<usize>> = vec![None; a.len()];
    let mut taken: HashSet<usize> = HashSet::new();
    for closeness in [Closeness::SameSource, Closeness::SameName, Closeness::AliasInSource, Closeness::Alias]
    {
        for (item, pair) in a.iter().zip(&mut pairs).filter(|(_, pair)| pair.is_none()) {
            let places: &[usize] = match closeness {
                Closeness::SameSource | Closeness::SameName => {
                    by_path.get(&*item.path).map_or(&[], |places| places)
                }
                _ if expectations.aliases(item.leaf()).is_empty() => &[],
                _ => &everywhere,
            };
            let fits = |place: &&usize| {
                let other = b.get(**place).filter(|_| !taken.contains(*place));
                other.is_some_and(|other| closeness.fits(expectations, item, other))
            };
            *pair = places.iter().find(fits).copied();
            taken.extend(*pair);
        }
    }
    pairs
}

/// Adds a row for an argument that one side lacks.
fn alone(rows: &mut Rows<'_>, key: &str, item: &Item<'_>, others: &[&Item<'_>], is_baseline: bool) {
    let value = Some(item.value.to_string());
    let (a, b) = if is_baseline { (value, None) } else { (None, value) };
    let mut ruling = rows.ruling_of_difference(key, a.as_deref(), b.as_deref());
    if ruling.verdict == Verdict::Unknown {
        ruling.why = "set on one side only; the other side's default was not recorded".into();
        ruling.todo = "pass it on both sides, or make sure it is the default".into();
        let namesake = others.iter().find(|other| other.leaf() == item.leaf());
        if let Some(other) = namesake {
            let why = format!("; the other side has {}, a different argument by its full name", other.path);
            ruling.why.push_str(&why);
        }
    }
    rows.push(key, a, b, ruling);
}

/// Compares the dtypes in which both sides claim to compute.
fn dtype(rows: &mut Rows<'_>, a: &[Item<'_>], b: &[Item<'_>]) {
    let said = |side: &[Item<'_>]| -> BTreeSet<String> {
        side.iter()
            .filter_map(|item| match rows.expectations().says_dtype(item.leaf())? {
                SaysDtype::Switch(gives) => value::switch(item.value)?.then(|| gives.to_owned()),
                SaysDtype::Value => {
                    let dtype = value::dtype(item.value.text()?);
                    dtype.contains("float").then_some(dtype)
                }
            })
            .collect()
    };
    let (x, y) = (said(a), said(b));
    if x.is_empty() && y.is_empty() {
        return;
    }
    let float32 = || BTreeSet::from(["float32".to_owned()]);
    let effective = |side: &BTreeSet<String>| if side.is_empty() { float32() } else { side.clone() };
    let shown = |side: &BTreeSet<String>| {
        Some(if side.is_empty() {
            "not set, which means float32".to_owned()
        } else {
            side.iter().cloned().collect::<Vec<_>>().join(", ")
        })
    };
    let ruling = if effective(&x) == effective(&y) {
        Ruling::new(Verdict::Match, "")
    } else {
        Ruling::new(
            Verdict::Diff,
            "the two sides compute in different element types: the largest difference there is",
        )
        .todo("use the same element type on both sides")
    };
    rows.push("compute dtype", shown(&x), shown(&y), ruling);
}
