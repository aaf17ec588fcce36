//! `probe gate`.

mod narrow;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::Exit;
use super::compare::pool;
use super::output::{in_new_folder, to_print};
use super::progress::Bar;
use super::{origin, terminal};
use crate::cli::commands::CommandReport;
use crate::compare::{Progress, Quiet};
use crate::files::map::FileAccess;
use crate::gate::past::{Past, table_name};
use crate::gate::policy::{Date, growth};
use crate::gate::{GateOptions, GateOutcome, Kind, Policy, gate, history};
use crate::report::gate::{GateFormat, GateReports, GateTextOptions, answer, page, render};
use narrow::NarrowOptions;

/// Default folder of the reports.
const OUTPUT: &str = "probe-gate";

/// Variable with the file that GitHub shows as the summary of a job.
const SUMMARY: &str = "GITHUB_STEP_SUMMARY";

/// Check a run against a baseline: did the change move the model's numbers, where, and was it the code or the environment?
///
/// BASELINE and CANDIDATE are baselines (NAME.probe.json), dumps, or files of scalars by step: golden values of Megatron-LM, lines of step
/// and loss, `TensorBoard` events, CSV, JSON Lines, `trainer_state.json`. Each may be given several times; their contents are combined.
///
/// Without a policy, every scalar has to be equal, and values are judged as by `probe compare`.
///
/// Exit codes: 0 pass, 1 regression, drift or flaky, 2 failed or misused, 3 unverified.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe baseline import golden_values.json -o gpt3.probe.json
  probe gate --baseline gpt3.probe.json --candidate tensorboard/ -o out
  probe gate --policy probe-gate.toml --candidate dump --candidate losses.txt
  probe gate -b gpt2.probe.json -c dump --narrow --candidate-cmd 'python train.py' --baseline-cmd 'cd base && python train.py'
  probe gate --policy new.toml --explain-policy-diff old.toml")]
pub(super) struct GateArgs {
    /// The trusted side [default: that of the policy].
    #[arg(short, long, value_name = "BASELINE")]
    baseline: Vec<PathBuf>,

    /// The side under test.
    #[arg(short, long, value_name = "CANDIDATE", required_unless_present = "explain_policy_diff")]
    candidate: Vec<PathBuf>,

    /// TOML file with the bounds and requirements.
    #[arg(short, long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Folder for the reports, created if missing; `-` prints one report instead of writing files [default: probe-gate].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Comma-separated report formats [default: all]; `json` alone, without -o, is printed.
    #[arg(long, value_delimiter = ',', value_parser = format(), value_name = "FORMATS")]
    format: Option<Vec<GateFormat>>,

    /// Configuration pack of the candidate's run (`probe.config_check.pack`), which distinguishes drift from regressions.
    #[arg(long, value_name = "PACK.zip")]
    environment: Option<PathBuf>,

    /// Configuration pack of the baseline's run, if the baseline does not hold its set-up.
    #[arg(long, value_name = "PACK.zip")]
    baseline_environment: Option<PathBuf>,

    /// The commit under test [default: as given by CI, else HEAD].
    #[arg(long, value_name = "SHA")]
    commit: Option<String>,

    /// An earlier result (gate.json or its folder) of the same commit, which may show that the result is flaky; may be given
    /// several times.
    #[arg(long, value_name = "RESULT")]
    evidence: Vec<PathBuf>,

    /// Folder of a history that this result is appended to; `probe history` reads it.
    #[arg(long, value_name = "DIR")]
    history: Option<PathBuf>,

    #[command(flatten)]
    narrow: NarrowOptions,

    /// Source folder; paths in reports are relative to it [default: the working folder].
    #[arg(long, value_name = "DIR")]
    source_root: Option<PathBuf>,

    /// Only list the bounds of the policy that are looser than in BASE: exits with 1 if there are any, else 0.
    #[arg(long, value_name = "BASE", requires = "policy", conflicts_with = "candidate")]
    explain_policy_diff: Option<PathBuf>,

    /// Threads to use [default: one per processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    no_mmap: bool,

    /// Print the answer only, and no progress.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// List every culprit and everything that could not be judged.
    #[arg(short, long)]
    verbose: bool,
}

fn format() -> impl TypedValueParser<Value = GateFormat> {
    PossibleValuesParser::new(GateFormat::ALL.map(GateFormat::name)).map(|word| {
        GateFormat::ALL.into_iter().find(|format| format.name() == word).unwrap_or(GateFormat::Text)
    })
}

