//! Error estimates from two sketches of a tensor.

use super::sentinel::summed_otherwise;
use super::{Metric, sketch_distance};
use probe_dump::TensorRecord;

/// Relative distance below which sketches are inconclusive: their lanes are stored in binary32, each off by up
/// to 2^-24 of itself, on both sides.
pub const SKETCH_NOISE: f64 = 3e-7;

/// Factor by which an estimate may be off in either direction: 20 %, four and a half standard errors of 4.4 %.
pub const SKETCH_MARGIN: f64 = 1.2;

/// Errors of a pair of tensors, estimated from their sketches. Elements that are NaN or infinite count as 0 in both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SketchEstimate {
    /// Euclidean distance.
    pub distance: f64,
    /// Distance relative to the norm of the baseline; 0 if both are 0, infinite if only the norm is.
    pub rel_l2: f64,
    /// Cosine of the angle between the two; `None` if either norm is 0 or unknown.
    pub cosine: Option<f64>,
    /// Root of the mean squared difference, over all elements; `None` if there are none.
    pub rmse: Option<f64>,
    /// Relative distance below which the sketches are inconclusive.
    pub noise: f64,
    /// Distance in the lane that holds most of it: nearly all of `distance` if one element's error exceeds all
    /// the others together.
    pub largest_lane: f64,
    /// Lanes that are equal to the bit.
    pub equal_lanes: u32,
    /// Lanes of either sketch.
    pub lanes: u32,
}

impl SketchEstimate {
    /// Returns the estimate for two records; `None` if one has no sketch or no norm, if the numbers of
    /// elements differ, if a sum exceeds binary32, if only one sketch includes sentinels, or if the sketches
    /// have different versions.
    pub fn of(baseline: &TensorRecord, candidate: &TensorRecord) -> Option<Self> {
        let (x, y) = (baseline.sketch.as_deref()?, candidate.sketch.as_deref()?);
        if baseline.len() != candidate.len() || summed_otherwise(baseline, candidate) {
            return None;
        }
        let distance = Some(sketch_distance(x, y)).filter(|distance| distance.is_finite())?;
        let norm = |record: &TensorRecord| {
            // Without finite elements nothing was summed.
            let none = record.counts.is_some() && record.statistics.is_empty();
            record.statistics.norm().or_else(|| none.then_some(0.0)).map(f64::abs)
        };
        let (b, c) = (norm(baseline)?, norm(candidate)?);
        let cosine = (b > 0.0 && c > 0.0)
            .then(|| ((b * b + c * c - distance * distance) / (2.0 * b * c)).clamp(-1.0, 1.0))
            .filter(|cosine| cosine.is_finite());
        let lanes = x.version.lanes();
        let apart = x.lanes.iter().zip(y.lanes.iter()).map(|(&x, &y)| (f64::from(x) - f64::from(y)).abs());
        let equal = x
            .lanes
            .iter()
            .zip(y.lanes.iter())
            .take(lanes)
            .filter(|(x, y)| x.to_bits() == y.to_bits())
            .count();
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let elements = baseline.len() as f64;
        Some(Self {
            distance,
            rel_l2: if distance > 0.0 { distance / b } else { 0.0 },
            cosine,
            rmse: (elements > 0.0).then(|| distance / elements.sqrt()),
            noise: SKETCH_NOISE.max(sum_error(baseline, candidate)),
            largest_lane: apart.fold(0.0, f64::max),
            equal_lanes: count(equal),
            lanes: count(lanes),
        })
    }

    /// Returns true if the distance exceeds the error of making and storing the sketches.
    pub fn is_resolved(&self) -> bool {
        self.rel_l2 > self.noise
    }

    /// Returns the estimate of a metric; `None` for metrics that sums cannot provide.
    pub(super) const fn metric(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::RelL2 => Some(self.rel_l2),
            Metric::Euclidean => Some(self.distance),
            Metric::Cosine => self.cosine,
            Metric::Rmse => self.rmse,
            _ => None,
        }
    }

    /// Returns the number of elements that differ, if they are so few that some lanes hold none of them: of
    /// 251 lanes, a fraction of `exp(-m / 251)` stays unchanged when `m` elements change. `None` if nearly all
    /// lanes changed.
    pub fn few_differing(&self) -> Option<f64> {
        let lanes = f64::from(self.lanes);
        (self.equal_lanes >= 16 && self.distance > 0.0)
            .then(|| (lanes * (lanes / f64::from(self.equal_lanes)).ln()).max(1.0))
    }
}

