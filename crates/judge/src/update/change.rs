//! A change of a parameter on both sides, as its sketches tell it.

use std::sync::Arc;

use probe_dump::{SKETCH_LANES, Sketch};
use probe_measure::sketch_distance;

/// Difference between two changes of a parameter, computed from both sides' sketches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// Norms of the changes of the baseline and the candidate.
    pub(super) size: [f64; 2],
    /// Norm of their difference.
    pub(super) error: f64,
    /// Lanes that the baseline's change fills: all of them where it is spread as random numbers are, fewer where some elements
    /// are most of it.
    filled: f64,
}

/// Kurtosis of random numbers.
const RANDOM: f64 = 3.0;

impl Change {
    pub(super) fn of(before: &[Arc<Sketch>; 2], after: &[Arc<Sketch>; 2]) -> Option<Self> {
        let (mut error, mut square, mut fourth) = (0.0, 0.0, 0.0);
        let [after_lanes, before_lanes] = [after, before].map(|[b, c]| b.lanes.iter().zip(c.lanes.iter()));
        for ((after_b, after_c), (before_b, before_c)) in after_lanes.zip(before_lanes) {
            let b = f64::from(*after_b) - f64::from(*before_b);
            let c = f64::from(*after_c) - f64::from(*before_c);
            error += (c - b) * (c - b);
            square += b * b;
            fourth += b * b * b * b;
        }
        let filled =
            (RANDOM * square * square / fourth.max(f64::MIN_POSITIVE)).clamp(1.0, SKETCH_LANES as f64);
        // NaN if two sketches have different versions.
        let size = [sketch_distance(&before[0], &after[0]), sketch_distance(&before[1], &after[1])];
        let found = Self { size, error: error.sqrt(), filled };
        (found.error.is_finite() && size[0] > 0.0 && size[1].is_finite()).then_some(found)
    }

    /// Returns the part of the size that an error of this length changes if it has no direction. Elements that take the
    /// other sign, or make no step, change the size by half of the square of their share; sketches show a direction that is
    /// not there, with a deviation of one part in the root of the lanes that the change fills, of which there may be two.
    pub(super) fn turned(&self) -> f64 {
        let error = self.error / self.size[0];
        error * error + 2.0 * error / self.filled.sqrt()
    }

    /// Returns the excess of the candidate's change over the baseline's.
    pub(super) fn ratio(&self) -> f64 {
        self.size[1] / self.size[0] - 1.0
    }
}
