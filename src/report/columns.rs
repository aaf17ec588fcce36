//! The columns of the two tables, each as one enum that every writer, legend and document takes its list from.
//!
//! Metrics come from [`ALL_METRICS`]; nothing here knows a file format.

use crate::measure::{ALL_METRICS, Metric};

/// What the cells of a column hold.
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

    /// The word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Candidate => "candidate",
        }
    }
}

/// A number that says what one tensor looks like by itself.
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

    /// Those that captures record, so that differences exist without the data.
    pub const RECORDED: [Self; 4] = [Self::Max, Self::Min, Self::Mean, Self::Norm];

    /// Name inside a column name.
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

    const fn meaning(self) -> &'static str {
        match self {
            Self::Max => "largest finite element (as recorded where only statistics exist)",
            Self::Min => "smallest finite element (as recorded where only statistics exist)",
            Self::Mean => "mean of the finite elements (as recorded where only statistics exist)",
            Self::Norm => "Euclidean norm of the finite elements (as recorded where only statistics exist)",
            Self::Nan => "elements that are NaN; known only where the data was read",
            Self::PosInf => "elements that are +Inf; known only where the data was read",
            Self::NegInf => "elements that are -Inf; known only where the data was read",
            Self::Zeros => "elements equal to zero; known only where the data was read",
        }
    }

    const fn is_count(self) -> bool {
        matches!(self, Self::Nan | Self::PosInf | Self::NegInf | Self::Zeros)
    }
}

/// Columns of the table with one row per slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotColumn {
    /// Iteration.
    Step,
    /// Rank.
    Rank,
    /// Place of the op in execution order.
    Order,
    /// Op name.
    Op,
    /// Slot path.
    Slot,
    /// Verdict of the pair.
    Verdict,
    /// Role of the op.
    Role,
    /// Cause, for the ops at fault.
    Cause,
    /// Element type, or the kind of argument.
    DType(Side),
    /// Sizes of the dimensions.
    Shape(Side),
    /// Value of an argument.
    Value(Side),
    /// One metric.
    Metric(Metric),
    /// Whether metrics are bounds.
    Estimated,
    /// Row-major index of the largest error.
    MaxAbsIndex,
    /// The same as coordinates.
    MaxAbsPosition,
    /// The value there.
    MaxAbsValue(Side),
    /// One statistic of one side.
    Statistic(Side, Statistic),
    /// Candidate minus baseline of a recorded statistic.
    Difference(Statistic),
    /// The same relative to the scale of the tensor.
    RelativeDifference(Statistic),
    /// Recorded checksum.
    Checksum(Side),
    /// Whether autograd tracked the tensor.
    RequiresGrad(Side),
    /// The tolerance that decided.
    Tolerance,
    /// Why.
    Reason,
}

