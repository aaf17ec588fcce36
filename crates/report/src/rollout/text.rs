//! The answer as text, for the terminal and for `rollout.txt`. The first line is the answer.

use std::path::PathBuf;

use crate::lines::Lines;
use crate::number::counted;
use crate::paint::{Colour, Paint, Style};
use crate::visible::visible;
use probe_rollout::measure::Measures;
use probe_rollout::outcome::StepOutcome;
use probe_rollout::table::Side;
use probe_rollout::{Lacking, Precision, RolloutOutcome, RolloutVerdict};

/// Column at which the text after a label starts.
const INDENT: usize = 10;

/// Layout of the answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RolloutTextOptions {
    /// Use of colours.
    pub colour: Colour,
    /// Line width in characters.
    pub width: usize,
    /// Steps and tokens that are listed.
    pub top: usize,
    /// Report files to name at the end.
    pub written: Vec<PathBuf>,
}

impl Default for RolloutTextOptions {
    fn default() -> Self {
        Self { colour: Colour::Never, width: 100, top: 5, written: Vec::new() }
    }
}

/// Returns the answer in one line, without a line break.
pub fn answer(outcome: &RolloutOutcome) -> String {
    let causes = outcome.causes();
    let steps = outcome.steps.len().max(outcome.differences.len()) as u64;
    let size = format!("{} in {}", counted(outcome.tokens(), "token"), counted(steps, "step"));
    let first = causes.first().map(|(cause, step, _)| {
        let more = causes.len() - 1;
        let more =
            if more == 0 { String::new() } else { format!(", and {}", counted(more as u64, "more cause")) };
        format!(": {cause}, first in step {step}{more}")
    });
    match outcome.verdict() {
        RolloutVerdict::Agree => format!("agree ({size})"),
        RolloutVerdict::Differ => format!("differ{} ({size})", first.unwrap_or_default()),
        RolloutVerdict::Incomplete => {
            format!("incomplete: {}{} ({size})", incomplete(outcome), first.unwrap_or_default())
        }
    }
}

/// Says what was not compared, in a few words: steps by their number.
fn incomplete(outcome: &RolloutOutcome) -> String {
    let mut said = Vec::new();
    if !outcome.faults.is_empty() {
        said.push(format!("{} could not be read", counted(outcome.faults.len() as u64, "file")));
    }
    let (steps, samples): (Vec<&Lacking>, Vec<&Lacking>) =
        outcome.lacking.iter().partition(|lacking| lacking.samples.is_empty());
    if let Some(first) = steps.first() {
        let lack = |side| steps.iter().all(|lacking| lacking.side == side);
        let of = [Side::Rollout, Side::Trainer].into_iter().find(|side| lack(*side));
        let of = of.map_or("one side has".into(), |side| format!("the {} has", side.name()));
        let more = match steps.len() - 1 {
            0 => String::new(),
            more => format!(" and {}", counted(more as u64, "more step")),
        };
        said.push(format!("{of} nothing of step {}{more}", first.step));
    }
    let lone: usize = samples.iter().map(|lacking| lacking.samples.len()).sum();
    if let Some(first) = samples.first() {
        let samples = counted(lone as u64, "sample");
        said.push(format!("{samples} of one side alone, first in step {}", first.step));
    }
    said.join(", ")
}

/// Returns the whole text.
pub fn render(outcome: &RolloutOutcome, options: &RolloutTextOptions) -> String {
    let mut lines = Lines::new(options.width, Paint(options.colour));
    let look = match outcome.verdict() {
        RolloutVerdict::Agree => Style::Good,
        RolloutVerdict::Differ => Style::Bad,
        RolloutVerdict::Incomplete => Style::Warn,
    };
    lines.line(look, &answer(outcome));
    sides(&mut lines, outcome);
    let (faulty, sound): (Vec<&StepOutcome>, Vec<&StepOutcome>) =
        outcome.steps.iter().partition(|step| !step.findings.is_empty());
    for step in faulty.iter().chain(&sound).take(options.top.max(1)) {
        self::step(&mut lines, outcome, step, options.top);
    }
    if outcome.steps.len() > options.top.max(1) {
        let more = (outcome.steps.len() - options.top.max(1)) as u64;
        lines.line(Style::Plain, &format!("{} more, in the reports", counted(more, "step")));
    }
    for step in &outcome.differences {
        lines.begin(&format!("step {}", step.step), INDENT);
        lines.words(&format!(
            "{}, mean |difference of probabilities| {:.4}, largest {:.4}; these files have no signs and no log-probabilities, so no cause can be named: give the batch itself",
            counted(step.tokens(), "token"), step.mean(), step.max()
        ));
        lines.end();
    }
    if !outcome.incomplete().is_empty() {
        lines.line(Style::Plain, "");
    }
    for fault in &outcome.faults {
        lines.begin("not read", INDENT);
        lines.words(&visible(fault));
        lines.end();
    }
    for lacking in &outcome.lacking {
        lines.begin("lacking", INDENT);
        lines.words(&visible(&lacking.to_string()));
        lines.end();
    }
    for path in &options.written {
        lines.line(Style::Plain, &format!("written: {}", visible(&path.display().to_string())));
    }
    lines.into_text()
}

