//! Types that the columns of all tables share.

use probe_measure::{ALL_METRICS, Metric};

/// Type of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole number, 0 or more.
    Count,
    /// Binary64; NaN and infinities are values, a missing number is an empty cell.
    Real,
    /// True or false.
    Flag,
    /// One of a few words.
    Category,
    /// Any text.
    Text,
}

/// Side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The trusted run.
    Baseline,
    /// The run under test.
    Candidate,
}

impl Side {
    /// Both sides, in column order.
    pub const ALL: [Self; 2] = [Self::Baseline, Self::Candidate];

    /// Returns the word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Candidate => "candidate",
        }
    }
}

/// A number that describes a single tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// Largest element.
    Max,
    /// Smallest element.
    Min,
    /// Mean.
    Mean,
    /// Euclidean norm.
    Norm,
    /// NaN elements.
    Nan,
    /// +Inf elements.
    PosInf,
    /// -Inf elements.
    NegInf,
    /// Zero elements.
    Zeros,
}

impl Statistic {
    /// Every statistic, in column order.
    pub const ALL: [Self; 8] =
        [Self::Max, Self::Min, Self::Mean, Self::Norm, Self::Nan, Self::PosInf, Self::NegInf, Self::Zeros];

    /// Statistics that captures record; their differences are known even without the data.
    pub const RECORDED: [Self; 4] = [Self::Max, Self::Min, Self::Mean, Self::Norm];

    /// Returns the name as used inside a column name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Min => "min",
            Self::Mean => "mean",
            Self::Norm => "norm",
            Self::Nan => "nan",
            Self::PosInf => "pos_inf",
            Self::NegInf => "neg_inf",
            Self::Zeros => "zeros",
        }
    }

    pub(super) const fn meaning(self) -> &'static str {
        match self {
            Self::Max => "largest finite element (as recorded if only statistics exist)",
            Self::Min => "smallest finite element (as recorded if only statistics exist)",
            Self::Mean => "mean of the finite elements (as recorded if only statistics exist)",
            Self::Norm => "Euclidean norm of the finite elements (as recorded if only statistics exist)",
            Self::Nan => "elements that are NaN; known if the data was read or the capture counted them",
            Self::PosInf => "elements that are +Inf; known if the data was read or the capture counted them",
            Self::NegInf => "elements that are -Inf; known if the data was read or the capture counted them",
            Self::Zeros => "elements equal to zero; known if the data was read or the capture counted them",
        }
    }

    pub(super) const fn is_count(self) -> bool {
        matches!(self, Self::Nan | Self::PosInf | Self::NegInf | Self::Zeros)
    }
}

pub(super) const ORDER: &str = "place of the op in execution order within its step and rank, from 0";
pub(super) const ESTIMATED: &str =
    "yes if the elements were not compared: metrics are then estimates or lower bounds, as the basis says";
pub(super) const BASIS: &str = "what the metrics are based on: data (exact), sketch (estimates within 20 %, max_abs_err a lower bound) or statistics (lower bounds)";

/// Width of a metric column in characters, with some padding.
pub(super) const METRIC_WIDTH: u16 = 12;

/// Metrics shown beside the verdict: the size of the error, and two that users of the older tool look for.
pub const FIRST_METRICS: [Metric; 3] = [Metric::RelL2, Metric::Cosine, Metric::MaxAbsErr];

/// Returns the metrics shown further to the right.
pub(super) fn other_metrics() -> impl Iterator<Item = Metric> {
    ALL_METRICS.into_iter().filter(|metric| !FIRST_METRICS.contains(metric))
}
