//! The sheet `run info`: the answer first, then what it rests on.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::Spot;
use super::sheet::{FinishedSheet, Layout, Sheet};
use super::style::Style;
use super::table::{Looks, put};
use super::text::SharedStrings;
use crate::judge::{Finding, Role, RunInfo, RunVerdict, Summary, Verdict};
use crate::measure::{Basis, Metric};
use crate::report::model::Tool;
use crate::report::number::{bytes, ranges};
use crate::report::rows::Cell;
use crate::report::text::answer;

/// Most ops at fault on the sheet; all are in the table of ops.
const MAX_CULPRITS: usize = 100;
/// Most entries of what could not be compared; all are in report.json.
const MAX_INCOMPLETE: usize = 1000;
/// Columns of the table of ops at fault, with their widths.
const COLUMNS: [(&str, u16); 12] = [
    ("order", 13),
    ("step", 13),
    ("rank", 7),
    ("op", 54),
    ("slot", 16),
    ("cause", 11),
    ("role", 11),
    ("RelativeL2", 12),
    ("CosineSimilarity", 16),
    ("MaxAbsError", 13),
    ("source", 22),
    ("reason", 70),
];

/// Writes the sheet.
pub(super) fn write(
    summary: &Summary,
    faults: &HashMap<(u64, u32, usize), Spot>,
    folder: &Path,
    strings: &mut SharedStrings,
) -> io::Result<FinishedSheet> {
    let tab = match summary.verdict {
        RunVerdict::Agree => "FF70AD47",
        RunVerdict::Diverged => "FFC00000",
        RunVerdict::Incomplete => "FFFFC000",
    };
    let layout = Layout {
        name: "run info".into(),
        widths: COLUMNS.map(|(_, width)| width).into(),
        frozen: 0,
        tab: Some(tab),
        first: true,
    };
    let mut page = Page { sheet: Sheet::create(layout, folder)?, strings };
    page.line(Style::Title, &answer(summary))?;
    page.pair("verdict", Style::run(summary.verdict), summary.verdict.name())?;
    if let Some(first) = &summary.first_divergence {
        page.pair("cause", Style::Plain, &format!("{}: {}", first.cause, first.cause.meaning()))?;
    }
    for note in &summary.notes {
        page.pair("note", Style::Plain, note)?;
    }
    page.blank()?;
    page.culprits(summary, faults)?;
    page.runs(summary)?;
    page.tallies(summary)?;
    page.incomplete(summary)?;
    page.section("written by")?;
    page.pair("tool", Style::Plain, &format!("{} {}", Tool::THIS.name, Tool::THIS.version))?;
    page.pair("seconds", Style::Plain, &format!("{:.2}", summary.seconds))?;
    page.sheet.finish()
}

struct Page<'a> {
    sheet: Sheet,
    strings: &'a mut SharedStrings,
}

