//! `probe compare`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};

use super::args::format;
use super::interrupt::leave_nothing_behind;
use super::output::{in_new_folder, to_print};
use super::progress::Bar;
use super::scratch::Scratch;
use super::sides::Sides;
use super::{Exit, confirm, packs, terminal};
use crate::cli::commands::CommandReport;
use crate::compare::{CompareError, CompareRequest, PartSink, Progress, Quiet, compare};
use crate::files::ReportError;
use crate::report::number::counted;
use crate::report::text::{TextOptions, answer, render};
use crate::report::{Extent, Format, ReportSet, Suspects, json};
use crate::shard::{Shard, ShardOutcome, compare_shard_staged};
use crate::store::{Address, Selection, Stores};

/// Compare two dumps: name the first op that diverges, and its cause
///
/// BASELINE and CANDIDATE are dumps (a dump root, step folder, rank folder or dump.json) or tensors
/// (.safetensors, .pt, .pth, .bin, .npy, .npz, or a folder of them).
///
/// Exit codes: 0 agree, 1 diverged, 2 failed or misused, 3 finished but incomplete.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    group = ArgGroup::new("task").required(true).multiple(true).args(["first", "baseline", "plan"]),
    override_usage = "probe compare [OPTIONS] BASELINE CANDIDATE",
    after_help = "\
Examples:
  probe compare gpu_dump npu_dump                     answer, and reports
  probe compare gpu_dump/step3 npu_dump/step3 -v      one step, everything
  probe compare gpu.safetensors npu.safetensors -q    the first line only
  probe compare gpu_dump npu_dump --noise gpu_dump_2  allow for measured noise
  probe compare gpu_dump npu_dump --reference f64     which side is more accurate
  probe compare gpu_dump npu_dump --confirm           replay each call, then judge
  probe compare gpu_dump npu_dump --format json | jq .first_divergence"
)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    pub(super) sides: Sides,

    /// Folder for the reports, created if missing; `-` prints one report instead of writing files [default: probe-report].
    #[arg(short, long, alias = "output_path", value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    #[command(flatten)]
    pub(super) request: CompareRequest,

    /// Comma-separated report formats [default: text,xlsx,parquet,json,html]; `json` alone, without -o, is printed.
    #[arg(long, value_delimiter = ',', value_parser = format(), value_name = "FORMATS")]
    pub(super) format: Option<Vec<Format>>,

    /// Write every op and value of a large dump to the workbook, not only those that differ or are at fault.
    #[arg(long)]
    pub(super) full: bool,

    /// Threads to use [default: one per processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,

    /// Maximum number of ops at fault to list in the terminal.
    #[arg(long, default_value_t = 10)]
    pub(super) top: usize,

    /// Compare one shard of a plan from `probe plan`; the options of the comparison come from the plan.
    #[arg(long, value_name = "PLAN", requires = "shard")]
    #[arg(conflicts_with_all = ["Sides", "CompareRequest", "output", "full", "top"])]
    pub(super) plan: Option<PathBuf>,

    /// The shard: 3/64, `slurm` (a task of a job array or a step), or `k8s/64` (a pod of an indexed job).
    #[arg(long, value_name = "SHARD", requires = "plan")]
    pub(super) shard: Option<Shard>,

    /// Compare on the Ray cluster at ADDRESS: `auto` for the running one, `local` for one on this machine. DIR becomes a run of shards.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["plan", "full"])]
    pub(super) ray: Option<String>,

    /// Location of the dumps: `shared` (visible to all nodes) or `node` (each node has some of the ranks on its own disk).
    #[arg(long, value_name = "WHERE", requires = "ray", default_value = "shared", value_parser = ["shared", "node"])]
    pub(super) ray_where: String,

    /// Replay every call of both dumps in float64 first: suspects that are as right as the baseline are cleared, and ops are named
    /// that the comparison alone would miss. Needs data (task tensor), and the Python package beside torch.
    #[arg(long, conflicts_with_all = ["plan", "ray"])]
    pub(super) confirm: bool,

    #[command(flatten)]
    pub(super) scratch: Scratch,

    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Verbosity {
    /// Print only the answer, without progress.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// List every op at fault and everything that could not be compared.
    #[arg(short, long)]
    pub(super) verbose: bool,
}

/// Default folder of the reports.
pub(super) const OUTPUT: &str = "probe-report";

