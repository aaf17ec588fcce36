//! `probe history`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use super::print::PrintFormat;
use super::{Exit, terminal};
use crate::files::Draft;
use crate::gate::history::{names, read, trend};
use crate::gate::policy::is_of_speed;
use crate::report::history::{HistoryReport, svg, text};

/// Show the results of gates over time: the first commit of a jump, and slow drift that no single commit shows.
///
/// Exit codes: 0 neither, 1 a jump or a drift, 2 failed or misused.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe gate --baseline gpt2.probe.json --candidate dump --history history
  probe history history --svg history.svg")]
pub(super) struct HistoryArgs {
    /// Folder that `probe gate --history` appends to.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// The scalar shown in the table [default: one with `loss` in its name, else the first].
    #[arg(long, value_name = "NAME")]
    scalar: Option<String>,

    /// Maximum number of runs to list.
    #[arg(long, default_value_t = 20)]
    top: usize,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Write a plot of every scalar to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs the subcommand.
pub(super) fn run(args: &HistoryArgs) -> anyhow::Result<Exit> {
    let entries = read(&args.folder)?;
    if entries.is_empty() {
        bail!("{}: holds no results of `probe gate` yet", args.folder.display());
    }
    let known = names(&entries);
    if let Some(name) = args.scalar.as_ref().filter(|name| !known.contains(name)) {
        let names: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
        bail!("no scalar {name:?} in the history; it has {}", names.join(", "));
    }
    let usual = || {
        let results = || known.iter().copied().filter(|name| !is_of_speed(name));
        results().find(|name| name.contains("loss")).or_else(|| results().next())
    };
    let scalar = args.scalar.as_ref().or_else(usual);
    let found = trend(&entries);
    if let Some(path) = &args.svg {
        let mut draft = Draft::create(path)?;
        draft
            .file()
            .write_all(svg(&entries, &found).as_bytes())
            .with_context(|| path.display().to_string())?;
        draft.place()?;
    }
    terminal::print(&match args.format {
        PrintFormat::Json => HistoryReport::of(&entries, &found).text()?,
        PrintFormat::Text => text(&entries, &found, scalar.map(String::as_str), args.top),
    })?;
    Ok(if found.jumps.is_empty() && found.drifts.is_empty() { Exit::Agree } else { Exit::Differ })
}
