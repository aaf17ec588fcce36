//! The results of measuring, and the one list of metrics that provides the columns of every report.

use super::overlap::Overlap;

/// Statistics of one tensor. Sums run over the finite elements.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TensorSummary {
    /// Number of elements.
    pub count: u64,
    /// Smallest finite element (modulus for complex); `None` if there is none.
    pub min: Option<f64>,
    /// Largest finite element (modulus for complex); `None` if there is none.
    pub max: Option<f64>,
    /// Mean of the finite elements (of the modulus for complex); `None` if there is none.
    pub mean: Option<f64>,
    /// Euclidean norm of the finite elements; 0 if there is none.
    pub norm: f64,
    /// Elements equal to zero.
    pub zeros: u64,
    /// Elements that are NaN (either part, for complex).
    pub nan: u64,
    /// Elements that are +Inf (complex: any infinite part and no NaN).
    pub pos_inf: u64,
    /// Elements that are -Inf (always 0 for complex).
    pub neg_inf: u64,
}

impl TensorSummary {
    /// Returns the number of elements that are NaN or infinite.
    pub const fn non_finite(&self) -> u64 {
        self.nan + self.pos_inf + self.neg_inf
    }
}

/// All measurements of one pair of tensors with the same number of elements.
///
/// `b` is the baseline, `c` the candidate. "Both-finite" positions are those where neither side is NaN or
/// infinite; unless said otherwise a metric runs over them and is `None` if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PairMetrics {
    /// The baseline by itself.
    pub baseline: TensorSummary,
    /// The candidate by itself.
    pub candidate: TensorSummary,
    /// Number of both-finite positions.
    pub both_finite: u64,
    /// True if the elements are the same bit for bit (same dtype, NaN payloads and signs of zero included).
    pub bit_equal: bool,
    /// Positions whose values differ: `b != c` where both are finite (so -0 equals 0), another class or sign
    /// of non-finite elsewhere.
    pub different: u64,
    /// Positions where NaN, +Inf, -Inf or finite on one side meets another class on the other side.
    pub non_finite_mismatch: u64,
    /// Both-finite positions with `b = 0` and `c != 0`; relative errors there say little.
    pub zero_baseline: u64,
    /// `b·c / (|b||c|)`, in [-1, 1]; 1 if both norms are 0, `None` if one of them is.
    pub cosine: Option<f64>,
    /// Largest `|c - b|` (modulus of the difference for complex).
    pub max_abs_err: Option<f64>,
    /// Row-major index of the first element that attains `max_abs_err`.
    pub max_abs_index: Option<u64>,
    /// Values `(b, c)` at `max_abs_index` (real parts for complex).
    pub max_abs_values: Option<(f64, f64)>,
    /// Mean of `|c - b|`.
    pub mean_abs_err: Option<f64>,
    /// Largest `|c - b| / |b|`; where `b = 0` the epsilon of the dividing type is added to both sides first.
    pub max_rel_err: Option<f64>,
    /// Mean of the same relative errors.
    pub mean_rel_err: Option<f64>,
    /// `sqrt(mean((c - b)^2))`.
    pub rmse: Option<f64>,
    /// `|c - b|`, the Euclidean distance.
    pub euclidean: Option<f64>,
    /// `|c - b| / |b|` as norms: 0 if the distance is 0, infinite if only the baseline's norm is.
    pub rel_l2: Option<f64>,
    /// Share of elements with relative error below 1/1000, in [0, 1].
    pub within_1e3: Option<f64>,
    /// Share of elements with relative error below 5/1000, in [0, 1].
    pub within_5e3: Option<f64>,
    /// Largest distance in units in the last place; only for two real float tensors of one dtype.
    pub max_ulp: Option<u64>,
    /// Overlap of index rows as sets; only for integer tensors that differ and have rows.
    pub overlap: Option<Overlap>,
}

