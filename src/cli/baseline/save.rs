//! `probe baseline save`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::{Origin, finite, folder, made, stem};
use crate::cli::compare::pool;
use crate::cli::print::PrintFormat;
use crate::cli::{Exit, terminal};
use crate::dump::NumberSet;
use crate::gate::sketches;
use crate::report::baseline::WrittenReport;
use crate::report::number::counted;

/// Make a baseline from a run: its dump, files of scalars, or both.
///
/// From a dump, the outputs of modules and the gradients of parameters are kept, a line each. --sketches also keeps what is needed to name ops,
/// in a separate file.
///
/// Exit codes: 0 done, 2 failed, misused or refused.
#[derive(Debug, Args)]
pub(super) struct SaveArgs {
    /// A dump, and files to import scalars from; their contents add up.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,

    /// The baseline to write.
    #[arg(short, long, value_name = "NAME.probe.json")]
    output: PathBuf,

    /// Why the baseline is made.
    #[arg(long)]
    reason: String,

    /// Also keep the sketches of every op, in NAME.<hash>.sketches.zip beside the baseline, so that a gate can name ops.
    #[arg(long)]
    sketches: bool,

    /// Steps to keep, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    step: Option<NumberSet>,

    /// Allow NaN and infinities, for this reason.
    #[arg(long, value_name = "REASON")]
    allow_nonfinite: Option<String>,

    /// Replace an existing baseline. `probe baseline update` keeps its history instead.
    #[arg(long)]
    overwrite: bool,

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
pub(super) fn run(args: &SaveArgs) -> anyhow::Result<Exit> {
    if args.output.exists() && !args.overwrite {
        bail!(
            "{}: already exists; refresh it with `probe baseline update`, or add --overwrite",
            args.output.display()
        );
    }
    let steps = args.step.clone().unwrap_or_default();
    let found = pool(None)?.install(|| made(&args.runs, args.origin.environment.as_deref(), &steps))?;
    let mut baseline = found.baseline;
    finite(&baseline, args.allow_nonfinite.as_deref())?;
    let mut entry = args.origin.entry("save", &args.reason, &args.runs);
    entry.nonfinite.clone_from(&args.allow_nonfinite);
    baseline.provenance.push(entry);
    if args.sketches {
        baseline.sketches = Some(packed(&args.runs, &args.output)?);
    }
    let text = baseline.to_text();
    baseline.write(&args.output)?;
    if args.format == PrintFormat::Json {
        terminal::print(&WrittenReport::of(&args.output, &baseline, None, &found.notes).text()?)?;
    } else if !args.quiet {
        let values: usize = baseline.parts.iter().map(|part| part.values.len()).sum();
        let mut said = format!(
            "{}: {}, {} in {}, {}\n",
            args.output.display(),
            counted(baseline.scalars.len() as u64, "scalar"),
            counted(values as u64, "value"),
            counted(baseline.parts.len() as u64, "part"),
            counted(text.len() as u64, "byte")
        );
        said.extend(baseline.sketches.iter().map(|name| format!("{name}: sketches of every op\n")));
        said.extend(found.notes.iter().map(|note| format!("note: {note}\n")));
        if baseline.environment.is_empty() {
            said.push_str("note: no set-up was recorded; --environment PACK.zip lets a gate distinguish drift from regressions\n");
        }
        terminal::print(&said)?;
    }
    Ok(Exit::Agree)
}

/// Packs the sketches of the only dump among the runs.
pub(super) fn packed(runs: &[PathBuf], output: &std::path::Path) -> anyhow::Result<String> {
    let mut dumps = runs.iter().filter(|path| path.is_dir());
    let (Some(dump), None) = (dumps.next(), dumps.next()) else {
        bail!("--sketches needs one dump among the runs")
    };
    Ok(sketches::pack(dump, folder(output), &stem(output))?)
}
