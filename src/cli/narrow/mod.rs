//! `probe narrow`.

mod confirmed;
mod inject;
mod rerun;

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

pub(super) use confirmed::UNCONFIRMED;
pub(super) use rerun::{Place, Rerun, Trail, Trusted};

use super::print::PrintFormat;
use super::{Exit, terminal};
use crate::report::narrow::{NarrowReport, StageEntry};
use crate::report::text::{TextOptions, answer, render};

/// Find the op where two runs diverge while recording little: first modules, then the ops of the first bad module, then the tensors of the op.
///
/// Each command is run once for each of these three steps, under `probe capture`; once more if the ops of the bad module agree, to record what is
/// outside it. A baseline that is a dump is not run again. Where the Python package finds torch, the calls of the last step are replayed in
/// float64: a suspect that is right is dropped, and a call that is wrong is named.
///
/// Exit codes: 0 the runs agree, 1 they diverge, 2 failed or misused, 3 something could not be compared.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe narrow --baseline-cmd 'cd base && python train.py' --candidate-cmd 'python train.py'
  probe narrow --baseline-cmd 'python base/train.py' --candidate-cmd 'python head/train.py' --steps 0-1
  probe narrow --baseline gpu_dump --candidate-cmd 'python train.py'
  probe narrow --inject --baseline-cmd 'python base/train.py' --candidate-cmd 'python head/train.py'")]
pub(super) struct NarrowArgs {
    /// Shell command that runs the baseline.
    #[arg(long, value_name = "COMMAND", required_unless_present = "baseline", conflicts_with = "baseline")]
    baseline_cmd: Option<String>,

    /// A dump of the baseline, of the ops as well as the modules.
    #[arg(long, value_name = "DUMP")]
    baseline: Option<PathBuf>,

    /// Shell command that runs the candidate.
    #[arg(long, value_name = "COMMAND")]
    candidate_cmd: String,

    /// Steps to compare.
    #[arg(long, default_value = "0", value_name = "STEPS")]
    steps: String,

    /// Ranks to record [default: all].
    #[arg(long, value_name = "RANKS")]
    ranks: Option<String>,

    /// Find faults hidden behind the first: record the candidate once with all that its ops read replaced by what the baseline recorded, so
    /// that each op shows its own error alone, and once with the results of the ops at fault replaced, to see whether anything is left.
    #[arg(long)]
    inject: bool,

    /// With --inject: level at which values are replaced and ops are named [default: that of the baseline's dump, else mix].
    #[arg(long, value_name = "LEVEL", requires = "inject", value_parser = ["module", "api", "mix", "op"])]
    level: Option<String>,

    /// Folder for the dumps, which are kept [default: a temporary one].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print the answer only, and no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// Said in place of a command that reads the dumps.
const KEEP: &str = "the same with -o DIR keeps the dumps, for probe replay";

/// Runs the subcommand.
pub(super) fn run(args: &NarrowArgs) -> anyhow::Result<Exit> {
    let baseline = match (&args.baseline_cmd, &args.baseline) {
        (Some(command), _) => Trusted::Command(command),
        (None, Some(dump)) => {
            std::fs::metadata(dump).with_context(|| format!("{} (the baseline)", dump.display()))?;
            Trusted::Dump(dump)
        }
        (None, None) => bail!("no baseline: give --baseline-cmd or --baseline"),
    };
    let temporary = tempfile::tempdir().context("a temporary folder")?;
    let folder = args.output.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let rerun = Rerun::new(baseline, &args.candidate_cmd, args.ranks.as_deref(), folder, args.quiet);
    let trail = if args.inject {
        rerun.alone(&args.steps, args.level.as_deref())?
    } else {
        rerun.narrow(&args.steps, true)?
    };
    drop(rerun);
    let summary = &trail.answer().summary;
    let text = match args.format {
        PrintFormat::Json => NarrowReport::of(trail.stages().map(entry).collect(), summary).text()?,
        PrintFormat::Text if args.quiet => format!("{}\n", answer(summary)),
        PrintFormat::Text => {
            let mut layout = TextOptions::default();
            layout.colour = terminal::colour();
            layout.width = terminal::width().unwrap_or(layout.width);
            // The temporary folder ends with this command.
            layout.keep = args.output.is_none().then(|| KEEP.to_owned());
            format!("{}\n{}\n", render(summary, &layout), trail.lines().join("\n"))
        }
    };
    terminal::print(&text)?;
    Ok(summary.verdict.into())
}

fn entry(stage: &rerun::Stage) -> StageEntry<'_> {
    StageEntry {
        recorded: stage.name,
        steps: &stage.place.steps,
        module: stage.place.module.as_deref(),
        baseline: stage.dumps[0].display().to_string(),
        candidate: stage.dumps[1].display().to_string(),
        answer: answer(&stage.summary),
    }
}
