//! Context of the checks.

use crate::expectations::Expectations;
use crate::pack::Pack;
use crate::pair::DevicePair;

/// Shared input of all checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) baseline: &'a Pack,
    pub(crate) candidate: &'a Pack,
    pub(crate) expectations: &'a Expectations,
    pub(crate) pair: DevicePair,
}
