//! What is measured of one tensor when it is captured.

use std::fmt;
use std::num::NonZeroU64;

use super::RecordedStatistics;

/// Version of the function that makes a [`Sketch`]. Sketches of two versions say nothing about one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SketchVersion {
    /// 256 lanes, through which rows of 256 elements are turned at random.
    First,
    /// 251 lanes, which the elements take in turns: few operations on tensors compute it.
    Second,
}

impl SketchVersion {
    /// What captures record.
    pub const CURRENT: Self = Self::Second;

    /// The number in a manifest.
    pub const fn number(self) -> u32 {
        match self {
            Self::First => 1,
            Self::Second => 2,
        }
    }

    /// The version of this number; `None` where this program does not know it.
    pub const fn of_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::First),
            2 => Some(Self::Second),
            _ => None,
        }
    }

    /// Lanes that hold sums; those behind them are 0.
    pub const fn lanes(self) -> usize {
        match self {
            Self::First => SKETCH_LANES,
            // A prime: no stride but its multiples meets few lanes.
            Self::Second => 251,
        }
    }
}

/// Number of lanes of a [`Sketch`].
pub const SKETCH_LANES: usize = 256;

/// Tensors of fewer bytes than this are recorded as they are where others have a sketch, which takes 1 KiB: exact, and smaller
/// for most of them.
pub const SMALL_TENSOR: usize = 2048;

/// Which parts of an [`Observation`] are wanted. Statistics and counts always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// The signed-sum sketch, by which function.
    pub sketch: Option<SketchVersion>,
    /// The hash of the bytes.
    pub hash: bool,
}

impl Content {
    /// Statistics alone.
    pub const STATISTICS: Self = Self { sketch: None, hash: false };
    /// Statistics and hash.
    pub const HASH: Self = Self { sketch: None, hash: true };
    /// Statistics, sketch and hash.
    pub const SKETCH: Self = Self { sketch: Some(SketchVersion::CURRENT), hash: true };
}

/// How many elements of a tensor are of which kind. For complex tensors an element counts as NaN when either part is,
/// else as infinite (positive) when either part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    /// All elements.
    pub elements: u64,
    /// Zeros of either sign.
    pub zeros: u64,
    /// NaNs.
    pub nan: u64,
    /// Positive infinities.
    pub positive_infinite: u64,
    /// Negative infinities.
    pub negative_infinite: u64,
    /// Finite elements that stand for the absence of a number: those from `SENTINEL` of `measure` on in magnitude; of
    /// float16 those of the greatest magnitude. They are left out of mean, norm and sketch. `None` where the capture did not tell them from others.
    pub sentinels: Option<u64>,
}

/// Where the extremes of a tensor are: of the elements that equal one, the first in row-major order, as `argmax` and `argmin` of
/// `numpy` say it of tensors without NaN.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtremePlaces {
    /// Index plus 1: an `Option` of both takes no more room.
    max: NonZeroU64,
    min: NonZeroU64,
}

impl ExtremePlaces {
    /// Those with these row-major indices; `None` where an index is beyond 2^64 - 2.
    pub fn new(max: u64, min: u64) -> Option<Self> {
        let after = |index: u64| index.checked_add(1).and_then(NonZeroU64::new);
        Some(Self { max: after(max)?, min: after(min)? })
    }

    /// Row-major index of the greatest finite element.
    pub const fn max(self) -> u64 {
        self.max.get() - 1
    }

    /// Row-major index of the least finite element.
    pub const fn min(self) -> u64 {
        self.min.get() - 1
    }
}

impl fmt::Debug for ExtremePlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtremePlaces {{ max: {}, min: {} }}", self.max(), self.min())
    }
}

/// Signed sums of a tensor's elements in 256 lanes: the norm of the difference of two sketches estimates the norm of the
/// difference of their tensors. `docs/formats.md` has the function.
#[derive(Clone, PartialEq)]
pub struct Sketch {
    /// The sums; those behind the lanes of the version are 0.
    pub lanes: Box<[f32; SKETCH_LANES]>,
    /// The function that made them.
    pub version: SketchVersion,
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sketch {{ lanes: [{:?}, ..], version: {} }}", self.lanes[0], self.version.number())
    }
}

/// What was measured of one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Least and greatest of the finite elements; mean and norm of those that are no sentinels.
    pub statistics: RecordedStatistics,
    /// Where least and greatest are, sentinels among them; `None` where there are none, and where a device measured.
    pub places: Option<ExtremePlaces>,
    /// Elements by kind.
    pub counts: Counts,
    /// Signed sums, if wanted.
    pub sketch: Option<Sketch>,
    /// xxh3-128 of the contiguous bytes (little endian, row-major order), if wanted.
    pub hash: Option<u128>,
    /// How far mean, norm and sketch may be off, relative to the norm (the mean relative to the norm over the root of the number of
    /// elements). `None` where they were summed in binary64.
    pub sum_error: Option<f64>,
}
