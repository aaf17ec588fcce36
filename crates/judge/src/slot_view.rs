//! Context of a pair of slots.

use super::setting::Setting;
use super::tolerance::Rules;
use probe_measure::Evidence;

/// Context in which a pair of slots is examined.
pub(super) struct SlotView<'a> {
    /// Name of the op.
    pub(super) op: &'a str,
    /// The content is leftover memory: an output of `empty`, a receive buffer.
    pub(super) uninitialised: bool,
    /// Measured evidence.
    pub(super) evidence: &'a Evidence,
    /// Facts about the part.
    pub(super) setting: &'a Setting,
    /// The user's rules.
    pub(super) rules: &'a Rules,
}
