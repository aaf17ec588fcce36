//! `probe plan`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::comparison::Comparison;
use super::interrupt::leave_nothing_behind;
use super::print::PrintFormat;
use super::scratch::Scratch;
use super::{Exit, terminal};
use crate::cli::commands::CommandReport;
use crate::report::number::counted;
use crate::shard::{Plan, plan_staged};
use crate::store::Stores;

/// Plan a comparison of many ranks, to be run in shards by any scheduler: `probe compare --plan`, then `probe merge`.
///
/// Lists both dumps, pairs their parts and weighs them. Shards may run anywhere that sees the same paths, in any order, and more than once.
#[derive(Debug, Args)]
#[command(
    override_usage = "probe plan [OPTIONS] BASELINE CANDIDATE -o RUN",
    after_help = "\
Examples:
  probe plan gpu_dump npu_dump -o run
  sbatch --array=1-64 --wrap 'probe compare --plan run/plan.json --shard slurm'
  probe merge run"
)]
pub(super) struct PlanArgs {
    /// The trusted run (usually on a GPU).
    #[arg(value_name = "BASELINE", required_unless_present = "baseline")]
    first: Option<PathBuf>,

    /// The run under test (usually on an NPU).
    #[arg(value_name = "CANDIDATE", required_unless_present = "candidate")]
    second: Option<PathBuf>,

    /// BASELINE, given by name.
    #[arg(short, long, value_name = "BASELINE", requires = "candidate", conflicts_with = "first")]
    baseline: Option<PathBuf>,

    /// CANDIDATE, given by name.
    #[arg(short, long, value_name = "CANDIDATE", requires = "baseline", conflicts_with = "first")]
    candidate: Option<PathBuf>,

    /// Folder of the run: the plan, the shards and the reports.
    #[arg(short, long, value_name = "RUN")]
    pub(super) output: PathBuf,

    #[command(flatten)]
    pub(super) comparison: Comparison,

    #[command(flatten)]
    pub(super) scratch: Scratch,

    /// What is printed.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print the path of the plan only.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl PlanArgs {
    /// Returns baseline and candidate.
    pub(super) fn sides(&self) -> Option<[&PathBuf; 2]> {
        let baseline = self.first.as_ref().or(self.baseline.as_ref())?;
        Some([baseline, self.second.as_ref().or(self.candidate.as_ref())?])
    }
}

/// Runs the subcommand.
pub(super) fn run(args: &PlanArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    let [baseline, candidate] = args.sides().context("two dumps are needed: BASELINE CANDIDATE")?;
    leave_nothing_behind(Vec::new())?;
    let mut stage = args.scratch.stage(stores, args.quiet)?;
    let asked = args.comparison.asked();
    let (made, path) = plan_staged(&mut stage, baseline, candidate, &args.output, &asked)?;
    terminal::print(&match args.format {
        PrintFormat::Json => CommandReport::of_plan(&path, &made).text()?,
        PrintFormat::Text if args.quiet => format!("{}\n", path.display()),
        PrintFormat::Text => text(args, &path, &made),
    })?;
    Ok(Exit::Agree)
}

fn text(args: &PlanArgs, path: &Path, made: &Plan) -> String {
    format!(
        "{}: {} of {}, {}; up to {} can work on it\nnext: probe compare --plan {} --shard 1/{}, and so on, then probe merge {}\n",
        path.display(),
        counted(made.parts() as u64, "part"),
        counted(made.groups() as u64, "rank"),
        counted(made.bytes(), "byte"),
        counted(made.groups() as u64, "shard"),
        path.display(),
        made.groups().min(64),
        args.output.display()
    )
}
