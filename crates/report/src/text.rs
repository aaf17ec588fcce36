//! The summary as text, for the terminal and for `report.txt`.
//!
//! The first lines are the answer: which op is at fault, where it is called, and why. Everything that comes from a dump is made
//! safe to display.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::lines::Lines;
use super::number::{self, counted, element, thousands};
pub use super::paint::Colour;
use super::paint::{Paint, Style};
use super::suspects::SUSPECTS;
use super::visible::{shorten, visible};
use super::{ReportWriter, command, fault};
use probe_compare::PartReport;
use probe_files::{Draft, ReportError};
use probe_judge::{
    Cause, ErrorPlace, Extremes, Finding, LargestError, Located, Role, RunInfo, RunVerdict, Summary, Verdict,
};
use probe_measure::Basis;

/// Layout of the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextOptions {
    /// Use of colours.
    pub colour: Colour,
    /// Line width in characters. Lines break between words; a longer path or name gets its own line.
    pub width: usize,
    /// Maximum number of faults listed.
    pub top: usize,
    /// Maximum number of entries in the list of things that could not be compared.
    pub incomplete: usize,
    /// Report files to name at the end.
    pub written: Vec<PathBuf>,
    /// How to keep the dumps, where they are about to be removed: said in place of commands that read them.
    pub keep: Option<String>,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { colour: Colour::Never, width: 100, top: 10, incomplete: 5, written: Vec::new(), keep: None }
    }
}

/// Column where the text after a label begins.
const INDENT: usize = 11;

/// Returns the answer in one line, without a line break, as shown first by a log or a spreadsheet.
pub fn answer(summary: &Summary) -> String {
    let Some(first) = &summary.first_divergence else { return tally(summary) };
    let mut line = format!("first divergence: {}", place(summary, first));
    if let Some(module) = fault::module(first) {
        _ = write!(line, " in {}", visible(module));
    }
    if let Some(source) = &first.source {
        _ = write!(line, " at {}", visible(source));
    }
    _ = write!(line, " - {}, {}", first.cause, first.role);
    if !first.reason.is_empty() {
        _ = write!(line, ": {}", visible(&first.reason));
    }
    line
}

/// Returns the answer if no op is at fault.
fn tally(summary: &Summary) -> String {
    let counts = &summary.counts;
    let mut fine = String::new();
    for verdict in [Verdict::BitEqual, Verdict::Close] {
        if counts.verdict(verdict) > 0 {
            _ = write!(fine, ", {} {verdict}", thousands(counts.verdict(verdict)));
        }
    }
    let compared = format!(
        "{}, {} compared{fine}",
        counted(counts.ops_paired, "op"),
        counted(counts.compared(), "value")
    );
    match summary.verdict {
        RunVerdict::Agree => format!("agree: {compared}"),
        RunVerdict::Diverged => format!("diverged: {compared}; no op introduces it"),
        RunVerdict::Incomplete => {
            let count = summary.incomplete.len() as u64;
            format!("incomplete: {} could not be compared; {compared}", counted(count, "place"))
        }
    }
}

/// Returns the place of the first divergence: steps, ranks, op and value.
fn place(summary: &Summary, first: &Finding) -> String {
    let slot = if first.slot.is_empty() { String::new() } else { format!(" {}", visible(&first.slot)) };
    let (steps, ranks) = match summary.groups.first() {
        Some(group) => (numbered("step", &group.steps), numbered("rank", &group.ranks)),
        None => (numbered("step", &[first.step]), numbered("rank", &[first.rank])),
    };
    format!("{steps}, {ranks}, {}{slot}", shorten(&visible(&first.op), fault::LONGEST))
}

/// Formats numbers such as `step 3` or `steps 0-2, 5`.
fn numbered<T: Into<u64> + Copy>(noun: &str, numbers: &[T]) -> String {
    format!("{noun}{} {}", if numbers.len() == 1 { "" } else { "s" }, number::ranges(numbers))
}

