//! `probe compare`.

use std::path::PathBuf;

use anyhow::Context;

use super::Exit;
use super::args::CompareArgs;
use super::output::in_new_folder;
use super::progress::Bar;
use super::terminal;
use crate::compare::{CompareOptions, Progress, Quiet, compare};
use crate::judge::{Rules, Summary};
use crate::read::map::FileAccess;
use crate::report::ReportSet;
use crate::report::text::{TextOptions, answer, render};

/// Runs the subcommand.
pub(super) fn run(mut args: CompareArgs) -> anyhow::Result<Exit> {
    // What is certain to fail should fail before anything is created.
    for (option, path) in [("--baseline", &args.baseline), ("--candidate", &args.candidate)] {
        std::fs::metadata(path).with_context(|| format!("{} (given with {option})", path.display()))?;
    }
    let options = CompareOptions {
        steps: args.step.take().unwrap_or_default(),
        ranks: args.rank.take().unwrap_or_default(),
        level: args.level,
        rules: args.tolerance.as_deref().map_or_else(|| Ok(Rules::default()), Rules::from_file)?,
        access: if args.no_mmap { FileAccess::Read } else { FileAccess::Map },
        any_task: args.any_task,
    };
    let (summary, written) = in_new_folder(&args.output, || compare_into_reports(&args, &options))?;
    let all = args.verbosity.verbose.then_some(usize::MAX);
    let defaults = TextOptions::default();
    let text = TextOptions {
        colour: terminal::colour(),
        width: terminal::width(),
        top: all.unwrap_or(args.top),
        incomplete: all.unwrap_or(defaults.incomplete),
        written,
    };
    if args.verbosity.quiet {
        terminal::print(&format!("{}\n", answer(&summary)))?;
    } else {
        terminal::print(&render(&summary, &text))?;
    }
    Ok(summary.verdict.into())
}

fn compare_into_reports(
    args: &CompareArgs,
    options: &CompareOptions,
) -> anyhow::Result<(Summary, Vec<PathBuf>)> {
    let mut reports = ReportSet::create(&args.output, &args.format)?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.threads.map_or(0, usize::from))
        .build()
        .context("cannot start threads")?;
    let bar = (!args.verbosity.quiet).then(Bar::on_terminal).flatten();
    let progress: &dyn Progress = bar.as_ref().map_or(&Quiet, |bar| bar);
    pool.install(|| {
        let summary =
            compare(&args.baseline, &args.candidate, options, progress, &mut |part| reports.part(part))?;
        let written = reports.finish(&summary)?;
        Ok((summary, written))
    })
}
