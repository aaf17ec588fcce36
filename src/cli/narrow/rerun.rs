//! Reruns both sides, recording little each time: first modules, then the ops of one module, then the
//! tensors.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::confirmed::{UNCONFIRMED, missing_data};
use crate::cli::compare::pool;
use crate::cli::progress::Line;
use crate::compare::{CompareOptions, CompareRequest, Quiet, compare};
use crate::dump::OpName;
use crate::judge::{Finding, Replayed, Rules, Summary};
use crate::measure::Metric;
use crate::report::text::answer;

/// The trusted side.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) enum Trusted<'a> {
    /// A shell command that runs it.
    Command(&'a str),
    /// A dump of it, with ops as well as modules, which is not rerun.
    Dump(&'a Path),
}

/// Steps and module to inspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Place {
    /// Steps, as typed.
    pub(in crate::cli) steps: String,
    /// Path of the module to inspect; `None` for everything.
    pub(in crate::cli) module: Option<String>,
}

impl Place {
    /// Returns the place of a fault: the module that it is, or runs in. After the first step its cause may be the gradients or the update of the
    /// previous step, outside any module.
    pub(in crate::cli) fn of(step: u64, op: &str, module: Option<&str>) -> Self {
        if step > 0 {
            return Self { steps: format!("{}-{step}", step - 1), module: None };
        }
        let path = OpName::parse(op).module_path().map(str::to_owned);
        Self { steps: step.to_string(), module: path.or_else(|| module.map(str::to_owned)) }
    }

    fn of_finding(finding: &Finding) -> Self {
        Self::of(finding.step, &finding.op, finding.module.as_deref())
    }
}

/// Level of detail recorded in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Detail<'a> {
    /// Its name.
    pub(super) name: &'static str,
    pub(super) level: &'a str,
    pub(super) task: &'static str,
}

const MODULES: Detail<'static> = Detail { name: "modules", level: "module", task: "sketch" };
const OPS: Detail<'static> = Detail { name: "ops", level: "mix", task: "sketch" };
const TENSORS: Detail<'static> = Detail { name: "tensors", level: "mix", task: "tensor" };

/// Evidence that decides which op is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecidedBy {
    /// The usual rules.
    Rules,
    /// Bits: it is the first op with others, however small the difference.
    Bits,
    /// Replay: the answer stands even if it names nothing.
    Replay,
}

/// One comparison on the way.
#[derive(Debug)]
pub(in crate::cli) struct Stage {
    /// Recorded detail: `modules`, `ops`, `tensors`.
    pub(in crate::cli) name: &'static str,
    /// Inspected place.
    pub(in crate::cli) place: Place,
    /// The compared dumps: baseline and candidate.
    pub(in crate::cli) dumps: [PathBuf; 2],
    /// Result of the comparison.
    pub(in crate::cli) summary: Summary,
    /// True if both sides are bit-identical; only checked if both were run.
    pub(in crate::cli) equal: bool,
    /// True if the fault arises in the inspected place rather than being passed in.
    pub(super) inside: bool,
    /// The evidence that decided.
    pub(super) decided: DecidedBy,
    /// Outcome of replaying the calls; `None` if they were not to be replayed, or nothing is to be said.
    pub(super) said: Option<String>,
}

impl Stage {
    /// A comparison that the usual rules judged.
    pub(super) fn new(detail: Detail<'_>, place: Place, dumps: [PathBuf; 2], summary: Summary) -> Self {
        let decided = DecidedBy::Rules;
        Self { name: detail.name, place, dumps, summary, equal: false, inside: true, decided, said: None }
    }

    pub(super) fn found(&self) -> bool {
        self.summary.first_divergence.is_some()
    }
}

/// All comparisons, in order; at least one.
#[derive(Debug)]
pub(in crate::cli) struct Trail {
    first: Stage,
    finer: Vec<Stage>,
    /// Remarks beside the comparisons.
    remarks: Vec<String>,
    /// True if the baseline was seen to change between runs.
    changes: bool,
}

impl Trail {
    /// Returns the comparisons.
    pub(in crate::cli) fn stages(&self) -> impl DoubleEndedIterator<Item = &Stage> {
        std::iter::once(&self.first).chain(&self.finer)
    }

