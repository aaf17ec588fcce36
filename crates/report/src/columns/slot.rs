//! Columns of the table with one row per slot.

use super::column::{
    BASIS, ESTIMATED, FIRST_METRICS, Kind, METRIC_WIDTH, ORDER, Side, Statistic, other_metrics,
};
use super::op::OpColumn;
use probe_measure::Metric;

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
    /// True if the metrics are estimates or bounds.
    Estimated,
    /// Data the metrics were computed from.
    Basis,
    /// Row-major index of the largest error.
    MaxAbsIndex,
    /// The same index as coordinates.
    MaxAbsPosition,
    /// The value at that index.
    MaxAbsValue(Side),
    /// One statistic of one side.
    Statistic(Side, Statistic),
    /// Candidate minus baseline of a recorded statistic.
    Difference(Statistic),
    /// The same difference relative to the scale of the tensor.
    RelativeDifference(Statistic),
    /// Recorded checksum.
    Checksum(Side),
    /// True if autograd tracked the tensor.
    RequiresGrad(Side),
    /// Error against the reference run.
    ReferenceError(Side),
    /// The tolerance that decided the verdict.
    Tolerance,
    /// Reason for the verdict.
    Reason,
    /// Pieces of the value that ranks hold, if one side is a run on many ranks.
    Pieces,
    /// Pass the op ran in.
    Phase,
    /// Path of the module the op ran in.
    Module,
    /// Sides that have the op.
    Recorded,
    /// Source line of the op.
    Source,
    /// Call stack of the op.
    Stack(Side),
    /// Largest error of the op's inputs.
    InputError,
    /// Largest error of the op's outputs.
    OutputError,
    /// Reason for the role of the op.
    OpReason,
    /// The op at fault that caused the error of this op.
    Follows,
    /// True if the slot represents its op.
    Decides,
    /// The error that was compared with the expectation.
    JudgedError,
    /// Error the op may add on its own.
    Floor,
    /// Error the op may add on its own, plus the error its inputs explain.
    Expected,
    /// Number of the value within its step and rank.
    Identity,
    /// Row-major index of the largest or the smallest element of one side.
    ExtremeIndex(Side, Statistic),
}

impl SlotColumn {
    /// Columns for programs only: facts about the op of a row, and data that pages are built from.
    pub const FOR_PROGRAMS: [Self; 19] = [
        Self::Phase,
        Self::Module,
        Self::Recorded,
        Self::Source,
        Self::Stack(Side::Baseline),
        Self::Stack(Side::Candidate),
        Self::InputError,
        Self::OutputError,
        Self::OpReason,
        Self::Follows,
        Self::Decides,
        Self::JudgedError,
        Self::Floor,
        Self::Expected,
        Self::Identity,
        Self::ExtremeIndex(Side::Baseline, Statistic::Max),
        Self::ExtremeIndex(Side::Baseline, Statistic::Min),
        Self::ExtremeIndex(Side::Candidate, Statistic::Max),
        Self::ExtremeIndex(Side::Candidate, Statistic::Min),
    ];

    /// Returns the columns of files for programs: every column, then [`SlotColumn::FOR_PROGRAMS`].
    pub fn with_programs() -> Vec<Self> {
        let mut all = Self::all();
        all.extend(Self::FOR_PROGRAMS);
        all
    }