impl Page<'_> {
    fn line(&mut self, style: Style, text: &str) -> io::Result<()> {
        self.sheet.begin_row();
        self.sheet.inline(style, text);
        self.sheet.end_row()
    }

    fn blank(&mut self) -> io::Result<()> {
        self.sheet.begin_row();
        self.sheet.end_row()
    }

    fn section(&mut self, title: &str) -> io::Result<()> {
        self.blank()?;
        self.line(Style::Bold, title)
    }

    fn pair(&mut self, key: &str, style: Style, text: &str) -> io::Result<()> {
        self.sheet.begin_row();
        self.sheet.shared(Style::Plain, key, self.strings);
        self.sheet.inline(style, text);
        self.sheet.end_row()
    }

    fn tally(&mut self, word: &str, style: Style, count: u64, meaning: &str) -> io::Result<()> {
        self.sheet.begin_row();
        self.sheet.shared(style, word, self.strings);
        self.sheet.count(Style::Plain, count);
        self.sheet.skip();
        self.sheet.shared(Style::Plain, meaning, self.strings);
        self.sheet.end_row()
    }

    fn culprits(&mut self, summary: &Summary, faults: &HashMap<(u64, u32, usize), Spot>) -> io::Result<()> {
        if summary.culprits.is_empty() {
            return Ok(());
        }
        let all = summary.culprits.len();
        let title = if all > MAX_CULPRITS {
            format!("ops at fault, the first {MAX_CULPRITS} of {all}")
        } else {
            "ops at fault".to_owned()
        };
        self.line(Style::Bold, &title)?;
        self.sheet.begin_row();
        for (label, _) in COLUMNS {
            self.sheet.shared(Style::Header, label, self.strings);
        }
        self.sheet.end_row()?;
        for finding in summary.culprits.iter().take(MAX_CULPRITS) {
            self.culprit(finding, faults.get(&(finding.step, finding.rank, finding.order)))?;
        }
        Ok(())
    }

    fn culprit(&mut self, finding: &Finding, spot: Option<&Spot>) -> io::Result<()> {
        let (sheet, strings) = (&mut self.sheet, &mut *self.strings);
        sheet.begin_row();
        sheet.count(Style::Centre, finding.order as u64);
        sheet.count(Style::Centre, finding.step);
        sheet.count(Style::Centre, finding.rank.into());
        sheet.shared(Style::LinkAtFault, &finding.op, strings);
        if let Some(spot) = spot {
            sheet.link(&spot.sheet, spot.row);
        }
        let text =
            |text: &str| if text.is_empty() { Cell::Empty } else { Cell::Text(text.to_owned().into()) };
        put(sheet, &text(&finding.slot), Looks::PLAIN, strings);
        put(sheet, &text(finding.cause.name()), Looks::PLAIN, strings);
        sheet.shared(Style::role(finding.role), finding.role.name(), strings);
        for metric in [Metric::RelL2, Metric::Cosine, Metric::MaxAbsErr] {
            let value =
                finding.metrics.iter().find(|(name, _)| *name == metric).and_then(|(_, value)| *value);
            put(sheet, &value.map_or(Cell::Empty, Cell::Real), Looks::METRIC, strings);
        }
        put(sheet, &text(finding.source.as_deref().unwrap_or_default()), Looks::of(Style::Centre), strings);
        let bound = match finding.basis {
            Some(Basis::Statistics) => " (metrics are lower bounds)",
            Some(Basis::Sketch) => " (metrics are estimates from sketches)",
            Some(Basis::Data) | None => "",
        };
        put(sheet, &text(&format!("{}{bound}", finding.reason)), Looks::ONCE, strings);
        sheet.end_row()
    }

    fn runs(&mut self, summary: &Summary) -> io::Result<()> {
        for (side, run) in [("baseline", &summary.baseline), ("candidate", &summary.candidate)] {
            self.section(side)?;
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
                self.pair(key, Style::Plain, if text.is_empty() { "-" } else { &text })?;
            }
        }
        Ok(())
    }

    fn tallies(&mut self, summary: &Summary) -> io::Result<()> {
        let counts = &summary.counts;
        self.section("compared")?;
        for (word, count, meaning) in [
            ("parts", counts.parts, "one step of one rank each"),
            ("ops paired", counts.ops_paired, "present on both sides"),
            ("baseline only", counts.ops_baseline_only, "ops without partner, see the sheet unmatched"),
            ("candidate only", counts.ops_candidate_only, "ops without partner, see the sheet unmatched"),
        ] {
            self.tally(word, Style::Plain, count, meaning)?;
        }
        self.pair("data read", Style::Plain, &bytes(counts.bytes))?;
        self.section("ops by role")?;
        for role in Role::ALL {
            self.tally(role.name(), Style::role(role), counts.role(role), role.meaning())?;
        }
        self.section("values by verdict")?;
        for verdict in Verdict::ALL {
            self.tally(verdict.name(), Style::verdict(verdict), counts.verdict(verdict), verdict.meaning())?;
        }
        Ok(())
    }

    fn incomplete(&mut self, summary: &Summary) -> io::Result<()> {
        if summary.incomplete.is_empty() {
            return Ok(());
        }
        let all = summary.incomplete.len();
        self.section(&format!("not compared ({all})"))?;
        for entry in summary.incomplete.iter().take(MAX_INCOMPLETE) {
            self.line(Style::Plain, &format!("{}: {}", entry.place, entry.reason))?;
        }
        if all > MAX_INCOMPLETE {
            self.line(
                Style::Plain,
                &format!("and {} more, all of them in report.json", all - MAX_INCOMPLETE),
            )?;
        }
        Ok(())
    }
}
