//! Command-line arguments.

use std::ffi::OsString;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use super::baseline::BaselineArgs;
use super::calibrate::CalibrateArgs;
use super::capture::CaptureArgs;
use super::compare::CompareArgs;
use super::config_check::ConfigCheckArgs;
use super::convert::ConvertArgs;
use super::gate::GateArgs;
use super::history::HistoryArgs;
use super::inspect::InspectArgs;
use super::manual::{CompletionsArgs, ManArgs};
use super::merge::MergeArgs;
use super::narrow::NarrowArgs;
use super::peers::PeersArgs;
use super::plan::PlanArgs;
use super::report::ReportArgs;
use super::rollout::RolloutArgs;
use super::weights::WeightsArgs;
use crate::dump::NumberSet;
use crate::report::Format;
use crate::report::config::ConfigFormat;
use crate::report::rollout::RolloutFormat;

/// Finds the operator where two training runs diverge, and says why.
#[derive(Debug, Parser)]
#[command(
    name = "probe",
    version,
    max_term_width = 120,
    after_help = "\
Examples:
  probe capture --steps 0-2 -o gpu_dump -- python train.py    record a run
  probe compare gpu_dump npu_dump                             compare two
  probe calibrate gpu_dump gpu_dump_2 -o noise.toml           measure noise
  probe inspect gpu_dump --op '*gelu*'                        show its content
  probe convert kernel_dump -o npu_dump                       convert to another format
  probe config-check gpu.zip npu.zip                          compare set-ups
  probe rollout train_data_step1.jsonl                        compare log-probabilities
  probe weights hf_folder megatron_folder                     compare weights
  probe gate --baseline gpt2.probe.json --candidate losses.txt -o out

Commands of the Python package, which run torch: doctor, replay, verify, check-ops, invariant. Each has --help."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Capture(CaptureArgs),
    Compare(CompareArgs),
    Peers(PeersArgs),
    Weights(WeightsArgs),
    Plan(PlanArgs),
    Merge(MergeArgs),
    Calibrate(CalibrateArgs),
    #[command(alias = "config_check")]
    ConfigCheck(ConfigCheckArgs),
    Gate(GateArgs),
    Baseline(BaselineArgs),
    Convert(ConvertArgs),
    History(HistoryArgs),
    Narrow(NarrowArgs),
    Inspect(InspectArgs),
    Report(ReportArgs),
    Rollout(RolloutArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Parses a size in bytes, with or without a unit.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == ' ');
    let unit = match text.get(digits.len()..).unwrap_or_default().trim() {
        "" | "B" => 1,
        "K" | "KB" => 1000,
        "KiB" => 1 << 10,
        "M" | "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "G" | "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        other => return Err(format!("unknown unit `{other}`; use KB, KiB, MB, MiB, GB or GiB")),
    };
    let number: u64 = digits.parse().map_err(|_| "expected a size such as 64MB".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "more bytes than can be counted".to_owned())
}

/// Validates a set of numbers and returns it as typed: it is parsed again where it is used.
pub(super) fn numbers(text: &str) -> Result<String, String> {
    if text == "all" {
        return Ok(text.to_owned());
    }
    let set: Result<NumberSet, _> = text.replace('|', ",").parse();
    set.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

pub(super) fn format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name))
        .map(|word| Format::ALL.into_iter().find(|format| format.name() == word).unwrap_or(Format::Text))
}

pub(super) fn config_format() -> impl TypedValueParser<Value = ConfigFormat> {
    PossibleValuesParser::new(ConfigFormat::ALL.map(ConfigFormat::name)).map(|word| {
        ConfigFormat::ALL.into_iter().find(|format| format.name() == word).unwrap_or(ConfigFormat::Text)
    })
}

pub(super) fn rollout_format() -> impl TypedValueParser<Value = RolloutFormat> {
    PossibleValuesParser::new(RolloutFormat::ALL.map(RolloutFormat::name)).map(|word| {
        RolloutFormat::ALL.into_iter().find(|format| format.name() == word).unwrap_or(RolloutFormat::Text)
    })
}

