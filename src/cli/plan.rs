//! `probe plan`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::args::{level, numbers};
use super::compare::Unlike;
use super::interrupt::leave_nothing_behind;
use super::print::PrintFormat;
use super::{Exit, terminal};
use crate::compare::{CompareOptions, LevelFilter};
use crate::judge::Rules;
use crate::pair::Mapping;
use crate::read::map::FileAccess;
use crate::report::commands::CommandReport;
use crate::report::number::counted;
use crate::shard::{PLAN, Plan, PlanOptions, plan};

/// Settle a comparison of many ranks once, to be run in shards by any scheduler: `probe compare --plan`, then `probe merge`.
///
/// Lists both dumps, pairs their parts and weighs them. Shards may run anywhere that sees the same paths, in any order, also twice.
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
    /// The run that is trusted (usually on a GPU).
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

    /// Kinds of op to compare.
    #[arg(short, long, default_value_t = LevelFilter::All, value_parser = level())]
    pub(super) level: LevelFilter,

    /// Steps to compare, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS", value_parser = numbers)]
    pub(super) step: Option<String>,

    /// Ranks to compare, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS", value_parser = numbers)]
    pub(super) rank: Option<String>,

    /// TOML file of tolerance rules.
    #[arg(long, value_name = "FILE")]
    pub(super) tolerance: Option<PathBuf>,

    /// Names that belong together, as for `probe compare`.
    #[arg(long, value_name = "FILE")]
    pub(super) mapping: Option<PathBuf>,

    /// A file that `probe calibrate` wrote; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub(super) noise: Vec<PathBuf>,

    /// A run of the same program in float32 or float64.
    #[arg(long, value_name = "DUMP")]
    pub(super) reference: Option<PathBuf>,

    #[command(flatten)]
    pub(super) unlike: Unlike,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,

    /// What is printed.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print the path of the plan only.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl PlanArgs {
    /// Baseline and candidate.
    pub(super) fn sides(&self) -> Option<[&PathBuf; 2]> {
        let baseline = self.first.as_ref().or(self.baseline.as_ref())?;
        Some([baseline, self.second.as_ref().or(self.candidate.as_ref())?])
    }
}

/// Runs the subcommand.
pub(super) fn run(args: &PlanArgs) -> anyhow::Result<Exit> {
    let [baseline, candidate] = args.sides().context("two dumps are needed: BASELINE CANDIDATE")?;
    leave_nothing_behind(Vec::new())?;
    let numbers = |text: &Option<String>| text.as_deref().map(str::parse).transpose();
    let compare = CompareOptions {
        steps: numbers(&args.step)?.unwrap_or_default(),
        ranks: numbers(&args.rank)?.unwrap_or_default(),
        level: args.level,
        rules: args.tolerance.as_deref().map_or_else(|| Ok(Rules::default()), Rules::from_file)?,
        access: if args.no_mmap { FileAccess::Read } else { FileAccess::Map },
        any_task: args.unlike.any_task,
        any_level: args.unlike.any_level,
        rows: args.unlike.rows,
        mapping: args.mapping.as_deref().map_or_else(|| Ok(Mapping::default()), Mapping::from_file)?,
        noise: args.noise.clone(),
        reference: args.reference.clone(),
    };
    let options = PlanOptions {
        compare,
        steps: args.step.clone(),
        ranks: args.rank.clone(),
        tolerance: args.tolerance.clone(),
        mapping: args.mapping.clone(),
    };
    let made = plan(baseline, candidate, &args.output, &options)?;
    let path = args.output.join(PLAN);
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