/// Runs the subcommand.
pub(super) fn run(args: &CompareArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    if let (Some(plan), Some(shard)) = (&args.plan, args.shard) {
        return compare_one(plan, shard, args, stores);
    }
    let sides = args.sides.paths()?;
    if let Some(address) = &args.ray {
        return super::cluster::run(address, sides, args);
    }
    let printed = to_print(
        args.output.as_deref(),
        args.format.as_deref(),
        &[Format::Text, Format::Json],
        Format::Json,
    )?;
    check_places(sides, &args.request)?;
    let mut stage = args.scratch.stage(stores, args.verbosity.quiet)?;
    let selection = Selection::of(args.request.steps.as_ref(), args.request.ranks.as_ref());
    let folder = stage.output(args.output.as_deref().unwrap_or(Path::new(OUTPUT)))?;
    let sides = [stage.dump(sides[0], &selection)?, stage.dump(sides[1], &selection)?];
    let mut options = stage.request(&args.request, &selection)?.options(stage.copies())?;
    if args.confirm {
        let places = [&sides[0], &sides[1]].map(|side| stage.copies().place(side));
        options.replayed =
            scope(args, [&places[0], &places[1]]).replay(args.verbosity.quiet).context("--confirm")?;
    }
    let pool = pool(args.threads)?;
    let compared = |sink: &mut PartSink<'_>| {
        let bar = (!args.verbosity.quiet).then(Bar::on_terminal).flatten();
        let progress: &dyn Progress = bar.as_ref().map_or(&Quiet, |bar| bar);
        let mut summary = compare(&sides[0], &sides[1], &options, progress, sink)?;
        summary.notes.extend(packs::note(&summary, [&sides[0], &sides[1]], &options.copies));
        Ok::<_, CompareError>(summary)
    };
    let (summary, written) = if printed.is_some() {
        let summary = pool.install(|| compared(&mut |_| Ok(())));
        stage.sound()?;
        (summary?, Vec::new())
    } else {
        let place = stage.copies().place(&folder);
        in_new_folder(&place, || {
            let mut reports = create_reports(args, &place)?;
            let (summary, written) = pool.install(|| -> anyhow::Result<_> {
                let summary = compared(&mut |part| reports.part(part));
                stage.sound()?;
                let summary = summary?;
                let written = reports.finish(&summary)?;
                Ok((summary, written))
            })?;
            Ok((summary, stage.deliver(&written)?))
        })?
    };
    terminal::print(&match printed {
        Some(Format::Json) => json::text(&summary)?,
        _ if args.verbosity.quiet => format!("{}\n", answer(&summary)),
        _ => render(&summary, &layout(args, written)),
    })?;
    Ok(summary.verdict.into())
}

fn create_reports(args: &CompareArgs, place: &Path) -> Result<ReportSet, ReportError> {
    let extent = if args.full { Extent::Full } else { Extent::Selection };
    match args.format.as_deref() {
        None => Ok(ReportSet::create(place, &Format::USUAL, extent)?.with_suspects(Suspects::default())),
        Some(formats) => ReportSet::create(place, formats, extent),
    }
}

/// Returns the calls to replay: those of the steps and ranks being compared.
fn scope<'a>(args: &'a CompareArgs, sides: [&'a Path; 2]) -> confirm::Scope<'a> {
    confirm::Scope { sides, steps: args.request.steps.as_ref(), ranks: args.request.ranks.as_ref() }
}

/// Detects certain failures before anything is created: every local path must exist.
fn check_places(sides: [&PathBuf; 2], request: &CompareRequest) -> anyhow::Result<()> {
    let noise = request.noise.iter().map(|path| ("noise", path));
    let reference = request.reference.iter().map(|path| ("reference", path));
    for (side, path) in ["baseline", "candidate"].into_iter().zip(sides).chain(noise).chain(reference) {
        if let Address::Local(place) = Address::parse(path)? {
            std::fs::metadata(place).with_context(|| format!("{} (the {side})", path.display()))?;
        }
    }
    Ok(())
}

/// Compares a shard of a plan. Faulty ops in it do not make the command fail: the merge reports
/// them.
fn compare_one(plan: &Path, shard: Shard, args: &CompareArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    let json = args.format.as_deref() == Some(&[Format::Json]);
    if args.format.is_some() && !json {
        bail!(
            "--format: `probe merge` writes the reports of a plan; a shard takes --format json, which prints its outcome"
        );
    }
    leave_nothing_behind(Vec::new())?;
    let mut stage = args.scratch.stage(stores, args.verbosity.quiet)?;
    let bar = (!args.verbosity.quiet).then(Bar::on_terminal).flatten();
    let progress: &dyn Progress = bar.as_ref().map_or(&Quiet, |bar| bar);
    let done = pool(args.threads)?.install(|| compare_shard_staged(&mut stage, plan, shard, progress))?;
    drop(bar);
    if json {
        terminal::print(&CommandReport::of_shard(shard, &done).text()?)?;
    } else if !args.verbosity.quiet {
        terminal::print(&became(shard, &done))?;
    }
    if done.not_compared > 0 {
        let places = counted(done.not_compared as u64, "place");
        terminal::error(&anyhow::anyhow!("{places} could not be compared; `probe merge` lists them"));
    }
    Ok(Exit::Agree)
}

/// Describes the outcome of a shard in one line.
fn became(shard: Shard, done: &ShardOutcome) -> String {
    let what = if done.was_done { "was already done" } else { "done" };
    let first =
        done.first.as_ref().map_or_else(String::new, |first| format!("; its first op at fault: {first}"));
    format!(
        "shard {shard}: {what}, {}, {}{first}\n",
        counted(done.parts as u64, "part"),
        done.folder.display()
    )
}

/// Creates a thread pool with the requested number of threads, by default one per processor.
pub(super) fn pool(threads: Option<u16>) -> anyhow::Result<rayon::ThreadPool> {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads.map_or(0, usize::from));
    builder.build().context("cannot start threads")
}

fn layout(args: &CompareArgs, written: Vec<PathBuf>) -> TextOptions {
    let all = args.verbosity.verbose.then_some(usize::MAX);
    let defaults = TextOptions::default();
    TextOptions {
        colour: terminal::colour(),
        width: terminal::width().unwrap_or(defaults.width),
        top: all.unwrap_or(args.top),
        incomplete: all.unwrap_or(defaults.incomplete),
        written,
        keep: None,
    }
}
