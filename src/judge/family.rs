//! What calls of one kind leave in this very pair of runs: their own error, where what led to them agrees.
//!
//! A device rounds alike wherever it runs the same function, so the calls of a function tell what one of them may be off
//! by. A call is held against the others alone, and calls that show the same value (a module and the function inside it)
//! count as one. All products are one family: a device has one unit for them.

use std::collections::HashMap;

use super::ops::Kind;
use super::precision::{PRODUCT_PRECISIONS, ProductPrecision};
use super::weigh::{Family, Role, Weighed};
use crate::dump::{DType, Phase};

/// Other calls that a level needs.
const LEAST_CALLS: usize = 3;

/// What inputs explain of an error may be this share of it for a call to show its own error.
pub(super) const SHARE: f64 = 0.5;

/// And this many times the least error.
const CLEAN: f64 = 16.0;

/// Number of calls from which on leaving one out does not move the median.
pub(super) const MANY: usize = 60;

/// Elements, and terms of each, of products that speak for the precision of all: outer products of positions and
/// frequencies have factors of few bits.
const LARGE: f64 = 16.0;

/// Factor by which the errors that statistics show of products vary.
const SEEN: f64 = 4.0;

/// Factor within which a prediction is met.
const NEAR: f64 = 1.5;

/// Share of the products that must be coarse for all to be.
const MOST: f64 = 0.8;

/// Of products of which statistics alone are known: each shows a part of its error, and at least half of them more than
/// binary32 leaves.
const HALF: f64 = 0.5;

/// A product on equal inputs below this share of the least coarse level is fine.
const FINE: f64 = 0.5;

/// Calls remembered of a family for the next step.
const REMEMBERED: usize = 64;

/// Own errors below this are counted as this: log2 of 1e-12.
const LEAST_LOG: f64 = -39.863_137_138_648_355;

/// What is shared by all products of one precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ProductKey(u64);

/// Levels learned in an earlier step of the same rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Learned {
    families: HashMap<Family, Vec<f64>>,
    products: HashMap<ProductKey, Vec<f64>>,
}

/// What a product shows of its precision.
#[derive(Debug, Clone, Copy)]
struct Shown {
    call: usize,
    error: f64,
    /// Root of what the inputs do not explain.
    own: f64,
    /// Its error is its own.
    clean: bool,
    /// It speaks for the precision of all.
    large: bool,
}

/// Own errors of the calls of a family, as logarithms, in order.
#[derive(Debug, Default)]
struct Calls {
    calls: Vec<(usize, f64)>,
    /// Median of all, once all are known.
    middle: Option<f64>,
}

impl Calls {
    /// Level of the calls but `value`'s. Statistics do not see what comes of a fault, so of these only earlier calls speak.
    fn level(&self, value: &Weighed) -> Option<f64> {
        let calls = &self.calls;
        let mine = value.call;
        if value.blind {
            let earlier = calls.iter().rev().filter(|(call, _)| *call < mine).take(MANY);
            return settled(earlier.map(|(_, level)| *level).collect());
        }
        if let Some(middle) = self.middle {
            return Some(middle.exp2());
        }
        settled(calls.iter().filter(|(call, _)| *call != mine).map(|(_, level)| *level).collect())
    }

    /// Of so many that leaving one out changes nothing, the median is taken once.
    fn finish(&mut self) {
        if self.calls.len() > MANY {
            let mut levels: Vec<f64> = self.calls.iter().map(|(_, level)| *level).collect();
            self.middle = Some(median(&mut levels));
        }
    }
}

/// Median of enough levels.
fn settled(mut levels: Vec<f64>) -> Option<f64> {
    (levels.len() >= LEAST_CALLS).then(|| median(&mut levels).exp2())
}

/// Levels of all families of a part.
pub(super) struct Families<'a> {
    own: HashMap<&'a Family, Calls>,
    products: HashMap<ProductKey, Calls>,
    /// Products of binary32 in the forward pass, in order.
    forward: Vec<Shown>,
    learned: &'a Learned,
}