impl SlotColumn {
    /// Every column, in order.
    pub fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Step,
            Self::Rank,
            Self::Order,
            Self::Op,
            Self::Slot,
            Self::Verdict,
            Self::Role,
            Self::Cause,
        ];
        all.extend(Side::ALL.map(Self::DType));
        all.extend(Side::ALL.map(Self::Shape));
        all.extend(Side::ALL.map(Self::Value));
        all.extend(ALL_METRICS.map(Self::Metric));
        all.extend([Self::Estimated, Self::MaxAbsIndex, Self::MaxAbsPosition]);
        all.extend(Side::ALL.map(Self::MaxAbsValue));
        for side in Side::ALL {
            all.extend(Statistic::ALL.map(|statistic| Self::Statistic(side, statistic)));
        }
        all.extend(Statistic::RECORDED.map(Self::Difference));
        all.extend(Statistic::RECORDED.map(Self::RelativeDifference));
        all.extend(Side::ALL.map(Self::Checksum));
        all.extend(Side::ALL.map(Self::RequiresGrad));
        all.extend([Self::Tolerance, Self::Reason]);
        all
    }

    /// Name in machine formats: `baseline_max`.
    pub fn name(self) -> String {
        match self {
            Self::Step => "step".into(),
            Self::Rank => "rank".into(),
            Self::Order => "order".into(),
            Self::Op => "op".into(),
            Self::Slot => "slot".into(),
            Self::Verdict => "verdict".into(),
            Self::Role => "role".into(),
            Self::Cause => "cause".into(),
            Self::DType(side) => format!("{}_dtype", side.name()),
            Self::Shape(side) => format!("{}_shape", side.name()),
            Self::Value(side) => format!("{}_value", side.name()),
            Self::Metric(metric) => metric.name().into(),
            Self::Estimated => "estimated".into(),
            Self::MaxAbsIndex => "max_abs_index".into(),
            Self::MaxAbsPosition => "max_abs_position".into(),
            Self::MaxAbsValue(side) => format!("{}_at_max_abs", side.name()),
            Self::Statistic(side, statistic) => format!("{}_{}", side.name(), statistic.name()),
            Self::Difference(statistic) => format!("{}_difference", statistic.name()),
            Self::RelativeDifference(statistic) => format!("{}_relative_difference", statistic.name()),
            Self::Checksum(side) => format!("{}_checksum", side.name()),
            Self::RequiresGrad(side) => format!("{}_requires_grad", side.name()),
            Self::Tolerance => "tolerance".into(),
            Self::Reason => "reason".into(),
        }
    }

    /// Header for people: `baseline max`, `MaxAbsError`.
    pub fn label(self) -> String {
        match self {
            Self::Metric(metric) => metric.label().into(),
            _ => self.name().replace('_', " "),
        }
    }

    /// What the cells hold.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Step | Self::Rank | Self::Order | Self::MaxAbsIndex => Kind::Count,
            Self::Verdict | Self::Role | Self::Cause | Self::DType(_) => Kind::Category,
            Self::Metric(_) | Self::MaxAbsValue(_) | Self::Difference(_) | Self::RelativeDifference(_) => {
                Kind::Real
            }
            Self::Statistic(_, statistic) => {
                if statistic.is_count() {
                    Kind::Count
                } else {
                    Kind::Real
                }
            }
            Self::Estimated | Self::RequiresGrad(_) => Kind::Flag,
            Self::Op
            | Self::Slot
            | Self::Shape(_)
            | Self::Value(_)
            | Self::MaxAbsPosition
            | Self::Checksum(_)
            | Self::Tolerance
            | Self::Reason => Kind::Text,
        }
    }

    /// Width in a spreadsheet, in characters.
    pub const fn width(self) -> u16 {
        match self {
            Self::Step | Self::Rank | Self::Order => 7,
            Self::Op => 44,
            Self::Slot => 16,
            Self::Verdict | Self::Role | Self::Cause => 11,
            Self::DType(_) => 14,
            Self::Shape(_) => 17,
            Self::Value(_) => 16,
            Self::Metric(metric) => metric_width(metric),
            Self::Estimated => 10,
            Self::MaxAbsIndex | Self::MaxAbsValue(_) | Self::Statistic(..) => 15,
            Self::Difference(_) => 15,
            Self::RelativeDifference(_) | Self::MaxAbsPosition | Self::Checksum(_) => 19,
            Self::RequiresGrad(_) => 13,
            Self::Tolerance | Self::Reason => 60,
        }
    }

    /// One line for legends.
    pub fn meaning(self) -> String {
        match self {
            Self::Step => "iteration, as the baseline numbers it".into(),
            Self::Rank => "process of the distributed run, 0 when there is one".into(),
            Self::Order => ORDER.into(),
            Self::Op => "full name of the op, as recorded".into(),
            Self::Slot => {
                "value inside the op: input.N, kwarg.NAME, parameter.NAME, output.N, grad.NAME".into()
            }
            Self::Verdict => "what was decided about this pair of values; see the verdicts below".into(),
            Self::Role => "role of the op in the spread of error; see the roles below".into(),
            Self::Cause => "kind of fault, for ops that introduce one; see the causes below".into(),
            Self::DType(side) => {
                format!(
                    "element type of the {} tensor; for arguments their kind (int, str, None)",
                    side.name()
                )
            }
            Self::Shape(side) => {
                format!("sizes of the dimensions of the {} tensor; [] is a scalar", side.name())
            }
            Self::Value(side) => {
                format!("value of the argument in the {}, for what is not a tensor", side.name())
            }
            Self::Metric(metric) => metric.meaning().into(),
            Self::Estimated => ESTIMATED.into(),
            Self::MaxAbsIndex => {
                "row-major index of the first element with the largest absolute error, from 0".into()
            }
            Self::MaxAbsPosition => "the same element as coordinates in the shape, from 0".into(),
            Self::MaxAbsValue(side) => {
                format!("value of the {} at that element (real part for complex)", side.name())
            }
            Self::Statistic(side, statistic) => format!("{}: {}", side.name(), statistic.meaning()),
            Self::Difference(statistic) => {
                format!("candidate minus baseline of the recorded {}", statistic.name())
            }
            Self::RelativeDifference(statistic) => format!(
                "size of that difference relative to the scale of the baseline tensor ({})",
                if matches!(statistic, Statistic::Max | Statistic::Min) {
                    "its largest magnitude"
                } else {
                    "its norm"
                }
            ),
            Self::Checksum(side) => format!("checksum that the {} recorded of the bytes", side.name()),
            Self::RequiresGrad(side) => format!("whether autograd tracked the {} tensor", side.name()),
            Self::Tolerance => "the rule that decided, with its limit and where the limit comes from".into(),
            Self::Reason => "why the verdict is what it is; empty where it needs no words".into(),
        }
    }
}

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
    /// The slot that stands for the op.
    Slot,
    /// One metric of that slot.
    Metric(Metric),
    /// Whether metrics are bounds.
    Estimated,
    /// Largest error it was given.
    InputError,
    /// Largest error it produced.
    OutputError,
    /// Number of slots.
    Slots,
    /// Source line.
    Source,
    /// Why.
    Reason,
}

