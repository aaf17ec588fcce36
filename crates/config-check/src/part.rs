//! Parts of a configuration, and the possible verdicts.

use std::fmt;

/// A part of a pack; also a sheet, a summary line and a key of the reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// System, processor, accelerator, drivers.
    Platform,
    /// Environment variables.
    Env,
    /// Python packages.
    Pip,
    /// Switches of the framework.
    Flags,
    /// Seeds and states of random generators.
    Random,
    /// Inputs of the model.
    Dataset,
    /// Construction of batches.
    Dataloader,
    /// Modules and the shapes of their tensors.
    Model,
    /// Values of parameters and buffers.
    Weights,
    /// Optimizer, clipping, accumulation.
    Optimizer,
    /// Learning-rate schedule.
    Schedule,
    /// Gradient scaler.
    Scaler,
    /// Processes, groups, wrapper.
    Distributed,
    /// Training arguments.
    Hyperparameters,
    /// Executed code.
    Source,
    /// Steps, ranks and parts that one side lacks.
    Coverage,
}

impl Part {
    /// All parts, in report order.
    pub const ALL: [Self; 16] = [
        Self::Platform,
        Self::Env,
        Self::Pip,
        Self::Flags,
        Self::Random,
        Self::Dataset,
        Self::Dataloader,
        Self::Model,
        Self::Weights,
        Self::Optimizer,
        Self::Schedule,
        Self::Scaler,
        Self::Distributed,
        Self::Hyperparameters,
        Self::Source,
        Self::Coverage,
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Env => "env",
            Self::Pip => "pip",
            Self::Flags => "flags",
            Self::Random => "random",
            Self::Dataset => "dataset",
            Self::Dataloader => "dataloader",
            Self::Model => "model",
            Self::Weights => "weights",
            Self::Optimizer => "optimizer",
            Self::Schedule => "schedule",
            Self::Scaler => "scaler",
            Self::Distributed => "distributed",
            Self::Hyperparameters => "hyperparameters",
            Self::Source => "source",
            Self::Coverage => "coverage",
        }
    }

    /// Returns the part called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == name)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Verdict on a row, a part, or the whole check, from harmless to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Verdict {
    /// Equal, or equal after normalisation.
    #[default]
    Match,
    /// Differs, and the table of expectations explains why it may.
    Expected,
    /// Differs, with no known effect on numerics.
    Note,
    /// Recorded on one side only, not recorded, or the check itself failed.
    Unknown,
    /// Differs and can change numerics.
    Diff,
}

impl Verdict {
    /// All verdicts, worst first, in the order of summaries.
    pub const ALL: [Self; 5] = [Self::Diff, Self::Unknown, Self::Note, Self::Expected, Self::Match];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Expected => "expected",
            Self::Note => "note",
            Self::Unknown => "unknown",
            Self::Diff => "diff",
        }
    }

    /// Returns one line for the legend.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Match => "equal, or equal after normalisation",
            Self::Expected => "differs as expected, according to the table of expectations",
            Self::Note => "differs, without known effect on numerics",
            Self::Unknown => "recorded on one side only, not recorded at all, or the check failed",
            Self::Diff => "differs and can change numerics",
        }
    }

    /// Returns the verdict called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_is_the_greatest() {
        let mut sorted = Verdict::ALL;
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(sorted, Verdict::ALL);
        assert!(Part::ALL.is_sorted());
    }
}
