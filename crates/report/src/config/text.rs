//! The summary as text, for the terminal and for `config.txt`. The first line is the answer.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::number;
use crate::number::{counted, thousands};
use crate::paint::{Colour, Paint, Style};
use crate::visible::{shorten, visible};
use probe_config_check::{CheckVerdict, Outcome, PackInfo, Part, PartOutcome, Row, Verdict};

/// Maximum width of a value in the list of differences, in characters.
const VALUE_WIDTH: usize = 160;

/// Layout of the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigTextOptions {
    /// Use of colours.
    pub colour: Colour,
    /// Maximum number of differences listed per part.
    pub top: usize,
    /// Verdicts other than `diff` whose rows are listed.
    pub listed: Vec<Verdict>,
    /// Report files to name at the end.
    pub written: Vec<PathBuf>,
}

impl Default for ConfigTextOptions {
    fn default() -> Self {
        Self { colour: Colour::Never, top: 10, listed: Vec::new(), written: Vec::new() }
    }
}

impl ConfigTextOptions {
    /// Lists everything except matches.
    pub fn complete() -> Self {
        let listed = vec![Verdict::Unknown, Verdict::Note, Verdict::Expected];
        Self { top: usize::MAX, listed, ..Self::default() }
    }
}

/// Returns the answer in one line, without a line break.
pub fn answer(outcome: &Outcome) -> String {
    let differing: Vec<String> = outcome
        .parts
        .iter()
        .filter(|part| part.count(Verdict::Diff) > 0)
        .map(|part| format!("{} {}", part.part, thousands(part.count(Verdict::Diff) as u64)))
        .collect();
    let differences = counted(outcome.count(Verdict::Diff) as u64, "difference");
    let found = if differing.is_empty() {
        "no difference that can change numerics".to_owned()
    } else {
        format!("{differences} that can change numerics ({})", differing.join(", "))
    };
    let mut line = match outcome.verdict {
        CheckVerdict::Match => format!("match: {found}"),
        CheckVerdict::Diff if differing.is_empty() => {
            "diff: what was not recorded counts as a difference (--strict)".to_owned()
        }
        CheckVerdict::Diff => format!("diff: {found}"),
        CheckVerdict::Incomplete => {
            let count = counted(outcome.incomplete.len() as u64, "place");
            format!("incomplete: {count} could not be read; {found}")
        }
    };
    let tallies: Vec<String> =
        [(Verdict::Expected, "expected"), (Verdict::Note, "noted"), (Verdict::Unknown, "unknown")]
            .into_iter()
            .filter(|(verdict, _)| outcome.count(*verdict) > 0)
            .map(|(verdict, word)| format!("{} {word}", thousands(outcome.count(verdict) as u64)))
            .collect();
    if !tallies.is_empty() {
        _ = write!(line, "; {}", tallies.join(", "));
    }
    line
}

/// Returns the whole summary, ending in a line break.
pub fn render(outcome: &Outcome, options: &ConfigTextOptions) -> String {
    let paint = Paint(options.colour);
    let mut out = String::new();
    let line = answer(outcome);
    let style = match outcome.verdict {
        CheckVerdict::Match => Style::Good,
        CheckVerdict::Diff => Style::Bad,
        CheckVerdict::Incomplete => Style::Warn,
    };
    let (head, rest) = line.split_once(':').unwrap_or((&line, ""));
    _ = writeln!(out, "{}:{rest}\n", paint.on(style, head));
    pack(&mut out, "baseline", &outcome.baseline);
    pack(&mut out, "candidate", &outcome.candidate);
    out.push('\n');
    let (absent, shown): (Vec<&PartOutcome>, Vec<&PartOutcome>) =
        outcome.parts.iter().partition(|part| is_absent(part));
    for part in shown {
        part_line(&mut out, part, paint);
    }
    if !absent.is_empty() {
        let names: Vec<&str> = absent.iter().map(|part| part.part.name()).collect();
        _ = writeln!(out, "{:<16} {}", "not recorded", names.join(", "));
    }
    for part in &outcome.parts {
        rows(&mut out, part, Verdict::Diff, options, paint);
    }
    for verdict in &options.listed {
        for part in outcome.parts.iter().filter(|part| !is_absent(part)) {
            rows(&mut out, part, *verdict, options, paint);
        }
    }
    incomplete(&mut out, outcome, paint);
    next(&mut out, outcome);
    if !options.written.is_empty() {
        out.push('\n');
        for path in &options.written {
            _ = writeln!(out, "written: {}", visible(&path.display().to_string()));
        }
    }
    out
}

