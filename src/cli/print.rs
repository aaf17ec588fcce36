//! Output format of commands that write no reports.

use clap::ValueEnum;

/// The form of the text on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum PrintFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}
