//! `probe plan`.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use super::interrupt::leave_nothing_behind;
use super::print::PrintFormat;
use super::scratch::Scratch;
use super::sides::Sides;
use super::{Exit, terminal};
use crate::cli::commands::CommandReport;
use crate::compare::CompareRequest;
use crate::report::number::counted;
use crate::shard::{Plan, plan_staged};
use crate::store::Stores;

/// Plan a comparison of many ranks, to be run in shards by any scheduler: `probe compare --plan`, then `probe merge`.
///
/// Lists both dumps and pairs their parts. Shards may run anywhere that sees the same paths, in any order, and more than once.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("task").required(true).multiple(true).args(["first", "baseline"]),
    override_usage = "probe plan [OPTIONS] BASELINE CANDIDATE -o RUN",
    after_help = "\
Examples:
  probe plan gpu_dump npu_dump -o run
  sbatch --array=1-64 --wrap 'probe compare --plan run/plan.json --shard slurm'
  probe merge run"
)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    sides: Sides,

    /// Folder of the run: the plan, the shards and the reports.
    #[arg(short, long, value_name = "RUN")]
    pub(super) output: PathBuf,

    #[command(flatten)]
    pub(super) request: CompareRequest,

    #[command(flatten)]
    pub(super) scratch: Scratch,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print the path of the plan only.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Runs the subcommand.
pub(super) fn run(args: &PlanArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    let [baseline, candidate] = args.sides.paths()?;
    leave_nothing_behind(Vec::new())?;
    let mut stage = args.scratch.stage(stores, args.quiet)?;
    let (made, path) = plan_staged(&mut stage, baseline, candidate, &args.output, &args.request)?;
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