/// Returns the possible relative difference between the sums of two records, as both records declare it.
pub(super) fn sum_error(baseline: &TensorRecord, candidate: &TensorRecord) -> f64 {
    baseline.sum_error.unwrap_or_default() + candidate.sum_error.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observe;
    use probe_dump::{Content, DType, RecordedDType, SketchVersion, TensorRef};

    fn record(values: &[f32]) -> TensorRecord {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let shape = [values.len()];
        let tensor = TensorRef::strided(&bytes, DType::F32, &shape, &[1], 0).unwrap();
        let found = observe(tensor, Content::SKETCH);
        TensorRecord {
            statistics: found.statistics.into(),
            counts: Some(found.counts.into()),
            sketch: found.sketch.map(Arc::new),
            ..TensorRecord::new(RecordedDType::Known(DType::F32), [values.len() as u64].into())
        }
    }

    fn wave(count: u16) -> Vec<f32> {
        (0..count).map(|index| (f32::from(index) * 0.37).sin()).collect()
    }

    #[test]
    fn equal_tensors_have_no_distance_and_turned_ones_twice_the_norm() {
        let b = wave(10_000);
        let same = SketchEstimate::of(&record(&b), &record(&b)).unwrap();
        assert!(same.distance.to_bits() == 0 && same.rel_l2.to_bits() == 0 && !same.is_resolved());
        assert_eq!((same.cosine, same.equal_lanes, same.few_differing()), (Some(1.0), 251, None));
        let turned: Vec<f32> = b.iter().map(|value| -value).collect();
        let turned = SketchEstimate::of(&record(&b), &record(&turned)).unwrap();
        assert!((turned.rel_l2 / 2.0 - 1.0).abs() < 0.2, "{turned:?}");
        assert!(turned.cosine.unwrap() < -0.6, "{turned:?}");
    }

    #[test]
    fn few_differing_elements_are_counted_by_the_lanes_they_spare() {
        let b = wave(10_000);
        for count in [1_u16, 5, 40] {
            let mut c = b.clone();
            for index in 0..count {
                c[usize::from(index) * 211] += 0.5;
            }
            let estimate = SketchEstimate::of(&record(&b), &record(&c)).unwrap();
            let found = estimate.few_differing().unwrap();
            assert!((found / f64::from(count) - 1.0).abs() < 0.3, "{found} for {count}");
        }
        let all: Vec<f32> = b.iter().map(|value| value * 1.01).collect();
        assert_eq!(SketchEstimate::of(&record(&b), &record(&all)).unwrap().few_differing(), None);
    }

    #[test]
    fn sketches_of_two_versions_say_nothing_about_one_another() {
        let b = record(&wave(1000));
        let bytes: Vec<u8> = wave(1000).iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = TensorRef::strided(&bytes, DType::F32, &[1000], &[1], 0).unwrap();
        let first = observe(tensor, Content { sketch: Some(SketchVersion::First), hash: false });
        let old = TensorRecord { sketch: first.sketch.map(Arc::new), ..b.clone() };
        assert_eq!(SketchEstimate::of(&b, &old), None);
        let same = SketchEstimate::of(&old, &old).unwrap();
        assert_eq!((same.equal_lanes, same.lanes), (256, 256));
    }

    #[test]
    fn sums_of_devices_are_not_resolved_beyond_what_they_say() {
        let (b, c) =
            (wave(10_000), wave(10_000).iter().map(|value| value * (1.0 + 1e-6)).collect::<Vec<_>>());
        let noise = |sum_error| {
            let mut c = record(&c);
            c.sum_error = sum_error;
            SketchEstimate::of(&record(&b), &c).unwrap()
        };
        assert!(noise(None).is_resolved() && !noise(Some(2e-6)).is_resolved());
    }

    #[test]
    fn nothing_is_estimated_without_two_sketches_of_one_size() {
        let (b, mut c) = (record(&wave(100)), record(&wave(100)));
        assert_eq!(SketchEstimate::of(&b, &record(&wave(99))), None);
        c.sketch = None;
        assert_eq!(SketchEstimate::of(&b, &c), None);
        let nothing = record(&[f32::NAN; 4]);
        let estimate = SketchEstimate::of(&nothing, &nothing).unwrap();
        assert_eq!((estimate.rel_l2.to_bits(), estimate.cosine), (0, None));
    }
}
