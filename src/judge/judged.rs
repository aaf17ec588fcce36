//! The judgement of one slot with the facts that judging its op needs, and what a slot is judged under.

use super::tolerance::DTypeTolerance;
use super::{SlotJudgement, Verdict};

/// Error that what led to a slot explains.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Led {
    /// Error of what led to this slot, as far as that is within tolerance itself: of the op's inputs for a result, of
    /// earlier results for an input. Up to [`GROWTH`](super::GROWTH) times it is explained.
    pub(super) explained: f64,
    /// Euclidean norm that rounding in cancelled sums may reach, whatever the norm of the result. 0 for most slots.
    pub(super) cancellation: f64,
    /// Largest error that `explained` can justify.
    pub(super) limit: f64,
    /// The op chooses between values, and its inputs carry noise: single elements may be off by their whole magnitude.
    pub(super) flips: bool,
}

/// What the judgement of a slot rests on besides its own evidence.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotContext {
    /// What led here.
    pub(super) led: Led,
    /// Bounds of the coarsest float type that takes part in this part of the dump.
    pub(super) coarsest: Option<DTypeTolerance>,
    /// Bounds of the coarsest type in which the op computes, where its results do not show it.
    pub(super) inside: Option<DTypeTolerance>,
    /// The two runs compute in different float types throughout; judged at the coarser one.
    pub(super) mixed_run: bool,
    /// The dump exists to prove equality of bits (checksum tasks).
    pub(super) exact_task: bool,
    /// The content is left over memory: an output of `empty`, a receive buffer.
    pub(super) uninitialised: bool,
}

/// How well two values, or all inputs or results of an op, agree; from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Agreement {
    /// Equal to the bit, as far as the evidence can tell.
    #[default]
    Exact,
    /// Nothing is known to be wrong.
    Fine,
    /// Something differs.
    Differs,
    /// NaN or Inf on one side only.
    NonFinite,
}

impl Agreement {
    /// True when nothing is known to be wrong.
    pub(super) fn is_fine(self) -> bool {
        self <= Self::Fine
    }
}

/// Why a slot is not fine, as far as causes depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    /// It is fine.
    None,
    /// Numbers of a tensor.
    Numbers,
    /// A scalar argument that someone chose (`eps`), or a string, size, slice.
    Argument,
    /// A float argument that looks computed (`loss.item()`).
    ComputedArgument,
    /// Element type.
    DType,
    /// NaN or Inf.
    NonFinite,
    /// Sizes.
    Shape,
    /// Present on one side only.
    Missing,
    /// `requires_grad`.
    RequiresGrad,
    /// Data that could not be read.
    Unreadable,
}

impl Difference {
    /// True when nothing is known to be wrong. What could not be read is reported as such and accuses no op.
    pub(super) const fn is_fine(self) -> bool {
        matches!(self, Self::None | Self::Unreadable)
    }
}

/// A judged slot with the facts that judging its op needs.
#[derive(Debug)]
pub(super) struct JudgedSlot {
    pub(super) judgement: SlotJudgement,
    pub(super) difference: Difference,
    /// Equal to the last bit, as far as the evidence can tell.
    pub(super) exact: bool,
}

/// A judgement without error or rule.
pub(super) fn verdict(verdict: Verdict, difference: Difference, reason: &str) -> JudgedSlot {
    JudgedSlot {
        judgement: SlotJudgement { verdict, error: None, rule: None, reason: reason.into() },
        difference,
        exact: false,
    }
}

impl JudgedSlot {
    /// How well the two values agree.
    pub(super) const fn agreement(&self) -> Agreement {
        match self.difference {
            Difference::NonFinite => Agreement::NonFinite,
            difference if !difference.is_fine() => Agreement::Differs,
            _ if self.exact => Agreement::Exact,
            _ => Agreement::Fine,
        }
    }

    pub(super) fn exact(mut self) -> Self {
        self.exact = true;
        self.judgement.error = Some(0.0);
        self
    }

    pub(super) fn error(mut self, error: f64) -> Self {
        self.judgement.error = Some(error);
        self
    }

    pub(super) fn rule(mut self, rule: u32) -> Self {
        self.judgement.rule = Some(rule);
        self
    }
}
