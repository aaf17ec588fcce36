//! The sheet `run info`: the answer first, then the facts it is based on.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::rows::{Rows, Spot};
use super::sheet::{Layout, Sheet};
use super::style::Style;
use super::table::{put, put_link, put_metric};
use crate::model::Tool;
use crate::number::{bytes, ranges};
use crate::rows::Cell;
use crate::text::{answer, whereabouts};
use probe_judge::{FaultGroup, Finding, Role, RunInfo, RunVerdict, Summary, Verdict};
use probe_measure::{Basis, Metric};

/// Maximum number of ops at fault on the sheet; all are in the table of ops.
const MAX_CULPRITS: usize = 100;
/// Maximum number of entries about things that could not be compared; all are in report.json.
const MAX_INCOMPLETE: usize = 1000;
/// Columns of the table of ops at fault, with their widths.
const COLUMNS: [(&str, u16); 15] = [
    ("order", 13),
    ("step", 13),
    ("rank", 7),
    ("op", 54),
    ("slot", 16),
    ("cause", 11),
    ("role", 11),
    ("RelativeL2", 12),
    ("CosineSimilarity", 18),
    ("MaxAbsError", 13),
    ("source", 28),
    ("module", 30),
    ("followers", 10),
    ("where", 60),
    ("reason", 70),
];

/// Number of columns that fit a screen of 1600 pixels: those up to the source.
const ACROSS: u16 = 10;
/// Characters of the answer per line across those columns.
const TITLE_FITS: usize = 125;
/// Characters per line of a text beside its key.
const TEXT_FITS: usize = 170;

/// Writes the sheet. `contents` describes each table that does not hold everything, and those that not every workbook has.
pub(super) fn write(
    summary: &Summary,
    faults: &HashMap<(u64, u32, usize), Spot>,
    contents: &[(&str, String)],
    folder: &Path,
) -> io::Result<Sheet> {
    let tab = match summary.verdict {
        RunVerdict::Agree => 0x0070_AD47,
        RunVerdict::Diverged => 0x00C0_0000,
        RunVerdict::Incomplete => 0x00FF_C000,
    };
    let layout = Layout {
        name: "run info".into(),
        widths: COLUMNS.map(|(_, width)| width).into(),
        head: None,
        tab: Some(tab),
    };
    let mut sheet = Sheet::create(layout, folder)?;
    let mut page = Page { rows: sheet.below() };
    page.rows.paragraph(Style::Title, &answer(summary), ACROSS, TITLE_FITS, 1.25);
    page.pair("verdict", Style::run(summary.verdict), summary.verdict.name());
    if let Some(first) = &summary.first_divergence {
        page.pair("cause", Style::Plain, &format!("{}: {}", first.cause, first.cause.meaning()));
    }
    for note in &summary.notes {
        page.pair("note", Style::Plain, note);
    }
    for (sheet, holds) in contents {
        page.pair(&format!("sheet {sheet}"), Style::Plain, holds);
    }
    page.blank();
    page.culprits(summary, faults);
    page.runs(summary);
    page.tallies(summary);
    page.incomplete(summary);
    page.section("written by");
    page.pair("tool", Style::Plain, &format!("{} {}", Tool::THIS.name, Tool::THIS.version));
    page.pair("seconds", Style::Plain, &format!("{:.2}", summary.seconds));
    sheet.append(page.rows)?;
    Ok(sheet)
}

/// Writes steps or ranks: a number if there is only one, else a list such as `0-63`.
fn numbers<T: Into<u64> + Copy>(rows: &mut Rows, list: &[T]) {
    match list {
        [one] => rows.count(Style::Centre, (*one).into()),
        _ => rows.text(Style::Centre, &ranges(list)),
    }
}

struct Page {
    rows: Rows,
}

impl Page {
    fn line(&mut self, style: Style, text: &str) {
        self.rows.text(style, text);
        self.rows.end_row();
    }

    fn blank(&mut self) {
        self.rows.end_row();
    }

    fn section(&mut self, title: &str) {
        self.blank();
        self.line(Style::Bold, title);
    }

    fn pair(&mut self, key: &str, style: Style, text: &str) {
        self.rows.text(Style::Plain, key);
        if text.chars().count() > TEXT_FITS {
            return self.rows.paragraph(Style::Wrapped, text, ACROSS - 1, TEXT_FITS, 1.0);
        }
        self.rows.text(style, text);
        self.rows.end_row();
    }

    fn tally(&mut self, word: &str, style: Style, count: u64, meaning: &str) {
        self.rows.text(style, word);
        self.rows.count(Style::Plain, count);
        self.rows.skip();
        self.rows.text(Style::Plain, meaning);
        self.rows.end_row();
    }

