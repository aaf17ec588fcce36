//! What is measured of one tensor when it is captured.

use std::fmt;

use super::RecordedStatistics;

/// Version of the function that makes a [`Sketch`]. Sketches of two versions say nothing about one another.
pub const SKETCH_VERSION: u32 = 1;

/// Number of lanes of a [`Sketch`].
pub const SKETCH_LANES: usize = 256;

/// Tensors of fewer bytes than this are recorded as they are where others have a sketch, which takes 1 KiB: exact, and smaller
/// for most of them.
pub const SMALL_TENSOR: usize = 2048;

/// Which parts of an [`Observation`] are wanted. Statistics and counts always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// The signed-sum sketch.
    pub sketch: bool,
    /// The hash of the bytes.
    pub hash: bool,
}

impl Content {
    /// Statistics alone.
    pub const STATISTICS: Self = Self { sketch: false, hash: false };
    /// Statistics and hash.
    pub const HASH: Self = Self { sketch: false, hash: true };
    /// Statistics, sketch and hash.
    pub const SKETCH: Self = Self { sketch: true, hash: true };
}

/// How many elements of a tensor are of which kind. For complex tensors an element counts as NaN when either part is,
/// else as infinite (positive) when either part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    /// Finite elements that stand for the absence of a number: those from [`SENTINEL`](crate::measure::SENTINEL) on in magnitude; of
    /// float16 the least number. They are left out of mean, norm and sketch. `None` where the capture did not tell them from others.
    pub sentinels: Option<u64>,
}

/// Signed sums of a tensor's elements in 256 lanes: the norm of the difference of two sketches estimates the norm of the
/// difference of their tensors. `docs/formats.md` has the function.
#[derive(Clone, PartialEq)]
pub struct Sketch(pub Box<[f32; SKETCH_LANES]>);

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sketch([{:?}, ..])", self.0[0])
    }
}

/// What was measured of one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Least and greatest of the finite elements; mean and norm of those that are no sentinels.
    pub statistics: RecordedStatistics,
    /// Elements by kind.
    pub counts: Counts,
    /// Signed sums, if wanted.
    pub sketch: Option<Sketch>,
    /// xxh3-128 of the contiguous bytes (little endian, row-major order), if wanted.
    pub hash: Option<u128>,
}