/// Returns the whole summary, ending in a line break.
pub fn render(summary: &Summary, options: &TextOptions) -> String {
    let mut lines = Lines::new(options.width, Paint(options.colour));
    let style = match summary.verdict {
        RunVerdict::Agree => Style::Good,
        RunVerdict::Diverged => Style::Bad,
        RunVerdict::Incomplete => Style::Warn,
    };
    let line = match &summary.first_divergence {
        Some(first) => format!("first divergence: {}", place(summary, first)),
        None => tally(summary),
    };
    let (head, rest) = line.split_once(": ").unwrap_or((&line, ""));
    lines.begin("", 0);
    lines.whole(style, &format!("{head}:"));
    lines.words(rest);
    lines.end();
    if let Some(first) = &summary.first_divergence {
        divergence(&mut lines, summary, first, options);
    }
    lines.end();
    run(&mut lines, "baseline", &summary.baseline);
    run(&mut lines, "candidate", &summary.candidate);
    tallies(&mut lines, summary);
    if !summary.notes.is_empty() {
        lines.end();
    }
    for note in &summary.notes {
        labelled(&mut lines, "note", note);
    }
    fault::list(&mut lines, summary, (options.top, options.width));
    incomplete(&mut lines, summary, options);
    if !options.written.is_empty() {
        lines.end();
    }
    for path in &options.written {
        lines.begin("written", INDENT);
        lines.whole(Style::Plain, &visible(&path.display().to_string()));
        lines.end();
    }
    lines.into_text()
}

/// Folder of reports in which the package's `probe replay` looks by itself.
const USUAL: &str = "probe-report";

/// Returns the option that names the folder of the reports, whose page then shows the replay; empty for the usual folder.
fn shown_in(written: &[PathBuf]) -> String {
    let folder = written.first().and_then(|path| path.parent()).map(|folder| folder.display().to_string());
    match folder {
        Some(folder) if folder != USUAL && !folder.contains("://") => {
            format!(" --report {}", command::typed(&visible(&folder)))
        }
        _ => String::new(),
    }
}

/// Adds the details of the first divergence.
fn divergence(lines: &mut Lines, summary: &Summary, first: &Finding, options: &TextOptions) {
    for (label, place) in [("module", fault::module(first)), ("source", first.source.as_deref())] {
        if let Some(place) = place {
            lines.begin(label, INDENT);
            lines.whole(Style::Plain, &visible(place));
            lines.end();
        }
    }
    if !first.below.is_empty() {
        labelled(lines, "in it", &visible(&first.below.join(", ")));
    }
    if let Some(caller) = &first.caller {
        labelled(lines, "called by", &visible(caller));
    }
    labelled(lines, "cause", &format!("{}: {}", first.cause, meaning(summary, first)));
    if !first.reason.is_empty() {
        labelled(lines, "why", &format!("{}: {}", first.role, first.reason));
    }
    if let Some(place) = whereabouts(first) {
        labelled(lines, "where", &place);
    }
    let replay = command::replay(summary, first);
    if let Some(keep) = options.keep.as_ref().filter(|_| replay.is_some()) {
        labelled(lines, "next", keep);
    } else if let Some([call, against]) = replay {
        lines.begin("next", INDENT);
        lines.whole(Style::Plain, &format!("{call} \\"));
        lines.end();
        lines.begin("", INDENT);
        lines.whole(Style::Plain, &format!("  {against}{}", shown_in(&options.written)));
        lines.end();
    }
    if first.basis != Some(Basis::Data)
        && let Some(list) = options.written.iter().find(|path| path.ends_with(SUSPECTS))
    {
        let list = command::typed(&visible(&list.display().to_string()));
        labelled(
            lines,
            "next",
            &format!("probe capture --config {list} -o DUMP -- ... records its data, on both sides"),
        );
    }
    match first.basis {
        Some(Basis::Statistics) => {
            labelled(lines, "basis", "only statistics were recorded: metrics are lower bounds");
        }
        Some(Basis::Sketch) => {
            labelled(
                lines,
                "basis",
                "sketches were compared, not elements: metrics are estimates, within 20 %",
            );
        }
        Some(Basis::Data) | None => {}
    }
    if summary.verdict == RunVerdict::Incomplete {
        let count = summary.incomplete.len() as u64;
        let places = counted(count, "place");
        labelled(lines, "incomplete", &format!("{places} could not be compared, listed below"));
    }
}