fn sides(lines: &mut Lines, outcome: &RolloutOutcome) {
    lines.begin("rollout", INDENT);
    lines.words(&visible(&outcome.path.display().to_string()));
    lines.words(&outcome.formats[0].map_or(String::new(), |format| format!("({format})")));
    lines.end();
    if let Some(trainer) = &outcome.trainer {
        lines.begin("trainer", INDENT);
        lines.words(&visible(&trainer.display().to_string()));
        lines.words(&outcome.formats[1].map_or(String::new(), |format| format!("({format})")));
        lines.end();
        lines.begin("joined", INDENT);
        lines.words(outcome.joined.words());
        for (names, side) in [(&outcome.only_rollout, "rollout"), (&outcome.only_trainer, "trainer")] {
            if !names.is_empty() {
                lines.words(&format!(
                    "({} on the {side}'s side alone)",
                    counted(names.len() as u64, "sample")
                ));
            }
        }
        lines.end();
    }
}

fn step(lines: &mut Lines, outcome: &RolloutOutcome, step: &StepOutcome, top: usize) {
    lines.line(Style::Plain, "");
    lines.begin(&format!("step {}", step.step), INDENT);
    lines.words(&format!(
        "{}, {}",
        counted(step.samples.len() as u64, "sample"),
        counted(step.measures.tokens, "token")
    ));
    lines.end();
    for (place, finding) in step.findings.iter().enumerate() {
        lines.begin(&format!("cause {}", place + 1), INDENT);
        lines.whole(Style::Bad, finding.cause.name());
        lines.end();
        lines.begin("why", INDENT);
        lines.words(&visible(&finding.evidence));
        if let Some(chance) = finding.chance {
            lines.words(&format!("[chance of a false alarm {}]", chance_text(chance)));
        }
        lines.end();
        lines.begin("to do", INDENT);
        lines.words(finding.cause.action());
        lines.end();
    }
    sizes(lines, &step.measures);
    if step.findings.is_empty() {
        lines.begin("limit", INDENT);
        lines.words(&unseen(outcome, &step.measures));
        lines.end();
    }
    for note in &step.notes {
        lines.begin("note", INDENT);
        lines.words(&visible(note));
        lines.end();
    }
    for token in step.worst.iter().take(top).filter(|_| !step.findings.is_empty()) {
        lines.begin("token", INDENT);
        let name = outcome.table.samples.get(token.sample).map_or("", |sample| &*sample.name);
        let id = token.id.map_or(String::new(), |id| format!(" id {id}"));
        lines.words(&format!(
            "sample {} position {}{id}: rollout {:.4}, trainer {:.4}",
            visible(name),
            token.position,
            token.rollout,
            token.trainer
        ));
        lines.end();
    }
}

fn sizes(lines: &mut Lines, of: &Measures) {
    lines.begin("size", INDENT);
    lines.words(&format!(
        "mean |d| {}, median {}, p99 {}, largest {}",
        short(of.mean_abs),
        short(of.median_abs),
        short(of.p99_abs),
        short(of.max_abs)
    ));
    lines.end();
    lines.begin("effect", INDENT);
    lines.words(&format!(
        "mean exp|d| {}, KL k1 {} k3 {}, effective samples {:.1} %, importance weights beyond 0.8 to 1.2: {:.2} %, E[exp d] {} ± {}",
        short(of.mean_exp_abs), short(of.k1), short(of.k3), 100.0 * of.effective, 100.0 * of.clipped, short(of.identity), short(of.identity_error)
    ));
    lines.end();
}

/// Says what a pair that agrees may still hide.
fn unseen(outcome: &RolloutOutcome, of: &Measures) -> String {
    let bound = outcome.precision.map_or(Precision::Bfloat16.bound(), Precision::bound);
    match outcome.precision {
        Some(precision) => format!(
            "a fault that moves log-probabilities by less than {} on average cannot be seen in {}",
            short(of.mean_abs.max(bound / 10.0)),
            precision.name()
        ),
        None if of.mean_abs > Precision::Float32.bound() => format!(
            "{} is what rounding in bfloat16 makes; a stale or partly synced model that moves less than that cannot be seen. If both sides compute in float32, this is a difference: say --dtype float32",
            short(of.mean_abs)
        ),
        None => "the sides agree as closely as float32 computes".into(),
    }
}

fn chance_text(chance: f64) -> String {
    if chance < 1e-12 { "below 1e-12".into() } else { format!("{chance:.0e}") }
}

/// Returns four digits behind the point, or the exponent where that would say little.
fn short(value: f64) -> String {
    let size = value.abs();
    if size > 0.0 && !(0.001..10_000.0).contains(&size) {
        format!("{value:.2e}")
    } else {
        format!("{value:.4}")
    }
}
