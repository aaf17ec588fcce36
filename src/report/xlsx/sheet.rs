//! One worksheet, written and compressed while its rows come.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use tempfile::SpooledTempFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::super::number;
use super::style::{MAIN, Style, XML};
use super::text::{SharedStrings, escape};

/// Most rows of a sheet, a limit of Excel.
pub(super) const MAX_ROWS: u32 = 1_048_576;
/// Most links of a sheet, a limit of Excel.
const MAX_LINKS: u32 = 65_530;
/// Whole numbers above this are not exact in a spreadsheet.
const MAX_EXACT: u64 = 1 << 53;
/// Compressed sheets are kept in memory up to this size, then on disk.
const SPILL: usize = 16 << 20;
/// Size of the pieces handed to the compressor.
const PIECE: usize = 256 << 10;

/// Shape of a sheet, known before its rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// Name of the tab.
    pub(super) name: String,
    /// Width of each column, in characters.
    pub(super) widths: Vec<u16>,
    /// Columns that stay in view when scrolling sideways. The first row stays in view too when there are any.
    pub(super) frozen: u16,
    /// Colour of the tab as ARGB.
    pub(super) tab: Option<&'static str>,
    /// Whether it is the sheet that shows first.
    pub(super) first: bool,
}

/// A worksheet that is being written. Cells come row by row, from left to right.
pub(super) struct Sheet {
    layout: Layout,
    letters: Vec<String>,
    zip: ZipWriter<SpooledTempFile>,
    text: String,
    /// Number of the row that is open or comes next, from 1.
    row: u32,
    digits: String,
    column: usize,
    links: String,
    link_count: u32,
}

/// A worksheet whose rows are all there.
pub(super) struct FinishedSheet {
    pub(super) name: String,
    /// The filtered range, such as `A1:Z99`, where the sheet has one.
    pub(super) filter: Option<String>,
    pub(super) archive: ZipArchive<SpooledTempFile>,
}

impl Sheet {
    /// Begins a sheet. Compressed data that does not fit memory goes to `folder`.
    pub(super) fn create(layout: Layout, folder: &Path) -> io::Result<Self> {
        let mut zip = ZipWriter::new(tempfile::spooled_tempfile_in(SPILL, folder));
        zip.start_file("sheet.xml", deflated())?;
        let mut text = String::with_capacity(PIECE + (PIECE >> 2));
        _ = write!(text, "{XML}<worksheet xmlns=\"{MAIN}\">");
        text.push_str("<sheetPr>");
        if let Some(colour) = layout.tab {
            _ = write!(text, "<tabColor rgb=\"{colour}\"/>");
        }
        // Printed, a sheet takes as many pages as it has rows for, each the full width.
        text.push_str("<pageSetUpPr fitToPage=\"1\"/></sheetPr>");
        let selected = if layout.first { " tabSelected=\"1\"" } else { "" };
        _ = write!(text, "<sheetViews><sheetView{selected} workbookViewId=\"0\">");
        let letters: Vec<String> = (0..layout.widths.len().max(1)).map(letters).collect();
        if layout.frozen > 0 {
            let corner = letters.get(usize::from(layout.frozen)).map_or("A", |letters| letters);
            _ = write!(
                text,
                "<pane xSplit=\"{}\" ySplit=\"1\" topLeftCell=\"{corner}2\" activePane=\"bottomRight\" \
                 state=\"frozen\"/><selection pane=\"topRight\"/><selection pane=\"bottomLeft\"/>\
                 <selection pane=\"bottomRight\"/>",
                layout.frozen
            );
        }
        text.push_str("</sheetView></sheetViews><sheetFormatPr defaultRowHeight=\"15\"/><cols>");
        for (index, width) in layout.widths.iter().enumerate() {
            let number = index + 1;
            // 5 pixels of padding at 7 pixels a character.
            _ = write!(
                text,
                "<col min=\"{number}\" max=\"{number}\" width=\"{width}.7109375\" customWidth=\"1\"/>"
            );
        }
        text.push_str("</cols><sheetData>");
        Ok(Self {
            layout,
            letters,
            zip,
            text,
            row: 1,
            digits: String::new(),
            column: 0,
            links: String::new(),
            link_count: 0,
        })
    }

    /// Name of the tab.
    pub(super) fn name(&self) -> &str {
        &self.layout.name
    }

    /// Number of the row that is open or comes next, from 1.
    pub(super) const fn row(&self) -> u32 {
        self.row
    }

    /// Opens the next row.
    pub(super) fn begin_row(&mut self) {
        self.column = 0;
        self.digits.clear();
        digits(self.row.into(), &mut self.digits);
        self.text.push_str("<row r=\"");
        self.text.push_str(&self.digits);
        self.text.push_str("\">");
    }