/// Whether a value is a sum of products.
pub(super) fn is_product(value: &Weighed) -> bool {
    value.family.role == Role::Result
        && matches!(value.kind, Kind::Product | Kind::Recurrent | Kind::Attention)
}

/// Whether a value is the result of a module that does several things.
pub(super) fn is_composite(value: &Weighed) -> bool {
    value.family.role == Role::Result && value.family.is_module && value.kind == Kind::Other
}

/// Floor of the products of a part whose statistics show that all are coarse; 0 where they are not.
pub(super) fn coarse_statistics(values: &[Weighed]) -> f64 {
    let mut products: Vec<(f64, f64)> = values
        .iter()
        .filter(|value| value.blind && is_product(value) && value.elements.min(value.terms) >= LARGE)
        .filter(|value| value.family.dtype == DType::F32 && value.family.phase == Phase::Forward)
        .map(|value| (value.error, value.least))
        .collect();
    // The first third: what comes of a fault later is not theirs.
    products.truncate(products.len().div_ceil(3));
    let coarse = products.iter().filter(|(error, least)| *error > SEEN * least).count() as f64;
    let enough = products.len() >= LEAST_CALLS && coarse >= HALF * products.len() as f64;
    // A fault among them leaves those before it as they are.
    let all = products.iter().all(|(error, least)| error > least);
    if enough && all { PRODUCT_PRECISIONS[0].floor } else { 0.0 }
}

fn key(value: &Weighed) -> ProductKey {
    ProductKey(value.precision.unit.to_bits())
}

/// Whether a call shows the error that it makes itself.
fn shows_own(value: &Weighed) -> bool {
    value.elements > 1.0
        && (value.clean || (value.explained < SHARE * value.error && value.explained < CLEAN * value.least))
}

fn own(value: &Weighed) -> f64 {
    let squared = value.error * value.error - value.explained * value.explained;
    squared.max(0.0).sqrt().log2().max(LEAST_LOG)
}

impl<'a> Families<'a> {
    pub(super) fn of(values: &'a [Weighed], learned: &'a Learned) -> Self {
        let mut families =
            Self { own: HashMap::new(), products: HashMap::new(), forward: Vec::new(), learned };
        for value in values {
            if matches!(value.family.role, Role::Update | Role::UpdateSize) || !value.error.is_finite() {
                continue;
            }
            if is_product(value) && value.elements > 1.0 {
                let binary32 = value.family.dtype == DType::F32;
                let large = value.elements.min(value.terms) >= LARGE;
                if binary32 && value.kind != Kind::Attention && value.family.phase == Phase::Forward {
                    families.forward.push(Shown {
                        call: value.call,
                        error: value.error,
                        own: own(value).exp2(),
                        clean: shows_own(value),
                        large,
                    });
                }
            }
            if shows_own(value) {
                families.own.entry(&value.family).or_default().calls.push((value.call, own(value)));
                if is_product(value) {
                    families.products.entry(key(value)).or_default().calls.push((value.call, own(value)));
                }
            }
        }
        families.own.values_mut().chain(families.products.values_mut()).for_each(Calls::finish);
        families
    }

    /// Level of the other calls of a value's family; `None` where they are too few. Statistics do not see what comes of a
    /// fault, so of these only earlier calls speak.
    pub(super) fn level(&self, value: &Weighed) -> Option<f64> {
        if is_product(value) {
            let key = key(value);
            let level = self.products.get(&key).and_then(|calls| calls.level(value));
            let learned = || self.learned.products.get(&key).and_then(|levels| settled(levels.clone()));
            if let Some(level) = level.or_else(learned).or_else(|| self.level_of_coarse_products(value)) {
                return Some(level);
            }
        }
        let own = self.own.get(&value.family).and_then(|calls| calls.level(value));
        // What a module calls between its parts may be products.
        let composite = || is_composite(value).then(|| self.level_of_coarse_products(value)).flatten();
        own.or_else(composite)
            .or_else(|| self.learned.families.get(&value.family).and_then(|levels| settled(levels.clone())))
    }