    /// Returns the finest comparison that found a fault or was confirmed; the first if there is none, or if what follows is only remarked on.
    pub(in crate::cli) fn answer(&self) -> &Stage {
        if !self.remarks.is_empty() {
            return &self.first;
        }
        self.stages()
            .rev()
            .find(|stage| stage.found() || stage.decided == DecidedBy::Replay)
            .unwrap_or(&self.first)
    }

    /// Returns true if everything recorded of a whole step is bit-identical on both sides.
    pub(in crate::cli) fn equal(&self) -> bool {
        self.stages().any(|stage| stage.equal && stage.place.module.is_none())
    }

    /// Returns true if a comparison found a fault, though replay may have cleared it since.
    pub(in crate::cli) fn differs(&self) -> bool {
        self.stages().any(Stage::found)
    }

    /// Describes the way, one line per comparison.
    pub(in crate::cli) fn lines(&self) -> Vec<String> {
        let line = |stage: &Stage| {
            let inside = stage.place.module.as_ref();
            let inside = inside.map_or_else(String::new, |module| format!(" of {module}"));
            let found = match &stage.summary.first_divergence {
                Some(first) => format!("{} {} ({})", first.op, first.slot, first.cause.name()),
                None if stage.equal => "bit-equal".to_owned(),
                None => answer(&stage.summary),
            };
            format!("{}{inside}: {found}", stage.name)
        };
        let mut lines: Vec<String> = self.stages().map(line).collect();
        lines.extend(self.stages().filter_map(|stage| stage.said.clone()));
        if self.changes {
            lines.push("the baseline, run twice, gives different bits; differences the size of rounding were ignored".into());
        }
        lines.extend(self.remarks.iter().cloned());
        let last = self.finer.last();
        if self.remarks.is_empty()
            && self.first.found()
            && last.is_some_and(|last| !last.found() && last.decided != DecidedBy::Replay)
        {
            lines.push(
                "the finer comparison agrees; the previous answer stands. This can be a non-deterministic result".into(),
            );
        }
        lines
    }
}

/// Reruns both sides.
#[derive(Debug)]
pub(in crate::cli) struct Rerun<'a> {
    pub(super) baseline: Trusted<'a>,
    pub(super) candidate: &'a str,
    ranks: Option<&'a str>,
    folder: &'a Path,
    line: Line,
    /// True if the baseline gives the same bits each time; `None` before this was checked.
    repeats: Cell<Option<bool>>,
    /// Number of runs begun, and their maximum.
    runs: Cell<(usize, usize)>,
}

impl<'a> Rerun<'a> {
    /// Dumps are written to `folder`. Standard error stays silent if `quiet`.
    pub(in crate::cli) fn new(
        baseline: Trusted<'a>,
        candidate: &'a str,
        ranks: Option<&'a str>,
        folder: &'a Path,
        quiet: bool,
    ) -> Self {
        Self {
            baseline,
            candidate,
            ranks,
            folder,
            line: Line::new(quiet),
            repeats: Cell::new(None),
            runs: Cell::new((0, 0)),
        }
    }

    /// Inspects modules, then the ops of the first bad one; with `tensors` also the tensors of the bad op, whose calls are replayed.
    pub(in crate::cli) fn narrow(&self, steps: &str, tensors: bool) -> anyhow::Result<Trail> {
        self.expect(if tensors { 3 } else { 2 });
        let modules = self.stage(MODULES, Place { steps: steps.to_owned(), module: None })?;
        let Some(first) = &modules.summary.first_divergence else {
            return Ok(self.trail(modules, Vec::new()));
        };
        let mut finer = self.ops(Place::of_finding(first))?;
        if tensors {
            self.tensors(&mut finer)?;
        }
        Ok(self.trail(modules, finer))
    }

    /// Inspects the ops of a module known to be bad; with `tensors` as in [`narrow`](Self::narrow).
    pub(in crate::cli) fn narrow_in(&self, place: Place, tensors: bool) -> anyhow::Result<Trail> {
        self.expect(if tensors { 2 } else { 1 });
        let mut stages = self.ops(place)?;
        if tensors {
            self.tensors(&mut stages)?;
        }
        let mut stages = stages.into_iter();
        let first = stages.next().context("no stage was run")?;
        Ok(self.trail(first, stages.collect()))
    }

