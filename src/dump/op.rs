//! One call of an operator or module, and its slots.

use std::sync::Arc;

use super::{OpName, Value};

/// On which side of an op a slot lies.
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
    /// True for what the op produced, false for what it was given.
    pub const fn is_result(self) -> bool {
        matches!(self, Self::Output | Self::Gradient)
    }
}

/// A named value of an op.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// Path inside the op: `input.0`, `input.0.1`, `kwarg.mask`, `output.0`, `parameter.weight`, `grad.weight`, `value`.
    pub path: Arc<str>,
    /// Side of the op.
    pub side: SlotSide,
    /// What was recorded.
    pub value: Value,
    /// Equal where the same tensor was seen in this part: same memory, not written to in between. `None` where the capture did
    /// not tell.
    pub identity: Option<u64>,
}

/// One recorded op. Its position in [`Rank::ops`](super::Rank) is its place in execution order
/// (a module comes after the ops inside it).
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// Full name.
    pub name: OpName,
    /// Values in order: inputs, parameters, outputs, parameter gradients.
    pub slots: Vec<Slot>,
    /// Name of the module call it ran in, where recorded.
    pub parent: Option<Arc<str>>,
    /// Index into [`Rank::stacks`](super::Rank) of the call stack, where recorded.
    pub stack: Option<u32>,
    /// True for a repetition of an earlier call, made by activation checkpointing during the backward pass.
    pub recomputed: bool,
    /// True when the op ended in an exception, so that it has no results.
    pub raised: bool,
    /// A remark of the capture (`compiled region`).
    pub note: Option<Box<str>>,
}

/// How the remark begins on an operator that was recorded below the framework, in front of the op that called it.
pub const CALLED_IN: &str = "in ";

impl Op {
    /// Of an operator that was recorded below the framework, the op that called it.
    pub fn caller(&self) -> Option<&str> {
        self.note.as_deref()?.split("; ").next()?.strip_prefix(CALLED_IN)
    }

    /// An op without slots, of which only the name is known.
    pub const fn new(name: OpName) -> Self {
        Self {
            name,
            slots: Vec::new(),
            parent: None,
            stack: None,
            recomputed: false,
            raised: false,
            note: None,
        }
    }
}
