//! `probe narrow`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::Args;

use super::compare::pool;
use super::{Exit, terminal};
use crate::compare::{CompareOptions, Quiet, compare};
use crate::dump::OpName;
use crate::judge::{Finding, RunVerdict, Summary};
use crate::report::text::{TextOptions, answer, render};

/// Find the op where two runs part ways with little recorded: first modules, then the ops of the first bad module, then the tensors of the op.
///
/// Each command is run once for each of these three steps, under `probe capture`. A baseline that is a dump is not run again.
///
/// Exit codes: 0 the runs agree, 1 they part ways, 2 failed or misused, 3 something could not be compared.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe narrow --baseline-cmd 'git stash && python train.py; git stash pop' --candidate-cmd 'python train.py'
  probe narrow --baseline-cmd 'python base/train.py' --candidate-cmd 'python head/train.py' --steps 0-1
  probe narrow --baseline gpu_dump --candidate-cmd 'python train.py'")]
pub(super) struct NarrowArgs {
    /// Shell command that runs the baseline.
    #[arg(long, value_name = "COMMAND", required_unless_present = "baseline", conflicts_with = "baseline")]
    baseline_cmd: Option<String>,

    /// A dump of the baseline, of the ops as well as the modules.
    #[arg(long, value_name = "DUMP")]
    baseline: Option<PathBuf>,

    /// Shell command that runs the candidate.
    #[arg(long, value_name = "COMMAND")]
    candidate_cmd: String,

    /// Steps to look at.
    #[arg(long, default_value = "0", value_name = "STEPS")]
    steps: String,

    /// Ranks to record [default: all].
    #[arg(long, value_name = "RANKS")]
    ranks: Option<String>,

    /// Folder for the dumps, which stay there [default: a temporary one].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Print the answer only, and no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// What is recorded in one of the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stage {
    name: &'static str,
    level: &'static str,
    task: &'static str,
    steps: String,
    include: Option<String>,
}

/// Runs the subcommand.
pub(super) fn run(args: &NarrowArgs) -> anyhow::Result<Exit> {
    let temporary = tempfile::tempdir().context("a temporary folder")?;
    let folder = args.output.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let modules =
        Stage { name: "modules", level: "module", task: "sketch", steps: args.steps.clone(), include: None };
    let mut summary = stage(args, folder, &modules)?;
    let mut said = format!("modules: {}\n", answer(&summary));
    // A function between modules is seen at the next level only, where nothing is left out.
    if let Some(first) = summary.first_divergence.clone() {
        let ops = Stage {
            name: "ops",
            level: "mix",
            task: "sketch",
            steps: first.step.to_string(),
            include: module_of(&first),
        };
        summary = finer(args, folder, &ops, summary, &mut said)?;
        if let Some(op) = summary.first_divergence.clone() {
            let tensors =
                Stage { name: "tensors", task: "tensor", include: module_of(&op).or(ops.include), ..ops };
            summary = finer(args, folder, &tensors, summary, &mut said)?;
        }
    }
    let text = if args.quiet {
        format!("{}\n", answer(&summary))
    } else {
        let mut layout = TextOptions::default();
        layout.colour = terminal::colour();
        layout.width = terminal::width().unwrap_or(layout.width);
        format!("{}\n{said}", render(&summary, &layout))
    };
    terminal::print(&text)?;
    Ok(match summary.verdict {
        RunVerdict::Agree => Exit::Agree,
        RunVerdict::Diverged => Exit::Differ,
        RunVerdict::Incomplete => Exit::Incomplete,
    })
}

/// A step that looks closer; where it finds nothing, what was known before stands.
fn finer(
    args: &NarrowArgs,
    folder: &Path,
    stage_of: &Stage,
    before: Summary,
    said: &mut String,
) -> anyhow::Result<Summary> {
    let found = stage(args, folder, stage_of)?;
    _ = writeln!(said, "{}: {}", stage_of.name, answer(&found));
    if found.first_divergence.is_some() {
        return Ok(found);
    }
    _ = writeln!(
        said,
        "the {} agree; the answer of the step before stands. A result that changes by itself looks like this",
        stage_of.name
    );
    Ok(before)
}

/// Path of the module that an op is, or runs in.
fn module_of(finding: &Finding) -> Option<String> {
    OpName::parse(&finding.op).module_path().map(str::to_owned).or_else(|| finding.module.clone())
}

/// Records both sides and compares them.
fn stage(args: &NarrowArgs, folder: &Path, stage: &Stage) -> anyhow::Result<Summary> {
    let side = |name: &str, command: &str| -> anyhow::Result<PathBuf> {
        let dump = folder.join(format!("{}_{name}", stage.name));
        if !args.quiet {
            let inside = stage.include.as_deref().map_or_else(String::new, |module| format!(" of {module}"));
            progress(&format!("{}{inside}, step {}: running the {name}", stage.name, stage.steps));
        }
        record(args, stage, command, &dump)?;
        Ok(dump)
    };
    let baseline = match (&args.baseline_cmd, &args.baseline) {
        (Some(command), _) => side("baseline", command)?,
        (None, Some(dump)) => dump.clone(),
        (None, None) => bail!("no baseline: give --baseline-cmd or --baseline"),
    };
    let candidate = side("candidate", &args.candidate_cmd)?;
    let options = CompareOptions {
        steps: stage.steps.parse().with_context(|| format!("--steps {}", stage.steps))?,
        // A dump that was given may hold more kinds of op, and another task.
        any_level: args.baseline.is_some(),
        any_task: args.baseline.is_some(),
        ..CompareOptions::default()
    };
    Ok(pool(None)?.install(|| compare(&baseline, &candidate, &options, &Quiet, &mut |_| Ok(())))?)
}

/// Runs a command of the user's under `probe capture`; what it prints goes to standard error, where it does not mix with the answer.
fn record(args: &NarrowArgs, stage: &Stage, command: &str, dump: &Path) -> anyhow::Result<()> {
    let mut probe = this_command()?;
    probe.args([
        "capture",
        "--quiet",
        "--overwrite",
        "--level",
        stage.level,
        "--task",
        stage.task,
        "--steps",
        &stage.steps,
    ]);
    if let Some(ranks) = &args.ranks {
        probe.args(["--ranks", ranks]);
    }
    if let Some(module) = &stage.include {
        probe.args(["--include", module]);
    }
    probe.arg("-o").arg(dump).args(["--", "sh", "-c", command]);
    let output = probe.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim_end().lines().next_back().unwrap_or("it said nothing");
        bail!("{command:?} ended with {}: {last}", output.status);
    }
    Ok(())
}

/// This very command: the program itself, or the interpreter with the package.
fn this_command() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("the path of this program")?;
    if program.file_stem().unwrap_or_default().to_string_lossy().starts_with("probe") {
        return Ok(Command::new(program));
    }
    // By the name it was called by: that is how an interpreter knows its virtual environment.
    let interpreter = std::env::args_os().next().unwrap_or_else(|| program.into_os_string());
    let mut command = Command::new(interpreter);
    command.args(["-m", "probe"]);
    Ok(command)
}

fn progress(text: &str) {
    use std::io::Write as _;

    // Nobody is left to tell when standard error is gone.
    _ = writeln!(std::io::stderr(), "narrow: {text}");
}
