//! Error levels of families of calls, learned from this pair of runs: the calls' own errors, where their
//! inputs agree.
//!
//! A device rounds alike wherever it runs the same function, so a function's calls show the error that any one
//! of them may have. A call is compared with the others only, and calls that show the same value (a module and
//! the function inside it) count as one. All products form one family: a device has one unit for them.

use std::collections::HashMap;

use super::median::median;
use super::ops::Kind;
use super::products::{self, Products};
use super::value::{ExpectedError, Family, LEAST_CALLS, MANY, ValueKind};
use probe_dump::{DType, Phase};

/// A call shows its own error if the inputs explain at most this fraction of it.
pub(super) const SHARE: f64 = 0.5;

/// The explained error must also be below this multiple of the least error.
const CLEAN: f64 = 16.0;

/// Calls of a family that are remembered for the next step.
const REMEMBERED: usize = 64;

/// Lower limit of own errors: log2 of 1e-12.
const LEAST_LOG: f64 = -39.863_137_138_648_355;

/// Key shared by all products of one precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ProductKey(u64);

/// Levels learned in an earlier step of the same rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Learned {
    families: HashMap<Family, Vec<f64>>,
    products: HashMap<ProductKey, Vec<f64>>,
}

/// Own errors of a family's calls, as logarithms, in order.
#[derive(Debug, Default)]
struct Calls {
    calls: Vec<(usize, f64)>,
    /// Median of all, once complete.
    middle: Option<f64>,
}

impl Calls {
    /// Returns the level of all calls except `value`'s. Statistics miss the consequences of a fault, so with
    /// them only earlier calls count.
    fn level(&self, value: &ExpectedError) -> Option<f64> {
        let calls = &self.calls;
        let mine = value.call;
        if value.statistics_only {
            let earlier = &calls[..calls.partition_point(|(call, _)| *call < mine)];
            return settled(earlier.iter().rev().take(MANY).map(|(_, level)| *level).collect());
        }
        if let Some(middle) = self.middle {
            return Some(middle.exp2());
        }
        settled(calls.iter().filter(|(call, _)| *call != mine).map(|(_, level)| *level).collect())
    }

    /// Precomputes the median if there are so many calls that leaving one out changes nothing.
    fn finish(&mut self) {
        self.calls.sort_by_key(|(call, _)| *call);
        if self.calls.len() > MANY {
            let mut levels: Vec<f64> = self.calls.iter().map(|(_, level)| *level).collect();
            self.middle = Some(median(&mut levels));
        }
    }
}

/// Returns the median of the levels, if there are enough.
fn settled(mut levels: Vec<f64>) -> Option<f64> {
    (levels.len() >= LEAST_CALLS).then(|| median(&mut levels).exp2())
}

/// Levels of all families of a part.
pub(super) struct Families<'a> {
    own: HashMap<&'a Family, Calls>,
    products: HashMap<ProductKey, Calls>,
    forward: Products,
    learned: &'a Learned,
}

/// Returns the floor of a part's products if statistics show that all of them are coarse; 0 otherwise.
pub(super) fn coarse_statistics(values: &[ExpectedError]) -> f64 {
    let binary32 =
        |value: &&ExpectedError| value.family.dtype == DType::F32 && value.family.phase == Phase::Forward;
    products::coarse_statistics(values.iter().filter(|value| value.is_product()).filter(binary32))
}

fn key(value: &ExpectedError) -> ProductKey {
    ProductKey(value.precision.unit.to_bits())
}

/// Returns true if a call's error is mostly its own.
pub(super) fn shows_own(value: &ExpectedError) -> bool {
    value.elements > 1.0
        && (value.clean || (value.explained < SHARE * value.error && value.explained < CLEAN * value.least))
}

fn own(value: &ExpectedError) -> f64 {
    let squared = value.error * value.error - value.explained * value.explained;
    squared.max(0.0).sqrt().log2().max(LEAST_LOG)
}

impl<'a> Families<'a> {
    pub(super) fn of(values: &'a [ExpectedError], learned: &'a Learned) -> Self {
        let mut families =
            Self { own: HashMap::new(), products: HashMap::new(), forward: Products::default(), learned };
        for value in values {
            if matches!(value.family.role, ValueKind::Update | ValueKind::UpdateSize)
                || !value.error.is_finite()
            {
                continue;
            }
            if value.is_product() && value.elements > 1.0 {
                let binary32 = value.family.dtype == DType::F32;
                if binary32 && value.kind != Kind::Attention && value.family.phase == Phase::Forward {
                    families.forward.add(value, own(value).exp2() / value.share, shows_own(value));
                }
            }
            if shows_own(value) {
                families.own.entry(&value.family).or_default().calls.push((value.call, own(value)));
                if value.is_product() {
                    families.products.entry(key(value)).or_default().calls.push((value.call, own(value)));
                }
            }
        }
        families.own.values_mut().chain(families.products.values_mut()).for_each(Calls::finish);
        families.forward.finish();
        families
    }

    /// Returns the level of the other calls of a value's family; `None` if there are too few. Statistics miss
    /// the consequences of a fault, so with them only earlier calls count.
    pub(super) fn level(&self, value: &ExpectedError) -> Option<f64> {
        if value.is_product() {
            let key = key(value);
            let level = self.products.get(&key).and_then(|calls| calls.level(value));
            let learned = || self.learned.products.get(&key).and_then(|levels| settled(levels.clone()));
            let level = level.or_else(learned);
            // A few products may hide from statistics what those around them show.
            let around = level.is_none() || value.statistics_only;
            let coarse = if around { self.coarse_level(value) } else { None };
            if let Some(level) = level.into_iter().chain(coarse).reduce(f64::max) {
                return Some(level);
            }
        }
        let own = self.own.get(&*value.family).and_then(|calls| calls.level(value));
        // Unrecorded work inside a module may be products.
        let composite = || value.is_composite().then(|| self.coarse_level(value)).flatten();
        own.or_else(composite)
            .or_else(|| self.learned.families.get(&value.family).and_then(|levels| settled(levels.clone())))
    }

    fn coarse_level(&self, value: &ExpectedError) -> Option<f64> {
        self.forward.coarse_level(value, own(value).exp2() / value.share)
    }

    /// Returns the level of unrecorded products: zero if recorded ones show that this run computes them in
    /// full precision.
    pub(super) fn level_of_unrecorded(&self, value: &ExpectedError) -> f64 {
        self.forward.level_of_unrecorded(value)
    }

    /// Returns the levels that the next step of this rank may use.
    pub(super) fn learned(&self) -> Learned {
        let keep = |calls: &Calls, before: Option<&Vec<f64>>| {
            let own = calls.calls.iter().map(|(_, level)| *level);
            own.chain(before.into_iter().flatten().copied()).take(REMEMBERED).collect::<Vec<f64>>()
        };
        let mut learned = self.learned.clone();
        for (family, calls) in &self.own {
            let kept = keep(calls, self.learned.families.get(*family));
            learned.families.insert((*family).clone(), kept);
        }
        for (key, calls) in &self.products {
            learned.products.insert(*key, keep(calls, self.learned.products.get(key)));
        }
        learned
    }
}
