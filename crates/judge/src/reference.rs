//! Errors of both sides against a third run of higher precision: which side is nearer to exact arithmetic.

use super::Cause;
use super::candidate::Candidate;
use super::difference::Difference;
use super::flow::{Flow, Place};
use super::value::{Excess, ExpectedError};
use probe_pair::BySlot;

/// A candidate at most this many times as far from the reference as the baseline is as good as the baseline:
/// the limit of the benchmark standard for the root mean square error (level L0 of the operator standards in
/// use on Ascend, which compare the error of the NPU with that of a GPU, both against a CPU).
const AS_GOOD: f64 = 2.0;

/// Errors of one value against the reference, as relative l2 errors; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReferenceErrors {
    /// Error of the baseline.
    pub baseline: Option<f64>,
    /// Error of the candidate.
    pub candidate: Option<f64>,
}

impl ReferenceErrors {
    /// Returns the ratio of the candidate's distance from the reference to the baseline's; `None` if either is
    /// unknown or the baseline is equal.
    pub fn ratio(self) -> Option<f64> {
        Some(self.candidate? / self.baseline.filter(|error| *error > 0.0)?)
    }

    /// Returns true if the candidate is as good as the baseline. Errors below `least`, the size of rounding,
    /// count as that.
    fn clears(self, least: f64) -> bool {
        matches!(self, Self { baseline: Some(b), candidate: Some(c) } if c <= AS_GOOD * b.max(least))
    }

    /// Formats the errors; empty if unknown.
    pub(super) fn text(self) -> String {
        match (self.ratio(), self.candidate) {
            (Some(ratio), _) => format!(
                "the candidate is {} times as far from the reference as the baseline is",
                if ratio < 100.0 { format!("{ratio:.2}") } else { format!("{ratio:.0}") }
            ),
            (None, Some(candidate)) if self.baseline.is_some() => {
                format!("the baseline equals the reference, the candidate is {candidate:.1e} away from it")
            }
            _ => String::new(),
        }
    }
}

/// The errors of a part by op and slot; empty without a reference.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfPart<'a>(pub(super) &'a BySlot<ReferenceErrors>);

impl OfPart<'_> {
    /// Returns the errors of a value.
    pub(super) fn errors(self, (op, slot): Place) -> ReferenceErrors {
        self.0.at(op, slot).copied().unwrap_or_default()
    }

    /// Clears faulty values that are as near to the reference as the baseline's, and returns them.
    pub(super) fn acquit(self, values: &[ExpectedError], excess: &mut [Excess]) -> Vec<Place> {
        let mut acquitted = Vec::new();
        for (value, excess) in values.iter().zip(excess) {
            if excess.is_fault && self.errors(value.place).clears(value.least) {
                excess.is_fault = false;
                acquitted.push(value.place);
            }
        }
        acquitted
    }

    /// Returns true if a candidate is based on numbers alone and these are as near to the reference as the
    /// baseline's.
    pub(super) fn acquits(self, flow: &Flow<'_>, candidate: &Candidate) -> bool {
        let Some(slot) = candidate.slot.filter(|_| candidate.cause != Cause::Argument) else { return false };
        let place = (candidate.op, slot);
        flow.fact(place).difference == Difference::Numbers && self.errors(place).clears(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_as_near_as_the_baseline_is_as_good() {
        let errors =
            |baseline, candidate| ReferenceErrors { baseline: Some(baseline), candidate: Some(candidate) };
        assert!(errors(1e-3, 2e-3).clears(0.0) && !errors(1e-3, 2.1e-3).clears(0.0));
        assert!(errors(0.0, 2e-7).clears(2e-7) && !errors(0.0, 1e-6).clears(2e-7));
        assert!(!ReferenceErrors { baseline: None, candidate: Some(0.0) }.clears(1.0));
        assert_eq!(
            errors(1e-3, 1.3e-3).text(),
            "the candidate is 1.30 times as far from the reference as the baseline is"
        );
        assert_eq!(
            errors(0.0, 1e-3).text(),
            "the baseline equals the reference, the candidate is 1.0e-3 away from it"
        );
        assert_eq!(ReferenceErrors::default().text(), "");
    }
}
