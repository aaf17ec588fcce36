//! `probe merge`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::args::format;
use super::compare::Verbosity;
use super::interrupt::leave_nothing_behind;
use super::scratch::Scratch;
use super::{Exit, terminal};
use crate::report::text::{TextOptions, answer, render};
use crate::report::{Format, json};
use crate::shard::merge_staged;
use crate::store::Stores;

/// Fold the shards of a plan into the answer and its reports.
///
/// May be run at any time: unfinished shards are listed with the command that runs them.
///
/// Exit codes: 0 agree, 1 diverged, 2 failed or misused, 3 finished but incomplete, as when a shard is missing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe merge run
  probe merge run --format json | jq .first_divergence")]
pub(super) struct MergeArgs {
    /// Folder of the run.
    #[arg(value_name = "RUN")]
    pub(super) run: PathBuf,

    /// Comma-separated report formats [default: text,xlsx,json,html]; rows stay in the shards, a `result.parquet` in each; `json`
    /// alone is printed as well.
    #[arg(long, value_delimiter = ',', value_parser = format(), value_name = "FORMATS")]
    pub(super) format: Option<Vec<Format>>,

    /// Maximum number of ops at fault to list in the terminal.
    #[arg(long, default_value_t = 10)]
    pub(super) top: usize,

    #[command(flatten)]
    pub(super) scratch: Scratch,

    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

/// Runs the subcommand.
pub(super) fn run(args: &MergeArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    let formats = args.format.as_deref();
    if formats.is_some_and(|formats| formats.contains(&Format::Parquet)) {
        bail!(
            "--format parquet: rows are in the shards already, a result.parquet in each; SQL reads them as one table"
        );
    }
    leave_nothing_behind(Vec::new())?;
    let mut stage = args.scratch.stage(stores, args.verbosity.quiet)?;
    let (found, written) = merge_staged(&mut stage, &args.run, formats)?;
    for note in &found.notes {
        terminal::note(note);
    }
    let text = if formats == Some(&[Format::Json]) {
        json::text(&found.summary)?
    } else if args.verbosity.quiet {
        format!("{}\n", answer(&found.summary))
    } else {
        let all = args.verbosity.verbose.then_some(usize::MAX);
        let defaults = TextOptions::default();
        render(
            &found.summary,
            &TextOptions {
                colour: terminal::colour(),
                width: terminal::width().unwrap_or(defaults.width),
                top: all.unwrap_or(args.top),
                incomplete: all.unwrap_or(defaults.incomplete),
                written,
                keep: None,
            },
        )
    };
    terminal::print(&text)?;
    Ok(found.summary.verdict.into())
}