/// Commands that the package answers before this one is asked.
const IN_PACKAGE: [&str; 5] = ["doctor", "replay", "verify", "check-ops", "invariant"];

/// Returns the command of the package that was typed where there is no package.
pub(super) fn in_package(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => IN_PACKAGE.into_iter().find(|name| name == typed),
        _ => None,
    }
}

/// Rewrites `-gp` and `-tp`, as typed by users of the older tool, which clap does not accept as short options. Anything
/// after `--` belongs to another program.
pub(super) fn with_long_names(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut ours = true;
    let long = |arg: OsString| {
        ours &= arg != "--";
        match arg.to_str() {
            Some("-gp") if ours => "--golden-path".into(),
            Some("-tp") if ours => "--target-path".into(),
            _ => arg,
        }
    };
    args.into_iter().map(long).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn two_packs_are_needed() {
        for line in ["probe config-check a b", "probe config_check -c a b -o out"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            let Command::ConfigCheck(args) = cli.command else { panic!("config-check") };
            assert_eq!(args.packs(), Some([&PathBuf::from("a"), &PathBuf::from("b")]), "{line}");
        }
        for line in ["probe config-check", "probe config-check a", "probe config-check a b c"] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn names_of_the_older_tool_are_understood() {
        for line in [
            "probe compare a b",
            "probe compare -b a -c b",
            "probe compare -gp a -tp b",
            "probe compare --golden_path a --target_path b",
            "probe compare --golden_path=a --target_path=b",
        ] {
            let cli = Cli::try_parse_from(with_long_names(line.split(' ').map(OsString::from))).unwrap();
            let Command::Compare(args) = cli.command else { panic!("compare") };
            assert_eq!(args.sides.paths().unwrap(), [&PathBuf::from("a"), &PathBuf::from("b")], "{line}");
        }
        for line in ["", " a", " a b c", " -b a", " a -c b", " a b -b c"] {
            let line = format!("probe compare{line}");
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn a_plan_takes_no_option_of_the_comparison() {
        let command = Cli::command();
        let compare = command.find_subcommand("compare").unwrap();
        let request = compare.get_groups().find(|group| group.get_id() == "CompareRequest").unwrap();
        assert!(request.get_args().count() > 10);
        for id in request.get_args() {
            let option = compare.get_arguments().find(|option| option.get_id() == id).unwrap();
            let name = format!("--{}", option.get_long().unwrap());
            let value = match &*name {
                "--level" => Some("module"),
                _ => option.get_action().takes_values().then_some("1"),
            };
            let line = ["probe", "compare", "--plan", "plan.json", "--shard", "1/2", &name];
            let error = Cli::try_parse_from(line.into_iter().chain(value)).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{name}");
        }
        assert!(Cli::try_parse_from(["probe", "compare", "--plan", "plan.json", "--shard", "1/2"]).is_ok());
    }

    #[test]
    fn a_captured_program_keeps_its_arguments() {
        let line = "probe capture --steps 10|20 --include conv1 --include fc -- python train.py -tp 2 --steps 5 -- x";
        let cli = Cli::try_parse_from(with_long_names(line.split(' ').map(OsString::from))).unwrap();
        let Command::Capture(args) = cli.command else { panic!("capture") };
        assert_eq!(
            args.command,
            ["python", "train.py", "-tp", "2", "--steps", "5", "--", "x"].map(OsString::from)
        );
        assert_eq!(
            (args.steps.as_deref(), args.include),
            (Some("10|20"), vec!["conv1".to_owned(), "fc".to_owned()])
        );
    }

    #[test]
    fn a_capture_without_a_program_or_with_a_misspelt_word_is_refused() {
        for line in [
            "probe capture --steps 1",
            "probe capture --",
            "probe capture --level modul -- true",
            "probe capture --task sketsh -- true",
            "probe capture --steps one -- true",
            "probe capture --stpes 1 -- true",
        ] {
            let parsed = Cli::try_parse_from(with_long_names(line.split(' ').map(OsString::from)));
            assert!(parsed.is_err(), "{line}");
        }
    }
}
