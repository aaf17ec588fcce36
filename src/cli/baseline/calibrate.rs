//! `probe baseline calibrate`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::compare::pool;
use crate::cli::print::PrintFormat;
use crate::cli::progress::Bar;
use crate::cli::{Exit, terminal};
use crate::compare::{Progress, Quiet};
use crate::files::Draft;
use crate::files::map::FileAccess;
use crate::gate::baseline::{Baseline, ValuePart};
use crate::gate::calibrate::{
    LEAST, Run, Spread, ValueSpread, moved, perturbed, scalar_rules, spreads, value_rules, value_spreads,
};
use crate::gate::import::Scalars;
use crate::gate::policy::Date;
use crate::gate::{GateOptions, Policy, State, gate};
use crate::report::baseline::{CalibrationReport, TrialEntry};

/// Derive bounds from runs of one commit: exact where the runs are bit-equal, else twice their largest spread.
///
/// Each RUN is a dump, a file of scalars or a baseline, or several of these, separated by commas: DUMP,LOSSES. Each scalar gets its own bound, module values one
/// for each kind of call. The policy is then tried: the runs have to pass it, and a run with one value moved by twice its bound has to
/// fail.
///
/// Exit codes: 0 done, 1 the bounds do not separate the runs from a moved one, 2 failed or misused.
#[derive(Debug, Args)]
pub(super) struct CalibrateArgs {
    /// Three runs or more.
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,

    /// The policy to write.
    #[arg(short, long, default_value = "probe-gate.toml", value_name = "FILE")]
    output: PathBuf,

    /// Replace an existing policy.
    #[arg(long)]
    overwrite: bool,

    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: PrintFormat,

    /// Print nothing.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the subcommand.
pub(super) fn run(args: &CalibrateArgs) -> anyhow::Result<Exit> {
    if args.output.exists() && !args.overwrite {
        bail!("{}: already exists; add --overwrite to replace it", args.output.display());
    }
    if args.runs.len() < LEAST {
        bail!("{} runs: a spread needs {LEAST} or more runs of one commit", args.runs.len());
    }
    let pool = pool(None)?;
    let bar = (!args.quiet).then(Bar::on_terminal).flatten();
    let progress: &dyn Progress = bar.as_ref().map_or(&Quiet, |bar| bar);
    let runs: Vec<Run> =
        pool.install(|| args.runs.iter().map(|given| opened(given)).collect::<Result<_, _>>())?;
    let scalars: Vec<Scalars> = runs.iter().map(|run| run.scalars.clone()).collect();
    let scalars = spreads(&scalars).map_err(anyhow::Error::msg)?;
    let values = pool.install(|| value_spreads(&runs, progress))?;
    drop(bar);
    if scalars.is_empty() && values.is_empty() {
        bail!("the runs hold no values of modules, and no scalars except measures of speed");
    }
    let text = format!("version = 1\nmode = \"golden\"\n{}{}", scalar_rules(&scalars), value_rules(&values));
    let policy =
        Policy::parse(&text, Date::today()).map_err(anyhow::Error::msg).context("the generated policy")?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let trials = pool.install(|| trials(&runs, &scalars, &values.kinds, &policy, folder.path()))?;
    write(&args.output, &text)?;
    let sound = trials.iter().all(|trial| trial.sound);
    match args.format {
        PrintFormat::Json => {
            let report = CalibrationReport::of(&args.output, &scalars, &values.kinds, trials);
            terminal::print(&report.text()?)?;
        }
        PrintFormat::Text if args.quiet => {}
        PrintFormat::Text => {
            let mut said = String::new();
            for trial in &trials {
                _ = writeln!(said, "{}: {}", trial.what, trial.state);
            }
            _ = writeln!(
                said,
                "{}: rules for {} scalars and {} kinds of call from {} runs",
                args.output.display(),
                scalars.len(),
                values.kinds.len(),
                runs.len()
            );
            terminal::print(&crate::report::visible::lines(&said))?;
        }
    }
    Ok(if sound { Exit::Agree } else { Exit::Differ })
}

/// Opens the files of one run: a path, or several separated by commas.
fn opened(given: &Path) -> anyhow::Result<Run> {
    let text = given.to_string_lossy();
    let paths = if given.exists() || !text.contains(',') {
        vec![given.to_path_buf()]
    } else {
        text.split(',').map(PathBuf::from).collect()
    };
    Ok(Run::open(&paths, FileAccess::Map)?)
}

/// Compares the other runs with the first, and the first with a copy of itself in which something
/// is moved.
fn trials(
    runs: &[Run],
    scalars: &[Spread],
    values: &[ValueSpread],
    policy: &Policy,
    folder: &Path,
) -> anyhow::Result<Vec<TrialEntry>> {
    let Some((first, others)) = runs.split_first() else { return Ok(Vec::new()) };
    let state = |baseline: &[PathBuf], candidate: &[PathBuf]| -> anyhow::Result<State> {
        let options = GateOptions {
            baseline: baseline.to_vec(),
            candidate: candidate.to_vec(),
            ..GateOptions::default()
        };
        Ok(gate(policy, &options, &Quiet)?.state)
    };
    let lines = |name: &str, scalars: &Scalars, parts: &[ValuePart]| -> anyhow::Result<[PathBuf; 1]> {
        let path = folder.join(format!("{name}.probe.json"));
        let kept = Baseline { scalars: scalars.clone(), parts: parts.to_vec(), ..Baseline::default() };
        kept.write(&path)?;
        Ok([path])
    };
    let mut trials = Vec::new();
    for (index, run) in others.iter().enumerate() {
        let state = state(&first.paths, &run.paths)?;
        trials.push(TrialEntry::of(format!("run {} against run 1", index + 2), state, State::Pass));
    }
    let base = lines("base", &first.scalars, first.parts())?;
    let by =
        |bound: f64| if bound > 0.0 { format!("{:.3e}", 2.0 * bound) } else { "the last bit".to_owned() };
    for spread in scalars {
        let moved = lines("moved", &perturbed(&first.scalars, spread), first.parts())?;
        let what = format!("{} moved by {} at one step", spread.name, by(spread.bound()));
        trials.push(TrialEntry::of(what, state(&base, &moved)?, State::Regression));
    }
    for spread in values {
        let Some((parts, name)) = moved(first.parts(), spread) else { continue };
        let moved = lines("moved", &first.scalars, &parts)?;
        let what = format!("{name} moved by {}", by(spread.bound()));
        trials.push(TrialEntry::of(what, state(&base, &moved)?, State::Regression));
    }
    Ok(trials)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut draft = Draft::create(path)?;
    draft.file().write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    draft.place()?;
    Ok(())
}
