//! Columns of the table of unpaired ops and slots.

use super::column::Kind;
use super::op::OpColumn;

/// Columns of the table of ops and slots that only one side has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnmatchedColumn {
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
    /// The side that has it.
    Side,
    /// Number of slots of an unpaired op.
    Slots,
    /// Element type.
    DType,
    /// Sizes of the dimensions.
    Shape,
    /// Reason it is unpaired.
    Reason,
}

impl UnmatchedColumn {
    /// Every column, in order.
    pub const ALL: [Self; 10] = [
        Self::Step,
        Self::Rank,
        Self::Order,
        Self::Op,
        Self::Slot,
        Self::Side,
        Self::Slots,
        Self::DType,
        Self::Shape,
        Self::Reason,
    ];

    /// Returns the header for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Rank => "rank",
            Self::Order => "order",
            Self::Op => "op",
            Self::Slot => "slot",
            Self::Side => "recorded by",
            Self::Slots => "slots",
            Self::DType => "dtype",
            Self::Shape => "shape",
            Self::Reason => "reason",
        }
    }

    /// Returns the type of the cells.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Step | Self::Rank | Self::Order | Self::Slots => Kind::Count,
            Self::Side | Self::DType => Kind::Category,
            Self::Op | Self::Slot | Self::Shape | Self::Reason => Kind::Text,
        }
    }

    /// Returns the width in a spreadsheet, in characters.
    pub const fn width(self) -> u16 {
        match self {
            Self::Step | Self::Rank | Self::Order | Self::Slots => 7,
            Self::Op => 48,
            Self::Slot | Self::Shape => 17,
            Self::Side | Self::DType => 14,
            Self::Reason => 60,
        }
    }

    /// Returns the one-line description for legends.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Step => OpColumn::Step.meaning(),
            Self::Rank => OpColumn::Rank.meaning(),
            Self::Order => OpColumn::Order.meaning(),
            Self::Op => "the op missing on one side, or with a slot missing on one side",
            Self::Slot => "the slot missing on one side; empty if the whole op has no counterpart",
            Self::Side => "the side that has it",
            Self::Slots => "number of values, if the whole op has no counterpart",
            Self::DType => "element type or kind of the value",
            Self::Shape => "sizes of the dimensions",
            Self::Reason => "the reason, if known",
        }
    }
}
