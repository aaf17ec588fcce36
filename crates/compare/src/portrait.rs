//! Closer looks at values at fault.

use probe_measure::Look;

/// A closer look at a value of an op at fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Portrait {
    /// Position of the op in execution order within its step and rank, from 0.
    pub order: usize,
    /// Position of the value among the slots of the op.
    pub slot: usize,
    /// The look at the values.
    pub look: Look,
}
