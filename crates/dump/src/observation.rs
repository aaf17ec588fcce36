//! Measurements of one tensor at capture.

use std::fmt;
use std::num::NonZeroU64;

use super::RecordedStatistics;

/// Version of the function that computes a [`Sketch`]. Sketches of different versions cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SketchVersion {
    /// 256 lanes, with rows of 256 elements rotated at random.
    First,
    /// 251 lanes, which the elements take in turns: few tensor operations compute it.
    Second,
}

impl SketchVersion {
    /// Version used by captures.
    pub const CURRENT: Self = Self::Second;

    /// Returns the number in a manifest.
    pub const fn number(self) -> u32 {
        match self {
            Self::First => 1,
            Self::Second => 2,
        }
    }

    /// Returns the version with this number; `None` if this program does not know it.
    pub const fn of_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::First),
            2 => Some(Self::Second),
            _ => None,
        }
    }

    /// Returns the number of lanes that hold sums; any further lanes are 0.
    pub const fn lanes(self) -> usize {
        match self {
            Self::First => SKETCH_LANES,
            // A prime: only strides that are its multiples hit few lanes.
            Self::Second => 251,
        }
    }
}

/// Number of lanes of a [`Sketch`].
pub const SKETCH_LANES: usize = 256;

/// Size in bytes below which a tensor is recorded verbatim instead of as a sketch, which takes 1 KiB: exact, and smaller for
/// most of them.
pub const SMALL_TENSOR: usize = 2048;

/// Optional parts of an [`Observation`] to compute. Statistics and counts are always computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// The signed-sum sketch, and its function.
    pub sketch: Option<SketchVersion>,
    /// True to compute the hash of the bytes.
    pub hash: bool,
}

impl Content {
    /// Only statistics.
    pub const STATISTICS: Self = Self { sketch: None, hash: false };
    /// Statistics and hash.
    pub const HASH: Self = Self { sketch: None, hash: true };
    /// Statistics, sketch and hash.
    pub const SKETCH: Self = Self { sketch: Some(SketchVersion::CURRENT), hash: true };
}

/// Numbers of elements by kind. A complex element counts as NaN if either part is NaN, else as infinite (positive) if
/// either part is infinite.
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
    /// Finite elements that stand for a missing number: magnitudes from `SENTINEL` of `measure` on; in float16, those of the greatest magnitude.
    /// They are excluded from mean, norm and sketch. `None` if the capture did not distinguish them.
    pub sentinels: Option<u64>,
}

/// Positions of a tensor's extremes: of several elements equal to an extreme, the first in row-major order, like `numpy`'s `argmax` and
/// `argmin` for tensors without NaN.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtremePlaces {
    /// Index plus 1, so that an `Option` of both takes no more space.
    max: NonZeroU64,
    min: NonZeroU64,
}

impl ExtremePlaces {
    /// Creates places from row-major indices; `None` if an index exceeds 2^64 - 2.
    pub fn new(max: u64, min: u64) -> Option<Self> {
        let after = |index: u64| index.checked_add(1).and_then(NonZeroU64::new);
        Some(Self { max: after(max)?, min: after(min)? })
    }

    /// Returns the row-major index of the greatest finite element.
    pub const fn max(self) -> u64 {
        self.max.get() - 1
    }

    /// Returns the row-major index of the least finite element.
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
/// difference of their tensors. `docs/formats.md` defines the function.
#[derive(Clone, PartialEq)]
pub struct Sketch {
    /// The sums; lanes beyond those of the version are 0.
    pub lanes: Box<[f32; SKETCH_LANES]>,
    /// The function that computed them.
    pub version: SketchVersion,
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sketch {{ lanes: [{:?}, ..], version: {} }}", self.lanes[0], self.version.number())
    }
}

/// Measurements of one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Least and greatest of the finite elements; mean and norm of those that are not sentinels.
    pub statistics: RecordedStatistics,
    /// Positions of least and greatest, sentinels included; `None` if there are none, or if a device measured.
    pub places: Option<ExtremePlaces>,
    /// Elements by kind.
    pub counts: Counts,
    /// Signed sums, if requested.
    pub sketch: Option<Sketch>,
    /// xxh3-128 of the contiguous bytes (little endian, row-major order), if requested.
    pub hash: Option<u128>,
    /// Error bound of mean, norm and sketch relative to the norm (for the mean: relative to the norm over the root of the number of
    /// elements). `None` if they were summed in binary64.
    pub sum_error: Option<f64>,
}
