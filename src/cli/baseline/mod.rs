//! `probe baseline`: creates, shows and changes the baselines of gates.

mod calibrate;
mod diff;
mod import;
mod save;
mod show;
mod update;

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, Subcommand};

use super::Exit;
use super::origin;
use crate::dump::NumberSet;
use crate::files::map::FileAccess;
use crate::gate::baseline::{Baseline, ENDING, Provenance};
use crate::gate::{Made, make};
use crate::judge::Incomplete;
use crate::report::number::counted;

/// Make, show and refresh baselines (NAME.probe.json) of `probe gate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe baseline import golden_values.json -o gpt3.probe.json
  probe baseline save dump losses.txt -o gpt2.probe.json --reason 'release 1.2'
  probe baseline diff gpt2.probe.json new_dump
  probe baseline update gpt2.probe.json new_dump --accept --reason 'CANN 8.3'
  probe baseline calibrate run1.csv run2.csv run3.csv -o probe-gate.toml")]
pub(super) struct BaselineArgs {
    #[command(subcommand)]
    command: BaselineCommand,
}

#[derive(Debug, Subcommand)]
enum BaselineCommand {
    Import(import::ImportArgs),
    Save(save::SaveArgs),
    Show(show::ShowArgs),
    Diff(diff::DiffArgs),
    Update(update::UpdateArgs),
    Calibrate(calibrate::CalibrateArgs),
}

// Author and reason of a baseline. Not a doc comment, which would become part of the help text.
#[derive(Debug, Args)]
struct Origin {
    /// Author [default: as given by CI or the system].
    #[arg(long, value_name = "NAME")]
    by: Option<String>,

    /// The commit of the run.
    #[arg(long, value_name = "SHA")]
    commit: Option<String>,

    /// Configuration pack of the run (`probe.config_check.pack`); its set-up is kept to distinguish drift from regressions.
    #[arg(long, value_name = "PACK.zip")]
    environment: Option<PathBuf>,
}

impl Origin {
    /// Returns the entry for the current action in the baseline's history.
    fn entry(&self, action: &str, reason: &str, from: &[PathBuf]) -> Provenance {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Provenance {
            action: action.into(),
            by: origin::name(self.by.as_deref()),
            reason: reason.into(),
            commit: self.commit.clone(),
            from: from.iter().map(name).collect(),
            nonfinite: None,
            changes: Vec::new(),
        }
    }
}

/// Runs the subcommand.
pub(super) fn run(args: &BaselineArgs) -> anyhow::Result<Exit> {
    match &args.command {
        BaselineCommand::Import(args) => import::run(args),
        BaselineCommand::Save(args) => save::run(args),
        BaselineCommand::Show(args) => show::run(args),
        BaselineCommand::Diff(args) => diff::run(args),
        BaselineCommand::Update(args) => update::run(args),
        BaselineCommand::Calibrate(args) => calibrate::run(args),
    }
}

/// Makes a baseline from files, all of which must be readable.
fn made(paths: &[PathBuf], environment: Option<&Path>, steps: &NumberSet) -> anyhow::Result<Made> {
    let made = make(paths, environment, steps, FileAccess::Map)?;
    if let Some(Incomplete { place, reason }) = made.incomplete.first() {
        bail!("{place}: {reason}; an incomplete run is no baseline");
    }
    Ok(made)
}

/// Reads a side of a baseline comparison: a baseline file keeps its history and set-up, anything else is read as `save`
/// does.
fn side(path: &PathBuf) -> anyhow::Result<Baseline> {
    if path.is_file() && Baseline::is_one(path) {
        return Ok(Baseline::read(path)?);
    }
    Ok(make(std::slice::from_ref(path), None, &NumberSet::default(), FileAccess::Map)?.baseline)
}

/// Rejects non-finite values, unless there is a reason to record them.
fn finite(baseline: &Baseline, reason: Option<&str>) -> anyhow::Result<()> {
    let nonfinite = baseline.nonfinite();
    match (nonfinite.first(), reason) {
        (Some(first), None) => bail!(
            "NaN or infinite: {}, the first is {first}; a baseline of such values proves nothing. Repair the run, or record them with \
             --allow-nonfinite REASON",
            counted(nonfinite.len() as u64, "value")
        ),
        (_, Some(reason)) if reason.trim().is_empty() => bail!("--allow-nonfinite needs a reason"),
        _ => Ok(()),
    }
}

/// Returns the name of a baseline without its extension.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(ENDING).unwrap_or(&name);
    stem.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "-_".contains(letter) { letter } else { '_' })
        .collect()
}

/// Returns the folder that contains a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
