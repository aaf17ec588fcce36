//! The terms of the result. Each is one enum, so that reports, counts and tests share one list.

use std::fmt;

use probe_dump::named;

named!(Cause, "cause");
named!(Role, "role");

/// Verdict of one pair of slots, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// The same bits (or, without data, the same checksum; for arguments, the same value).
    BitEqual,
    /// Not the same bits, but within tolerance.
    Close,
    /// Nothing comparable was recorded on either side.
    Unknown,
    /// Different dtypes; the values were compared all the same.
    DType,
    /// Beyond tolerance.
    Differs,
    /// NaN or Inf where the other side has none, or of another kind.
    NonFinite,
    /// Shapes that do not hold the same elements.
    Shape,
    /// Only one side has this slot.
    Missing,
    /// The data should be there and could not be read.
    Unreadable,
}

impl Verdict {
    /// Every verdict, from best to worst.
    pub const ALL: [Self; 9] = [
        Self::BitEqual,
        Self::Close,
        Self::Unknown,
        Self::DType,
        Self::Differs,
        Self::NonFinite,
        Self::Shape,
        Self::Missing,
        Self::Unreadable,
    ];

    /// The word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BitEqual => "bit-equal",
            Self::Close => "close",
            Self::Unknown => "unknown",
            Self::DType => "dtype",
            Self::Differs => "differs",
            Self::NonFinite => "non-finite",
            Self::Shape => "shape",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
        }
    }

    /// One line for legends.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::BitEqual => "the same bits, checksum or value on both sides",
            Self::Close => {
                "not bit-equal, but within the tolerance of the dtype or explained by the error of the inputs"
            }
            Self::Unknown => "nothing comparable was recorded for this slot",
            Self::DType => "different element types; values agree at the precision of the coarser one",
            Self::Differs => "beyond tolerance",
            Self::NonFinite => "NaN or Inf on one side where the other has none, or a different kind",
            Self::Shape => "the shapes do not hold the same elements",
            Self::Missing => "recorded on one side only",
            Self::Unreadable => "the data should be there but could not be read",
        }
    }

    /// Returns true for verdicts that need no attention.
    pub const fn is_fine(self) -> bool {
        matches!(self, Self::BitEqual | Self::Close | Self::Unknown)
    }
}

/// Role of one op in the spread of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Outputs agree.
    Clean,
    /// Inputs differ, outputs agree.
    Recovers,
    /// Outputs differ as much as the inputs explain.
    Propagates,
    /// Output error far above what the inputs explain.
    Amplifies,
    /// Inputs agree, outputs do not.
    Introduces,
    /// Outputs were not measured, or cannot be read.
    Unknown,
    /// Present on one side only.
    Unpaired,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 7] = [
        Self::Clean,
        Self::Recovers,
        Self::Propagates,
        Self::Amplifies,
        Self::Introduces,
        Self::Unknown,
        Self::Unpaired,
    ];

    /// The word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Recovers => "recovers",
            Self::Propagates => "propagates",
            Self::Amplifies => "amplifies",
            Self::Introduces => "introduces",
            Self::Unknown => "unknown",
            Self::Unpaired => "unpaired",
        }
    }

    /// One line for legends.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Clean => "outputs agree",
            Self::Recovers => "inputs differ, outputs agree",
            Self::Propagates => "outputs differ, explained by the inputs",
            Self::Amplifies => "output error far above what the inputs explain",
            Self::Introduces => "inputs agree, outputs do not: look here",
            Self::Unknown => "outputs were not measured or cannot be read",
            Self::Unpaired => "recorded on one side only",
        }
    }
}

/// Kind of fault of an op that introduces error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Same inputs and arguments, different result.
    Numerics,
    /// A scalar argument differs.
    Argument,
    /// One side computes in another dtype.
    DType,
    /// A NaN or Inf originates here.
    NonFinite,
    /// The run's own inputs or weights already differ.
    Input,
    /// The op sequences differ here.
    Structure,
    /// Only the backward pass of this op differs.
    Gradient,
    /// An optimizer changed a parameter differently from what its gradient implies.
    Optimizer,
    /// The ranks split, copy or reduce a value otherwise than the other run.
    Layout,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 9] = [
        Self::Numerics,
        Self::Argument,
        Self::DType,
        Self::NonFinite,
        Self::Input,
        Self::Structure,
        Self::Gradient,
        Self::Optimizer,
        Self::Layout,
    ];

    /// The word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Numerics => "numerics",
            Self::Argument => "argument",
            Self::DType => "dtype",
            Self::NonFinite => "non-finite",
            Self::Input => "input",
            Self::Structure => "structure",
            Self::Gradient => "gradient",
            Self::Optimizer => "optimizer",
            Self::Layout => "layout",
        }
    }

    /// One line for legends.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Numerics => "same inputs and arguments, different result",
            Self::Argument => "an argument of the op differs",
            Self::DType => "one side computes in a different element type",
            Self::NonFinite => "a NaN or Inf first appears here",
            Self::Input => "the run's own inputs or weights already differ: check the two configurations",
            Self::Structure => "the sequences of ops differ here",
            Self::Gradient => "only the backward pass of this op differs",
            Self::Optimizer => "a parameter was updated differently although its gradient agrees",
            Self::Layout => "the ranks split, copy or reduce this value otherwise than the other run",
        }
    }
}

/// Verdict of a whole comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunVerdict {
    /// Everything compared agrees. Exit code 0.
    Agree,
    /// At least one op is at fault. Exit code 1.
    Diverged,
    /// Something could not be read or compared; the rest is in the report. Exit code 3.
    Incomplete,
}

impl RunVerdict {
    /// The word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::Diverged => "diverged",
            Self::Incomplete => "incomplete",
        }
    }
}

macro_rules! display_name {
    ($($word:ty),*) => {$(
        impl fmt::Display for $word {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    )*};
}
display_name!(Verdict, Role, Cause, RunVerdict);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_index_by_discriminant() {
        for (index, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, index);
        }
        for (index, role) in Role::ALL.into_iter().enumerate() {
            assert_eq!(role as usize, index);
        }
    }
}
