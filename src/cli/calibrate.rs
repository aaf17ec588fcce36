//! `probe calibrate`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Exit;
use super::args::CalibrateArgs;
use super::compare::pool;
use super::interrupt::leave_nothing_behind;
use super::progress::Bar;
use super::terminal;
use crate::compare::{Calibration, CompareOptions, Progress, Quiet, calibrate};
use crate::read::map::FileAccess;
use crate::report::Draft;

/// Runs the subcommand.
pub(super) fn run(args: &CalibrateArgs) -> anyhow::Result<Exit> {
    // What is certain to fail should fail before anything is measured.
    for path in [&args.baseline].into_iter().chain(&args.noise) {
        std::fs::metadata(path).with_context(|| path.display().to_string())?;
    }
    leave_nothing_behind(Vec::new())?;
    let mut draft = Draft::create(&args.output)?;
    let options = CompareOptions {
        steps: args.step.clone().unwrap_or_default(),
        ranks: args.rank.clone().unwrap_or_default(),
        access: if args.no_mmap { FileAccess::Read } else { FileAccess::Map },
        ..CompareOptions::default()
    };
    let bar = (!args.quiet).then(Bar::on_terminal).flatten();
    let progress: &dyn Progress = bar.as_ref().map_or(&Quiet, |bar| bar);
    let found = pool(args.threads)?.install(|| calibrate(&args.baseline, &args.noise, &options, progress))?;
    drop(bar);
    let toml = found.noise.to_toml(&made_of(&args.baseline, &args.noise));
    draft.file().write_all(toml.as_bytes()).map_err(|error| draft.refused(error))?;
    let written = draft.place()?;
    if !args.quiet {
        terminal::print(&text(&written, &found))?;
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
