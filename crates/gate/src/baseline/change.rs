//! Differences between two baselines, and their size.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Baseline, BoundaryValue};
use probe_dump::Exact;

/// Maximum number of changes that an update records in the file; nobody reads more.
const KEPT: usize = 50;

/// One scalar or value that has moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// The name of a scalar, or of an op and its slot.
    pub name: String,
    /// Where it moved most: `step 3`, `step 0 rank 1`; and in how many places it moved.
    pub place: String,
    /// The old value there, or its norm; absent if there was none.
    pub old: Option<Exact>,
    /// The new value there, or its norm; absent if there is none.
    pub new: Option<Exact>,
}

/// All differences.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    /// Scalars and values that moved, one entry each, with their relative change, largest first.
    pub moved: Vec<(f64, Moved)>,
    /// Points and values that are equal.
    pub equal: usize,
    /// Points and values that differ or exist on one side only.
    pub different: usize,
    /// Settings of the environment that differ: name, old, new.
    pub environment: Vec<(String, Option<String>, Option<String>)>,
}

impl Comparison {
    /// Compares `new` with `old`.
    pub fn of(old: &Baseline, new: &Baseline) -> Self {
        let mut found = Self::default();
        let names: BTreeSet<&String> = old.scalars.keys().chain(new.scalars.keys()).collect();
        let none = BTreeMap::new();
        for name in names {
            let (a, b) = (old.scalars.get(name).unwrap_or(&none), new.scalars.get(name).unwrap_or(&none));
            let steps: BTreeSet<&u64> = a.keys().chain(b.keys()).collect();
            let pairs = steps
                .into_iter()
                .map(|step| (format!("step {step}"), a.get(step).copied(), b.get(step).copied(), None));
            found.add(name, pairs);
        }
        let (a, b) = (by_name(old), by_name(new));
        let names: BTreeSet<&str> = a.keys().chain(b.keys()).copied().collect();
        let none = BTreeMap::new();
        for name in names {
            let (a, b) = (a.get(name).unwrap_or(&none), b.get(name).unwrap_or(&none));
            let places: BTreeSet<&(u64, u32)> = a.keys().chain(b.keys()).collect();
            let pairs = places.into_iter().map(|place| {
                let (x, y) = (a.get(place).copied(), b.get(place).copied());
                let norm = |value: Option<&BoundaryValue>| value.and_then(|value| value.norm);
                let same = x.zip(y).map(|(x, y)| same(x, y));
                (format!("step {} rank {}", place.0, place.1), norm(x), norm(y), same)
            });
            found.add(name, pairs);
        }
        found.moved.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.name.cmp(&y.name)));
        let names: BTreeSet<&String> = old.environment.keys().chain(new.environment.keys()).collect();
        for name in names {
            let (a, b) = (old.environment.get(name), new.environment.get(name));
            if a != b {
                found.environment.push((name.clone(), a.cloned(), b.cloned()));
            }
        }
        found
    }

    /// Adds the places of one name; `same`, if known, overrides the numbers.
    fn add(
        &mut self,
        name: &str,
        places: impl Iterator<Item = (String, Option<f64>, Option<f64>, Option<bool>)>,
    ) {
        let mut largest: Option<(f64, String, Option<f64>, Option<f64>)> = None;
        let mut count = 0;
        for (place, old, new, same) in places {
            let equal = same.unwrap_or_else(|| old.map(f64::to_bits) == new.map(f64::to_bits));
            if equal {
                self.equal += 1;
                continue;
            }
            count += 1;
            let change = relative(old, new);
            if largest.as_ref().is_none_or(|(most, ..)| change > *most) {
                largest = Some((change, place, old, new));
            }
        }
        self.different += count;
        if let Some((change, place, old, new)) = largest {
            let place = if count > 1 { format!("{place}, and {} more", count - 1) } else { place };
            let moved = Moved { name: name.to_owned(), place, old: old.map(Exact), new: new.map(Exact) };
            self.moved.push((change, moved));
        }
    }

    /// Returns the changes that an update records.
    pub fn recorded(&self) -> Vec<Moved> {
        self.moved.iter().take(KEPT).map(|(_, moved)| moved.clone()).collect()
    }
}

/// Returns the change relative to the old value; infinite if the value is new, gone or not finite.
fn relative(old: Option<f64>, new: Option<f64>) -> f64 {
    match old.zip(new) {
        Some((old, new)) if old.is_finite() && new.is_finite() => {
            let difference = (new - old).abs();
            if difference > 0.0 { difference / old.abs() } else { 0.0 }
        }
        _ => f64::INFINITY,
    }
}

/// Returns true if two values are the same: by hash if both have one, else by everything that was recorded.
fn same(a: &BoundaryValue, b: &BoundaryValue) -> bool {
    if a.dtype != b.dtype || a.shape != b.shape {
        return false;
    }
    if let (Some(x), Some(y)) = (&a.hash, &b.hash) {
        return x == y;
    }
    let bits =
        |value: &BoundaryValue| [value.max, value.min, value.mean, value.norm].map(|v| v.map(f64::to_bits));
    bits(a) == bits(b) && a.nonfinite == b.nonfinite
}

/// Returns values by name, then by step and rank.
fn by_name(baseline: &Baseline) -> BTreeMap<&str, BTreeMap<(u64, u32), &BoundaryValue>> {
    let mut found: BTreeMap<&str, BTreeMap<(u64, u32), &BoundaryValue>> = BTreeMap::new();
    for part in &baseline.parts {
        for value in &part.values {
            found.entry(&value.name).or_default().insert((part.step, part.rank), value);
        }
    }
    found
}
