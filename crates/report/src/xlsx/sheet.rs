//! One worksheet: cells are written row by row, from left to right, and rows go to disk.

use std::io;

use rust_xlsxwriter::{Format, Url, Worksheet, XlsxError};

use super::guard::guarded;
use super::style::Style;
use super::text::cell_text;
use probe_dump::Exact;

/// Maximum number of rows of a sheet, a limit of Excel.
pub(super) const MAX_ROWS: u32 = 1_048_576;
/// Maximum number of links of a sheet, a limit of Excel.
const MAX_LINKS: u32 = 65_530;
/// Height of a line of text, in points.
const LINE_HEIGHT: f64 = 15.0;
/// Lines of a table header: names of several words wrap.
const HEAD_LINES: f64 = 2.0;
/// Whole numbers above this are not exact in a spreadsheet.
const MAX_EXACT: u64 = 1 << 53;

/// Layout of a sheet, known before its rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// Name of the tab.
    pub(super) name: String,
    /// Width of each column, in characters.
    pub(super) widths: Vec<u16>,
    /// The header, if the sheet is a table.
    pub(super) head: Option<Head>,
    /// Colour of the tab as RGB.
    pub(super) tab: Option<u32>,
}

/// Header of a table: it stays in view and filters the columns.
#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    /// Name of each column.
    pub(super) labels: Vec<String>,
    /// Columns that stay in view when scrolling sideways.
    pub(super) frozen: u16,
    /// Notice in a row above the names.
    pub(super) notice: Option<&'static str>,
}

/// Location of a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Spot {
    /// Name of the tab.
    pub(super) sheet: String,
    /// Row number, from 1.
    pub(super) row: u32,
}

/// The format of each style, in the order of [`Style::ALL`].
pub(super) type Formats = [Format; Style::ALL.len()];

/// Result of a call of the library.
type Written<'w> = Result<&'w mut Worksheet, XlsxError>;

/// A worksheet being written.
pub(super) struct Sheet {
    worksheet: Worksheet,
    formats: Formats,
    name: String,
    /// The filtered range: its first row, from 0, and its last column.
    filter: Option<(u32, u16)>,
    /// Number of complete rows.
    rows: u32,
    /// Rows below the table, which the filter excludes.
    remarks: u32,
    column: u16,
    links: u32,
    /// The first failure; nothing is written after it.
    fault: Option<io::Error>,
}

impl Sheet {
    pub(super) fn create(worksheet: Worksheet, layout: &Layout, formats: Formats) -> io::Result<Self> {
        let Layout { name, widths, head, tab } = layout;
        let mut sheet = Self {
            worksheet,
            formats,
            name: name.clone(),
            filter: None,
            rows: 0,
            remarks: 0,
            column: 0,
            links: 0,
            fault: None,
        };
        sheet.call(|worksheet, _| {
            worksheet.set_name(name)?;
            for (column, &width) in (0..).zip(widths) {
                worksheet.set_column_width(column, width)?;
            }
            if let Some(colour) = *tab {
                worksheet.set_tab_color(colour);
            }
            // A printed sheet is the full width of the page, on as many pages as its rows need.
            worksheet.set_landscape().set_print_fit_to_pages(1, 0);
            Ok(worksheet.set_margins(0.4, 0.4, 0.5, 0.5, 0.3, 0.3))
        });
        if let Some(head) = head {
            sheet.head(head)?;
        }
        sheet.fault.take().map_or(Ok(sheet), Err)
    }

    fn head(&mut self, head: &Head) -> io::Result<()> {
        if let Some(notice) = head.notice {
            self.text(Style::Bold, notice);
            self.end_row()?;
        }
        let (row, last) = (self.rows, head.labels.len().saturating_sub(1));
        self.filter = Some((row, u16::try_from(last).unwrap_or(u16::MAX)));
        self.call(|worksheet, _| {
            worksheet.set_freeze_panes(row + 1, head.frozen)?;
            worksheet.set_row_height(row, HEAD_LINES * LINE_HEIGHT)
        });
        for label in &head.labels {
            self.text(Style::Header, label);
        }
        self.end_row()
    }

    /// Returns the number of the current or next row, from 1.
    pub(super) const fn row(&self) -> u32 {
        self.rows + 1
    }

    /// Returns the location of the current or next row.
    pub(super) fn spot(&self) -> Spot {
        Spot { sheet: self.name.clone(), row: self.row() }
    }

