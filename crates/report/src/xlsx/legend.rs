//! The sheet `legend`: the meaning of every colour, word and column.

use std::io;
use std::path::Path;

use super::pairs::Pairs;
use super::sheet::Sheet;
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
    let mut page = Pairs::create("legend", [28, 130], folder)?;
    page.section("colours");
    for style in Style::COLOURS {
        page.entry(style, style.colour_name(), style.meaning());
    }
    page.section("verdicts of a pair of values");
    for verdict in Verdict::ALL {
        page.entry(Style::verdict(verdict), verdict.name(), verdict.meaning());
    }
    page.section("roles of an op");
    for role in Role::ALL {
        page.entry(Style::role(role), role.name(), role.meaning());
    }
    page.section("causes of an op at fault");
    for cause in Cause::ALL {
        page.entry(Style::Plain, cause.name(), cause.meaning());
    }
    page.section("cells");
    for (word, meaning) in CELLS {
        page.entry(Style::Plain, word, meaning);
    }
    columns(&mut page, "summary", &OpColumn::all());
    columns(&mut page, "tensors", &SlotColumn::all());
    columns(&mut page, "unmatched", &UnmatchedColumn::ALL);
    page.finish()
}

fn columns<C: Column>(page: &mut Pairs, table: &str, columns: &[C]) {
    page.section(&format!("columns of {table}"));
    for column in columns {
        page.entry(Style::Plain, &column.label(), &column.meaning());
    }
}