    /// Returns every column, in order. Those up to the basis fit a screen of 1600 pixels.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Step, Self::Rank, Self::Order, Self::Op, Self::Slot, Self::Verdict];
        all.extend(FIRST_METRICS.map(Self::Metric));
        all.extend([Self::Basis, Self::Role, Self::Cause]);
        all.extend(Side::ALL.map(Self::DType));
        all.extend(Side::ALL.map(Self::Shape));
        all.extend(Side::ALL.map(Self::Value));
        all.extend(other_metrics().map(Self::Metric));
        all.extend([Self::Estimated, Self::MaxAbsIndex, Self::MaxAbsPosition]);
        all.extend(Side::ALL.map(Self::MaxAbsValue));
        for side in Side::ALL {
            all.extend(Statistic::ALL.map(|statistic| Self::Statistic(side, statistic)));
        }
        all.extend(Statistic::RECORDED.map(Self::Difference));
        all.extend(Statistic::RECORDED.map(Self::RelativeDifference));
        all.extend(Side::ALL.map(Self::Checksum));
        all.extend(Side::ALL.map(Self::RequiresGrad));
        all.extend(Side::ALL.map(Self::ReferenceError));
        all.extend([Self::Tolerance, Self::Reason, Self::Pieces]);
        all
    }

    /// Returns the name used in machine formats, such as `baseline_max`.
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
            Self::Basis => "basis".into(),
            Self::MaxAbsIndex => "max_abs_index".into(),
            Self::MaxAbsPosition => "max_abs_position".into(),
            Self::MaxAbsValue(side) => format!("{}_at_max_abs", side.name()),
            Self::Statistic(side, statistic) => format!("{}_{}", side.name(), statistic.name()),
            Self::Difference(statistic) => format!("{}_difference", statistic.name()),
            Self::RelativeDifference(statistic) => format!("{}_relative_difference", statistic.name()),
            Self::Checksum(side) => format!("{}_checksum", side.name()),
            Self::RequiresGrad(side) => format!("{}_requires_grad", side.name()),
            Self::ReferenceError(side) => format!("reference_error_{}", side.name()),
            Self::Tolerance => "tolerance".into(),
            Self::Reason => "reason".into(),
            Self::Pieces => "pieces".into(),
            Self::Phase => "phase".into(),
            Self::Module => "module".into(),
            Self::Recorded => "recorded".into(),
            Self::Source => "source".into(),
            Self::Stack(side) => format!("{}_stack", side.name()),
            Self::InputError => "input_error".into(),
            Self::OutputError => "output_error".into(),
            Self::OpReason => "op_reason".into(),
            Self::Follows => "follows".into(),
            Self::Decides => "decides".into(),
            Self::JudgedError => "judged_error".into(),
            Self::Floor => "floor".into(),
            Self::Expected => "expected".into(),
            Self::Identity => "identity".into(),
            Self::ExtremeIndex(side, extreme) => format!("{}_{}_index", side.name(), extreme.name()),
        }
    }

    /// Returns the header for people, such as `baseline max` or `MaxAbsError`.
    pub fn label(self) -> String {
        match self {
            Self::Metric(metric) => metric.label().into(),
            _ => self.name().replace('_', " "),
        }
    }

    /// Returns the type of the cells.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Step
            | Self::Rank
            | Self::Order
            | Self::MaxAbsIndex
            | Self::Follows
            | Self::Identity
            | Self::ExtremeIndex(..) => Kind::Count,
            Self::Verdict
            | Self::Role
            | Self::Cause
            | Self::DType(_)
            | Self::Basis
            | Self::Phase
            | Self::Module
            | Self::Recorded
            | Self::Source
            | Self::Stack(_)
            | Self::OpReason
            | Self::Pieces => Kind::Category,
            Self::Metric(_)
            | Self::MaxAbsValue(_)
            | Self::Difference(_)
            | Self::RelativeDifference(_)
            | Self::ReferenceError(_)
            | Self::InputError
            | Self::OutputError
            | Self::JudgedError
            | Self::Floor
            | Self::Expected => Kind::Real,
            Self::Statistic(_, statistic) => {
                if statistic.is_count() {
                    Kind::Count
                } else {
                    Kind::Real
                }
            }
            Self::Estimated | Self::RequiresGrad(_) | Self::Decides => Kind::Flag,
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

    /// Returns the width of the content in a spreadsheet, in characters; a longer label widens it.
    pub const fn width(self) -> u16 {
        match self {
            Self::Step | Self::Rank | Self::Order | Self::Follows | Self::Decides | Self::Identity => 7,
            Self::Op => 48,
            Self::Verdict | Self::Role | Self::Cause | Self::Phase | Self::Recorded => 11,
            Self::DType(_) => 14,
            Self::Shape(_) => 17,
            Self::Slot | Self::Value(_) => 16,
            Self::Metric(_) => METRIC_WIDTH,
            Self::Estimated | Self::Basis => 10,
            Self::InputError | Self::OutputError | Self::JudgedError | Self::Floor | Self::Expected => 12,
            Self::Module | Self::Source => 26,
            Self::MaxAbsIndex
            | Self::ExtremeIndex(..)
            | Self::MaxAbsValue(_)
            | Self::Statistic(..)
            | Self::Difference(_)
            | Self::ReferenceError(_)
            | Self::RequiresGrad(_) => 13,
            Self::RelativeDifference(_) | Self::MaxAbsPosition | Self::Checksum(_) => 18,
            Self::Tolerance | Self::Reason | Self::Pieces | Self::OpReason | Self::Stack(_) => 60,
        }
    }

    /// Returns the one-line description for legends.
    pub fn meaning(self) -> String {
        match self {
            Self::Step => "iteration, as the baseline numbers it".into(),
            Self::Rank => "process of the distributed run; 0 if there is only one".into(),
            Self::Order => ORDER.into(),
            Self::Op => "full name of the op, as recorded".into(),
            Self::Slot => {
                "value inside the op: input.N, kwarg.NAME, parameter.NAME, output.N, grad.NAME".into()
            }
            Self::Verdict => "the verdict on this pair of values; see the verdicts".into(),
            Self::Role => "how the op propagates error; see the roles".into(),
            Self::Cause => "kind of fault, for ops that introduce one; see the causes".into(),
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
                format!("value of the argument in the {}, if it is not a tensor", side.name())
            }
            Self::Metric(metric) => metric.meaning().into(),
            Self::Estimated => ESTIMATED.into(),
            Self::Basis => BASIS.into(),
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
            Self::Checksum(side) => format!("checksum of the bytes, as recorded in the {}", side.name()),
            Self::RequiresGrad(side) => format!("true if autograd tracked the {} tensor", side.name()),
            Self::ReferenceError(side) => format!(
                "relative l2 error of the {} against the reference run; empty without one (--reference)",
                side.name()
            ),
            Self::Tolerance => "the rule that decided, with its limit and where the limit comes from".into(),
            Self::Reason => "reason for the verdict; empty if it needs none".into(),
            Self::Pieces => {
                "what each rank of a run on many ranks holds of the value, piece by piece; `[0:4+12:16, :]` is a slice, of several ranges".into()
            }
            Self::Phase => OpColumn::Phase.meaning().into(),
            Self::Module => OpColumn::Module.meaning().into(),
            Self::Recorded => "sides that have the op: both, baseline or candidate".into(),
            Self::Source => OpColumn::Source.meaning().into(),
            Self::Stack(side) => format!(
                "call stack of the op in the {}, innermost first, one frame per line, without framework frames",
                side.name()
            ),
            Self::InputError => OpColumn::InputError.meaning().into(),
            Self::OutputError => OpColumn::OutputError.meaning().into(),
            Self::OpReason => OpColumn::Reason.meaning().into(),
            Self::Follows => {
                "order of the op at fault from which the error comes, in the same step and rank".into()
            }
            Self::Decides => "true if the table of ops shows the metrics of this value for the op".into(),
            Self::JudgedError => {
                "error that was compared with the expected error, relative to the scale of the value without cancellation".into()
            }
            Self::Floor => {
                "error that the op may have on its own: rounding, the level of its kind of call, measured noise".into()
            }
            Self::Expected => "the floor together with what the errors of its inputs explain".into(),
            Self::Identity => {
                "number of the value: equal for all records of the same baseline tensor in this step and rank".into()
            }
            Self::ExtremeIndex(side, extreme) => format!(
                "row-major index, from 0, of the first element of the {} that equals its {}; empty if not recorded",
                side.name(),
                extreme.name()
            ),
        }
    }
}
