//! Why two values are not the same, as far as causes depend on it, and what is known of one pair of values.

use std::num::NonZeroU64;
use std::ops::Index;

use super::{SlotJudgement, Verdict};
use probe_dump::{DType, Figure, SlotSide};

/// Share of a factor common to all elements that the largest or the least of them is off by at least: the rest may be their own noise.
const AT_EXTREMES: f64 = 0.5;

/// Why a pair of values is not the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    /// Nothing is known to differ.
    None,
    /// Numbers of a float tensor: how far off decides.
    Numbers,
    /// Elements of a type that is exact.
    Elements,
    /// Checksums, in dumps that were made to prove equality of bits.
    Checksum,
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
    /// A bound of the user's is broken.
    Bound,
}

impl Difference {
    /// True when nothing is known to be wrong, or only its size will tell. What could not be read is reported as such and
    /// accuses no op.
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::None | Self::Unreadable | Self::Numbers)
    }

    /// Differences by which nothing can be measured: what they lead to follows from them.
    pub(super) const fn hides_numbers(self) -> bool {
        matches!(self, Self::NonFinite | Self::Shape | Self::Missing)
    }
}

/// The value of a tensor on both sides, each as a hash: equal where the same tensor was seen again. Of a million tensors in a
/// part, two meet by chance once in 4e7 parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity(NonZeroU64, u64);

impl Identity {
    /// Of these hashes of the baseline's tensor and the candidate's.
    pub(super) fn new(baseline: u64, candidate: u64) -> Self {
        // Never 0, so that an `Option` of it takes no more room.
        Self(NonZeroU64::MIN.saturating_add(baseline), candidate)
    }
}

/// What is known of one pair of slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotFact {
    /// On which side of its op.
    pub(super) side: SlotSide,
    /// The fact: one where several slots hold the same two tensors.
    pub(super) fact: FactNumber,
}

/// Place of a fact among all of its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FactNumber(u32);

/// The facts of a part, in one piece of memory that goes as a whole.
#[derive(Debug, Default)]
pub(super) struct Facts(Vec<Fact>);

impl Facts {
    /// Adds a fact.
    pub(super) fn add(&mut self, fact: Fact) -> FactNumber {
        self.0.push(fact);
        // More slots than that fit in no memory.
        FactNumber(u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX))
    }

    /// The fact of a slot, to be changed for this slot alone.
    pub(super) fn own(&mut self, slot: &mut SlotFact) -> &mut Fact {
        slot.fact = self.add(self.0[slot.fact.0 as usize].clone());
        &mut self.0[slot.fact.0 as usize]
    }
}

impl Index<FactNumber> for Facts {
    type Output = Fact;

    fn index(&self, number: FactNumber) -> &Fact {
        &self.0[number.0 as usize]
    }
}

