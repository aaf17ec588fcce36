//! Kinds of difference between two values, as far as causes depend on them, and the facts known of one pair.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU64;
use std::ops::Index;

use super::{SlotJudgement, Verdict};
use probe_dump::{DType, Figure, SlotSide};

/// Part of an error along its value, and number of elements, from which on it has a direction. Of independent errors, a part
/// of 1 / 64 (the root of 4,096) is usual; in five sound rollouts it was 0.044 at most. Small values whose errors hang together
/// may have a larger part, so that it is evidence for an error beyond what is expected only.
const DIRECTED: f64 = 0.1;
const MANY_DIRECTIONS: f64 = 4096.0;

/// The largest or the least element must be off by at least this fraction of a factor common to all elements;
/// less may be noise.
const AT_EXTREMES: f64 = 0.5;

/// Why a pair of values is not the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    /// Nothing is known to differ.
    None,
    /// Numbers of a float tensor: the size of the error decides.
    Numbers,
    /// Elements of an exact type.
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
    /// Beyond a limit that the user set.
    Limit,
}

impl Difference {
    /// True if nothing is known to be wrong, or if only the size of the error will tell. Unreadable values are
    /// reported as such and accuse no op.
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::None | Self::Unreadable | Self::Numbers)
    }

    /// Returns true for differences that rule out measurement: later differences follow from them.
    pub(super) const fn hides_numbers(self) -> bool {
        matches!(self, Self::NonFinite | Self::Shape | Self::Missing)
    }
}

/// The value of a tensor on both sides, each as a hash, so that a tensor is recognised when it appears again.
/// Among a million tensors in a part, two collide once in 4e7 parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity(NonZeroU64, u64);

impl Identity {
    /// Builds the identity from the hashes of the baseline's tensor and the candidate's.
    pub(super) fn new(baseline: u64, candidate: u64) -> Self {
        // Never 0, so that an `Option` of it takes no more room.
        Self(NonZeroU64::MIN.saturating_add(baseline), candidate)
    }
}

/// A table by identity.
pub(super) type ByIdentity<V> = HashMap<Identity, V, BuildHasherDefault<Folded>>;

/// A set of identities.
pub(super) type Identities = HashSet<Identity, BuildHasherDefault<Folded>>;