    /// Closes the row and hands full pieces to the compressor.
    pub(super) fn end_row(&mut self) -> io::Result<()> {
        self.text.push_str("</row>");
        self.row += 1;
        if self.text.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Leaves the next cell empty.
    pub(super) fn skip(&mut self) {
        self.column += 1;
    }

    fn open(&mut self, style: Style) {
        self.text.push_str("<c r=\"");
        match self.letters.get(self.column) {
            Some(name) => self.text.push_str(name),
            None => self.text.push_str(&letters(self.column)),
        }
        self.text.push_str(&self.digits);
        if style != Style::Plain {
            self.text.push_str("\" s=\"");
            let index = style.index();
            if index >= 10 {
                self.text.push(char::from(b'0' + index / 10));
            }
            self.text.push(char::from(b'0' + index % 10));
        }
        self.column += 1;
    }

    /// A number; NaN and infinities become words.
    pub(super) fn real(&mut self, style: Style, value: f64) {
        if let Some(word) = number::word(value) {
            self.inline(Style::NonFinite, word);
            return;
        }
        self.open(style);
        self.text.push_str("\"><v>");
        shortest(value, &mut self.text);
        self.text.push_str("</v></c>");
    }

    /// A whole number; one that a spreadsheet would round is written as text.
    pub(super) fn count(&mut self, style: Style, value: u64) {
        if value > MAX_EXACT {
            self.inline(style, &value.to_string());
            return;
        }
        self.open(style);
        self.text.push_str("\"><v>");
        digits(value, &mut self.text);
        self.text.push_str("</v></c>");
    }

    /// `TRUE` or `FALSE`.
    pub(super) fn flag(&mut self, value: bool) {
        self.open(if value { Style::Passes } else { Style::Fails });
        self.text.push_str(if value { "\" t=\"b\"><v>1</v></c>" } else { "\" t=\"b\"><v>0</v></c>" });
    }

    /// Text that occurs often.
    pub(super) fn shared(&mut self, style: Style, text: &str, strings: &mut SharedStrings) {
        let Some(number) = strings.number(text) else { return self.inline(style, text) };
        self.open(style);
        self.text.push_str("\" t=\"s\"><v>");
        digits(number.into(), &mut self.text);
        self.text.push_str("</v></c>");
    }

    /// Text that hardly occurs twice.
    pub(super) fn inline(&mut self, style: Style, text: &str) {
        self.open(style);
        self.text.push_str("\" t=\"inlineStr\"><is><t xml:space=\"preserve\">");
        escape(text, &mut self.text);
        self.text.push_str("</t></is></c>");
    }

    /// Makes the cell that was written last lead to `row` of the sheet `name`. Nothing happens beyond Excel's limit.
    pub(super) fn link(&mut self, name: &str, row: u32) {
        if self.link_count == MAX_LINKS || self.column == 0 {
            return;
        }
        self.link_count += 1;
        let from = &self.letters[self.column - 1];
        // Sheet names are ours: they hold no quote and no markup.
        _ = write!(self.links, "<hyperlink ref=\"{from}{}\" location=\"'{name}'!A{row}\"/>", self.row);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.zip.write_all(self.text.as_bytes())?;
        self.text.clear();
        Ok(())
    }

    /// Completes the sheet.
    pub(super) fn finish(mut self) -> io::Result<FinishedSheet> {
        self.text.push_str("</sheetData>");
        let filter = (self.layout.frozen > 0).then(|| {
            let last = self.letters.last().map_or("A", |letters| letters);
            format!("A1:{last}{}", (self.row - 1).max(1))
        });
        if let Some(range) = &filter {
            _ = write!(self.text, "<autoFilter ref=\"{range}\"/>");
        }
        if !self.links.is_empty() {
            self.text.push_str("<hyperlinks>");
            self.flush()?;
            self.zip.write_all(self.links.as_bytes())?;
            self.text.push_str("</hyperlinks>");
        }
        self.text.push_str(
            "<pageMargins left=\"0.4\" right=\"0.4\" top=\"0.5\" bottom=\"0.5\" header=\"0.3\" footer=\"0.3\"/>\
             <pageSetup orientation=\"landscape\" fitToHeight=\"0\"/></worksheet>",
        );
        self.flush()?;
        let archive = ZipArchive::new(self.zip.finish()?)?;
        Ok(FinishedSheet { name: self.layout.name, filter, archive })
    }
}

/// How parts are compressed. The second level of deflate takes hardly longer than the first and leaves a quarter
/// less; the default takes twice as long for another tenth.
pub(super) fn deflated() -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(2))
        // Reports of the same comparison are the same bytes.
        .last_modified_time(zip::DateTime::default())
}

/// Appends a finite number in the fewest digits that read back as the same number.
fn shortest(value: f64, out: &mut String) {
    // The JSON writer formats numbers several times as fast as the standard library, and in the same grammar.
    match serde_json::to_string(&value) {
        Ok(digits) => out.push_str(&digits),
        Err(_) => _ = write!(out, "{value:e}"),
    }
}

/// Appends a whole number.
fn digits(value: u64, out: &mut String) {
    let mut reversed = [0_u8; 20];
    let mut rest = value;
    let mut length = 0;
    for place in &mut reversed {
        // A remainder of 10 is below 10.
        *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        length += 1;
        if rest == 0 {
            break;
        }
    }
    out.extend(reversed[..length].iter().rev().copied().map(char::from));
}

/// Letters of a column, from 0: `A`, `Z`, `AA`.
pub(super) fn letters(column: usize) -> String {
    let mut rest = column + 1;
    let mut out = Vec::new();
    while rest > 0 {
        rest -= 1;
        // A remainder of 26 is below 26.
        out.push(b'A' + u8::try_from(rest % 26).unwrap_or(0));
        rest /= 26;
    }
    out.iter().rev().copied().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_lettered_as_excel_does() {
        assert_eq!([0, 25, 26, 51, 52, 701, 702].map(letters), ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }

    #[test]
    fn numbers_read_back_exactly() {
        for value in [0.0, -0.0, 0.1 + 0.2, 1e-300, 1.5e300, 1.0 / 3.0, 123_456_789.0, f64::MIN_POSITIVE] {
            let mut text = String::new();
            shortest(value, &mut text);
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits(), "{text}");
            assert!(text.len() < 25, "{text}");
        }
        for value in [0, 7, 10, 1_048_576, u64::MAX] {
            let mut text = String::new();
            digits(value, &mut text);
            assert_eq!(text, value.to_string());
        }
    }
}
