//! `probe weights`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use globset::Glob;

use super::compare::pool;
use super::interrupt::leave_nothing_behind;
use super::print::PrintFormat;
use super::{Exit, terminal};
use crate::files::Draft;
use crate::files::map::FileAccess;
use crate::report::weights::{json, text};
use crate::store::Address;
use crate::weights::{Checkpoint, Selected, compare, mapping};

/// Compare the weights of two checkpoints by content, whatever their names, shards and layouts.
///
/// BASELINE and CANDIDATE are checkpoints: .safetensors, .pt, .bin, a folder of them (with an index or without), a torch distributed
/// checkpoint (.metadata and .distcp), or a checkpoint of Megatron (`mp_rank_XX`).
///
/// Exit codes: 0 equal up to the mapping, 1 the weights differ, 2 failed or misused, 3 something could not be read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe weights hf_folder megatron/iter_0001000
  probe weights hf_folder synced.pt --snapshot hf_folder_step_3   what was not updated
  probe weights a.safetensors b.safetensors -o names.toml         names for probe compare --mapping
  probe weights a b --format json | jq .findings[].text")]
pub(super) struct WeightsArgs {
    /// The trusted weights.
    #[arg(value_name = "BASELINE")]
    baseline: PathBuf,

    /// The weights under test.
    #[arg(value_name = "CANDIDATE")]
    candidate: PathBuf,

    /// An older state of the weights, in the names of either side; repeatable.
    #[arg(long, value_name = "PATH")]
    snapshot: Vec<PathBuf>,

    /// Only tensors whose name matches; `*` matches anything; repeatable.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,

    /// Leave out tensors whose name matches; repeatable.
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<String>,

    /// Write the names that belong together to a file for `probe compare --mapping`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Threads to use [default: one per processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    /// Read files in pieces instead of mapping them: for network file systems.
    #[arg(long)]
    no_mmap: bool,
}

/// Runs the subcommand.
pub(super) fn run(args: &WeightsArgs) -> anyhow::Result<Exit> {
    leave_nothing_behind(Vec::new())?;
    let patterns = |option: &'static str, patterns: &[String]| -> anyhow::Result<Vec<_>> {
        let pattern =
            |pattern: &String| Glob::new(pattern).map(|glob| glob.compile_matcher()).context(option);
        patterns.iter().map(pattern).collect()
    };
    let selected = Selected { only: patterns("--only", &args.only)?, skip: patterns("--skip", &args.skip)? };
    // An unwritable place is an error before anything is read.
    let draft = args.output.as_deref().map(Draft::create).transpose()?;
    let access = if args.no_mmap { FileAccess::Read } else { FileAccess::Map };
    let open = |path: &Path| -> anyhow::Result<Checkpoint> {
        match Address::parse(path)? {
            Address::Local(place) => Ok(Checkpoint::open(&place, &selected, access)?),
            Address::Remote(_) => {
                bail!("{}: weights are read from disk; copy the checkpoint there first", path.display())
            }
        }
    };
    let (baseline, candidate) = (open(&args.baseline)?, open(&args.candidate)?);
    let snapshots = args.snapshot.iter().map(|path| open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let found = pool(args.threads)?.install(|| compare(&baseline, &candidate, &snapshots));
    if let Some(mut draft) = draft {
        let names = mapping(&baseline, &candidate, &found.placed);
        draft.file().write_all(names.as_bytes()).map_err(|error| draft.refused(error))?;
        draft.place()?;
    }
    terminal::print(&match args.format {
        PrintFormat::Text => text(&baseline, &candidate, &found),
        PrintFormat::Json => json(&baseline, &candidate, &found)?,
    })?;
    Ok(terminal::ended(&found.faults, found.agree()))
}
