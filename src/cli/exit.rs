//! Exit codes: part of the interface, so that scripts and CI can rely on them.

use std::process::ExitCode;

use crate::config_check::CheckVerdict;
use crate::gate::GateOutcome;
use crate::judge::RunVerdict;
use crate::rollout::RolloutVerdict;

/// Outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: the command did its work, and nothing differs.
    Agree,
    /// 1: the two sides differ.
    Differ,
    /// 2: the command failed or was misused.
    Failed,
    /// 3: finished, but something could not be read or compared.
    Incomplete,
}

impl Exit {
    /// Returns the exit code of the process.
    pub const fn code(self) -> u8 {
        match self {
            Self::Agree => 0,
            Self::Differ => 1,
            Self::Failed => 2,
            Self::Incomplete => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<&GateOutcome> for Exit {
    fn from(outcome: &GateOutcome) -> Self {
        match outcome.exit_code() {
            0 => Self::Agree,
            1 => Self::Differ,
            _ => Self::Incomplete,
        }
    }
}

impl From<RolloutVerdict> for Exit {
    fn from(verdict: RolloutVerdict) -> Self {
        match verdict {
            RolloutVerdict::Agree => Self::Agree,
            RolloutVerdict::Differ => Self::Differ,
            RolloutVerdict::Incomplete => Self::Incomplete,
        }
    }
}

impl From<RunVerdict> for Exit {
    fn from(verdict: RunVerdict) -> Self {
        match verdict {
            RunVerdict::Agree => Self::Agree,
            RunVerdict::Diverged => Self::Differ,
            RunVerdict::Incomplete => Self::Incomplete,
        }
    }
}

impl From<CheckVerdict> for Exit {
    fn from(verdict: CheckVerdict) -> Self {
        match verdict {
            CheckVerdict::Match => Self::Agree,
            CheckVerdict::Diff => Self::Differ,
            CheckVerdict::Incomplete => Self::Incomplete,
        }
    }
}
