//! The sheet `legend`: the meaning of every colour, word and column.

use std::io;
use std::path::Path;

use super::rows::Rows;
use super::sheet::{Layout, Sheet};
use super::style::Style;
use super::table::Column;
use crate::columns::{OpColumn, SlotColumn, UnmatchedColumn};
use probe_judge::{Cause, Role, Verdict};

/// General facts about cells.
const CELLS: [(&str, &str); 4] = [
    ("(empty)", "unknown, undefined or not applicable: an empty cell never means 0"),
    ("NaN, Infinity", "the number is not finite: the cell holds the word"),
    ("rounded", "numbers show few digits but hold all of them: select the cell to see them"),
    ("left out", "columns that the recorded task cannot fill are left out of summary and tensors"),
];

/// Writes the sheet.
pub(super) fn write(folder: &Path) -> io::Result<Sheet> {
    let layout = Layout { name: "legend".into(), widths: vec![28, 130], ..Layout::default() };
    let mut sheet = Sheet::create(layout, folder)?;
    let mut page = Page { rows: sheet.below() };
    page.section("colours");
    for style in Style::COLOURS {
        page.entry(style, style.colour_name(), style.meaning());
    }
    page.section("verdicts, of a pair of values");
    for verdict in Verdict::ALL {
        page.entry(Style::verdict(verdict), verdict.name(), verdict.meaning());
    }
    page.section("roles, of an op");
    for role in Role::ALL {
        page.entry(Style::role(role), role.name(), role.meaning());
    }
    page.section("causes, of an op at fault");
    for cause in Cause::ALL {
        page.entry(Style::Plain, cause.name(), cause.meaning());
    }
    page.section("cells");
    for (word, meaning) in CELLS {
        page.entry(Style::Plain, word, meaning);
    }
    page.columns("summary", &OpColumn::all());
    page.columns("tensors", &SlotColumn::all());
    page.columns("unmatched", &UnmatchedColumn::ALL);
    sheet.append(page.rows)?;
    Ok(sheet)
}

struct Page {
    rows: Rows,
}

impl Page {
    fn section(&mut self, title: &str) {
        if self.rows.complete > 0 {
            self.rows.end_row();
        }
        self.rows.text(Style::Bold, title);
        self.rows.end_row();
    }

    fn entry(&mut self, style: Style, word: &str, meaning: &str) {
        self.rows.text(style, word);
        self.rows.text(Style::Plain, meaning);
        self.rows.end_row();
    }

    fn columns<C: Column>(&mut self, table: &str, columns: &[C]) {
        self.section(&format!("columns of {table}"));
        for column in columns {
            self.entry(Style::Plain, &column.label(), &column.meaning());
        }
    }
}
