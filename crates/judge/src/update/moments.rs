//! Changes of a tensor of which statistics alone are known.
//!
//! The mean, the largest and the least element of a tensor all change in proportion to an update that one factor
//! scales: a step that is skipped, doubled or taken at another rate. Noise changes each of them otherwise.

use probe_dump::{Number, Slot};

/// Number of elements from which on the mean and the extremes tell three things.
const TELLING: u64 = 8;

/// Relative difference of two factors that count as one.
const ALIKE: f64 = 0.01;

/// Multiple of the resolution that a change of the baseline must reach to be compared.
const SEEN: f64 = 200.0;

/// Mean, largest and least element of a tensor.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Moments {
    values: [f64; 3],
    /// Rounding of its elements, relative to one.
    unit: f64,
}

impl Moments {
    /// Reads those of a recorded tensor; `None` unless all are finite, and the tensor has several elements.
    pub(super) fn of(slot: &Slot) -> Option<Self> {
        let record = slot.value.tensor()?;
        let (max, min) = (record.statistics.max()?, record.statistics.min()?);
        let values = [record.statistics.mean()?, Number::as_f64(max), Number::as_f64(min)];
        let unit = (-f64::from(record.dtype.known()?.mantissa_bits()?)).exp2();
        let usable = record.len() >= TELLING && values.iter().all(|value| value.is_finite());
        usable.then_some(Self { values, unit })
    }

    /// Returns the size below which a change is not told from rounding.
    fn resolution(&self) -> f64 {
        self.unit * self.values[1].abs().max(self.values[2].abs())
    }
}

/// Returns the factor of the candidate's change over the baseline's: 0 if the candidate did not change at all.
/// `None` unless at least two of the three changes can be compared, and all of those show the same factor.
pub(super) fn factor(before: &[Moments; 2], after: &[Moments; 2]) -> Option<f64> {
    let resolution = after[0].resolution().max(after[1].resolution());
    let changes = |side: usize| {
        let pairs = after[side].values.iter().zip(before[side].values);
        pairs.map(move |(after, before)| after - before)
    };
    let compared = changes(0).zip(changes(1)).filter(|(b, _)| b.abs() > SEEN * resolution);
    let factors: Vec<f64> = compared.map(|(b, c)| c / b).collect();
    let (&first, others) = factors.split_first()?;
    let alike = |factor: &f64| (factor - first).abs() <= ALIKE * first.abs().max(1.0);
    (!others.is_empty() && others.iter().all(alike)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::Drawn;

    fn moments(values: &Drawn) -> Moments {
        let [mut sum, mut max, mut min] = [0.0, f64::MIN, f64::MAX];
        for &value in &values.values {
            sum += value;
            max = value.max(max);
            min = value.min(min);
        }
        Moments { values: [sum / values.values.len() as f64, max, min], unit: f64::from(f32::EPSILON) }
    }

    #[test]
    fn a_factor_of_the_update_shows_in_mean_and_extremes() {
        let (weight, update) = (Drawn::normal(1, &[64, 32]), Drawn::normal(2, &[64, 32]));
        let stepped = |rate: f64| {
            let pairs = weight.values.iter().zip(&update.values);
            let values = pairs.map(|(weight, update)| weight - 1e-2 * rate * update.signum()).collect();
            moments(&Drawn { values, ..weight.clone() })
        };
        let before = [moments(&weight); 2];
        for rate in [0.0, 0.5, 2.0] {
            let found = factor(&before, &[stepped(1.0), stepped(rate)]);
            assert!(found.is_some_and(|found| (found - rate).abs() < 0.01), "{rate}: {found:?}");
        }
        let other = weight.map(|value| value - 1e-2 * (1e3 * value).sin().signum());
        assert_eq!(factor(&before, &[stepped(1.0), moments(&other)]), None, "another direction");
        assert_eq!(factor(&before, &[before[0]; 2]), None, "no change");
    }
}
