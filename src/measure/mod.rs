//! Numbers only: statistics of one tensor, metrics of a pair. No files, no verdicts.
//!
//! Results are bit-equal for any number of threads and any CPU.

mod evidence;
mod metric;

pub use evidence::{ChecksumMatch, Evidence, RecordedComparison, StatisticDifference, compare_recorded};
pub use metric::{ALL_METRICS, Metric, PairMetrics, TensorSummary};
