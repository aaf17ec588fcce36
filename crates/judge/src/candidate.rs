//! A suspected op, before the culprits are chosen.

use std::fmt;

use super::Cause;
use super::flow::Place;
use super::value::{By, Excess, ExpectedError};

/// An op that may be named at fault.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// Position in [`PartPair::ops`](probe_pair::PartPair::ops).
    pub(super) op: usize,
    /// Position in [`OpPair::slots`](probe_pair::OpPair::slots) of the slot that shows the fault.
    pub(super) slot: Option<usize>,
    pub(super) cause: Cause,
    /// The difference came in as an argument, so it may have been made by ops that were not recorded.
    pub(super) arrived: bool,
    /// Op inside this one, and its slot, that shows the fault if this op's results do not.
    pub(super) seen: Option<Place>,
    /// Part of the reason: the basis of the excess, where it needs stating.
    pub(super) said: String,
    /// Error and expected error of the value, if they were measured.
    pub(super) beyond: Option<Beyond>,
}

/// An error and the expected error, both relative to the scale of the value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beyond {
    pub(super) error: f64,
    /// Expected error: the op's own floor combined with what its inputs explain.
    pub(super) expected: f64,
}

impl Beyond {
    pub(super) fn of(value: &ExpectedError, excess: &Excess) -> Self {
        let expected = value.explained.hypot(excess.floor);
        match (excess.by, value.gain.as_deref(), value.remnant.as_deref()) {
            (By::Factor, Some(gain), _) => {
                Self { error: gain.error, expected: gain.explained.hypot(excess.floor) }
            }
            (By::Remnant, _, Some(remnant)) => Self { error: remnant.own, expected: remnant.before },
            (By::Extremes, ..) => Self { error: value.extremes, expected },
            _ => Self { error: value.error, expected },
        }
    }
}

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {:.1e}, {:.1e} expected", self.error, self.expected)
    }
}

impl Candidate {
    pub(super) const fn at(op: usize, slot: Option<usize>, cause: Cause) -> Self {
        Self { op, slot, cause, arrived: false, seen: None, said: String::new(), beyond: None }
    }

    /// Returns the place of the value that shows the fault.
    pub(super) fn shown(&self) -> Option<Place> {
        self.seen.or_else(|| Some((self.op, self.slot?)))
    }
}
