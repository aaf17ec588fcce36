//! Writes `result.xlsx` of a configuration check: what passed, and every row of every part.

use std::io;
use std::path::Path;

use super::book;
use super::sheet::{FinishedSheet, Layout, MAX_ROWS, Sheet};
use super::style::Style;
use super::text::SharedStrings;
use crate::config_check::{CheckVerdict, Outcome, PartOutcome, Row, Verdict};
use crate::report::Draft;
use crate::report::config::answer;
use crate::report::model::Tool;
use crate::report::number::ranges;

/// Columns of the first sheet, with their widths.
const SUMMARY: [(&str, u16); 8] = [
    ("filename", 18),
    ("pass_check", 14),
    ("verdict", 12),
    ("diff", 9),
    ("unknown", 12),
    ("note", 9),
    ("expected", 12),
    ("match", 10),
];

/// Columns of the sheet of a part, with their widths.
const ROWS: [(&str, u16); 8] = [
    ("key", 44),
    ("step", 8),
    ("ranks", 9),
    ("baseline", 40),
    ("candidate", 40),
    ("verdict", 11),
    ("reason", 80),
    ("action", 60),
];

/// Writes the workbook into `draft`.
pub(in crate::report) fn write(draft: &mut Draft, outcome: &Outcome) -> io::Result<()> {
    let folder =
        draft.target().parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.to_path_buf();
    let mut strings = SharedStrings::default();
    let mut sheets = vec![summary(outcome, &folder, &mut strings)?];
    for part in &outcome.parts {
        sheets.extend(table(part, &folder, &mut strings)?);
    }
    sheets.push(about(outcome, &folder, &mut strings)?);
    book::write(draft.file(), sheets, &strings)
}

const fn look(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Match => Style::Good,
        Verdict::Expected => Style::Info,
        Verdict::Note => Style::Warn,
        Verdict::Unknown => Style::Muted,
        Verdict::Diff => Style::Bad,
    }
}

fn head(sheet: &mut Sheet, columns: &[(&str, u16)], strings: &mut SharedStrings) -> io::Result<()> {
    sheet.begin_row();
    for (label, _) in columns {
        sheet.shared(Style::Header, label, strings);
    }
    sheet.end_row()
}

fn summary(outcome: &Outcome, folder: &Path, strings: &mut SharedStrings) -> io::Result<FinishedSheet> {
    let tab = match outcome.verdict {
        CheckVerdict::Match => "FF70AD47",
        CheckVerdict::Diff => "FFC00000",
        CheckVerdict::Incomplete => "FFFFC000",
    };
    let layout = Layout {
        name: "summary".into(),
        widths: SUMMARY.map(|(_, width)| width).into(),
        frozen: 1,
        tab: Some(tab),
        first: true,
    };
    let mut sheet = Sheet::create(layout, folder)?;
    head(&mut sheet, &SUMMARY, strings)?;
    for part in &outcome.parts {
        sheet.begin_row();
        sheet.shared(Style::Link, part.part.name(), strings);
        sheet.link(part.part.name(), 1);
        sheet.flag(part.passes());
        sheet.shared(look(part.verdict), part.verdict.name(), strings);
        for verdict in Verdict::ALL {
            sheet.count(Style::Centre, part.count(verdict) as u64);
        }
        sheet.end_row()?;
    }
    sheet.finish()
}

/// The sheet of a part; more than one where it is longer than a sheet.
fn table(part: &PartOutcome, folder: &Path, strings: &mut SharedStrings) -> io::Result<Vec<FinishedSheet>> {
    let begin = |number: usize, strings: &mut SharedStrings| -> io::Result<Sheet> {
        let name =
            if number == 0 { part.part.name().to_owned() } else { format!("{} {}", part.part, number + 1) };
        let layout =
            Layout { name, widths: ROWS.map(|(_, width)| width).into(), frozen: 1, ..Layout::default() };
        let mut sheet = Sheet::create(layout, folder)?;
        head(&mut sheet, &ROWS, strings)?;
        Ok(sheet)
    };
    let mut full = Vec::new();
    let mut sheet = begin(0, strings)?;
    for row in &part.rows {
        if sheet.row() > MAX_ROWS {
            let next = begin(full.len() + 1, strings)?;
            full.push(std::mem::replace(&mut sheet, next).finish()?);
        }
        line(&mut sheet, row, strings)?;
    }
    full.push(sheet.finish()?);
    Ok(full)
}

fn line(sheet: &mut Sheet, row: &Row, strings: &mut SharedStrings) -> io::Result<()> {
    sheet.begin_row();
    sheet.shared(Style::Plain, &row.key, strings);
    match row.step {
        Some(step) => sheet.count(Style::Centre, step),
        None => sheet.skip(),
    }
    if row.ranks.is_empty() {
        sheet.skip();
    } else {
        sheet.shared(Style::Centre, &ranges(&row.ranks), strings);
    }
    for value in [&row.baseline, &row.candidate] {
        match value {
            Some(text) => sheet.shared(Style::Plain, text, strings),
            None => sheet.skip(),
        }
    }
    sheet.shared(look(row.verdict), row.verdict.name(), strings);
    for text in [&row.reason, &row.action] {
        if text.is_empty() {
            sheet.skip();
        } else {
            sheet.shared(Style::Plain, text, strings);
        }
    }
    sheet.end_row()
}

/// The answer, the packs, and what the words mean.
fn about(outcome: &Outcome, folder: &Path, strings: &mut SharedStrings) -> io::Result<FinishedSheet> {
    let layout = Layout { name: "about".into(), widths: vec![22, 120], ..Layout::default() };
    let mut sheet = Sheet::create(layout, folder)?;
    let mut pair = |style: Style, key: &str, text: &str| -> io::Result<()> {
        sheet.begin_row();
        sheet.shared(style, key, strings);
        sheet.inline(Style::Plain, text);
        sheet.end_row()
    };
    pair(Style::Bold, "answer", &answer(outcome))?;
    pair(Style::Plain, "devices", &outcome.pair.to_string())?;
    for (side, pack) in [("baseline", &outcome.baseline), ("candidate", &outcome.candidate)] {
        pair(Style::Plain, side, &format!("{} ({})", pack.path, pack.origin.name()))?;
    }
    for entry in &outcome.incomplete {
        pair(Style::Warn, "not read", &format!("{}: {}", entry.place, entry.reason))?;
    }
    pair(Style::Plain, "tool", &format!("{} {}", Tool::THIS.name, Tool::THIS.version))?;
    pair(Style::Bold, "verdicts", "")?;
    for verdict in Verdict::ALL {
        pair(look(verdict), verdict.name(), verdict.meaning())?;
    }
    pair(Style::Bold, "pass_check", "TRUE where nothing counts as a difference, else FALSE")?;
    sheet.finish()
}
