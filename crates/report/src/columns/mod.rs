//! Columns of the tables: one enum per table, shared by every writer, legend and document.
//!
//! Metrics come from [`ALL_METRICS`](probe_measure::ALL_METRICS); nothing here depends on a file format.

mod column;
mod op;
mod slot;
mod unmatched;

pub use column::{FIRST_METRICS, Kind, Side, Statistic};
pub use op::OpColumn;
pub use slot::SlotColumn;
pub use unmatched::UnmatchedColumn;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use probe_measure::ALL_METRICS;

    #[test]
    fn names_and_labels_are_unique_and_metrics_are_all_there() {
        let slots = SlotColumn::with_programs();
        assert_eq!(slots.iter().map(|column| column.name()).collect::<HashSet<_>>().len(), slots.len());
        assert_eq!(slots.iter().map(|column| column.label()).collect::<HashSet<_>>().len(), slots.len());
        let ops = OpColumn::all();
        assert_eq!(ops.iter().map(|column| column.label()).collect::<HashSet<_>>().len(), ops.len());
        for metric in ALL_METRICS {
            assert!(slots.contains(&SlotColumn::Metric(metric)) && ops.contains(&OpColumn::Metric(metric)));
        }
    }
}
