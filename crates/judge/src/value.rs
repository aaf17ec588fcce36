//! Values and their expected errors, their families, and how far they exceed the expectation.

use std::sync::Arc;

use super::flow::Place;
use super::ops::Kind;
use super::precision::Precision;
use probe_dump::{DType, Phase};

/// Number of other calls that a level needs.
pub(super) const LEAST_CALLS: usize = 3;

/// Number of calls from which on leaving one out does not move the median.
pub(super) const MANY: usize = 60;

/// Kind of a weighed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ValueKind {
    /// Result of its op.
    Result,
    /// Input of its op that no recorded op made.
    Arrival,
    /// The change that an optimizer made to a parameter.
    Update,
    /// The size of that change.
    UpdateSize,
}

/// Calls whose errors are compared with one another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Family {
    pub(super) role: ValueKind,
    /// Name of the function or class.
    pub(super) name: Arc<str>,
    pub(super) is_module: bool,
    pub(super) phase: Phase,
    /// Path of the slot, if results differ in kind.
    pub(super) slot: Arc<str>,
    pub(super) dtype: DType,
}

/// A value with its error and what explains it. Errors are relative to the scale of the value.
#[derive(Debug, Clone)]
pub(super) struct ExpectedError {
    pub(super) place: Place,
    pub(super) family: Arc<Family>,
    /// The op's kind; `Product` for an arrival computed by unrecorded functions, because it may be one.
    pub(super) kind: Kind,
    pub(super) precision: &'static Precision,
    /// Error.
    pub(super) error: f64,
    /// Error that the inputs explain.
    pub(super) explained: f64,
    /// Smallest error that counts: rounding over the terms of the sum, and of single elements.
    pub(super) least: f64,
    /// The error it may have if no other call shows more.
    pub(super) unknown: f64,
    /// Position of the op that first made this value: calls that show the same value are left out together.
    pub(super) call: usize,
    /// True if everything that led to it is equal to the bit.
    pub(super) clean: bool,
    /// True if only statistics are known.
    pub(super) statistics_only: bool,
    pub(super) elements: f64,
    /// Number of terms in the sums of its elements; 1 if nothing is summed.
    pub(super) terms: f64,
    /// The part of the scale that a sum of products of uncorrelated operands would have, which is what rounding
    /// of the operands is relative to; 1 for other values.
    pub(super) share: f64,
    /// Present if nearly all of the error is a common factor of the whole value.
    pub(super) gain: Option<Box<CommonFactor>>,
    /// True if more of the error lies along the value than noise leaves there.
    pub(super) is_directed: bool,
    /// For an arriving gradient: its relation to others.
    pub(super) remnant: Option<Box<Remnant>>,
    /// With statistics only: least error of its largest and least element; 0 otherwise.
    pub(super) extremes: f64,
}

impl ExpectedError {
    /// Returns true if it was computed in binary32, as complex numbers of 64 bits are.
    pub(super) fn is_binary32(&self) -> bool {
        matches!(self.family.dtype, DType::F32 | DType::C64)
    }

    /// Returns true if it is a sum of products.
    pub(super) fn is_product(&self) -> bool {
        self.family.role == ValueKind::Result
            && matches!(self.kind, Kind::Product | Kind::Recurrent | Kind::Attention)
    }

    /// Returns true if it is the result of a module that does several things.
    pub(super) fn is_composite(&self) -> bool {
        self.family.role == ValueKind::Result && self.family.is_module && self.kind == Kind::Other
    }
}

/// Error along the value itself. Noise has no direction: with many elements, hardly any of it is a common
/// factor, so a factor stands out far below the size of the noise.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommonFactor {
    /// Magnitude of the slope minus 1.
    pub(super) error: f64,
    /// The part that the inputs explain.
    pub(super) explained: f64,
    /// True if only the norm shows it.
    pub(super) is_of_norm: bool,
}

/// An arriving gradient, relative to others of which it may be the remainder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remnant {
    /// Error relative to its own norm.
    pub(super) own: f64,
    /// Its norm over that of the largest gradient beside it, in (0, 1].
    pub(super) share: f64,
    /// Largest error before it, without the effect of flipped choices; at least the size of rounding.
    pub(super) before: f64,
}

impl Remnant {
    /// Returns the magnification of error on the way to it, in bits.
    pub(super) fn magnified(self) -> f64 {
        (self.own.max(f64::MIN_POSITIVE) / self.before).log2()
    }
}

/// A weighed value's excess over the expectation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Excess {
    /// Error the op may have on its own.
    pub(super) floor: f64,
    /// True if the floor was measured between runs of the baseline.
    pub(super) is_measured: bool,
    /// True if at fault.
    pub(super) is_fault: bool,
    /// The sign of the fault, if it is at fault.
    pub(super) by: By,
}

/// The sign by which a fault is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The size of its error.
    Size,
    /// The level of its family, which no precision explains.
    Formula,
    /// A factor common to all elements, and nothing else.
    Factor,
    /// A size that no other call of its family has.
    Alone,
    /// Both its largest and its least element, from statistics.
    Extremes,
    /// Its error relative to its own size, which gradients that cancel as much do not have.
    Remnant,
}