/// What is known of one pair of values, before it is judged in the light of what led to it.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, none of which implies another")]
pub(super) struct Fact {
    /// Why they are not the same.
    pub(super) difference: Difference,
    /// Verdict and reason as far as they are certain; of numbers they are decided later.
    pub(super) judgement: SlotJudgement,
    /// The coarser of the two element types; `None` for what is no tensor of a known type.
    pub(super) dtype: Option<DType>,
    /// A tensor with floats that can be judged by size.
    pub(super) is_float: bool,
    /// A tensor.
    pub(super) is_tensor: bool,
    /// Elements.
    pub(super) len: f64,
    /// Euclidean norm of the difference, exact, estimated or the bound that is proved; 0 where none is known.
    pub(super) distance: f64,
    /// Whether `distance` is known, by elements, sketches or statistics.
    pub(super) is_measured: bool,
    /// Norm of the baseline's tensor; 0 where it is not known.
    pub(super) norm: f64,
    /// Norms of both sides as recorded, by which tensors are known again without hashes.
    pub(super) norms: (f64, f64),
    /// Largest magnitude of the baseline; 0 where it is not known.
    pub(super) largest: f64,
    /// Share of the elements of an exact type that differ, in (0, 1]; 0 where none does.
    pub(super) flipped: f64,
    /// Equal to the last bit, as far as the evidence can tell.
    pub(super) exact: bool,
    /// What the sums that were recorded may make of `distance` by themselves, relative to the norm; 0 where they are in binary64.
    pub(super) noise: f64,
    /// Statistics alone: errors are lower bounds.
    pub(super) blind: bool,
    /// Of statistics alone, the relative error that their extremes suggest if all elements are off alike; 0 otherwise.
    pub(super) likely: f64,
    /// Of statistics alone: they are equal, those that are sums as far as they can be, and extremes that are far apart lie elsewhere.
    pub(super) rearranged: bool,
    /// Of statistics alone, the smaller of the relative errors of the largest and the least element: both are off by it at least.
    pub(super) extremes: f64,
    /// Holds sentinels (beyond 2^100) that swamp its norm.
    pub(super) swamped: bool,
    /// Its value, where something tells it.
    pub(super) identity: Option<Identity>,
    /// The size that a user rule allows was kept: never at fault.
    pub(super) allowed: bool,
    /// What the memory held before: the op writes over it without reading it.
    pub(super) is_overwritten: bool,
    /// Holds memory that was never written: never at fault, and speaks for nothing.
    pub(super) unwritten: bool,
}

impl Fact {
    /// A fact without numbers.
    pub(super) fn certain(verdict: Verdict, difference: Difference, reason: &str) -> Self {
        Self {
            difference,
            judgement: SlotJudgement { verdict, error: Figure::NONE, rule: None, reason: reason.into() },
            dtype: None,
            is_float: false,
            is_tensor: false,
            len: 0.0,
            distance: 0.0,
            is_measured: false,
            norm: 0.0,
            norms: (0.0, 0.0),
            largest: 0.0,
            flipped: 0.0,
            exact: false,
            noise: 0.0,
            blind: false,
            likely: 0.0,
            rearranged: false,
            extremes: 0.0,
            swamped: false,
            identity: None,
            allowed: false,
            is_overwritten: false,
            unwritten: false,
        }
    }

    /// Equal to the bit.
    pub(super) fn equal(mut self) -> Self {
        self.exact = true;
        self.judgement.error = 0.0.into();
        self
    }

    /// With an error that stands in the report.
    pub(super) fn error(mut self, error: f64) -> Self {
        self.judgement.error = error.into();
        self
    }

    /// Whether anything is known to differ: numbers by any amount, or something else.
    pub(super) fn differs(&self) -> bool {
        !self.difference.is_open() || self.distance > 0.0
    }

    /// By how much the candidate is larger along the baseline: the slope `b·c / b·b`, less 1. 0 where it is not known. Of
    /// sketches, whose distance is an estimate, it is off by up to a fifth of the squared error, of statistics by half of it.
    pub(super) fn gain(&self) -> f64 {
        let (b, c) = self.norms;
        if self.swamped || self.distance <= 0.0 || b <= 0.0 {
            return 0.0;
        }
        // Of statistics the norms alone: noise without direction adds half its square to their ratio.
        let (ratio, error) = (c / b, if self.blind { 0.0 } else { self.distance / b });
        let gain = (ratio * ratio - 1.0 - error * error) / 2.0;
        if gain.is_finite() { gain } else { 0.0 }
    }

    /// Whether it is the norm alone that tells of a factor, and neither the largest nor the least element does.
    pub(super) fn scales_norm_alone(&self) -> bool {
        self.blind && self.likely < AT_EXTREMES * self.gain().abs()
    }

    /// Distance over norm, at most 1 where the norm is 0 or either is not finite.
    pub(super) fn relative(&self) -> f64 {
        match self.distance / self.norm {
            _ if self.distance <= 0.0 => 0.0,
            relative if relative.is_finite() => relative,
            _ => 1.0,
        }
    }
}
