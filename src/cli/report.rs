//! `probe report`: a page from an earlier result.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::Exit;
use super::args::ReportArgs;
use super::interrupt::leave_nothing_behind;
use super::terminal;
use crate::report::Format;
use crate::report::html::from_parquet;

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
    if !args.quiet {
        terminal::print(&format!("written    {}\n", written.display()))?;
    }
    Ok(Exit::Agree)
}

/// The result itself, or that in a folder of reports.
fn stored(path: &Path) -> anyhow::Result<PathBuf> {
    let path = if path.is_dir() { path.join(Format::Parquet.file_name()) } else { path.to_path_buf() };
    let found = std::fs::metadata(&path).with_context(|| path.display().to_string())?;
    if !found.is_file() {
        bail!("{}: is no file; give the result.parquet that probe compare wrote", path.display());
    }
    Ok(path)
}