    /// Where few products run on inputs that agree, because each is coarse: those few are off by just what a known precision
    /// predicts, and hardly a product is off by less. Devices compute products in these precisions unless told otherwise, so
    /// that in a program of one or two products nothing else need speak for it.
    fn level_of_coarse_products(&self, value: &Weighed) -> Option<f64> {
        if value.family.dtype != DType::F32 {
            return None;
        }
        if value.blind {
            return self.level_of_coarse_statistics(value);
        }
        let fine = FINE * PRODUCT_PRECISIONS[0].range.0;
        let (others, small): (Vec<&Shown>, Vec<&Shown>) =
            self.forward.iter().filter(|shown| shown.call != value.call).partition(|shown| shown.large);
        let fine_small = small.iter().any(|shown| shown.error > 0.0 && shown.error < fine);
        let clean = || others.iter().filter(|shown| shown.clean);
        if clean().any(|shown| shown.own < fine) {
            return None;
        }
        let mine = own(value).exp2();
        // Several products, one after the other, leave more than one.
        let attends = value.kind == Kind::Attention;
        let largest = |known: &ProductPrecision| {
            if is_composite(value) || value.kind == Kind::Recurrent || attends {
                known.range.1
            } else {
                NEAR * known.predicted
            }
        };
        PRODUCT_PRECISIONS.iter().find_map(|known| {
            let coarse = clean().filter(|shown| (known.range.0..known.range.1).contains(&shown.own)).count();
            let enough = match coarse {
                0 => {
                    let least = known.predicted / NEAR;
                    let beyond = others.iter().filter(|shown| shown.error >= least).count() as f64;
                    let few = others.len() < 2;
                    beyond >= MOST * others.len() as f64
                        && mine < largest(known)
                        && (!few || (mine > least && !fine_small))
                }
                1 => mine < largest(known),
                _ => true,
            };
            enough.then_some(known.floor)
        })
    }

    /// Level of products that were not recorded: none where recorded ones show that this run computes them in full.
    pub(super) fn level_of_unrecorded(&self, value: &Weighed) -> f64 {
        if value.blind {
            // What one of them shows in its statistics is but a part of its error; what comes of a fault is behind it.
            let large = self.forward.iter().filter(|shown| shown.large && shown.call < value.call);
            let mut errors: Vec<f64> = large.map(|shown| shown.error).collect();
            let full = !errors.is_empty() && median(&mut errors) <= SEEN * value.least;
            return if full { 0.0 } else { PRODUCT_PRECISIONS[0].floor };
        }
        let fine = FINE * PRODUCT_PRECISIONS[0].range.0;
        let full = self.forward.iter().any(|shown| shown.large && shown.error < fine);
        if full { 0.0 } else { PRODUCT_PRECISIONS[0].floor }
    }

    /// Statistics show but a part of an error, so the products before and after are held against what binary32 leaves.
    fn level_of_coarse_statistics(&self, value: &Weighed) -> Option<f64> {
        let others = |earlier: bool| -> Vec<f64> {
            let calls = self
                .forward
                .iter()
                .filter(|shown| shown.large)
                .filter(|shown| if earlier { shown.call < value.call } else { shown.call > value.call });
            calls.map(|shown| shown.error).collect()
        };
        let (mut before, mut after) = (others(true), others(false));
        let (earlier, later) = (median(&mut before), median(&mut after));
        let coarse = |calls: &[f64], middle: f64| calls.is_empty() || middle > SEEN * value.least;
        if !coarse(&before, earlier) || !coarse(&after, later) {
            return None;
        }
        if before.len() + after.len() < LEAST_CALLS {
            let default = PRODUCT_PRECISIONS[0];
            return (value.error < NEAR * default.predicted).then_some(default.floor);
        }
        // What comes of a fault is no precision.
        Some((SEEN * earlier.max(later)).min(PRODUCT_PRECISIONS[1].floor))
    }

    /// What the next step of this rank may build on.
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

/// The middle of some values; they are put in order. 0 for none.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}