/// Describes where in a tensor the error of a finding lies; `None` if unknown.
pub(crate) fn whereabouts(finding: &Finding) -> Option<String> {
    let ErrorPlace { shape, largest, extremes, region } = finding.place.as_ref()?;
    let list = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let slices = region.as_ref().and_then(|region| slices(region, shape));
    if finding.cause == Cause::NonFinite {
        return slices.map(|slices| format!("nearly all of them in {slices} of [{}]", list(shape)));
    }
    if let Some(extremes) = extremes {
        return of_extremes(extremes, &list(shape));
    }
    let LargestError { index, baseline, candidate } = largest.as_ref()?;
    let (baseline, candidate) = (element(*baseline), element(*candidate));
    let mut text =
        format!("largest error at [{}] of [{}]: {baseline} against {candidate}", list(index), list(shape));
    if let Some(slices) = slices {
        _ = write!(text, "; nearly all of the error is in {slices}");
    }
    Some(text)
}

/// Describes the extremes that differ in value or place; `None` if neither does.
fn of_extremes(extremes: &Extremes, shape: &str) -> Option<String> {
    let mut parts = Vec::new();
    for (word, [b, c]) in [("largest", &extremes.greatest), ("smallest", &extremes.least)] {
        let (places, values) = (b.index != c.index, b.value.to_bits() != c.value.to_bits());
        if !places && !values {
            continue;
        }
        let at = |found: &Located| {
            format!("[{}]", found.index.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
        };
        let mut text = format!("{word} element at {}", at(b));
        if places {
            _ = write!(text, " against {}", at(c));
        }
        if parts.is_empty() {
            _ = write!(text, " of [{shape}]");
        }
        let value = element(b.value);
        _ = if values {
            write!(text, ": {value} against {}", element(c.value))
        } else {
            write!(text, ": {value} on both sides")
        };
        parts.push(text);
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Formats a region as a slice expression such as `[3, :, 16:32]`. `None` if it is most of the tensor.
fn slices(region: &[Range<u64>], shape: &[u64]) -> Option<String> {
    let slice = |(range, &size): (&Range<u64>, &u64)| match range.end - range.start {
        long if long > size / 2 => ":".to_owned(),
        1 => range.start.to_string(),
        _ => format!("{}:{}", range.start, range.end),
    };
    let slices: Vec<String> = region.iter().zip(shape).map(slice).collect();
    slices.iter().any(|slice| slice != ":").then(|| format!("[{}]", slices.join(", ")))
}

/// Adds a label and a text that wraps as needed.
fn labelled(lines: &mut Lines, label: &str, text: &str) {
    lines.begin(label, INDENT);
    lines.words(&visible(text));
    lines.end();
}

/// Returns the meaning of the cause. Files of tensors have no run whose configuration could be checked, and a gradient that an optimizer reads is no
/// op's: the backward pass may agree.
fn meaning(summary: &Summary, finding: &Finding) -> &'static str {
    let runs = [&summary.baseline, &summary.candidate].map(|run| run.format.ends_with(" dump"));
    match finding.cause {
        Cause::Input if runs == [false, false] => "the two sides hold different values under this name",
        Cause::Gradient if finding.op.starts_with("Optimizer.") => {
            "gradients differ where the optimizer reads them"
        }
        cause => cause.meaning(),
    }
}

fn run(lines: &mut Lines, side: &str, run: &RunInfo) {
    let mut facts: Vec<String> =
        [&run.format, &run.task, &run.level].into_iter().filter(|text| !text.is_empty()).cloned().collect();
    if !run.steps.is_empty() {
        facts.push(numbered("step", &run.steps));
    }
    if !run.ranks.is_empty() {
        facts.push(numbered("rank", &run.ranks));
    }
    facts.push(counted(run.ops, "op"));
    lines.begin(side, INDENT);
    lines.whole(Style::Plain, &visible(&run.path));
    lines.words(&visible(&format!("({})", facts.join(", "))));
    lines.end();
}

fn tallies(lines: &mut Lines, summary: &Summary) {
    let counts = &summary.counts;
    let parts = counted(counts.parts, "step and rank").replace("step and ranks", "steps and ranks");
    let mut compared =
        vec![(Style::Plain, parts), (Style::Plain, format!("{} paired", counted(counts.ops_paired, "op")))];
    for (count, side) in [
        (counts.ops_baseline_only, "in the baseline only"),
        (counts.ops_candidate_only, "in the candidate only"),
    ] {
        if count > 0 {
            compared.push((Style::Warn, format!("{} {side}", thousands(count))));
        }
    }
    if counts.bytes > 0 {
        compared.push((Style::Plain, format!("{} of data", number::bytes(counts.bytes))));
    }
    compared.push((Style::Plain, format!("{:.2} s", summary.seconds)));
    let roles = Role::ALL.map(|role| (role.name(), counts.role(role), of_role(role)));
    let verdicts = Verdict::ALL.map(|verdict| (verdict.name(), counts.verdict(verdict), of_verdict(verdict)));
    for (label, pieces) in [("compared", compared), ("ops", words(&roles)), ("values", words(&verdicts))] {
        lines.begin(label, INDENT);
        lines.list(pieces);
        lines.end();
    }
}

/// Returns counts with their words.
fn words(tally: &[(&str, u64, Style)]) -> Vec<(Style, String)> {
    let counted = tally.iter().filter(|(_, count, _)| *count > 0);
    let pieces: Vec<_> =
        counted.map(|(word, count, style)| (*style, format!("{} {word}", thousands(*count)))).collect();
    if pieces.is_empty() { vec![(Style::Plain, "none".to_owned())] } else { pieces }
}

fn incomplete(lines: &mut Lines, summary: &Summary, options: &TextOptions) {
    if summary.incomplete.is_empty() {
        return;
    }
    let all = summary.incomplete.len();
    lines.end();
    lines.line(Style::Warn, &format!("not compared ({})", thousands(all as u64)));
    for entry in summary.incomplete.iter().take(options.incomplete) {
        lines.begin("", 2);
        lines.words(&format!("{}:", shorten(&visible(&entry.place), fault::LONGEST)));
        lines.words(&visible(&entry.reason));
        lines.end();
    }
    if all > options.incomplete {
        let more = thousands((all - options.incomplete) as u64);
        lines.line(Style::Plain, &format!("  and {more} more, all in report.json"));
    }
}

const fn of_role(role: Role) -> Style {
    match role {
        Role::Clean | Role::Recovers => Style::Plain,
        Role::Propagates | Role::Unknown | Role::Unpaired => Style::Warn,
        Role::Amplifies | Role::Introduces => Style::Bad,
    }
}

const fn of_verdict(verdict: Verdict) -> Style {
    match verdict {
        Verdict::BitEqual | Verdict::Close | Verdict::Unknown => Style::Plain,
        Verdict::DType | Verdict::Missing | Verdict::Unreadable => Style::Warn,
        Verdict::Differs | Verdict::NonFinite | Verdict::Shape => Style::Bad,
    }
}

/// Writer of `report.txt`: the same summary without colours.
#[derive(Debug)]
pub struct TextReport {
    draft: Draft,
}

impl TextReport {
    /// Creates the file that will become `path`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        Ok(Self { draft: Draft::create(path)? })
    }
}

impl ReportWriter for TextReport {
    fn part(&mut self, _: &PartReport<'_>) -> Result<(), ReportError> {
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError> {
        let options = TextOptions { top: 50, incomplete: usize::MAX, ..TextOptions::default() };
        let text = render(summary, &options);
        self.draft.file().write_all(text.as_bytes()).map_err(|error| self.draft.refused(error))?;
        Ok(self.draft)
    }
}
