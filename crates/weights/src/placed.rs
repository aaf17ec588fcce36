//! Tensors of the candidate with their sources and the decision on each.

use crate::layout::Layout;
use crate::plan::Plan;
use crate::values::Difference;

/// A tensor of the candidate.
#[derive(Debug)]
pub struct Placed {
    /// Its sources; `None` if nothing like it was found.
    pub layout: Option<Layout>,
    /// The decision.
    pub verdict: Verdict,
    /// Where its lines should come from.
    pub(crate) plan: Option<Plan>,
    /// Where they do come from, if elsewhere.
    pub(crate) instead: Option<Plan>,
}

/// The decision on a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Equal, to the bit or after the cast, up to the mapping.
    Equal,
    /// Equal values in the wrong place or order; in words.
    Moved(String),
    /// Equal to an older state, instead of the baseline: the position of the snapshot.
    Stale(usize),
    /// Other values.
    Changed(Difference),
    /// Nothing like it is on the other side.
    Extra,
    /// It could not be read.
    Unread,
}