    /// Calls the library, unless an earlier call failed.
    fn call(&mut self, work: impl for<'w> FnOnce(&'w mut Worksheet, &Formats) -> Written<'w>) {
        if self.fault.is_none() {
            self.fault = guarded(|| work(&mut self.worksheet, &self.formats).map(drop)).err();
        }
    }

    /// Writes the next cell.
    fn cell(
        &mut self,
        style: Style,
        work: impl for<'w> FnOnce(&'w mut Worksheet, u32, u16, &Format) -> Written<'w>,
    ) {
        let (row, column) = (self.rows, self.column);
        self.column += 1;
        self.call(|worksheet, formats| work(worksheet, row, column, &formats[style as usize]));
    }

    /// Completes the row.
    pub(super) fn end_row(&mut self) -> io::Result<()> {
        self.rows += 1;
        self.column = 0;
        self.fault.take().map_or(Ok(()), Err)
    }

    /// Leaves the next cell empty.
    pub(super) const fn skip(&mut self) {
        self.column += 1;
    }

    /// Writes a number; NaN and infinities become words.
    pub(super) fn real(&mut self, style: Style, value: f64) {
        match Exact(value).word() {
            Some(word) => self.text(Style::NonFinite, word),
            None => self.cell(style, |sheet, row, column, format| {
                if style == Style::Plain {
                    sheet.write_number(row, column, value)
                } else {
                    sheet.write_number_with_format(row, column, value, format)
                }
            }),
        }
    }

    /// Writes an integer; one that a spreadsheet would round is written as text.
    pub(super) fn count(&mut self, style: Style, value: u64) {
        if value > MAX_EXACT {
            self.text(style, &value.to_string());
        } else {
            self.real(style, value as f64);
        }
    }

    /// Writes `TRUE` or `FALSE`.
    pub(super) fn flag(&mut self, value: bool) {
        let style = if value { Style::Passes } else { Style::Fails };
        self.cell(style, |sheet, row, column, format| {
            sheet.write_boolean_with_format(row, column, value, format)
        });
    }

    /// Writes text, made safe for a cell.
    pub(super) fn text(&mut self, style: Style, text: &str) {
        let text = cell_text(text);
        self.cell(style, |sheet, row, column, format| {
            if style == Style::Plain {
                sheet.write_string(row, column, text)
            } else {
                sheet.write_string_with_format(row, column, text, format)
            }
        });
    }

    /// Writes text that links to another row; plain text beyond Excel's limit of links.
    pub(super) fn link(&mut self, style: Style, text: &str, to: &Spot) {
        if self.links == MAX_LINKS {
            return self.text(style, text);
        }
        self.links += 1;
        let text = cell_text(text);
        // Sheet names are chosen here and contain no quotes.
        let place = Url::new(format!("internal:'{}'!A{}", to.sheet, to.row)).set_text(text);
        self.cell(style, |sheet, row, column, format| {
            sheet.write_url_with_format(row, column, place, format)
        });
    }

    /// Writes text across the next `columns` columns, in as many lines as it needs at `fit` characters per line, each
    /// `scale` times as high as usual. Ends the row.
    pub(super) fn paragraph(
        &mut self,
        style: Style,
        text: &str,
        columns: u16,
        fit: usize,
        scale: f64,
    ) -> io::Result<()> {
        let text = cell_text(text);
        let lines = text.chars().count().div_ceil(fit).max(1) as f64;
        let row = self.rows;
        self.call(|worksheet, _| worksheet.set_row_height(row, lines * scale * LINE_HEIGHT));
        self.cell(style, |sheet, row, column, format| {
            sheet.merge_range(row, column, row, column + columns.saturating_sub(1), &text, format)
        });
        self.end_row()
    }

    /// Adds a line below the table, which the filter never hides.
    pub(super) fn remark(&mut self, text: &str) -> io::Result<()> {
        self.text(Style::Remark, text);
        self.remarks += 1;
        self.end_row()
    }

    /// Returns the finished sheet.
    pub(super) fn finish(mut self) -> io::Result<Worksheet> {
        if let Some((head, last)) = self.filter {
            let end = self.rows.saturating_sub(1 + self.remarks);
            self.call(|worksheet, _| worksheet.autofilter(head, 0, end, last));
        }
        self.fault.map_or(Ok(self.worksheet), Err)
    }
}
