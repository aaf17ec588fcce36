//! One worksheet: its layout, and rows as they come.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use rust_xlsxwriter::{Worksheet, XlsxError};

use super::member::Middle;
use super::package::Package;
use super::rows::{Rows, letters};
use super::style::Style;

/// Maximum number of rows of a sheet, a limit of Excel.
pub(super) const MAX_ROWS: u32 = 1_048_576;
/// Maximum number of links of a sheet, a limit of Excel. Beyond it, text is not linked.
const MAX_LINKS: usize = 65_530;
/// Lines of a table header: names of several words wrap.
const HEAD_LINES: f64 = 2.0;

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

impl Head {
    /// Returns the number of its rows.
    pub(super) const fn rows(&self) -> u32 {
        if self.notice.is_some() { 2 } else { 1 }
    }

    fn last_column(&self) -> u16 {
        u16::try_from(self.labels.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }
}

/// A worksheet being written.
pub(super) struct Sheet {
    layout: Layout,
    cells: Middle,
    /// Number of complete rows.
    rows: u32,
    /// Rows below the table, which the filter excludes.
    remarks: u32,
    /// Largest number of columns of a row.
    columns: u16,
    links: Vec<String>,
    merged: Vec<String>,
    /// True if rows are folded below others.
    folds: bool,
}

impl Sheet {
    /// Begins a sheet of a workbook in `folder`.
    pub(super) fn create(layout: Layout, folder: &Path) -> io::Result<Self> {
        let mut rows = Rows::default();
        if let Some(head) = &layout.head {
            if let Some(notice) = head.notice {
                rows.text(Style::Bold, notice);
                rows.end_row();
            }
            rows.set_lines(HEAD_LINES);
            for label in &head.labels {
                rows.text(Style::Header, label);
            }
            rows.end_row();
        }
        let mut sheet = Self {
            layout,
            cells: Middle::new(folder),
            rows: 0,
            remarks: 0,
            columns: 0,
            links: Vec::new(),
            merged: Vec::new(),
            folds: false,
        };
        sheet.append(rows)?;
        Ok(sheet)
    }

    /// Returns the number of complete rows.
    pub(super) const fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns rows to be written below those that are here.
    pub(super) fn below(&self) -> Rows {
        Rows::below(self.rows)
    }

    /// Adds rows.
    pub(super) fn append(&mut self, rows: Rows) -> io::Result<()> {
        debug_assert_eq!(rows.above, self.rows, "rows were made for this place");
        self.rows = rows.complete;
        self.columns = self.columns.max(rows.columns);
        let room = MAX_LINKS - self.links.len();
        self.links.extend(rows.links.into_iter().take(room));
        self.merged.extend(rows.merged);
        self.folds |= rows.folds;
        self.cells.push(&rows.xml)
    }

    /// Adds a line below the table, which the filter never hides.
    pub(super) fn remark(&mut self, text: &str) -> io::Result<()> {
        let mut rows = self.below();
        rows.text(Style::Remark, text);
        rows.end_row();
        self.remarks += 1;
        self.append(rows)
    }

    /// Gives `worksheet`, which holds no cells, the layout.
    pub(super) fn lay_out(&self, worksheet: &mut Worksheet) -> Result<(), XlsxError> {
        let Layout { name, widths, head, tab } = &self.layout;
        worksheet.set_name(name)?;
        for (column, &width) in (0..).zip(widths) {
            worksheet.set_column_width(column, width)?;
        }
        if let Some(colour) = *tab {
            worksheet.set_tab_color(colour);
        }
        // A printed sheet is the full width of the page, on as many pages as its rows need.
        worksheet.set_landscape().set_print_fit_to_pages(1, 0);
        worksheet.group_symbols_above(self.folds);
        worksheet.set_margins(0.4, 0.4, 0.5, 0.5, 0.3, 0.3);
        if let Some(head) = head {
            worksheet.set_freeze_panes(head.rows(), head.frozen)?;
            let end = self.rows.saturating_sub(1 + self.remarks);
            worksheet.autofilter(head.rows() - 1, 0, end, head.last_column())?;
        }
        Ok(())
    }

    /// Adds the sheet to a package as the member `name`: `empty`, the sheet without cells, with them.
    pub(super) fn place(self, empty: &str, name: &str, package: &mut Package<impl Write>) -> io::Result<()> {
        let Self { cells, rows, columns, links, merged, folds, .. } = self;
        let parted = || -> Option<_> {
            let (top, rest) = empty.split_once("<dimension ref=\"A1\"/>")?;
            let (views, rest) = rest.split_once("<sheetData/>")?;
            let (filter, page) = rest.split_at(rest.find("<pageMargins")?);
            Some((top, views, filter, page))
        };
        let unknown =
            || io::Error::other("the library that writes workbooks laid out a sheet in an unknown way");
        let (top, views, filter, page) = parted().ok_or_else(unknown)?;
        // Without the depth of the outline, spreadsheets show no buttons beside the rows.
        let format = if folds { "<sheetFormatPr outlineLevelRow=\"1\" " } else { "<sheetFormatPr " };
        let views = views.replacen("<sheetFormatPr ", format, 1);
        let end = format!("{}{}", letters(columns.saturating_sub(1)), rows.max(1));
        let before = format!("{top}<dimension ref=\"A1:{end}\"/>{views}<sheetData>");
        // The order of these elements is that of the schema.
        let mut behind = format!("</sheetData>{filter}");
        if !merged.is_empty() {
            _ = write!(behind, "<mergeCells count=\"{}\">{}</mergeCells>", merged.len(), merged.concat());
        }
        if !links.is_empty() {
            _ = write!(behind, "<hyperlinks>{}</hyperlinks>", links.concat());
        }
        behind.push_str(page);
        cells.place(before.as_bytes(), behind.as_bytes(), name, package)
    }
}
