//! An op under suspicion, before it is decided who is named.

use super::Cause;

/// An op that may be named at fault.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// Position in [`PartPair::ops`].
    pub(super) op: usize,
    /// Position in [`OpPair::slots`](crate::pair::OpPair::slots) of the slot that shows it.
    pub(super) slot: Option<usize>,
    pub(super) cause: Cause,
    /// The difference came in as an argument, so it may have been made by ops that were not recorded.
    pub(super) arrived: bool,
    /// Op inside this one, and its slot, where the fault shows if the results of this one are within tolerance.
    pub(super) seen: Option<(usize, usize)>,
}
