//! `probe rollout`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::args::rollout_format;
use super::compare::pool;
use super::output::{in_new_folder, to_print};
use super::{Exit, terminal};
use crate::report::rollout::{RolloutFormat, RolloutReports, RolloutTextOptions, answer, json, render};
use crate::rollout::{Precision, RolloutOptions, compare, compare_beside};

/// Compare log-probabilities of a rollout engine and a trainer, token by token: how far they are apart, and why.
///
/// ROLLOUT and TRAIN are files or folders of NeMo-RL, slime, miles, verl or msprobe, responses of a server, or tables with a row a token.
/// TRAIN is left out where one file holds both sides.
///
/// Exit codes: 0 the sides agree, 1 they differ, 2 failed or misused, 3 something could not be read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe rollout train_data_step1.jsonl -o out
  probe rollout rollout_0.pt train_0_0.pt --dtype bfloat16
  probe rollout responses.jsonl trainer.parquet --format json | jq .causes")]
pub(super) struct RolloutArgs {
    /// Record of the rollout engine.
    #[arg(value_name = "ROLLOUT")]
    pub(super) rollout: PathBuf,

    /// Record of the trainer.
    #[arg(value_name = "TRAIN")]
    pub(super) trainer: Option<PathBuf>,

    /// A second pass of the trainer over the same tokens with other kernels, as of attention: it shows how far rounding goes.
    #[arg(long, value_name = "TRAIN2")]
    pub(super) again: Option<PathBuf>,

    /// A pass of the trainer over the same tokens with weights quantised as the engine's (probe.rollout.quantized): it shows if that is
    /// the cause.
    #[arg(long, value_name = "TRAIN3")]
    pub(super) quantized: Option<PathBuf>,

    /// Number format that both sides compute in: float32, float16 or bfloat16 [default: bfloat16].
    #[arg(long, value_name = "DTYPE")]
    pub(super) dtype: Option<Precision>,

    /// Folder for the reports, created if missing; `-` prints one report instead of writing files [default: probe-rollout].
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// Comma-separated report formats [default: text,html,xlsx,parquet,json,scalars]; `json` alone, without -o, is printed.
    #[arg(long, value_delimiter = ',', value_parser = rollout_format(), value_name = "FORMATS")]
    pub(super) format: Option<Vec<RolloutFormat>>,

    /// Steps, and tokens of each, to list in the terminal.
    #[arg(long, default_value_t = 5)]
    pub(super) top: usize,

    /// Threads to use [default: one per processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,

    /// Print the answer only.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Default folder of the reports.
const OUTPUT: &str = "probe-rollout";

/// Runs the subcommand.
pub(super) fn run(args: &RolloutArgs) -> anyhow::Result<Exit> {
    let mut options = RolloutOptions::default();
    options.trainer.clone_from(&args.trainer);
    options.again.clone_from(&args.again);
    options.quantized.clone_from(&args.quantized);
    options.precision = args.dtype;
    let printable = [RolloutFormat::Text, RolloutFormat::Json];
    let printed = to_print(args.output.as_deref(), args.format.as_deref(), &printable, RolloutFormat::Json)?;
    let pool = pool(args.threads)?;
    let (outcome, written) = if printed.is_some() {
        (pool.install(|| compare(&args.rollout, &options))?, Vec::new())
    } else {
        let folder = args.output.as_deref().unwrap_or(Path::new(OUTPUT));
        let formats = args.format.as_deref().unwrap_or(&RolloutFormat::ALL);
        in_new_folder(folder, || {
            let mut reports = RolloutReports::create(folder, formats)?;
            pool.install(|| {
                let (outcome, tokens) =
                    compare_beside(&args.rollout, &options, |table| reports.tokens(table))?;
                tokens?;
                let written = reports.finish(&outcome)?;
                Ok((outcome, written))
            })
        })?
    };
    terminal::print(&if printed == Some(RolloutFormat::Json) {
        json(&outcome)?
    } else if args.quiet {
        format!("{}\n", answer(&outcome))
    } else {
        let mut layout = RolloutTextOptions::default();
        layout.colour = terminal::colour();
        layout.width = terminal::width().unwrap_or(layout.width);
        layout.top = args.top;
        layout.written = written;
        render(&outcome, &layout)
    })?;
    Ok(outcome.verdict().into())
}
