//! A sheet of two columns: words, and their meanings.

use std::io;
use std::path::Path;

use super::rows::Rows;
use super::sheet::{Layout, Sheet};
use super::style::Style;

pub(super) struct Pairs {
    sheet: Sheet,
    rows: Rows,
}

impl Pairs {
    /// Begins the sheet `name` of a workbook in `folder`, with columns of these widths, in characters.
    pub(super) fn create(name: &str, widths: [u16; 2], folder: &Path) -> io::Result<Self> {
        let layout = Layout { name: name.into(), widths: widths.into(), ..Layout::default() };
        let sheet = Sheet::create(layout, folder)?;
        Ok(Self { rows: sheet.below(), sheet })
    }

    /// Adds a title, below an empty row.
    pub(super) fn section(&mut self, title: &str) {
        if self.rows.complete > 0 {
            self.rows.end_row();
        }
        self.rows.text(Style::Bold, title);
        self.rows.end_row();
    }

    /// Adds a row.
    pub(super) fn entry(&mut self, style: Style, word: &str, meaning: &str) {
        self.rows.text(style, word);
        self.rows.text(Style::Plain, meaning);
        self.rows.end_row();
    }

    /// Returns the sheet.
    pub(super) fn finish(mut self) -> io::Result<Sheet> {
        self.sheet.append(self.rows)?;
        Ok(self.sheet)
    }
}
