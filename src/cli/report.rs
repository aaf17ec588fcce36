//! `probe report`: a page from an earlier result.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use super::interrupt::leave_nothing_behind;
use super::print::PrintFormat;
use super::{Exit, terminal};
use crate::cli::commands::CommandReport;
use crate::report::Format;
use crate::report::html::from_parquet;

/// Make the HTML page from an earlier result.
///
/// Reads only the result.parquet that `probe compare` wrote: the dumps are no longer needed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe report probe-report                           probe-report/result.html
  probe report probe-report/result.parquet -o x.html")]
pub(super) struct ReportArgs {
    /// A result.parquet, or the folder that holds it.
    pub(super) result: PathBuf,

    /// Path of the page, or a folder for it [default: result.html beside the result].
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print nothing.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Runs the subcommand.
pub(super) fn run(args: &ReportArgs) -> anyhow::Result<Exit> {
    let result = stored(&args.result)?;
    let target = match &args.output {
        Some(output) if output.is_dir() => output.join(Format::Html.file_name()),
        Some(output) => output.clone(),
        None => result.with_file_name(Format::Html.file_name()),
    };
    leave_nothing_behind(Vec::new())?;
    let written = from_parquet(&result, &target)?.place()?;
    match args.format {
        PrintFormat::Json => terminal::print(&CommandReport::of_page(&written).text()?)?,
        PrintFormat::Text if args.quiet => {}
        PrintFormat::Text => terminal::print(&format!("written    {}\n", written.display()))?,
    }
    Ok(Exit::Agree)
}

/// Returns the result itself, or the one in a folder of reports.
fn stored(path: &Path) -> anyhow::Result<PathBuf> {
    let path = if path.is_dir() { path.join(Format::Parquet.file_name()) } else { path.to_path_buf() };
    let found = std::fs::metadata(&path).with_context(|| path.display().to_string())?;
    if !found.is_file() {
        bail!("{}: is not a file; give the result.parquet that probe compare wrote", path.display());
    }
    Ok(path)
}