    fn culprits(&mut self, summary: &Summary, faults: &HashMap<(u64, u32, usize), Spot>) {
        if summary.culprits.is_empty() {
            return;
        }
        let all = summary.groups.len();
        let title = if all > MAX_CULPRITS {
            format!("ops at fault, the first {MAX_CULPRITS} of {all}")
        } else {
            "ops at fault".to_owned()
        };
        self.line(Style::Bold, &title);
        for (label, _) in COLUMNS {
            self.rows.text(Style::Header, label);
        }
        self.rows.end_row();
        for group in summary.groups.iter().take(MAX_CULPRITS) {
            if let Some(finding) = summary.culprits.get(group.first) {
                self.culprit(group, finding, faults.get(&(finding.step, finding.rank, finding.order)));
            }
        }
    }

    fn culprit(&mut self, group: &FaultGroup, finding: &Finding, spot: Option<&Spot>) {
        let rows = &mut self.rows;
        rows.count(Style::Centre, finding.order as u64);
        numbers(rows, &group.steps);
        numbers(rows, &group.ranks);
        put_link(rows, &finding.op, Style::LinkAtFault, spot);
        let text =
            |text: &str| if text.is_empty() { Cell::Empty } else { Cell::Text(text.to_owned().into()) };
        put(rows, &text(&finding.slot), Style::Plain);
        put(rows, &text(finding.cause.name()), Style::Plain);
        rows.text(Style::role(finding.role), finding.role.name());
        for metric in [Metric::RelL2, Metric::Cosine, Metric::MaxAbsErr] {
            let value =
                finding.metrics.iter().find(|(name, _)| *name == metric).and_then(|(_, value)| *value);
            put_metric(rows, &value.map_or(Cell::Empty, Cell::Real));
        }
        for place in [finding.source.as_deref(), finding.module.as_deref()] {
            put(rows, &text(place.unwrap_or_default()), Style::Indented);
        }
        rows.count(Style::Centre, group.followers);
        put(rows, &text(&whereabouts(finding).unwrap_or_default()), Style::Plain);
        let bound = match finding.basis {
            Some(Basis::Statistics) => " (metrics are lower bounds)",
            Some(Basis::Sketch) => " (metrics are estimates from sketches)",
            Some(Basis::Data) | None => "",
        };
        put(rows, &text(&format!("{}{bound}", finding.reason)), Style::Plain);
        rows.end_row();
    }

    fn runs(&mut self, summary: &Summary) {
        for (side, run) in [("baseline", &summary.baseline), ("candidate", &summary.candidate)] {
            self.section(side);
            let RunInfo { path, format, task, level, steps, ranks, ops } = run;
            for (key, text) in [
                ("path", path.clone()),
                ("format", format.clone()),
                ("task", task.clone()),
                ("level", level.clone()),
                ("steps", ranges(steps)),
                ("ranks", ranges(ranks)),
                ("ops", ops.to_string()),
            ] {
                self.pair(key, Style::Plain, if text.is_empty() { "-" } else { &text });
            }
        }
    }

    fn tallies(&mut self, summary: &Summary) {
        let counts = &summary.counts;
        self.section("compared");
        for (word, count, meaning) in [
            ("parts", counts.parts, "one step of one rank each"),
            ("ops paired", counts.ops_paired, "present on both sides"),
            ("baseline only", counts.ops_baseline_only, "ops without counterpart, see the sheet unmatched"),
            ("candidate only", counts.ops_candidate_only, "ops without counterpart, see the sheet unmatched"),
        ] {
            self.tally(word, Style::Plain, count, meaning);
        }
        self.pair("data read", Style::Plain, &bytes(counts.bytes));
        self.section("ops by role");
        for role in Role::ALL {
            self.tally(role.name(), Style::role(role), counts.role(role), role.meaning());
        }
        self.section("values by verdict");
        for verdict in Verdict::ALL {
            self.tally(verdict.name(), Style::verdict(verdict), counts.verdict(verdict), verdict.meaning());
        }
    }

    fn incomplete(&mut self, summary: &Summary) {
        if summary.incomplete.is_empty() {
            return;
        }
        let all = summary.incomplete.len();
        self.section(&format!("not compared ({all})"));
        for entry in summary.incomplete.iter().take(MAX_INCOMPLETE) {
            self.line(Style::Plain, &format!("{}: {}", entry.place, entry.reason));
        }
        if all > MAX_INCOMPLETE {
            self.line(Style::Plain, &format!("and {} more, all in report.json", all - MAX_INCOMPLETE));
        }
    }
}
