//! Columns of the table with one row per op.

use super::column::{BASIS, ESTIMATED, FIRST_METRICS, Kind, METRIC_WIDTH, ORDER, other_metrics};
use probe_measure::Metric;

/// Columns of the table with one row per op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpColumn {
    /// Iteration.
    Step,
    /// Rank.
    Rank,
    /// Place in execution order.
    Order,
    /// Op name.
    Op,
    /// Pass it ran in.
    Phase,
    /// Module path.
    Module,
    /// Role.
    Role,
    /// Cause.
    Cause,
    /// Worst verdict.
    Verdict,
    /// The slot that represents the op.
    Slot,
    /// One metric of that slot.
    Metric(Metric),
    /// True if the metrics are bounds.
    Estimated,
    /// Data the metrics were computed from.
    Basis,
    /// Largest error of the inputs.
    InputError,
    /// Largest error of the outputs.
    OutputError,
    /// Number of slots.
    Slots,
    /// Answer of a replay.
    Replay,
    /// Source line.
    Source,
    /// Reason for the op's role.
    Reason,
}

impl OpColumn {
    /// Returns every column, in order. Those up to the source fit a screen of 1600 pixels.
    pub fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Step,
            Self::Rank,
            Self::Order,
            Self::Op,
            Self::Verdict,
            Self::Role,
            Self::Cause,
            Self::Slot,
        ];
        all.extend(FIRST_METRICS.map(Self::Metric));
        all.extend([
            Self::Basis,
            Self::InputError,
            Self::OutputError,
            Self::Replay,
            Self::Source,
            Self::Reason,
        ]);
        all.extend([Self::Phase, Self::Module]);
        all.extend(other_metrics().map(Self::Metric));
        all.extend([Self::Estimated, Self::Slots]);
        all
    }

    /// Returns the name used in machine formats and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Rank => "rank",
            Self::Order => "order",
            Self::Op => "op",
            Self::Phase => "phase",
            Self::Module => "module",
            Self::Role => "role",
            Self::Cause => "cause",
            Self::Verdict => "verdict",
            Self::Slot => "slot",
            Self::Metric(metric) => metric.name(),
            Self::Estimated => "estimated",
            Self::Basis => "basis",
            Self::InputError => "input_error",
            Self::OutputError => "output_error",
            Self::Slots => "slots",
            Self::Replay => "replay",
            Self::Source => "source",
            Self::Reason => "reason",
        }
    }

    /// Returns the header for people.
    pub fn label(self) -> String {
        match self {
            Self::Metric(metric) => metric.label().into(),
            Self::Slot => "worst slot".into(),
            _ => self.name().replace('_', " "),
        }
    }

    /// Returns the type of the cells.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Step | Self::Rank | Self::Order | Self::Slots => Kind::Count,
            Self::Phase | Self::Role | Self::Cause | Self::Verdict | Self::Basis => Kind::Category,
            Self::Metric(_) | Self::InputError | Self::OutputError => Kind::Real,
            Self::Estimated => Kind::Flag,
            Self::Op | Self::Module | Self::Slot | Self::Replay | Self::Source | Self::Reason => Kind::Text,
        }
    }

    /// Returns the width of the content in a spreadsheet, in characters; a longer label widens it.
    pub const fn width(self) -> u16 {
        match self {
            Self::Step | Self::Rank | Self::Order | Self::Slots => 7,
            Self::Op => 48,
            Self::Phase | Self::Role | Self::Cause | Self::Verdict => 11,
            Self::Module => 24,
            Self::Slot => 16,
            Self::Metric(_) => METRIC_WIDTH,
            Self::Estimated | Self::Basis => 10,
            Self::InputError | Self::OutputError => 12,
            Self::Replay => 84,
            Self::Source => 26,
            Self::Reason => 70,
        }
    }

    /// Returns the one-line description for legends.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Step => "iteration, as the baseline numbers it",
            Self::Rank => "process of the distributed run; 0 if there is only one",
            Self::Order => ORDER,
            Self::Op => "full name of the op, as recorded; links to its rows in the sheet tensors",
            Self::Phase => {
                "forward, backward or parameter gradient; empty for saved variables and collections"
            }
            Self::Module => "path of the module the op ran in, if recorded",
            Self::Role => "how the op propagates error; see the roles",
            Self::Cause => "kind of fault, for ops that introduce one; see the causes",
            Self::Verdict => "worst verdict among the slots of the op; see the verdicts",
            Self::Slot => {
                "the slot that decided, or else the result with the largest error; the metrics are those of this slot"
            }
            Self::Metric(metric) => metric.meaning(),
            Self::Estimated => ESTIMATED,
            Self::Basis => BASIS,
            Self::InputError => "largest relative l2 error among the inputs of the op",
            Self::OutputError => "largest relative l2 error among the outputs of the op",
            Self::Slots => "number of values recorded for the op, both sides together",
            Self::Replay => {
                "answer of `probe replay`, if the op was replayed; links to its numbers in the sheet replays"
            }
            Self::Source => "innermost line of the call stack outside the framework, if stacks were recorded",
            Self::Reason => "why the op has its role; empty for clean ops",
        }
    }
}
