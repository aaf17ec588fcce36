//! Precision of products, as shown by a part's binary32 products in the forward pass.
//!
//! Any value may query it, so no query scans all products: they are sorted by call, and totals are
//! precomputed.

use std::f64::consts::SQRT_2;

use super::median::median;
use super::ops::Kind;
use super::precision::{COARSEST_PRODUCT, PRODUCT_PRECISIONS};
use super::value::{ExpectedError, LEAST_CALLS, MANY};

/// Least number of elements, and of terms of each, for a product to indicate the precision of all: outer
/// products of positions and frequencies have factors of few bits, and few elements show no root mean square.
const LARGE: (f64, f64) = (64.0, 4.0);

/// Factor by which the errors that statistics show of products vary.
const SEEN: f64 = 4.0;

/// Factor within which a prediction counts as met.
const NEAR: f64 = 1.5;

/// Fraction of the products that must be coarse for all to count as coarse.
const MOST: f64 = 0.8;

/// Number of other products from which on their precision is certain.
const TELLING: usize = 10;

/// The same for products with statistics only: each shows a part of its error, and at least half of them show
/// more than binary32 leaves.
const HALF: f64 = 0.5;

/// A product on equal inputs below this fraction of the smallest coarse level is fine.
const FINE: f64 = 0.5;

/// Precision shown by one product.
#[derive(Debug, Clone, Copy)]
struct Shown {
    call: usize,
    error: f64,
    /// Root of the squared error that the inputs do not explain.
    own: f64,
    /// True if its error is its own.
    clean: bool,
}

/// Binary32 products of the forward pass, by call.
#[derive(Debug, Default)]
pub(super) struct Products {
    /// Products that indicate the precision of all.
    large: Vec<Shown>,
    /// Products among `large` whose error is their own.
    clean: Vec<Shown>,
    /// Errors of the large ones, ascending.
    errors: Vec<f64>,
    /// Calls of small products with errors below those of a coarse product.
    fine_small: Vec<usize>,
}

/// Returns true for a product with many terms and elements.
pub(super) fn is_large(value: &ExpectedError) -> bool {
    value.elements >= LARGE.0 && value.terms >= LARGE.1
}

fn fine() -> f64 {
    FINE * PRODUCT_PRECISIONS[0].range.0
}

/// Returns true if statistics show more of an error than full precision leaves.
pub(super) fn shows_more(value: &ExpectedError) -> bool {
    value.error > SEEN * value.least
}

/// Returns the floor of a part's products if statistics show that all are coarse; 0 otherwise.
pub(super) fn coarse_statistics<'a>(products: impl Iterator<Item = &'a ExpectedError>) -> f64 {
    let mut products: Vec<(f64, f64)> = products
        .filter(|value| value.statistics_only && is_large(value))
        .map(|value| (value.error, value.least))
        .collect();
    // Only the first third: later errors may come from a fault.
    products.truncate(products.len().div_ceil(3));
    // Statistics show no more than the error: what is off by more is off for another reason.
    let is_coarse = |(error, least): &&(f64, f64)| *error > SEEN * least && *error < COARSEST_PRODUCT;
    let coarse = products.iter().filter(is_coarse).count() as f64;
    let enough = products.len() >= LEAST_CALLS && coarse >= HALF * products.len() as f64;
    // A fault among them does not affect those before it.
    let all = products.iter().all(|(error, least)| error > least);
    if enough && all { PRODUCT_PRECISIONS[0].floor } else { 0.0 }
}

impl Products {
    /// Adds a binary32 product of the forward pass: its own error, and whether that is all of its error. Errors
    /// are relative to products of uncorrelated operands, which is what the precisions predict.
    pub(super) fn add(&mut self, value: &ExpectedError, own: f64, clean: bool) {
        let error = value.error / value.share;
        if is_large(value) {
            self.large.push(Shown { call: value.call, error, own, clean });
        } else if error > 0.0 && error < fine() {
            self.fine_small.push(value.call);
        }
    }

    /// Must be called after all products are added.
    pub(super) fn finish(&mut self) {
        self.large.sort_by_key(|shown| shown.call);
        self.clean = self.large.iter().filter(|shown| shown.clean).copied().collect();
        self.errors = self.large.iter().map(|shown| shown.error).collect();
        self.errors.sort_by(f64::total_cmp);
    }

    /// Returns the errors of the nearest products before a call, nearest first, and of those after it.
    fn around(&self, call: usize) -> (impl Iterator<Item = f64>, impl Iterator<Item = f64>) {
        let before = self.large.partition_point(|shown| shown.call < call);
        let after = self.large.partition_point(|shown| shown.call <= call);
        let (before, after) = (&self.large[..before], &self.large[after..]);
        let error = |shown: &Shown| shown.error;
        (before.iter().rev().map(error).take(MANY), after.iter().map(error).take(MANY))
    }

    /// Counts the large products of other calls, and those among them with errors of at least `least`.
    fn others_beyond(&self, call: usize, least: f64) -> (usize, usize) {
        let first = self.large.partition_point(|shown| shown.call < call);
        let mine = self.large[first..].iter().take_while(|shown| shown.call == call);
        let beyond = self.errors.len() - self.errors.partition_point(|error| *error < least);
        let (all, far) =
            mine.fold((0, 0), |(all, far), shown| (all + 1, far + usize::from(shown.error >= least)));
        (self.large.len() - all, beyond - far)
    }

