//! Writes `result.xlsx` of a configuration check: the parts that passed, and every row of every part.

use std::io;
use std::path::Path;

use super::book;
use super::pairs::Pairs;
use super::rows::{Rows, Spot};
use super::sheet::{Head, Layout, MAX_ROWS, Sheet};
use super::style::Style;
use crate::config::answer;
use crate::model::Tool;
use crate::number::ranges;
use probe_config_check::{CheckVerdict, Outcome, PartOutcome, Row, Verdict};
use probe_files::Draft;

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

/// Rows that are held at once before they are compressed.
const AT_ONCE: usize = 10_000;

/// Writes the workbook into `draft`.
pub(crate) fn write(draft: &mut Draft, outcome: &Outcome) -> io::Result<()> {
    let folder = draft.folder().to_owned();
    let mut sheets = vec![summary(outcome, &folder)?];
    for part in &outcome.parts {
        sheets.extend(table(part, &folder)?);
    }
    sheets.push(about(outcome, &folder)?);
    book::save(sheets, draft.file())
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

fn head(columns: &[(&str, u16)]) -> Head {
    let labels = columns.iter().map(|(label, _)| (*label).to_owned()).collect();
    Head { labels, frozen: 1, notice: None }
}

fn summary(outcome: &Outcome, folder: &Path) -> io::Result<Sheet> {
    let tab = match outcome.verdict {
        CheckVerdict::Match => 0x0070_AD47,
        CheckVerdict::Diff => 0x00C0_0000,
        CheckVerdict::Incomplete => 0x00FF_C000,
    };
    let layout = Layout {
        name: "summary".into(),
        widths: SUMMARY.map(|(_, width)| width).into(),
        head: Some(head(&SUMMARY)),
        tab: Some(tab),
    };
    let mut sheet = Sheet::create(layout, folder)?;
    let mut rows = sheet.below();
    for part in &outcome.parts {
        let table = Spot { sheet: part.part.name().to_owned(), row: 1 };
        rows.link(Style::Link, part.part.name(), &table);
        rows.flag(part.passes());
        rows.text(look(part.verdict), part.verdict.name());
        for verdict in Verdict::ALL {
            rows.count(Style::Centre, part.count(verdict) as u64);
        }
        rows.end_row();
    }
    sheet.append(rows)?;
    Ok(sheet)
}

/// Returns the sheet of a part, or several if it is longer than a sheet.
fn table(part: &PartOutcome, folder: &Path) -> io::Result<Vec<Sheet>> {
    let begin = |number: usize| -> io::Result<Sheet> {
        let name =
            if number == 0 { part.part.name().to_owned() } else { format!("{} {}", part.part, number + 1) };
        let layout = Layout {
            name,
            widths: ROWS.map(|(_, width)| width).into(),
            head: Some(head(&ROWS)),
            ..Layout::default()
        };
        Sheet::create(layout, folder)
    };
    let mut sheets = Vec::new();
    for some in part.rows.chunks(MAX_ROWS as usize - 1) {
        let mut sheet = begin(sheets.len())?;
        for some in some.chunks(AT_ONCE) {
            let mut rows = sheet.below();
            for row in some {
                line(&mut rows, row);
            }
            sheet.append(rows)?;
        }
        sheets.push(sheet);
    }
    if part.rows.is_empty() {
        let mut sheet = begin(0)?;
        sheet.remark("empty: neither pack holds anything of this part")?;
        sheets.push(sheet);
    }
    Ok(sheets)
}

fn line(rows: &mut Rows, row: &Row) {
    rows.text(Style::Plain, &row.key);
    match row.step {
        Some(step) => rows.count(Style::Centre, step),
        None => rows.skip(),
    }
    if row.ranks.is_empty() {
        rows.skip();
    } else {
        rows.text(Style::Centre, &ranges(&row.ranks));
    }
    for value in [&row.baseline, &row.candidate] {
        match value {
            Some(text) => rows.text(Style::Plain, text),
            None => rows.skip(),
        }
    }
    rows.text(look(row.verdict), row.verdict.name());
    for text in [&row.reason, &row.action] {
        if text.is_empty() {
            rows.skip();
        } else {
            rows.text(Style::Plain, text);
        }
    }
    rows.end_row();
}

/// Returns the sheet with the answer, the packs, and the meaning of the words.
fn about(outcome: &Outcome, folder: &Path) -> io::Result<Sheet> {
    let mut page = Pairs::create("about", [22, 120], folder)?;
    page.entry(Style::Bold, "answer", &answer(outcome));
    page.entry(Style::Plain, "devices", &outcome.pair.to_string());
    for (side, pack) in [("baseline", &outcome.baseline), ("candidate", &outcome.candidate)] {
        page.entry(Style::Plain, side, &format!("{} ({})", pack.path, pack.origin.name()));
    }
    for entry in &outcome.incomplete {
        page.entry(Style::Warn, "not read", &format!("{}: {}", entry.place, entry.reason));
    }
    page.entry(Style::Plain, "tool", &format!("{} {}", Tool::THIS.name, Tool::THIS.version));
    page.section("verdicts");
    for verdict in Verdict::ALL {
        page.entry(look(verdict), verdict.name(), verdict.meaning());
    }
    page.entry(Style::Bold, "pass_check", "TRUE if nothing counts as a difference, else FALSE");
    page.finish()
}
