//! `probe baseline calibrate`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::compare::pool;
use crate::cli::{Exit, terminal};
use crate::compare::{NumberSet, Quiet};
use crate::gate::baseline::Baseline;
use crate::gate::calibrate::{LEAST, perturbed, rules, spreads};
use crate::gate::import::Scalars;
use crate::gate::policy::Date;
use crate::gate::{GateOptions, Policy, State, gate, make};
use crate::read::map::FileAccess;
use crate::report::Draft;

/// Find bounds from runs of one commit: equal to the bit where they are, else twice their largest spread.
///
/// Each RUN is a file of scalars or a baseline; of dumps, see `probe calibrate`. The policy that is written is tried: the runs have to pass it,
/// and a run with one value moved by twice its bound has to fail.
///
/// Exit codes: 0 done, 1 the bounds do not tell the runs from one that was moved, 2 failed or misused.
#[derive(Debug, Args)]
pub(super) struct CalibrateArgs {
    /// Three runs or more.
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,

    /// The policy to write.
    #[arg(short, long, default_value = "probe-gate.toml", value_name = "FILE")]
    output: PathBuf,

    /// Replace a policy that is there.
    #[arg(long)]
    overwrite: bool,
}

/// Runs the subcommand.
pub(super) fn run(args: &CalibrateArgs) -> anyhow::Result<Exit> {
    if args.output.exists() && !args.overwrite {
        bail!("{}: is there already; add --overwrite to replace it", args.output.display());
    }
    if args.runs.len() < LEAST {
        bail!("{} runs: a spread takes {LEAST} or more runs of one commit", args.runs.len());
    }
    let pool = pool(None)?;
    let scalars = |path: &PathBuf| -> anyhow::Result<Scalars> {
        let made = make(std::slice::from_ref(path), None, &NumberSet::default(), FileAccess::Map)?;
        if made.baseline.scalars.is_empty() {
            bail!("{}: no scalars in it; `probe calibrate` measures the noise of dumps", path.display());
        }
        Ok(made.baseline.scalars)
    };
    let runs: Vec<Scalars> = pool.install(|| args.runs.iter().map(scalars).collect::<Result<_, _>>())?;
    let found = spreads(&runs).map_err(anyhow::Error::msg)?;
    if found.is_empty() {
        bail!("the runs hold no scalars but measures of speed");
    }
    let text = format!("version = 1\nmode = \"golden\"\n{}", rules(&found));
    let policy = Policy::parse(&text, Date::today())
        .map_err(anyhow::Error::msg)
        .context("the policy that was made")?;

    let folder = tempfile::tempdir().context("a temporary folder")?;
    let state = |name: &str, scalars: &Scalars| -> anyhow::Result<State> {
        let path = |name: &str| folder.path().join(format!("{name}.probe.json"));
        let write = |name: &str, scalars: &Scalars| {
            Baseline { scalars: scalars.clone(), ..Baseline::default() }.write(&path(name))
        };
        write("base", &runs[0])?;
        write(name, scalars)?;
        let options = GateOptions {
            baseline: vec![path("base")],
            candidate: vec![path(name)],
            ..GateOptions::default()
        };
        Ok(pool.install(|| gate(&policy, &options, &Quiet))?.state)
    };
    let mut said = String::new();
    let mut sound = true;
    for (index, run) in runs.iter().enumerate().skip(1) {
        let state = state(&format!("run{index}"), run)?;
        sound &= state == State::Pass;
        _ = writeln!(said, "run {} against run 1: {}", index + 1, state.name());
    }
    for spread in &found {
        let state = state("moved", &perturbed(&runs[0], spread))?;
        sound &= state == State::Regression;
        let by = if spread.bound() > 0.0 {
            format!("{:.3e}", 2.0 * spread.bound())
        } else {
            "the last bit".to_owned()
        };
        _ = writeln!(said, "{} moved by {by} at one step: {}", spread.name, state.name());
    }
    write(&args.output, &text)?;
    _ = writeln!(
        said,
        "{}: rules for {} scalars from {} runs",
        args.output.display(),
        found.len(),
        runs.len()
    );
    terminal::print(&crate::report::visible::lines(&said))?;
    Ok(if sound { Exit::Agree } else { Exit::Differ })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut draft = Draft::create(path)?;
    draft.file().write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    draft.place()?;
    Ok(())
}
