//! Evidence for a pair of slots: exact metrics if there is data, estimates if there are sketches, bounds if
//! there are only recorded statistics or checksums.

use super::{ALL_METRICS, KeptMetrics, Metric, PairMetrics, RecordedComparison};

probe_dump::named!(Basis, "basis");

/// Evidence for one pair of slots.
#[derive(Debug, Clone, PartialEq)]
pub enum Evidence {
    /// Both tensors were read and measured.
    Data(KeptMetrics),
    /// Only recorded statistics or checksums exist.
    Recorded(Box<RecordedComparison>),
    /// The data of at least one side should be there but could not be read.
    Unreadable(Box<Unreadable>),
    /// Nothing to measure: not a pair of tensors, sizes that do not match, or nothing recorded.
    Nothing,
}

/// Reasons why the data of a pair could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The baseline's, if any.
    pub baseline: Option<Box<str>>,
    /// The candidate's, if any.
    pub candidate: Option<Box<str>>,
}

/// Basis of a pair's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The elements: metrics are exact.
    Data,
    /// Sketches: metrics are estimates, within 20 % and not below 3e-7 relative; `max_abs_err` is a lower bound.
    Sketch,
    /// Recorded statistics: metrics are lower bounds.
    Statistics,
}

impl Basis {
    /// Every basis, from exact to vague.
    pub const ALL: [Self; 3] = [Self::Data, Self::Sketch, Self::Statistics];

    /// The word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Sketch => "sketch",
            Self::Statistics => "statistics",
        }
    }

    /// The sign before a metric that is not exact.
    pub const fn sign(self, metric: Metric) -> &'static str {
        match (self, metric) {
            (Self::Data, _) => "",
            (Self::Sketch, Metric::RelL2 | Metric::Euclidean | Metric::Cosine | Metric::Rmse) => "≈",
            (Self::Sketch | Self::Statistics, _) => ">=",
        }
    }
}

impl Evidence {
    /// Returns the basis of the metrics; `None` if there are none.
    pub fn basis(&self) -> Option<Basis> {
        match self {
            Self::Data(_) => Some(Basis::Data),
            Self::Recorded(recorded) if recorded.sketch.is_some() => Some(Basis::Sketch),
            Self::Recorded(_) => Some(Basis::Statistics),
            Self::Unreadable(_) | Self::Nothing => None,
        }
    }

    /// Returns true if a difference cannot hide: elements or sketches were compared, not just statistics.
    pub fn is_sharp(&self) -> bool {
        matches!(self.basis(), Some(Basis::Data | Basis::Sketch))
    }

    /// Returns the metrics of two tensors that were read.
    pub fn measured(&self) -> Option<PairMetrics> {
        match self {
            Self::Data(kept) => Some(kept.metrics()),
            Self::Recorded(_) | Self::Unreadable(_) | Self::Nothing => None,
        }
    }

    /// Returns the value of a metric, exact or estimated; `None` if it is undefined or unknown.
    pub fn metric(&self, metric: Metric) -> Option<f64> {
        self.metric_of(metric, self.measured().as_ref())
    }

    /// Returns all metrics in column order.
    pub fn metrics(&self) -> [(Metric, Option<f64>); ALL_METRICS.len()] {
        let measured = self.measured();
        ALL_METRICS.map(|metric| (metric, self.metric_of(metric, measured.as_ref())))
    }

    /// Like [`Self::metric`], given the result of [`Self::measured`], which is most of the work.
    pub fn metric_of(&self, metric: Metric, measured: Option<&PairMetrics>) -> Option<f64> {
        match self {
            Self::Data(_) => metric.of(measured?),
            Self::Recorded(recorded) => {
                let bound = match metric {
                    Metric::RelL2 => recorded.rel_l2_at_least.get(),
                    Metric::MaxAbsErr => recorded.max_abs_err_at_least.get(),
                    _ => None,
                };
                let estimate = recorded.sketch.as_ref().and_then(|sketch| sketch.metric(metric));
                // A proven bound beats a smaller estimate.
                [estimate, bound].into_iter().flatten().reduce(f64::max)
            }
            Self::Unreadable(_) | Self::Nothing => None,
        }
    }

    /// Returns true if [`Evidence::metric`] yields estimates or lower bounds, not exact values.
    pub const fn is_estimate(&self) -> bool {
        matches!(self, Self::Recorded(_))
    }
}
