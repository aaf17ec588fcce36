//! `probe calibrate`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::compare::pool;
use super::interrupt::leave_nothing_behind;
use super::print::PrintFormat;
use super::progress::Bar;
use super::scratch::Scratch;
use super::{Exit, terminal};
use crate::cli::commands::CommandReport;
use crate::compare::{Calibration, CompareOptions, CompareRequest, Progress, Quiet, calibrate};
use crate::dump::NumberSet;
use crate::files::Draft;
use crate::store::{Address, Selection, Stores};

/// Measure how much repeated runs of one program differ, as noise floors for `probe compare --noise`.
///
/// BASELINE and each NOISE are dumps of the same program on the same data: run twice, on two machines of the same kind, or with
/// `probe capture --perturb`. The file lists the noise of each function and can be edited.
///
/// Exit codes: 0 done, 2 failed or misused, 3 something could not be read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe calibrate gpu_dump gpu_dump_2 -o noise.toml
  probe calibrate gpu_dump gpu_dump_2 gpu_dump_3 --step 0-2
  probe compare gpu_dump npu_dump --noise noise.toml")]
pub(super) struct CalibrateArgs {
    /// The trusted run.
    #[arg(value_name = "BASELINE")]
    pub(super) baseline: PathBuf,

    /// Repeated runs of it.
    #[arg(value_name = "NOISE", required = true)]
    pub(super) noise: Vec<PathBuf>,

    /// Output file.
    #[arg(short, long, default_value = "noise.toml", value_name = "FILE")]
    pub(super) output: PathBuf,

    /// Steps to measure, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to measure, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// Threads to use [default: one per processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,

    #[command(flatten)]
    pub(super) scratch: Scratch,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print nothing, not even progress.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Runs the subcommand.
pub(super) fn run(args: &CalibrateArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    // Detect certain failures before anything is measured.
    for path in [&args.baseline].into_iter().chain(&args.noise) {
        if let Address::Local(place) = Address::parse(path)? {
            std::fs::metadata(place).with_context(|| path.display().to_string())?;
        }
    }
    let mut stage = args.scratch.stage(stores, args.quiet)?;
    leave_nothing_behind(Vec::new())?;
    let output = stage.output_file(&args.output)?;
    let mut draft = Draft::create(&stage.copies().place(&output))?;
    let selection = Selection::of(args.step.as_ref(), args.rank.as_ref());
    let baseline = stage.dump(&args.baseline, &selection)?;
    // A run that has none of the steps is measured as a whole.
    let of_noise = Selection { or_all: true, ..selection.clone() };
    let noise = args.noise.iter().map(|path| stage.dump(path, &of_noise)).collect::<Result<Vec<_>, _>>()?;
    let options = CompareOptions {
        request: CompareRequest {
            steps: args.step.clone(),
            ranks: args.rank.clone(),
            no_mmap: args.no_mmap,
            ..CompareRequest::default()
        },
        copies: stage.copies().clone(),
        ..CompareOptions::default()
    };
    let bar = (!args.quiet).then(Bar::on_terminal).flatten();
    let progress: &dyn Progress = bar.as_ref().map_or(&Quiet, |bar| bar);
    let found = pool(args.threads)?.install(|| calibrate(&baseline, &noise, &options, progress));
    drop(bar);
    stage.sound()?;
    let found = found?;
    let toml = found.noise.to_toml(&made_of(&baseline, &noise));
    draft.file().write_all(toml.as_bytes()).map_err(|error| draft.refused(error))?;
    let placed = draft.place()?;
    stage.deliver(&[placed])?;
    let written = output;
    match args.format {
        PrintFormat::Json => terminal::print(&CommandReport::of_noise(&written, &found).text()?)?,
        PrintFormat::Text if args.quiet => {}
        PrintFormat::Text => terminal::print(&text(&written, &found))?,
    }
    Ok(if found.incomplete.is_empty() { Exit::Agree } else { Exit::Incomplete })
}

fn made_of(baseline: &Path, noise: &[PathBuf]) -> String {
    let runs: Vec<String> = noise.iter().map(|path| path.display().to_string()).collect();
    format!("{} against {}", runs.join(", "), baseline.display())
}

fn text(output: &Path, found: &Calibration) -> String {
    let mut text = format!("{}: levels of {} families of calls\n", output.display(), found.noise.families());
    for said in &found.said {
        _ = writeln!(text, "{said}");
    }
    for left_out in &found.incomplete {
        _ = writeln!(text, "not measured: {}: {}", left_out.place, left_out.reason);
    }
    text
}
