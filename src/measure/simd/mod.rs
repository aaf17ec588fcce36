//! The bodies of the kernels, one leaf file per instruction set. The only place in `measure` with unsafe code.
//!
//! Every body gives the same bits. A body is chosen once per tensor; nothing but speed depends on it.

pub(super) mod portable;

/// What a kernel may assume of a block. A block that several paths accept gets the same bits from each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// All finite, no zero in the baseline. A violation shows as a sum that is not finite.
    Plain,
    /// All finite. A violation shows as a sum of squares that is not finite.
    ZeroAware,
    /// Nothing.
    Masked,
}