impl OpColumn {
    /// Every column, in order.
    pub fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Step,
            Self::Rank,
            Self::Order,
            Self::Op,
            Self::Phase,
            Self::Role,
            Self::Cause,
            Self::Verdict,
            Self::Slot,
            Self::InputError,
            Self::OutputError,
        ];
        all.extend(ALL_METRICS.map(Self::Metric));
        all.extend([Self::Estimated, Self::Slots, Self::Module, Self::Source, Self::Reason]);
        all
    }

    /// Name in machine formats and documents.
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
            Self::InputError => "input_error",
            Self::OutputError => "output_error",
            Self::Slots => "slots",
            Self::Source => "source",
            Self::Reason => "reason",
        }
    }

    /// Header for people.
    pub fn label(self) -> String {
        match self {
            Self::Metric(metric) => metric.label().into(),
            Self::Slot => "worst slot".into(),
            _ => self.name().replace('_', " "),
        }
    }

    /// What the cells hold.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Step | Self::Rank | Self::Order | Self::Slots => Kind::Count,
            Self::Phase | Self::Role | Self::Cause | Self::Verdict => Kind::Category,
            Self::Metric(_) | Self::InputError | Self::OutputError => Kind::Real,
            Self::Estimated => Kind::Flag,
            Self::Op | Self::Module | Self::Slot | Self::Source | Self::Reason => Kind::Text,
        }
    }

    /// Width in a spreadsheet, in characters.
    pub const fn width(self) -> u16 {
        match self {
            Self::Step | Self::Rank | Self::Order | Self::Slots => 7,
            Self::Op => 44,
            Self::Phase | Self::Role | Self::Cause | Self::Verdict => 11,
            Self::Module => 24,
            Self::Slot => 16,
            Self::Metric(metric) => metric_width(metric),
            Self::Estimated => 10,
            Self::InputError | Self::OutputError => 12,
            Self::Source => 22,
            Self::Reason => 70,
        }
    }

    /// One line for legends.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Step => "iteration, as the baseline numbers it",
            Self::Rank => "process of the distributed run, 0 when there is one",
            Self::Order => ORDER,
            Self::Op => "full name of the op, as recorded; leads to its rows in the sheet of tensors",
            Self::Phase => {
                "forward, backward or parameter gradient; empty for saved variables and collections"
            }
            Self::Module => "path of the module the op ran in, where recorded",
            Self::Role => "role of the op in the spread of error; see the roles below",
            Self::Cause => "kind of fault, for ops that introduce one; see the causes below",
            Self::Verdict => "worst verdict among the slots of the op; see the verdicts below",
            Self::Slot => {
                "the slot that decided, else the result with the largest error; the metrics are of this slot"
            }
            Self::Metric(metric) => metric.meaning(),
            Self::Estimated => ESTIMATED,
            Self::InputError => "largest relative l2 error among what the op was given",
            Self::OutputError => "largest relative l2 error among what the op produced",
            Self::Slots => "number of values recorded of the op, both sides together",
            Self::Source => {
                "innermost line of the call stack outside the framework, where stacks were recorded"
            }
            Self::Reason => "why the op has its role; empty for clean ops",
        }
    }
}

const ORDER: &str = "place of the op in execution order within its step and rank, from 0";
const ESTIMATED: &str =
    "yes where only recorded statistics exist: metrics are then lower bounds of the true value";

const fn metric_width(metric: Metric) -> u16 {
    let label = metric.label().len();
    // The label and the filter arrow must fit; numbers need 10 characters.
    if label < 10 { 12 } else { label as u16 + 3 }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_labels_are_unique_and_metrics_are_all_there() {
        let slots = SlotColumn::all();
        assert_eq!(slots.iter().map(|column| column.name()).collect::<HashSet<_>>().len(), slots.len());
        assert_eq!(slots.iter().map(|column| column.label()).collect::<HashSet<_>>().len(), slots.len());
        let ops = OpColumn::all();
        assert_eq!(ops.iter().map(|column| column.label()).collect::<HashSet<_>>().len(), ops.len());
        for metric in ALL_METRICS {
            assert!(slots.contains(&SlotColumn::Metric(metric)) && ops.contains(&OpColumn::Metric(metric)));
        }
    }
}
