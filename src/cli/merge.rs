//! `probe merge`.

use anyhow::bail;

use super::Exit;
use super::args::MergeArgs;
use super::interrupt::leave_nothing_behind;
use super::terminal;
use crate::report::text::{TextOptions, answer, render};
use crate::report::{Extent, Format, ReportSet};
use crate::shard::merge;

/// Reports where none are asked for. Rows stay in the shards.
const FORMATS: [Format; 3] = [Format::Text, Format::Xlsx, Format::Json];

/// Runs the subcommand.
pub(super) fn run(args: &MergeArgs) -> anyhow::Result<Exit> {
    let formats = args.format.as_deref().unwrap_or(&FORMATS);
    if formats.contains(&Format::Parquet) {
        bail!(
            "--format parquet: rows are in the shards already, a result.parquet in each; SQL reads them as one table"
        );
    }
    leave_nothing_behind(Vec::new())?;
    let found = merge(&args.run)?;
    let written = ReportSet::create(&args.run, formats, Extent::Selection)?.finish(&found.summary)?;
    for note in &found.notes {
        terminal::error(&anyhow::anyhow!("note: {note}"));
    }
    let text = if args.verbosity.quiet {
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
            },
        )
    };
    terminal::print(&text)?;
    Ok(found.summary.verdict.into())
}
