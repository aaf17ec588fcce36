//! Values that are weighed: their errors, the families that they are held against, and how far they are beyond what is expected.

use std::sync::Arc;

use super::flow::Place;
use super::ops::Kind;
use super::precision::Precision;
use probe_dump::{DType, Phase};

/// Other calls that a level needs.
pub(super) const LEAST_CALLS: usize = 3;

/// Number of calls from which on leaving one out does not move the median.
pub(super) const MANY: usize = 60;

/// What a weighed value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// Result of its op.
    Result,
    /// Given to its op, and no recorded op made it.
    Arrival,
    /// The change that an optimizer made to a parameter.
    Update,
    /// The size of that change.
    UpdateSize,
}

/// Calls whose errors are held against one another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Family {
    pub(super) role: Role,
    /// Name of the function or class.
    pub(super) name: Arc<str>,
    pub(super) is_module: bool,
    pub(super) phase: Phase,
    /// Path of the slot, where results differ in kind.
    pub(super) slot: Arc<str>,
    pub(super) dtype: DType,
}

/// A value with its error and what explains it. Errors are relative to the scale of the value.
#[derive(Debug, Clone)]
pub(super) struct Weighed {
    pub(super) place: Place,
    pub(super) family: Arc<Family>,
    /// That of the op; of an arrival that functions which were not recorded computed, a product, since it may be one of them.
    pub(super) kind: Kind,
    pub(super) precision: &'static Precision,
    /// Error.
    pub(super) error: f64,
    /// Error that the inputs explain.
    pub(super) explained: f64,
    /// Least error that counts: rounding over the terms of the sum, and of single elements.
    pub(super) least: f64,
    /// What it may be off by where no other call shows more.
    pub(super) unknown: f64,
    /// Position of the op that first made this value: calls that show the same value are left out together.
    pub(super) call: usize,
    /// All that led to it is equal to the bit.
    pub(super) clean: bool,
    /// Statistics alone.
    pub(super) blind: bool,
    pub(super) elements: f64,
    /// Terms of the sums that each element is; 1 where nothing is summed.
    pub(super) terms: f64,
    /// Where nearly all of the error is that the whole value is larger or smaller.
    pub(super) gain: Option<Box<Gain>>,
    /// Of a gradient that arrives, what it is beside others.
    pub(super) remnant: Option<Box<Remnant>>,
    /// Of statistics, what its largest and its least element are off by at least; 0 otherwise.
    pub(super) extremes: f64,
}

impl Weighed {
    /// Whether it is a sum of products.
    pub(super) fn is_product(&self) -> bool {
        self.family.role == Role::Result
            && matches!(self.kind, Kind::Product | Kind::Recurrent | Kind::Attention)
    }

    /// Whether it is the result of a module that does several things.
    pub(super) fn is_composite(&self) -> bool {
        self.family.role == Role::Result && self.family.is_module && self.kind == Kind::Other
    }
}

/// Error along the value itself. Noise has no direction: of many elements, hardly any of it is a common factor, so that a factor
/// shows far below what noise adds up to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gain {
    /// Magnitude of the slope less 1.
    pub(super) error: f64,
    /// What inputs explain of it.
    pub(super) explained: f64,
    /// It is the norm alone that tells of it.
    pub(super) is_of_norm: bool,
}

/// A gradient that arrives, beside others of which it may be what is left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remnant {
    /// Error relative to its own norm.
    pub(super) own: f64,
    /// Its norm over that of the largest gradient beside it, in (0, 1].
    pub(super) share: f64,
    /// Largest error before it, without what flipped choices make of that; at least what rounding leaves.
    pub(super) before: f64,
}

impl Remnant {
    /// By how much error is magnified on the way to it, in bits.
    pub(super) fn magnified(self) -> f64 {
        (self.own.max(f64::MIN_POSITIVE) / self.before).log2()
    }
}

/// A weighed value and how far it is beyond what is expected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Excess {
    /// What the op may be off by on its own.
    pub(super) floor: f64,
    /// The floor is what runs of the baseline differ by.
    pub(super) is_measured: bool,
    /// At fault.
    pub(super) is_fault: bool,
    /// What gives it away, if it is at fault.
    pub(super) by: By,
}

/// What gives a fault away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The size of its error.
    Size,
    /// The level of its family, which is larger than any precision explains.
    Formula,
    /// A factor common to all elements, and nothing else.
    Factor,
    /// A size that no other call of its kind has.
    Alone,
    /// Both its largest and its least element, of statistics.
    Extremes,
    /// Its error relative to its own size, which gradients that cancel as much do not have.
    Remnant,
}
