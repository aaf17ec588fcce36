//! Numbers only: statistics of one tensor, metrics of a pair. No files, no verdicts.
//!
//! Results are bit-equal for any number of threads and any CPU.

mod metric;

pub use metric::{ALL_METRICS, Metric, PairMetrics, TensorSummary};
