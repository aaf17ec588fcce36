//! What can be typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::compare::{LevelFilter, NumberSet};
use crate::report::Format;

/// Finds the operator where two training runs part ways, and says why.
#[derive(Debug, Parser)]
#[command(name = "probe", version, max_term_width = 120)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Compare(CompareArgs),
    Inspect(InspectArgs),
}

/// Compare two dumps: name the first op that diverges, and its cause.
///
/// BASELINE and CANDIDATE are dumps (a dump root, step folder, rank folder or dump.json) or tensors
/// (.safetensors, .pt, .pth, .bin, .npy, .npz, or a folder of them).
///
/// Exit codes: 0 agree, 1 diverged, 2 failed or misused, 3 finished but incomplete.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct CompareArgs {
    /// The run that is trusted (usually on a GPU).
    #[arg(short, long, aliases = ["golden-path", "golden_path"], value_name = "BASELINE")]
    pub(super) baseline: PathBuf,

    /// The run under test (usually on an NPU).
    #[arg(short, long, aliases = ["target-path", "target_path"], value_name = "CANDIDATE")]
    pub(super) candidate: PathBuf,

    /// Folder for the reports; created when missing.
    #[arg(short, long, alias = "output_path", default_value = "probe-report", value_name = "DIR")]
    pub(super) output: PathBuf,

    /// Kinds of op to compare: module calls, torch functions, dispatcher ops, or all.
    #[arg(short, long, default_value_t = LevelFilter::All, value_parser = level())]
    pub(super) level: LevelFilter,

    /// Steps to compare, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to compare, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// TOML file of tolerance rules: pattern and bounds, the first match wins.
    #[arg(long, value_name = "FILE")]
    pub(super) tolerance: Option<PathBuf>,

    /// Reports to write, with commas.
    #[arg(long, value_delimiter = ',', default_value = "text,xlsx,parquet,json", value_parser = format(), value_name = "FORMATS")]
    pub(super) format: Vec<Format>,

    /// Threads to use [default: one for each processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,

    /// Ops at fault to list in the terminal.
    #[arg(long, default_value_t = 10)]
    pub(super) top: usize,

    /// Compare dumps of different tasks by what both recorded.
    #[arg(long)]
    pub(super) any_task: bool,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,

    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

/// Show what a dump or a tensor file holds: ops, slots and statistics, or one tensor's values.
#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// Dump folder, dump.json, or tensor file.
    pub(super) path: PathBuf,

    /// Only ops whose name matches this pattern (`*` stands for anything).
    #[arg(long, value_name = "PATTERN")]
    pub(super) op: Option<String>,

    /// Show values and histogram of one tensor: `OP SLOT` in one argument (`"Functional.gelu.0.forward output.0"`), or the name
    /// of a tensor in a file.
    #[arg(long, value_name = "NAME")]
    pub(super) tensor: Option<String>,

    /// Steps to show [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to show [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Verbosity {
    /// Print the answer only, and no progress.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// List every op at fault and everything that could not be compared.
    #[arg(short, long)]
    pub(super) verbose: bool,
}

fn level() -> impl TypedValueParser<Value = LevelFilter> {
    PossibleValuesParser::new(LevelFilter::ALL.map(LevelFilter::name))
        .map(|word| LevelFilter::ALL.into_iter().find(|level| level.name() == word).unwrap_or_default())
}

fn format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name))
        .map(|word| Format::ALL.into_iter().find(|format| format.name() == word).unwrap_or(Format::Text))
}

/// The older tool's users type `-gp` and `-tp`, which are no short options to clap.
pub(super) fn with_long_names(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let long = |arg: OsString| match arg.to_str() {
        Some("-gp") => "--golden-path".into(),
        Some("-tp") => "--target-path".into(),
        _ => arg,
    };
    args.into_iter().map(long).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_of_the_older_tool_are_understood() {
        for line in [
            "probe compare -b a -c b",
            "probe compare -gp a -tp b",
            "probe compare --golden_path a --target_path b",
            "probe compare --golden_path=a --target_path=b",
        ] {
            let cli = Cli::try_parse_from(with_long_names(line.split(' ').map(OsString::from))).unwrap();
            let Command::Compare(args) = cli.command else { panic!("compare") };
            assert_eq!((args.baseline, args.candidate), (PathBuf::from("a"), PathBuf::from("b")), "{line}");
        }
    }
}
