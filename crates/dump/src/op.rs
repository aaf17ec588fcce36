//! One call of an operator or module, and its slots.

use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;

use super::{OpName, Remark, Value};

/// Side of an op on which a slot lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SlotSide {
    /// Positional or keyword argument.
    Input,
    /// Parameter of the module that ran.
    Parameter,
    /// Result. Saved variables and tensors of a collection count as results.
    Output,
    /// Gradient that arrived at a parameter; a result too.
    Gradient,
}

impl SlotSide {
    /// Returns true for values the op produced, false for those it received.
    pub const fn is_result(self) -> bool {
        matches!(self, Self::Output | Self::Gradient)
    }
}

/// Name of a value's position in an op. A part has hundreds of thousands of slots, and a few dozen
/// of these names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotName {
    /// Path inside the op: `input.0`, `input.0.1`, `kwarg.mask`, `output.0`, `parameter.weight`, `grad.weight`, `value`.
    pub path: Box<str>,
    /// Side of the op.
    pub side: SlotSide,
}

/// A named value of an op. It dereferences to its name (`slot.path`).
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// Shared by slots with equal names, if the reader deduplicates them.
    pub name: Arc<SlotName>,
    /// The recorded value.
    pub value: Value,
    /// Equal for slots that hold the same tensor of this part. `None` if the capture did not tell.
    pub identity: Option<SeenAs>,
}

impl Slot {
    /// Creates a slot of unknown identity, with a name of its own.
    pub fn new(path: impl Into<Box<str>>, side: SlotSide, value: Value) -> Self {
        Self { name: SlotName { path: path.into(), side }.into(), value, identity: None }
    }
}

impl Deref for Slot {
    type Target = SlotName;

    fn deref(&self) -> &SlotName {
        &self.name
    }
}

/// Number of a tensor within its part: same memory, not written to in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeenAs(
    /// Number plus 1, so that an `Option` of it takes no more space.
    NonZeroU64,
);

impl SeenAs {
    /// Wraps the number as captures record it; `None` for 2^64 - 1, which no capture assigns.
    pub fn new(number: u64) -> Option<Self> {
        number.checked_add(1).and_then(NonZeroU64::new).map(Self)
    }

    /// Returns the number as captures record it.
    pub const fn number(self) -> u64 {
        self.0.get() - 1
    }
}

/// One recorded op. Its position in [`Rank::ops`](super::Rank) is its place in execution order (a
/// module comes after the ops inside it).
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// Full name.
    pub name: OpName,
    /// Values in order: inputs, parameters, outputs, parameter gradients.
    pub slots: Vec<Slot>,
    /// Name of the enclosing module call, if recorded.
    pub parent: Option<Arc<str>>,
    /// Index of the call stack in [`Rank::stacks`](super::Rank), if recorded.
    pub stack: Option<u32>,
    /// True for a repetition of an earlier call, made by activation checkpointing during the backward pass.
    pub recomputed: bool,
    /// True if the op ended in an exception and therefore has no results.
    pub raised: bool,
    /// A remark of the capture (`compiled region`); empty if it made none.
    pub note: Remark,
}

/// Start of the remark on an operator recorded below the framework; the op that called it follows.
pub const CALLED_IN: &str = "in ";

impl Op {
    /// Returns the op that called this operator, if it was recorded below the framework.
    pub fn caller(&self) -> Option<&str> {
        self.note.split("; ").next()?.strip_prefix(CALLED_IN)
    }

    /// Creates an op without slots, of which only the name is known.
    pub const fn new(name: OpName) -> Self {
        Self {
            name,
            slots: Vec::new(),
            parent: None,
            stack: None,
            recomputed: false,
            raised: false,
            note: Remark::NONE,
        }
    }
}
