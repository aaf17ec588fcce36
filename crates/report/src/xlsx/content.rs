//! Determines the columns that a part can fill. The others are omitted from the workbook, where width is scarce.

use crate::columns::Side;
use crate::columns::{OpColumn, SlotColumn, Statistic};
use crate::rows::Cell;
use probe_compare::PartReport;
use probe_measure::Basis;
use probe_measure::{Evidence, Metric};

/// Contents of a part, as far as they decide which columns can be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Content(u16);

impl Content {
    const DATA: Self = Self(1);
    const DIFFERENCES: Self = Self(2);
    const STATISTICS: Self = Self(4);
    const CHECKSUMS: Self = Self(8);
    const VALUES: Self = Self(16);
    const GRADIENTS: Self = Self(32);
    const COUNTS: Self = Self(64);
    const SKETCHES: Self = Self(128);
    /// Answers of replays, which come later than the comparison.
    pub(super) const REPLAYS: Self = Self(256);
    const PIECES: Self = Self(512);
    /// Every column that a comparison can fill.
    pub(super) const EVERYTHING: Self = Self(255 | 512);

    /// Returns the contents of `part`.
    pub(super) fn of(part: &PartReport<'_>) -> Self {
        let mut found = if part.pieces.is_empty() { Self::default() } else { Self::PIECES };
        for evidence in part.evidence.of_slots() {
            found = found.union(match evidence {
                Evidence::Data(_) => Self::DATA,
                Evidence::Recorded(recorded) if recorded.sketch.is_some() => {
                    Self::SKETCHES.union(Self::DIFFERENCES)
                }
                Evidence::Recorded(recorded) if recorded.max.get().or(recorded.mean.get()).is_some() => {
                    Self::DIFFERENCES
                }
                _ => Self::default(),
            });
        }
        for op in part.pair.baseline.ops.iter().chain(&part.pair.candidate.ops) {
            for slot in &op.slots {
                let Some(tensor) = slot.value.tensor() else {
                    found = found.union(Self::VALUES);
                    continue;
                };
                for (holds, what) in [
                    (tensor.checksum.is_some(), Self::CHECKSUMS),
                    (tensor.requires_grad.is_some(), Self::GRADIENTS),
                    (!tensor.statistics.is_empty(), Self::STATISTICS),
                    (tensor.counts.is_some(), Self::COUNTS),
                ] {
                    if holds {
                        found = found.union(what);
                    }
                }
            }
        }
        found
    }

    /// Returns the contents of a row of an earlier comparison.
    pub(super) fn of_row<'a>(cell: impl Fn(SlotColumn) -> Cell<'a>) -> Self {
        let mut found = match cell(SlotColumn::Basis) {
            Cell::Text(basis) if basis == Basis::Data.name() => Self::DATA,
            Cell::Text(basis) if basis == Basis::Sketch.name() => Self::SKETCHES.union(Self::DIFFERENCES),
            Cell::Text(_) => Self::DIFFERENCES,
            _ => Self::default(),
        };
        if cell(SlotColumn::Pieces) != Cell::Empty {
            found = found.union(Self::PIECES);
        }
        for side in Side::ALL {
            for (column, what) in [
                (SlotColumn::Checksum(side), Self::CHECKSUMS),
                (SlotColumn::Value(side), Self::VALUES),
                (SlotColumn::RequiresGrad(side), Self::GRADIENTS),
                (SlotColumn::Statistic(side, Statistic::Norm), Self::STATISTICS),
                (SlotColumn::Statistic(side, Statistic::Zeros), Self::COUNTS),
            ] {
                if cell(column) != Cell::Empty {
                    found = found.union(what);
                }
            }
        }
        found
    }

    /// Returns the union of both.
    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    /// Bounds exist for these two. The cosine is what readers look for first, so its absence is shown rather than hidden.
    /// Sketches give two more.
    fn metric(self, metric: Metric) -> bool {
        let estimated = matches!(metric, Metric::Euclidean | Metric::Rmse) && self.has(Self::SKETCHES);
        estimated
            || self.has(Self::DATA)
            || matches!(metric, Metric::Cosine | Metric::MaxAbsErr | Metric::RelL2)
    }
}

/// Returns the columns of the table of ops that `content` can fill.
pub(super) fn op_columns(content: Content) -> Vec<OpColumn> {
    let fills = |column: &OpColumn| match column {
        OpColumn::Metric(metric) => content.metric(*metric),
        OpColumn::Estimated | OpColumn::Basis => content.has(Content::DIFFERENCES),
        OpColumn::Replay => content.has(Content::REPLAYS),
        _ => true,
    };
    OpColumn::all().into_iter().filter(fills).collect()
}

/// Returns the columns of the table of slots that `content` can fill.
pub(super) fn slot_columns(content: Content) -> Vec<SlotColumn> {
    let fills = |column: &SlotColumn| match column {
        SlotColumn::Metric(metric) => content.metric(*metric),
        SlotColumn::MaxAbsIndex | SlotColumn::MaxAbsPosition | SlotColumn::MaxAbsValue(_) => {
            content.has(Content::DATA)
        }
        SlotColumn::Statistic(_, statistic) if Statistic::RECORDED.contains(statistic) => {
            content.has(Content::DATA.union(Content::STATISTICS))
        }
        SlotColumn::Statistic(..) => content.has(Content::DATA.union(Content::COUNTS)),
        SlotColumn::Estimated
        | SlotColumn::Basis
        | SlotColumn::Difference(_)
        | SlotColumn::RelativeDifference(_) => content.has(Content::DIFFERENCES),
        SlotColumn::Checksum(_) => content.has(Content::CHECKSUMS),
        SlotColumn::Value(_) => content.has(Content::VALUES),
        SlotColumn::RequiresGrad(_) => content.has(Content::GRADIENTS),
        SlotColumn::Pieces => content.has(Content::PIECES),
        _ => true,
    };
    SlotColumn::all().into_iter().filter(fills).collect()
}