/// The metrics of a pair, in the order of report columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Cosine similarity.
    Cosine,
    /// Largest absolute error.
    MaxAbsErr,
    /// Mean absolute error.
    MeanAbsErr,
    /// Largest relative error.
    MaxRelErr,
    /// Mean relative error.
    MeanRelErr,
    /// Root mean square error.
    Rmse,
    /// Euclidean distance.
    Euclidean,
    /// Relative l2 error.
    RelL2,
    /// Share within 1/1000.
    Within1e3,
    /// Share within 5/1000.
    Within5e3,
    /// Largest ULP distance.
    MaxUlp,
}

/// Every metric, in column order.
pub const ALL_METRICS: [Metric; 11] = [
    Metric::Cosine,
    Metric::MaxAbsErr,
    Metric::MeanAbsErr,
    Metric::MaxRelErr,
    Metric::MeanRelErr,
    Metric::Rmse,
    Metric::Euclidean,
    Metric::RelL2,
    Metric::Within1e3,
    Metric::Within5e3,
    Metric::MaxUlp,
];

impl Metric {
    /// Name in JSON and parquet: `max_abs_err`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cosine => "cosine",
            Self::MaxAbsErr => "max_abs_err",
            Self::MeanAbsErr => "mean_abs_err",
            Self::MaxRelErr => "max_rel_err",
            Self::MeanRelErr => "mean_rel_err",
            Self::Rmse => "rmse",
            Self::Euclidean => "euclidean",
            Self::RelL2 => "rel_l2",
            Self::Within1e3 => "within_1e3",
            Self::Within5e3 => "within_5e3",
            Self::MaxUlp => "max_ulp",
        }
    }

    /// Column header for people: `MaxAbsError`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cosine => "CosineSimilarity",
            Self::MaxAbsErr => "MaxAbsError",
            Self::MeanAbsErr => "MeanAbsError",
            Self::MaxRelErr => "MaxRelativeError",
            Self::MeanRelErr => "MeanRelativeError",
            Self::Rmse => "RMSE",
            Self::Euclidean => "EuclideanDistance",
            Self::RelL2 => "RelativeL2",
            Self::Within1e3 => "Within1/1000",
            Self::Within5e3 => "Within5/1000",
            Self::MaxUlp => "MaxULP",
        }
    }

    /// Describes the number in one line, with unit and range, for legends.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Cosine => {
                "angle between the two tensors as vectors: 1 same direction, 0 unrelated, -1 opposite"
            }
            Self::MaxAbsErr => {
                "largest |candidate - baseline| of any element, in the tensor's own unit, 0 or more"
            }
            Self::MeanAbsErr => "mean of |candidate - baseline|, in the tensor's own unit, 0 or more",
            Self::MaxRelErr => {
                "largest |candidate - baseline| / |baseline|; where the baseline is 0, epsilon is added to both"
            }
            Self::MeanRelErr => "mean of the relative errors of all elements",
            Self::Rmse => "root of the mean squared difference, in the tensor's own unit",
            Self::Euclidean => "length of the difference as a vector",
            Self::RelL2 => {
                "length of the difference divided by the length of the baseline; the basis of the verdicts"
            }
            Self::Within1e3 => "share of elements whose relative error is below 1/1000, 0 to 1",
            Self::Within5e3 => "share of elements whose relative error is below 5/1000, 0 to 1",
            Self::MaxUlp => {
                "largest distance in representable numbers of the dtype; only where both sides have the same float dtype"
            }
        }
    }

    /// Returns the value of this metric.
    pub const fn of(self, metrics: &PairMetrics) -> Option<f64> {
        match self {
            Self::Cosine => metrics.cosine,
            Self::MaxAbsErr => metrics.max_abs_err,
            Self::MeanAbsErr => metrics.mean_abs_err,
            Self::MaxRelErr => metrics.max_rel_err,
            Self::MeanRelErr => metrics.mean_rel_err,
            Self::Rmse => metrics.rmse,
            Self::Euclidean => metrics.euclidean,
            Self::RelL2 => metrics.rel_l2,
            Self::Within1e3 => metrics.within_1e3,
            Self::Within5e3 => metrics.within_5e3,
            Self::MaxUlp => match metrics.max_ulp {
                // An ULP distance of float64 can exceed 2^53; the report column is a binary64, the field is
                // exact.
                Some(ulp) => Some(ulp as f64),
                None => None,
            },
        }
    }
}