    /// Inspects the tensors of the op that the last comparison found, if any, and replays its calls. If the baseline has no data of it, that
    /// comparison says so instead.
    fn tensors(&self, stages: &mut Vec<Stage>) -> anyhow::Result<()> {
        let Some(stage) = stages.last_mut() else { return Ok(()) };
        let Some(op) = stage.summary.first_divergence.clone() else { return Ok(()) };
        if let Trusted::Dump(dump) = self.baseline
            && let Some(reason) = missing_data(dump, &op)?
        {
            stage.said = Some(format!("{UNCONFIRMED}: {reason}"));
            return Ok(());
        }
        let mut place = Place::of_finding(&op);
        place.module = match self.baseline {
            Trusted::Command(_) => place.module.or_else(|| stage.place.module.clone()),
            Trusted::Dump(_) => None,
        };
        let stage = self.stage(TENSORS, place)?;
        stages.push(self.confirmed(stage)?);
        Ok(())
    }

    fn trail(&self, first: Stage, finer: Vec<Stage>) -> Trail {
        self.remarked(first, finer, Vec::new())
    }

    /// Returns the comparisons with remarks.
    pub(super) fn remarked(&self, first: Stage, finer: Vec<Stage>, remarks: Vec<String>) -> Trail {
        Trail { first, finer, remarks, changes: self.repeats.get() == Some(false) }
    }

    /// Inspects the ops of a place; if they agree, or only receive bad inputs, all ops of its step: the cause of a bad module may
    /// lie outside it.
    fn ops(&self, mut place: Place) -> anyhow::Result<Vec<Stage>> {
        // A given dump has every op: those outside the module would have no partner.
        if matches!(self.baseline, Trusted::Dump(_)) {
            place.module = None;
        }
        let wider = Place { module: None, ..place.clone() };
        let mut stages = vec![self.stage(OPS, place)?];
        if !(stages[0].found() && stages[0].inside) && stages[0].place != wider {
            self.expect(1);
            stages.push(self.stage(OPS, wider)?);
        }
        Ok(stages)
    }

    /// Announces comparisons.
    fn expect(&self, stages: usize) {
        let sides = match self.baseline {
            Trusted::Command(_) => 2,
            Trusted::Dump(_) => 1,
        };
        self.expect_runs(sides * stages);
    }

    /// Announces runs.
    pub(super) fn expect_runs(&self, runs: usize) {
        let (begun, most) = self.runs.get();
        self.runs.set((begun, most + runs));
    }

    /// Records both sides and compares them.
    fn stage(&self, detail: Detail<'_>, place: Place) -> anyhow::Result<Stage> {
        let baseline = match self.baseline {
            Trusted::Command(command) => self.record(detail, &place, "baseline", command, &[])?,
            Trusted::Dump(dump) => dump.to_path_buf(),
        };
        let candidate = self.record(detail, &place, "candidate", self.candidate, &[])?;
        let dumps = [baseline, candidate];
        let summary = self.compared(&place, dumps.each_ref(), Rules::default(), Replayed::default())?;
        let mut stage = Stage::new(detail, place, dumps, summary);
        // Two runs on one machine are bit-identical, unless the program itself varies: the first op that turns equal bits into different ones is
        // the change, however small.
        if let Trusted::Command(command) = self.baseline {
            let exact = self.exactly(&stage.place, stage.dumps.each_ref())?;
            let (usual, first) = (stage.summary.first_divergence.as_ref(), exact.first_divergence.as_ref());
            stage.equal = first.is_none();
            let same = usual.zip(first).is_some_and(|(usual, first)| usual.op == first.op);
            let made = first.is_some_and(|first| is_made(&first.slot));
            stage.inside = same && made;
            if !same
                && first.is_some_and(|first| usual.is_none_or(|usual| explains(first, usual)))
                && self.repeats(detail, &stage.place, command, &stage.dumps[0])?
            {
                stage.inside = made;
                stage.decided = DecidedBy::Bits;
                stage.summary = exact;
            }
        }
        Ok(stage)
    }

    /// Returns true if a rerun of the baseline gives the same bits.
    fn repeats(
        &self,
        detail: Detail<'_>,
        place: &Place,
        command: &str,
        before: &Path,
    ) -> anyhow::Result<bool> {
        if let Some(known) = self.repeats.get() {
            return Ok(known);
        }
        let (begun, most) = self.runs.get();
        self.runs.set((begun, most + 1));
        let again = self.record(detail, place, "baseline_again", command, &[])?;
        let repeats = self.exactly(place, [before, &again])?.first_divergence.is_none();
        self.repeats.set(Some(repeats));
        Ok(repeats)
    }

