//! Compares tensors by their recorded statistics if their content is not available.

use std::fmt;

use crate::pack::Statistics;

impl Statistics {
    /// Returns the largest difference of the four numbers, relative to the tensor's magnitude. `None` if a number is missing
    /// or not finite.
    pub(super) fn distance(&self, other: &Self) -> Option<f64> {
        let size = [self.min, self.max, other.min, other.max]
            .into_iter()
            .flatten()
            .map(f64::abs)
            .fold(0.0, f64::max);
        let relative = |x: Option<f64>, y: Option<f64>, scale: f64| {
            let difference = (x? - y?).abs();
            Some(if difference > 0.0 { difference / scale } else { 0.0 })
        };
        let norm = self.norm?.abs().max(other.norm?.abs());
        let distances = [
            relative(self.min, other.min, size)?,
            relative(self.max, other.max, size)?,
            relative(self.mean, other.mean, size)?,
            relative(self.norm, other.norm, norm)?,
        ];
        let distance = distances.into_iter().fold(0.0, f64::max);
        distance.is_finite().then_some(distance)
    }

    /// Describes a difference beyond the rounding of float32 sums, which is bounded by `ulps` units per doubling of the
    /// elements. Non-finite numbers must be equal on both sides.
    pub(super) fn difference(&self, other: &Self, ulps: f64) -> Option<String> {
        let size = [self.min, self.max].into_iter().flatten().map(f64::abs).fold(0.0, f64::max);
        // The element count is at least the square of norm over magnitude.
        let norm = self.norm.map_or(0.0, f64::abs);
        let elements = if size > 0.0 && norm.is_finite() { (norm / size).powi(2).max(2.0) } else { 2.0 };
        let rounding = ulps * f64::from(f32::EPSILON) * elements.log2().max(1.0);
        for (word, x, y, allowed) in [
            ("max", self.max, other.max, 0.0),
            ("min", self.min, other.min, 0.0),
            ("mean", self.mean, other.mean, rounding * size),
            ("norm", self.norm, other.norm, rounding * norm),
        ] {
            let (Some(x), Some(y)) = (x, y) else {
                if x.is_some() == y.is_some() {
                    continue;
                }
                return Some(format!("the {word} is recorded on one side only"));
            };
            let same = x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()) || (x - y).abs() <= allowed;
            if !same {
                return Some(format!("the {word} differs by {:.3e}", (x - y).abs()));
            }
        }
        None
    }

    /// Returns true if all agrees but the mean, which one side cut to an integer: msprobe measures integers of MindSpore so.
    pub(super) fn differs_by_cut_mean(&self, other: &Self, ulps: f64) -> bool {
        let (Some(x), Some(y)) = (self.mean, other.mean) else { return false };
        let whole = |value: f64| value.fract().abs().to_bits() == 0;
        let integers = [self.min, self.max, other.min, other.max].into_iter().flatten().all(whole);
        let cut = |exact: f64, cut: f64| whole(cut) && !whole(exact) && exact.trunc().total_cmp(&cut).is_eq();
        integers
            && (cut(x, y) || cut(y, x))
            && self.difference(&Self { mean: self.mean, ..*other }, ulps).is_none()
    }

    /// Returns true if any of the numbers is NaN.
    pub(super) fn has_nan(&self) -> bool {
        self.nan.is_some_and(|count| count > 0)
            || [self.min, self.max, self.mean, self.norm].into_iter().flatten().any(f64::is_nan)
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for (word, value) in [("min", self.min), ("max", self.max), ("mean", self.mean), ("norm", self.norm)]
        {
            if let Some(value) = value {
                write!(f, "{gap}{word} {value}")?;
                gap = " ";
            }
        }
        Ok(())
    }
}
