//! `probe report`: page and workbook from an earlier result.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use super::interrupt::leave_nothing_behind;
use super::print::PrintFormat;
use super::scratch::Scratch;
use super::{Exit, terminal};
use crate::cli::commands::CommandReport;
use crate::files::Draft;
use crate::report::{Format, StoredFile, html, xlsx};
use crate::shard::{PLAN, merge_staged};
use crate::store::Stores;

/// Make the HTML page from an earlier result, and the workbook where there is one.
///
/// Reads only the result.parquet that `probe compare` wrote, or those of the shards of a merged run: the dumps are no longer needed.
/// Calls that `probe replay` ran since are shown at their ops.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe report probe-report                           probe-report/result.html, and result.xlsx if it is there
  probe report probe-report/result.parquet -o x.html
  probe report probe-report -o x.xlsx
  probe report run                                    the same for the folder of a merged run")]
pub(super) struct ReportArgs {
    /// A result.parquet, or the folder that holds it, or that of a merged run.
    pub(super) result: PathBuf,

    /// Path of the page, of a workbook (*.xlsx), or a folder for the page [default: beside the result].
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
pub(super) fn run(args: &ReportArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    leave_nothing_behind(Vec::new())?;
    let written = match merged(&args.result) {
        Some(formats) => {
            if let Some(output) = &args.output {
                bail!(
                    "-o {}: reports of a merged run are made in its folder; leave -o out",
                    output.display()
                );
            }
            let mut stage = Scratch { scratch: None, scratch_bytes: None }.stage(stores, args.quiet)?;
            merge_staged(&mut stage, &args.result, Some(&formats))?.1
        }
        None => remade(&stored(&args.result)?, args.output.as_deref())?,
    };
    match args.format {
        PrintFormat::Json => terminal::print(&CommandReport::of_pages(&written).text()?)?,
        PrintFormat::Text if args.quiet => {}
        PrintFormat::Text => {
            let lines = written.iter().map(|path| format!("written    {}\n", path.display()));
            terminal::print(&lines.collect::<String>())?;
        }
    }
    Ok(Exit::Agree)
}

/// Makes the reports of one result.
fn remade(result: &Path, output: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let page = match output {
        Some(output) if output.extension() == Some(OsStr::new("xlsx")) => {
            return Ok(vec![xlsx::from_result(StoredFile::open(result)?, output)?.place()?]);
        }
        Some(output) if output.is_dir() => output.join(Format::Html.file_name()),
        Some(output) => output.to_path_buf(),
        None => result.with_file_name(Format::Html.file_name()),
    };
    let workbook = result.with_file_name(Format::Xlsx.file_name());
    let file = StoredFile::open(result)?;
    let mut drafts = vec![html::from_result(&file, &page)?];
    if output.is_none() && workbook.is_file() {
        drafts.push(xlsx::from_result(file, &workbook)?);
    }
    Ok(drafts.into_iter().map(Draft::place).collect::<Result<_, _>>()?)
}

/// Returns the reports to make again of a merged run; `None` if the folder is none.
fn merged(folder: &Path) -> Option<Vec<Format>> {
    let has = |name: &str| folder.join(name).is_file();
    if has(Format::Parquet.file_name()) || !has(PLAN) {
        return None;
    }
    let workbook = has(Format::Xlsx.file_name()).then_some(Format::Xlsx);
    Some([Format::Html].into_iter().chain(workbook).collect())
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
