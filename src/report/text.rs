//! The summary as text: for the terminal, and as `report.txt`.
//!
//! The first line is the answer. Everything that came out of a dump is made safe to show.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::number::{self, counted, thousands};
pub use super::paint::Colour;
use super::paint::{Paint, Style};
use super::visible::{shorten, visible};
use super::{Draft, PartReport, ReportError, ReportWriter};
use crate::judge::{Finding, Role, RunInfo, RunVerdict, Summary, Verdict};
use crate::measure::{Basis, Metric};

/// How to lay out the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextOptions {
    /// Whether to colour.
    pub colour: Colour,
    /// Width of the table of ops at fault, in characters; other lines are left to the terminal to wrap.
    pub width: usize,
    /// Most ops at fault to list.
    pub top: usize,
    /// Most entries of the list of what could not be compared.
    pub incomplete: usize,
    /// Report files, named at the end.
    pub written: Vec<PathBuf>,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { colour: Colour::Never, width: 120, top: 10, incomplete: 5, written: Vec::new() }
    }
}

/// Metrics in the table of ops at fault.
const SHOWN: [Metric; 2] = [Metric::RelL2, Metric::Cosine];

/// The answer in one line, without a line break: what a log or a spreadsheet shows first.
pub fn answer(summary: &Summary) -> String {
    if let Some(first) = &summary.first_divergence {
        let mut line = format!("first divergence: {}", origin(first));
        if !first.reason.is_empty() {
            _ = write!(line, ": {}", visible(&first.reason));
        }
        if let Some(source) = &first.source {
            _ = write!(line, "; {}", visible(source));
        }
        return line;
    }
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

fn origin(finding: &Finding) -> String {
    let slot = if finding.slot.is_empty() { String::new() } else { format!(" {}", visible(&finding.slot)) };
    format!(
        "step {}, rank {}, {}{slot} - {}",
        finding.step,
        finding.rank,
        shorten(&visible(&finding.op), 200),
        finding.role
    )
}

/// The whole summary, ending in a line break.
pub fn render(summary: &Summary, options: &TextOptions) -> String {
    let paint = Paint(options.colour);
    let mut out = String::new();
    let line = answer(summary);
    let style = match summary.verdict {
        RunVerdict::Agree => Style::Good,
        RunVerdict::Diverged => Style::Bad,
        RunVerdict::Incomplete => Style::Warn,
    };
    let (head, rest) = line.split_once(':').unwrap_or((&line, ""));
    _ = writeln!(out, "{}{}{rest}", paint.on(style, head), if rest.is_empty() { "" } else { ":" });
    if let Some(first) = &summary.first_divergence {
        _ = writeln!(out, "cause: {}, {}", first.cause, first.cause.meaning());
        match first.basis {
            Some(Basis::Statistics) => {
                out.push_str("metrics are lower bounds: only statistics were recorded\n");
            }
            Some(Basis::Sketch) => {
                out.push_str("metrics are estimates, within 20 %: sketches were compared, not elements\n");
            }
            Some(Basis::Data) | None => {}
        }
        if summary.verdict == RunVerdict::Incomplete {
            let count = summary.incomplete.len() as u64;
            _ = writeln!(out, "incomplete: {} could not be compared, listed below", counted(count, "place"));
        }
    }
    out.push('\n');
    run(&mut out, "baseline", &summary.baseline);
    run(&mut out, "candidate", &summary.candidate);
    tallies(&mut out, summary, paint);
    if !summary.notes.is_empty() {
        out.push('\n');
        for note in &summary.notes {
            _ = writeln!(out, "note: {}", visible(note));
        }
    }
    culprits(&mut out, summary, options, paint);
    incomplete(&mut out, summary, options, paint);
    if !options.written.is_empty() {
        out.push('\n');
        for path in &options.written {
            _ = writeln!(out, "written: {}", visible(&path.display().to_string()));
        }
    }
    out
}

fn run(out: &mut String, side: &str, run: &RunInfo) {
    let mut facts: Vec<String> = [&run.format, &run.task, &run.level]
        .into_iter()
        .filter(|text| !text.is_empty())
        .map(|text| visible(text).into_owned())
        .collect();
    for (noun, count, list) in [
        ("step", run.steps.len(), number::ranges(&run.steps)),
        ("rank", run.ranks.len(), number::ranges(&run.ranks)),
    ] {
        if count > 0 {
            facts.push(format!("{noun}{} {list}", if count == 1 { "" } else { "s" }));
        }
    }
    facts.push(counted(run.ops, "op"));
    _ = writeln!(out, "{side:<11}{} ({})", visible(&run.path), facts.join(", "));
}

fn tallies(out: &mut String, summary: &Summary, paint: Paint) {
    let counts = &summary.counts;
    let mut alone = String::new();
    for (count, side) in [
        (counts.ops_baseline_only, "in the baseline only"),
        (counts.ops_candidate_only, "in the candidate only"),
    ] {
        if count > 0 {
            _ = write!(alone, ", {} {side}", thousands(count));
        }
    }
    let data =
        if counts.bytes > 0 { format!(", {} of data", number::bytes(counts.bytes)) } else { String::new() };
    _ = writeln!(
        out,
        "{:<11}{}, {} paired{}{data}, {:.2} s",
        "compared",
        counted(counts.parts, "step and rank").replace("step and ranks", "steps and ranks"),
        counted(counts.ops_paired, "op"),
        paint.on(Style::Warn, &alone),
        summary.seconds
    );
    let tally = |words: &mut dyn Iterator<Item = (&'static str, u64, Style)>| {
        let list: Vec<String> = words
            .filter(|&(_, count, _)| count > 0)
            .map(|(word, count, style)| paint.on(style, &format!("{} {word}", thousands(count))))
            .collect();
        if list.is_empty() { "none".to_owned() } else { list.join(", ") }
    };
    let roles = tally(&mut Role::ALL.iter().map(|&role| (role.name(), counts.role(role), of_role(role))));
    _ = writeln!(out, "{:<11}{roles}", "ops");
    let verdicts = tally(
        &mut Verdict::ALL
            .iter()
            .map(|&verdict| (verdict.name(), counts.verdict(verdict), of_verdict(verdict))),
    );
    _ = writeln!(out, "{:<11}{verdicts}", "values");
}

fn culprits(out: &mut String, summary: &Summary, options: &TextOptions, paint: Paint) {
    if summary.culprits.is_empty() || options.top == 0 {
        return;
    }
    let all = summary.culprits.len();
    let shown = all.min(options.top);
    out.push('\n');
    if shown < all {
        _ = writeln!(out, "ops at fault (first {shown} of {})", thousands(all as u64));
    } else {
        out.push_str("ops at fault\n");
    }
    let mut header: Vec<String> =
        ["order", "step", "rank", "op", "slot", "cause", "role"].map(str::to_owned).into();
    header.extend(SHOWN.map(|metric| metric.name().to_owned()));
    header.push("source".into());
    let rows: Vec<Vec<String>> = summary.culprits[..shown].iter().map(cells).collect();
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    // The names give way, first the op's, when the table is wider than the terminal.
    let source = header.len() - 1;
    let floors = [(OP, 24), (SLOT, 10), (source, 12), (OP, 10), (SLOT, 6), (source, 6)];
    for (column, least) in floors {
        let total = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
        let excess = total.saturating_sub(options.width);
        widths[column] = widths[column].saturating_sub(excess).max(least.min(widths[column]));
    }
    _ = writeln!(out, "{}", paint.on(Style::Dim, &aligned(&header, &widths)));
    for (row, finding) in rows.iter().zip(&summary.culprits) {
        let text = aligned(row, &widths);
        let first = summary.first_divergence.as_ref() == Some(finding);
        _ = writeln!(out, "{}", if first { paint.on(Style::Bad, &text) } else { text });
    }
}

/// Columns of the table that hold names.
const OP: usize = 3;
const SLOT: usize = 4;

fn cells(finding: &Finding) -> Vec<String> {
    let mut row = vec![
        finding.order.to_string(),
        finding.step.to_string(),
        finding.rank.to_string(),
        visible(&finding.op).into_owned(),
        visible(&finding.slot).into_owned(),
        finding.cause.name().into(),
        finding.role.name().into(),
    ];
    row.extend(SHOWN.map(|wanted| {
        let value =
            finding.metrics.iter().find(|(metric, _)| *metric == wanted).and_then(|(_, value)| *value);
        let text = number::metric(wanted, value);
        let sign = finding.basis.filter(|_| value.is_some()).map_or("", |basis| basis.sign(wanted));
        format!("{sign}{text}")
    }));
    row.push(finding.source.as_deref().map_or_else(|| "-".into(), |source| visible(source).into_owned()));
    row
}

fn aligned(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (column, (cell, &width)) in row.iter().zip(widths).enumerate() {
        let gap = if column == 0 { "" } else { "  " };
        let cell = shorten(cell, width);
        // Numbers to the right, so that their magnitudes compare.
        let right = column < OP || (OP + 4..OP + 4 + SHOWN.len()).contains(&column);
        _ = if right { write!(line, "{gap}{cell:>width$}") } else { write!(line, "{gap}{cell:<width$}") };
    }
    line.truncate(line.trim_end().len());
    line
}

fn incomplete(out: &mut String, summary: &Summary, options: &TextOptions, paint: Paint) {
    if summary.incomplete.is_empty() {
        return;
    }
    let all = summary.incomplete.len();
    _ = writeln!(out, "\n{} ({})", paint.on(Style::Warn, "not compared"), thousands(all as u64));
    for entry in summary.incomplete.iter().take(options.incomplete) {
        _ = writeln!(out, "  {}: {}", shorten(&visible(&entry.place), 200), visible(&entry.reason));
    }
    if all > options.incomplete {
        _ = writeln!(
            out,
            "  and {} more, all of them in report.json",
            thousands((all - options.incomplete) as u64)
        );
    }
}

const fn of_role(role: Role) -> Style {
    match role {
        Role::Clean | Role::Recovers => Style::Plain,
        Role::Propagates | Role::Unpaired => Style::Warn,
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

/// Writer of `report.txt`: the same summary, without colours.
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
        let options = TextOptions { top: 50, incomplete: usize::MAX, width: 200, ..TextOptions::default() };
        let text = render(summary, &options);
        self.draft.file().write_all(text.as_bytes()).map_err(|error| self.draft.refused(error))?;
        Ok(self.draft)
    }
}
