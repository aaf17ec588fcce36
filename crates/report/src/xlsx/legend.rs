//! The sheet `legend`: the meaning of every colour, word and column.

use std::io;

use super::book::Book;
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
pub(super) fn write(book: &mut Book) -> io::Result<Sheet> {
    let layout = Layout { name: "legend".into(), widths: vec![28, 130], ..Layout::default() };
    let mut page = Page { sheet: book.sheet(&layout)? };
    page.section("colours")?;
    for style in Style::COLOURS {
        page.entry(style, style.colour_name(), style.meaning())?;
    }
    page.section("verdicts of a pair of values")?;
    for verdict in Verdict::ALL {
        page.entry(Style::verdict(verdict), verdict.name(), verdict.meaning())?;
    }
    page.section("roles of an op")?;
    for role in Role::ALL {
        page.entry(Style::role(role), role.name(), role.meaning())?;
    }
    page.section("causes of an op at fault")?;
    for cause in Cause::ALL {
        page.entry(Style::Plain, cause.name(), cause.meaning())?;
    }
    page.section("cells")?;
    for (word, meaning) in CELLS {
        page.entry(Style::Plain, word, meaning)?;
    }
    page.columns("summary", &OpColumn::all())?;
    page.columns("tensors", &SlotColumn::all())?;
    page.columns("unmatched", &UnmatchedColumn::ALL)?;
    Ok(page.sheet)
}

struct Page {
    sheet: Sheet,
}

impl Page {
    fn section(&mut self, title: &str) -> io::Result<()> {
        if self.sheet.row() > 1 {
            self.sheet.end_row()?;
        }
        self.sheet.text(Style::Bold, title);
        self.sheet.end_row()
    }

    fn entry(&mut self, style: Style, word: &str, meaning: &str) -> io::Result<()> {
        self.sheet.text(style, word);
        self.sheet.text(Style::Plain, meaning);
        self.sheet.end_row()
    }

    fn columns<C: Column>(&mut self, table: &str, columns: &[C]) -> io::Result<()> {
        self.section(&format!("columns of {table}"))?;
        for column in columns {
            self.entry(Style::Plain, &column.label(), &column.meaning())?;
        }
        Ok(())
    }
}
