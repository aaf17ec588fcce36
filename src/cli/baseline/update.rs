//! `probe baseline update`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::{Origin, diff, finite, made, save};
use crate::cli::compare::pool;
use crate::cli::print::PrintFormat;
use crate::cli::{Exit, terminal};
use crate::dump::NumberSet;
use crate::gate::baseline::{Baseline, Comparison};
use crate::report::baseline::WrittenReport;

/// Refresh a baseline with a new run. It records what moved, who accepted it and why.
///
/// Without --accept and --reason, shows what would move and changes nothing.
///
/// Exit codes: 0 done, 2 failed, misused or refused.
#[derive(Debug, Args)]
pub(super) struct UpdateArgs {
    /// The baseline to refresh.
    #[arg(value_name = "NAME.probe.json")]
    baseline: PathBuf,

    /// The new run: a dump, and files to import scalars from.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,

    /// Accept what moved.
    #[arg(long)]
    accept: bool,

    /// Why the change is right.
    #[arg(long)]
    reason: Option<String>,

    /// Allow NaN and infinities, for this reason.
    #[arg(long, value_name = "REASON")]
    allow_nonfinite: Option<String>,

    /// Also keep the sketches of every op; a baseline that has some needs new ones.
    #[arg(long)]
    sketches: bool,

    #[command(flatten)]
    origin: Origin,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print nothing.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the subcommand.
pub(super) fn run(args: &UpdateArgs) -> anyhow::Result<Exit> {
    let old = Baseline::read(&args.baseline)?;
    let steps = NumberSet::default();
    let found = pool(None)?.install(|| made(&args.runs, args.origin.environment.as_deref(), &steps))?;
    let (mut new, notes) = (found.baseline, found.notes);
    let kinds = |baseline: &Baseline| (!baseline.scalars.is_empty(), !baseline.parts.is_empty());
    if kinds(&old) != kinds(&new) {
        let words = |(scalars, values)| match (scalars, values) {
            (true, true) => "scalars and values of modules",
            (true, false) => "scalars",
            _ => "values of modules",
        };
        bail!(
            "{} has {}, the new run has {}; give the complete run",
            args.baseline.display(),
            words(kinds(&old)),
            words(kinds(&new))
        );
    }
    let found = Comparison::of(&old, &new);
    if !args.quiet && args.format == PrintFormat::Text {
        terminal::print(&crate::report::visible::lines(&diff::text(&found, 20)))?;
    }
    let Some(reason) = args.reason.as_deref().filter(|reason| args.accept && !reason.trim().is_empty())
    else {
        bail!("{}: not changed; add --accept and --reason WHY to refresh it", args.baseline.display());
    };
    finite(&new, args.allow_nonfinite.as_deref())?;
    let mut entry = args.origin.entry("update", reason, &args.runs);
    entry.nonfinite.clone_from(&args.allow_nonfinite);
    entry.changes = found.recorded();
    new.provenance = old.provenance;
    new.provenance.push(entry);
    if args.sketches {
        new.sketches = Some(save::packed(&args.runs, &args.baseline)?);
    }
    new.write(&args.baseline)?;
    if args.format == PrintFormat::Json {
        terminal::print(&WrittenReport::of(&args.baseline, &new, Some(&found), &notes).text()?)?;
    }
    Ok(Exit::Agree)
}