/// Folds the two hashes of an identity into one. They are hashes already, and a part asks for millions.
#[derive(Debug, Default)]
pub(super) struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // An odd number spreads what statistics leave in few bits; the table reads the highest and the lowest.
        let mixed = (self.0.rotate_left(32) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A pair of slots and its fact.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotFact {
    /// The slot's role in its op.
    pub(super) side: SlotSide,
    /// The fact, shared by slots that hold the same two tensors.
    pub(super) fact: FactNumber,
}

/// Index of a fact within its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FactNumber(u32);

/// The facts of a part, in one allocation that is freed as a whole.
#[derive(Debug, Default)]
pub(super) struct Facts(Vec<Fact>);

impl Facts {
    /// Adds a fact.
    pub(super) fn add(&mut self, fact: Fact) -> FactNumber {
        self.0.push(fact);
        // More slots than that do not fit in memory.
        FactNumber(u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX))
    }

    /// Returns a copy of the slot's fact, to be changed for this slot alone.
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

/// Facts about one pair of values, before it is judged in the light of its inputs.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, none of which implies another")]
pub(super) struct Fact {
    /// Kind of difference.
    pub(super) difference: Difference,
    /// Verdict and reason as far as they are certain; numeric verdicts are decided later.
    pub(super) judgement: SlotJudgement,
    /// The coarser of the two dtypes; `None` if not a tensor of a known dtype.
    pub(super) dtype: Option<DType>,
    /// True for a float tensor that can be judged by the size of its error.
    pub(super) is_float: bool,
    /// True for a tensor.
    pub(super) is_tensor: bool,
    /// Number of elements.
    pub(super) len: f64,
    /// Euclidean norm of the difference: exact, estimated, or a proven bound; 0 if unknown.
    pub(super) distance: f64,
    /// True if `distance` is known, from elements, sketches or statistics.
    pub(super) is_measured: bool,
    /// Norm of the baseline's tensor; 0 if unknown.
    pub(super) norm: f64,
    /// Norms of both sides as recorded; without hashes they identify tensors.
    pub(super) norms: (f64, f64),
    /// A norm was not recorded, as that of complex numbers by other tools: it is a bound by the largest element.
    pub(super) lacks_norm: bool,
    /// Largest magnitude of the baseline; 0 if unknown.
    pub(super) largest: f64,
    /// Fraction of the elements of an exact type that differ, in (0, 1]; 0 if none differs.
    pub(super) flipped: f64,
    /// True if equal to the last bit, as far as the evidence can tell.
    pub(super) exact: bool,
    /// Part of `distance` that rounding in the recorded sums may cause, relative to the norm; 0 if the sums
    /// are in binary64.
    pub(super) noise: f64,
    /// Only statistics are known: errors are lower bounds.
    pub(super) statistics_only: bool,
    /// With statistics only: the relative error that the extremes suggest if all elements are off alike. Of elements that
    /// differ by less than the least normal number: their relative error. 0 otherwise.
    pub(super) likely: f64,
    /// With statistics only: statistics are equal (sums as far as they can be), but extremes lie at other,
    /// distant positions.
    pub(super) rearranged: bool,
    /// With statistics only: the smaller of the relative errors of the largest and the least element. Both are
    /// off by at least this.
    pub(super) extremes: f64,
    /// Holds sentinels (beyond 2^100) that swamp its norm.
    pub(super) swamped: bool,
    /// Identity of the value, if known.
    pub(super) identity: Option<Identity>,
    /// Own error that a user rule lets the op make, relative to the norm; 0 without such a rule.
    pub(super) floor: f64,
    /// The difference is one that is accepted, for example by a user rule: never at fault.
    pub(super) allowed: bool,
    /// Holds the previous contents of memory that the op overwrites without reading.
    pub(super) is_overwritten: bool,
    /// Holds memory that was never written: never at fault, and no evidence for anything.
    pub(super) unwritten: bool,
}

impl Fact {
    /// Makes a fact without numbers.
    pub(super) fn certain(verdict: Verdict, difference: Difference, reason: &str) -> Self {
        Self {
            difference,
            judgement: SlotJudgement {
                verdict,
                error: Figure::NONE,
                rule: None,
                reason: reason.into(),
                follows: false,
            },
            dtype: None,
            is_float: false,
            is_tensor: false,
            len: 0.0,
            distance: 0.0,
            is_measured: false,
            norm: 0.0,
            norms: (0.0, 0.0),
            lacks_norm: false,
            largest: 0.0,
            flipped: 0.0,
            exact: false,
            noise: 0.0,
            statistics_only: false,
            likely: 0.0,
            rearranged: false,
            extremes: 0.0,
            swamped: false,
            identity: None,
            floor: 0.0,
            allowed: false,
            is_overwritten: false,
            unwritten: false,
        }
    }

    /// Marks the fact as equal to the bit.
    pub(super) fn equal(mut self) -> Self {
        self.exact = true;
        self.judgement.error = 0.0.into();
        self
    }

    /// Sets the error that the report shows.
    pub(super) fn error(mut self, error: f64) -> Self {
        self.judgement.error = error.into();
        self
    }

    /// Returns true if anything is known to differ: numbers by any amount, or something else.
    pub(super) fn differs(&self) -> bool {
        !self.difference.is_open() || self.distance > 0.0
    }

    /// Returns the candidate's gain along the baseline: the slope `b·c / b·b`, minus 1. 0 if unknown. With
    /// sketches, whose distance is an estimate, it is off by up to a fifth of the squared error; with
    /// statistics, by half of it.
    pub(super) fn gain(&self) -> f64 {
        let (b, c) = self.norms;
        if self.swamped || self.lacks_norm || self.distance <= 0.0 || b <= 0.0 {
            return 0.0;
        }
        // With statistics, use the norms alone: noise without direction adds half its square to their ratio.
        let (ratio, error) = (c / b, if self.statistics_only { 0.0 } else { self.distance / b });
        let gain = (ratio * ratio - 1.0 - error * error) / 2.0;
        if gain.is_finite() { gain } else { 0.0 }
    }

    /// Returns true if more of the distance lies along the baseline than rounding leaves there; with statistics it is not known.
    pub(super) fn is_directed(&self) -> bool {
        let along = self.gain().abs() * self.norms.0;
        !self.statistics_only && self.len >= MANY_DIRECTIONS && along >= DIRECTED * self.distance
    }

    /// Returns true if a user rule lets the op be off by as much.
    pub(super) fn is_granted(&self) -> bool {
        self.floor > 0.0 && self.relative() <= self.floor
    }

    /// Returns true if only the norm suggests a factor; neither the largest nor the least element does.
    pub(super) fn scales_norm_alone(&self) -> bool {
        self.statistics_only && self.likely < AT_EXTREMES * self.gain().abs()
    }

    /// Returns distance over norm, at most 1 if the norm is 0 or either is not finite.
    pub(super) fn relative(&self) -> f64 {
        match self.distance / self.norm {
            _ if self.distance <= 0.0 => 0.0,
            relative if relative.is_finite() => relative,
            _ => 1.0,
        }
    }
}