    /// Compares two dumps, and requires bit-identical values.
    fn exactly(&self, place: &Place, sides: [&(impl AsRef<Path> + ?Sized); 2]) -> anyhow::Result<Summary> {
        let exact = Rules::parse("[[rule]]\npattern = \"*\"\nexact = true\n").map_err(anyhow::Error::msg)?;
        self.compared(place, sides, exact, Replayed::default())
    }

    /// Compares two dumps: baseline and candidate.
    pub(super) fn compared(
        &self,
        place: &Place,
        sides: [&(impl AsRef<Path> + ?Sized); 2],
        rules: Rules,
        replayed: Replayed,
    ) -> anyhow::Result<Summary> {
        let [baseline, candidate] = sides.map(AsRef::as_ref);
        let given = matches!(self.baseline, Trusted::Dump(_));
        let options = CompareOptions {
            request: CompareRequest {
                steps: Some(place.steps.parse().with_context(|| format!("steps {}", place.steps))?),
                // A given dump may hold more kinds of op, and a different task.
                any_level: given,
                any_task: given,
                ..CompareRequest::default()
            },
            rules,
            replayed,
            ..CompareOptions::default()
        };
        Ok(pool(None)?.install(|| compare(baseline, candidate, &options, &Quiet, &mut |_| Ok(())))?)
    }

    /// Shows the work under way.
    pub(super) fn say(&self, text: &str) {
        self.line.say(text);
    }

    /// Runs a user command under `probe capture`, with `more` options. Its output is shown only if it fails.
    pub(super) fn record(
        &self,
        detail: Detail<'_>,
        place: &Place,
        side: &str,
        command: &str,
        more: &[OsString],
    ) -> anyhow::Result<PathBuf> {
        let (begun, most) = self.runs.get();
        self.runs.set((begun + 1, most));
        let inside = place.module.as_deref().map_or_else(String::new, |module| format!(" of {module}"));
        self.say(&format!(
            "run {} of at most {most}: {}{inside}, step {}, {side}",
            begun + 1,
            detail.name,
            place.steps
        ));
        let everything = if place.module.is_none() && detail != MODULES { "all_" } else { "" };
        let dump = self.folder.join(format!("{everything}{}_{side}", detail.name));
        let mut probe = this_command()?;
        probe.args(["capture", "--quiet", "--overwrite", "--level", detail.level, "--task", detail.task]);
        probe.args(["--steps", &place.steps]);
        if let Some(ranks) = self.ranks {
            probe.args(["--ranks", ranks]);
        }
        if let Some(module) = &place.module {
            probe.args(["--include", module]);
        }
        probe.args(more).arg("-o").arg(&dump).args(["--", "sh", "-c", command]);
        let output = probe.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot run {command:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim_end().lines().next_back().unwrap_or("no output");
        if !output.status.success() {
            bail!("{command:?} ended with {}: {last}", output.status);
        }
        // The program's own exit code says nothing about the recording.
        if !dump.exists() {
            bail!("{command:?} left no dump of step {}: {last}", place.steps);
        }
        Ok(dump)
    }
}

/// Ratio to the first bitwise difference above which a later one must have a cause of its own: a refactoring before a fault.
const OWN_CAUSE: f64 = 30.0;

/// Returns true if the first op with different bits causes the fault that the usual comparison found.
fn explains(first: &Finding, usual: &Finding) -> bool {
    let size = |finding: &Finding| {
        finding.metrics.iter().find(|(metric, _)| *metric == Metric::RelL2).and_then(|(_, value)| *value)
    };
    // An update is small relative to the weight it changes, but its effect on the next step is not.
    first.op.starts_with("Optimizer.")
        || size(first).zip(size(usual)).is_none_or(|(first, usual)| usual <= OWN_CAUSE * first)
}

/// Returns true if a slot is produced by its op.
fn is_made(slot: &str) -> bool {
    !["input", "kwarg", "parameter"].iter().any(|side| slot.starts_with(side))
}

/// Returns this very command: the program itself, or the interpreter with the package.
fn this_command() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("the path of this program")?;
    if program.file_stem().unwrap_or_default().to_string_lossy().starts_with("probe") {
        return Ok(Command::new(program));
    }
    // Uses the name it was called by, from which an interpreter determines its virtual environment.
    let interpreter = std::env::args_os().next().unwrap_or_else(|| program.into_os_string());
    let mut command = Command::new(interpreter);
    command.args(["-m", "probe"]);
    Ok(command)
}