    /// Returns the coarse level if few products run on agreeing inputs because each product is coarse: those
    /// few match the prediction of a known precision, and hardly any product has a smaller error. Devices
    /// compute products in these precisions by default, so a program of one or two products needs no other
    /// evidence. `own` is the value's own error.
    pub(super) fn coarse_level(&self, value: &ExpectedError, own: f64) -> Option<f64> {
        if !value.is_binary32() {
            return None;
        }
        if value.statistics_only {
            return self.coarse_level_of_statistics(value);
        }
        let clean = || self.clean.iter().filter(|shown| shown.call != value.call);
        if clean().any(|shown| shown.own < fine()) {
            return None;
        }
        let fine_small = self.fine_small.iter().any(|call| *call != value.call);
        // Several consecutive products leave more error than one.
        let several = value.is_composite() || matches!(value.kind, Kind::Recurrent | Kind::Attention);
        PRODUCT_PRECISIONS.iter().find_map(|known| {
            // A mask or a row of a unit matrix is exact in few bits: then one operand alone is rounded.
            let least = known.predicted / (NEAR * SQRT_2);
            let (others, beyond) = self.others_beyond(value.call, least);
            let all = beyond as f64 >= MOST * others as f64;
            // Where terms are nearly equal, their roundings add up: one of few products is not trusted with that.
            let largest =
                if several || (all && others >= TELLING) { known.range.1 } else { NEAR * known.predicted };
            let coarse = clean().filter(|shown| (known.range.0..known.range.1).contains(&shown.own)).take(2);
            let enough = match coarse.count() {
                0 => all && own < largest && (others >= 2 || (own > least && !fine_small)),
                1 => own < largest,
                _ => true,
            };
            enough.then_some(known.floor)
        })
    }

    /// Statistics show only a part of an error, so the products before and after are compared with what
    /// binary32 leaves.
    fn coarse_level_of_statistics(&self, value: &ExpectedError) -> Option<f64> {
        let (before, after) = self.around(value.call);
        let (mut before, mut after): (Vec<f64>, Vec<f64>) = (before.collect(), after.collect());
        let (earlier, later) = (median(&mut before), median(&mut after));
        let coarse = |calls: &[f64], middle: f64| match calls.len() {
            0 => true,
            // One or two may show hardly any of their error, but not less than binary32 leaves.
            1..LEAST_CALLS => calls.iter().all(|&error| error > value.least),
            _ => middle > SEEN * value.least,
        };
        if !coarse(&before, earlier) || !coarse(&after, later) {
            return None;
        }
        if before.len() + after.len() < LEAST_CALLS {
            let default = PRODUCT_PRECISIONS[0];
            return (value.error < NEAR * default.predicted).then_some(default.floor);
        }
        // The effect of a fault is not a precision.
        Some((SEEN * earlier.max(later)).min(PRODUCT_PRECISIONS[1].floor))
    }

    /// Returns the level of unrecorded products: zero if recorded ones show that this run computes them in
    /// full precision.
    pub(super) fn level_of_unrecorded(&self, value: &ExpectedError) -> f64 {
        let full = if value.statistics_only {
            // Statistics of one product show only a part of its error; effects of a fault come after it.
            let mut errors: Vec<f64> = self.around(value.call).0.collect();
            !errors.is_empty() && median(&mut errors) <= SEEN * value.least
        } else {
            self.errors.first().is_some_and(|error| *error < fine())
        };
        if full { 0.0 } else { PRODUCT_PRECISIONS[0].floor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outliers::tests::result;

    /// Builds products from calls and errors.
    fn products(shown: &[(usize, f64)]) -> Products {
        let large = shown.iter().map(|&(call, error)| Shown { call, error, own: error, clean: false });
        let mut products = Products { large: large.collect(), ..Products::default() };
        products.finish();
        products
    }

    #[test]
    fn a_call_with_several_results_does_not_speak_for_itself() {
        let products = products(&[(7, 3e-4), (1, 1e-7), (4, 3e-4), (4, 5e-4), (4, 1e-9)]);
        assert_eq!(products.others_beyond(4, 2e-4), (2, 1));
        assert_eq!(products.others_beyond(1, 2e-4), (4, 3));
        assert_eq!(products.others_beyond(2, 2e-4), (5, 3), "no product itself");
        let (before, after) = products.around(4);
        assert_eq!((before.collect::<Vec<_>>(), after.collect::<Vec<_>>()), (vec![1e-7], vec![3e-4]));
    }

    #[test]
    fn where_many_are_coarse_one_whose_terms_are_nearly_equal_may_be_off_by_more() {
        let level = |others: usize, error: f64, own: f64| {
            let shown: Vec<(usize, f64)> = (0..others).map(|call| (call, error)).collect();
            products(&shown).coarse_level(&result(99), own)
        };
        assert_eq!(level(12, 3e-4, 5e-4), Some(4e-4));
        assert_eq!(level(12, 3e-4, 1e-3), None, "two factors of 10 bits are off by no more than 9.8e-4");
        assert_eq!(level(12, 1e-7, 5e-4), None, "the others are no coarse ones");
        assert_eq!(level(3, 3e-4, 5e-4), None, "three may be behind a fault");
        assert_eq!(level(3, 3e-4, 4e-4), Some(4e-4));
    }

    #[test]
    fn of_many_products_the_nearest_are_asked() {
        let shown: Vec<(usize, f64)> = (0..10 * MANY).map(|call| (call, call as f64)).collect();
        let products = products(&shown);
        let (before, after) = products.around(5 * MANY);
        let (before, after): (Vec<f64>, Vec<f64>) = (before.collect(), after.collect());
        assert_eq!((before.len(), after.len()), (MANY, MANY));
        let middle = (5 * MANY) as f64;
        assert!(before.iter().all(|error| middle - error <= MANY as f64), "{before:?}");
        assert!(after.iter().all(|error| error - middle <= MANY as f64), "{after:?}");
    }
}