/// Runs the subcommand.
pub(super) fn run(args: &GateArgs) -> anyhow::Result<Exit> {
    let today = Date::today();
    let policy = args.policy.as_deref().map(|path| Policy::from_file(path, today)).transpose()?;
    if let (Some(base), Some(policy)) = (&args.explain_policy_diff, &policy) {
        return explain(base, policy, args.format.as_deref() == Some(&[GateFormat::Json]));
    }
    let policy = policy.unwrap_or_default();
    let options = options(args, &policy)?;
    let printable = [
        GateFormat::Text,
        GateFormat::Json,
        GateFormat::Junit,
        GateFormat::Sarif,
        GateFormat::Markdown,
        GateFormat::CodeQuality,
        GateFormat::Events,
    ];
    let printed = to_print(args.output.as_deref(), args.format.as_deref(), &printable, GateFormat::Json)?;
    let root = args.source_root.clone().or_else(|| std::env::current_dir().ok());
    let pool = pool(args.threads)?;
    let judged = || -> anyhow::Result<GateOutcome> {
        let bar = (!args.quiet).then(Bar::on_terminal).flatten();
        let progress: &dyn Progress = bar.as_ref().map_or(&Quiet, |bar| bar);
        Ok(pool.install(|| gate(&policy, &options, progress))?)
    };
    let complete = |folder: Option<&Path>| -> anyhow::Result<(GateOutcome, history::Entry)> {
        let mut outcome = judged()?;
        args.narrow.check(&outcome)?;
        narrow::narrow(&args.narrow, &mut outcome, policy.on_drift, folder, args.quiet);
        let entry = history::Entry::of(&outcome);
        Ok((outcome, entry))
    };
    let ((outcome, entry), written) = if printed.is_some() {
        (complete(None)?, Vec::new())
    } else {
        let folder = args.output.as_deref().unwrap_or(Path::new(OUTPUT));
        let formats = args.format.as_deref().unwrap_or(&GateFormat::ALL);
        in_new_folder(folder, || {
            let reports = GateReports::create(folder, formats, root.clone())?;
            let (outcome, entry) = complete(Some(folder))?;
            let past = args.history.as_ref().map(|history| Past::of(history, entry.clone(), &outcome));
            let written = reports.finish(&outcome, past.as_ref())?;
            Ok(((outcome, entry), written))
        })?
    };
    summary(&outcome)?;
    if let Some(folder) = &args.history {
        keep(folder, &outcome, &entry)?;
    }
    terminal::print(&match printed {
        Some(format) if format != GateFormat::Text => {
            String::from_utf8(format.content(&outcome, root.as_deref(), None).map_err(anyhow::Error::msg)?)?
        }
        _ if args.quiet => format!("{}\n", answer(&outcome)),
        _ => render(&outcome, &layout(args, written)),
    })?;
    Ok((&outcome).into())
}

fn options(args: &GateArgs, policy: &Policy) -> anyhow::Result<GateOptions> {
    let baseline = if args.baseline.is_empty() {
        policy.baseline.iter().cloned().collect()
    } else {
        args.baseline.clone()
    };
    if baseline.is_empty() {
        bail!("no baseline: give --baseline, or `baseline` in the policy");
    }
    let packs = [("environment", &args.environment), ("baseline environment", &args.baseline_environment)];
    let given = baseline
        .iter()
        .map(|path| ("baseline", path))
        .chain(args.candidate.iter().map(|path| ("candidate", path)));
    // Detect certain failures before anything is created.
    for (side, path) in given.chain(packs.into_iter().filter_map(|(side, path)| Some((side, path.as_ref()?))))
    {
        std::fs::metadata(path).with_context(|| format!("{} (the {side})", path.display()))?;
    }
    Ok(GateOptions {
        baseline,
        candidate: args.candidate.clone(),
        candidate_environment: args.environment.clone(),
        baseline_environment: args.baseline_environment.clone(),
        commit: origin::commit(args.commit.as_deref()),
        evidence: args.evidence.clone(),
        access: if args.no_mmap { FileAccess::Read } else { FileAccess::Map },
    })
}

/// Appends the result to a history.
fn keep(folder: &Path, outcome: &GateOutcome, entry: &history::Entry) -> anyhow::Result<()> {
    history::append(folder, entry)?;
    if outcome.cases.iter().any(|case| case.kind != Kind::Scalar) {
        let modules = folder.join(history::MODULES);
        std::fs::create_dir_all(&modules).with_context(|| modules.display().to_string())?;
        let name = format!("{}-{}.parquet", table_name(entry), std::process::id());
        crate::report::history::modules(&modules.join(name), outcome)?;
    }
    Ok(())
}

/// Appends the page to the job summary, if the CI system provides a file for it.
fn summary(outcome: &GateOutcome) -> anyhow::Result<()> {
    let Some(path) = std::env::var_os(SUMMARY).filter(|path| !path.is_empty()) else { return Ok(()) };
    let path = Path::new(&path);
    let appended = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(page(outcome).as_bytes()));
    appended.with_context(|| format!("cannot append to {} ({SUMMARY})", path.display()))
}

fn explain(base: &Path, policy: &Policy, json: bool) -> anyhow::Result<Exit> {
    // Waivers of the old policy may have expired since.
    let old = Policy::from_file(base, Date::FIRST)?;
    let grown = growth(&old, policy);
    terminal::print(&if json {
        CommandReport::of_growth(&grown).text()?
    } else if grown.is_empty() {
        "no bound is looser\n".to_owned()
    } else {
        let lines: Vec<String> = grown.iter().map(ToString::to_string).collect();
        lines.join("\n") + "\n"
    })?;
    Ok(if grown.is_empty() { Exit::Agree } else { Exit::Differ })
}

fn layout(args: &GateArgs, written: Vec<PathBuf>) -> GateTextOptions {
    let mut layout = if args.verbose { GateTextOptions::complete() } else { GateTextOptions::default() };
    layout.colour = terminal::colour();
    layout.width = terminal::width().unwrap_or(layout.width);
    layout.written = written;
    layout
}