/// Returns true if neither side recorded the part: it then has one row without values.
fn is_absent(part: &PartOutcome) -> bool {
    matches!(&*part.rows, [row] if row.baseline.is_none() && row.candidate.is_none())
}

fn pack(out: &mut String, side: &str, pack: &PackInfo) {
    let device = pack.device.map_or("unknown device", probe_config_check::pack::DeviceKind::name);
    let mut facts = vec![pack.origin.name().to_owned(), device.to_owned()];
    let ranks: Vec<u32> = pack.ranks.clone();
    for (noun, count, list) in [
        ("step", pack.steps.len(), number::ranges(&pack.steps)),
        ("rank", ranks.len(), number::ranges(&ranks)),
    ] {
        if count > 0 {
            facts.push(format!("{noun}{} {list}", if count == 1 { "" } else { "s" }));
        }
    }
    _ = writeln!(out, "{side:<11}{} ({})", visible(&pack.path), facts.join(", "));
}

const fn look(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Match => Style::Good,
        Verdict::Expected | Verdict::Note => Style::Plain,
        Verdict::Unknown => Style::Warn,
        Verdict::Diff => Style::Bad,
    }
}

fn part_line(out: &mut String, part: &PartOutcome, paint: Paint) {
    let tally: Vec<String> = Verdict::ALL
        .into_iter()
        .filter(|verdict| part.count(*verdict) > 0)
        .map(|verdict| format!("{} {verdict}", thousands(part.count(verdict) as u64)))
        .collect();
    let word = format!("{:<9}", part.verdict);
    _ = writeln!(out, "{:<16} {} {}", part.part, paint.on(look(part.verdict), &word), tally.join(", "));
}

fn rows(out: &mut String, part: &PartOutcome, verdict: Verdict, options: &ConfigTextOptions, paint: Paint) {
    let found: Vec<&Row> = part.rows.iter().filter(|row| row.verdict == verdict).collect();
    if found.is_empty() || options.top == 0 {
        return;
    }
    _ = writeln!(
        out,
        "\n{}",
        paint.on(look(verdict), &format!("{} - {verdict} ({})", part.part, thousands(found.len() as u64)))
    );
    for row in found.iter().take(options.top) {
        row_text(out, row);
    }
    if found.len() > options.top {
        _ = writeln!(out, "  and {} more, all in the reports", thousands((found.len() - options.top) as u64));
    }
}

fn row_text(out: &mut String, row: &Row) {
    let mut place = String::new();
    if let Some(step) = row.step {
        _ = write!(place, "step {step}, ");
    }
    if !row.ranks.is_empty() {
        let word = if row.ranks.len() == 1 { "rank" } else { "ranks" };
        _ = write!(place, "{word} {}, ", number::ranges(&row.ranks));
    }
    _ = writeln!(out, "  {place}{}", shorten(&visible(&row.key), VALUE_WIDTH));
    for (word, value) in [("baseline", &row.baseline), ("candidate", &row.candidate)] {
        let text = value.as_deref().map_or("-".into(), visible);
        _ = writeln!(out, "    {word:<10} {}", shorten(&text, VALUE_WIDTH));
    }
    for (word, text) in [("why", &row.reason), ("to do", &row.action)] {
        if !text.is_empty() {
            _ = writeln!(out, "    {word:<10} {}", visible(text));
        }
    }
}

fn incomplete(out: &mut String, outcome: &Outcome, paint: Paint) {
    if outcome.incomplete.is_empty() {
        return;
    }
    _ = writeln!(
        out,
        "\n{} ({})",
        paint.on(Style::Warn, "not read"),
        thousands(outcome.incomplete.len() as u64)
    );
    for entry in &outcome.incomplete {
        _ = writeln!(out, "  {}: {}", shorten(&visible(&entry.place), 200), visible(&entry.reason));
    }
}

/// Adds the suggested next step.
fn next(out: &mut String, outcome: &Outcome) {
    let differs = |part| outcome.part(part).is_some_and(|part| part.verdict == Verdict::Diff);
    if differs(Part::Weights) {
        out.push_str("\nnext: save the weights of both sides before the first step and run `probe compare -b BASELINE -c CANDIDATE` on the two checkpoints\n");
    } else if outcome.verdict == CheckVerdict::Match {
        out.push_str(
            "\nnext: capture both runs and compare the dumps with `probe compare -b BASELINE -c CANDIDATE`\n",
        );
    }
}
