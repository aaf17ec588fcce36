//! Rows of a sheet, as the XML of a package: a `<row>` with a `<c>` for each cell (ECMA-376, part 1, 18.3.1).
//!
//! Rows know their numbers and nothing else of their sheet, so that several threads can make those of one sheet.

use super::style::Style;
use super::text::{cell_text, escaped};
use probe_dump::Exact;

/// Height of a line of text, in points.
const LINE_HEIGHT: f64 = 15.0;
/// Whole numbers above this are not exact in a spreadsheet.
const MAX_EXACT: u64 = 1 << 53;

/// Location of a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Spot {
    /// Name of the tab.
    pub(super) sheet: String,
    /// Row number, from 1.
    pub(super) row: u32,
}

/// Consecutive rows, written from left to right.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) xml: Vec<u8>,
    /// Number of rows of the sheet above the first of these.
    pub(super) above: u32,
    /// Number of complete rows, with those above.
    pub(super) complete: u32,
    /// Largest number of columns of a row.
    pub(super) columns: u16,
    /// Elements of links, in order.
    pub(super) links: Vec<String>,
    /// Elements of merged ranges, in order.
    pub(super) merged: Vec<String>,
    column: u16,
    /// Number of the row that is open, as text; empty while it has no cell.
    number: String,
    height: Option<f64>,
    fold: Fold,
    /// True if rows are folded below others.
    pub(super) folds: bool,
}

/// How a row is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fold {
    /// Not at all.
    #[default]
    Nothing,
    /// The rows that follow are folded below it.
    Above,
    /// It is folded below a row, and out of sight.
    Below,
}

impl Fold {
    /// Returns the attributes of a row.
    const fn attributes(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Above => " collapsed=\"1\"",
            Self::Below => " outlineLevel=\"1\" hidden=\"1\"",
        }
    }
}

impl Rows {
    /// Begins below `above` rows.
    pub(super) fn below(above: u32) -> Self {
        Self { above, complete: above, ..Self::default() }
    }

    /// Makes the current row as high as this many usual lines of text.
    pub(super) const fn set_lines(&mut self, lines: f64) {
        self.height = Some(lines * LINE_HEIGHT);
    }

    /// Folds the current row, which has no cell yet.
    pub(super) fn set_fold(&mut self, fold: Fold) {
        self.fold = fold;
        self.folds |= fold == Fold::Below;
    }

    /// Completes the row.
    pub(super) fn end_row(&mut self) {
        if !self.number.is_empty() {
            self.xml.extend_from_slice(b"</row>");
            self.number.clear();
        }
        self.columns = self.columns.max(self.column);
        (self.column, self.height, self.fold) = (0, None, Fold::Nothing);
        self.complete += 1;
    }

    /// Leaves the next cell empty.
    pub(super) const fn skip(&mut self) {
        self.column += 1;
    }

    /// Writes a number; NaN and infinities become words.
    pub(super) fn real(&mut self, style: Style, value: f64) {
        if let Some(word) = Exact(value).word() {
            return self.text(Style::NonFinite, word);
        }
        self.begin_cell(style);
        self.xml.extend_from_slice(b"><v>");
        let mut digits = zmij::Buffer::new();
        let digits = digits.format_finite(value);
        self.xml.extend_from_slice(digits.strip_suffix(".0").unwrap_or(digits).as_bytes());
        self.xml.extend_from_slice(b"</v></c>");
    }

    /// Writes an integer; one that a spreadsheet would round is written as text.
    pub(super) fn count(&mut self, style: Style, value: u64) {
        if value > MAX_EXACT {
            return self.text(style, &value.to_string());
        }
        self.begin_cell(style);
        self.xml.extend_from_slice(b"><v>");
        push_digits(&mut self.xml, value);
        self.xml.extend_from_slice(b"</v></c>");
    }

    /// Writes `TRUE` or `FALSE`.
    pub(super) fn flag(&mut self, value: bool) {
        self.begin_cell(if value { Style::Passes } else { Style::Fails });
        self.xml.extend_from_slice(if value { b" t=\"b\"><v>1</v></c>" } else { b" t=\"b\"><v>0</v></c>" });
    }

    /// Writes text, made safe for a cell.
    pub(super) fn text(&mut self, style: Style, text: &str) {
        if text.is_empty() {
            return if style == Style::Plain { self.skip() } else { self.blank(style) };
        }
        let text = cell_text(text);
        self.begin_cell(style);
        let kept = text.starts_with(' ') || text.ends_with(' ');
        self.xml.extend_from_slice(b" t=\"inlineStr\"><is><t");
        self.xml.extend_from_slice(if kept { b" xml:space=\"preserve\">" } else { b">" });
        self.xml.extend_from_slice(escaped(&text).as_bytes());
        self.xml.extend_from_slice(b"</t></is></c>");
    }

    /// Writes text that links to another row.
    pub(super) fn link(&mut self, style: Style, text: &str, to: &Spot) {
        let place = self.place();
        self.text(style, text);
        let shown = cell_text(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let shown = shown.replace('"', "&quot;");
        // Sheet names are chosen here and contain no quotes.
        let Spot { sheet, row } = to;
        self.links
            .push(format!("<hyperlink ref=\"{place}\" location=\"'{sheet}'!A{row}\" display=\"{shown}\"/>"));
    }

    /// Writes text across the next `columns` columns, in as many lines as it needs at `fit` characters per line, each
    /// `scale` times as high as usual. Ends the row.
    pub(super) fn paragraph(&mut self, style: Style, text: &str, columns: u16, fit: usize, scale: f64) {
        let lines = cell_text(text).chars().count().div_ceil(fit).max(1) as f64;
        self.set_lines(lines * scale);
        let first = self.place();
        self.text(style, text);
        for _ in 1..columns.saturating_sub(1) {
            self.blank(style);
        }
        let last = self.place();
        self.blank(style);
        self.merged.push(format!("<mergeCell ref=\"{first}:{last}\"/>"));
        self.end_row();
    }

    fn blank(&mut self, style: Style) {
        self.begin_cell(style);
        self.xml.extend_from_slice(b"/>");
    }

    /// Returns the name of the next cell, such as `AB12`.
    fn place(&self) -> String {
        format!("{}{}", letters(self.column), self.complete + 1)
    }

    /// Writes the beginning of the next cell: `<c r="AB12" s="4"`.
    fn begin_cell(&mut self, style: Style) {
        if self.number.is_empty() {
            self.number = (self.complete + 1).to_string();
            let height = self.height.map(|height| format!(" ht=\"{height}\" customHeight=\"1\""));
            let (number, fold) = (&self.number, self.fold.attributes());
            let begin = format!("<row r=\"{number}\"{}{fold}>", height.unwrap_or_default());
            self.xml.extend_from_slice(begin.as_bytes());
        }
        self.xml.extend_from_slice(b"<c r=\"");
        push_letters(&mut self.xml, self.column);
        self.xml.extend_from_slice(self.number.as_bytes());
        if style != Style::Plain {
            self.xml.extend_from_slice(b"\" s=\"");
            push_digits(&mut self.xml, style as u64);
        }
        self.xml.push(b'"');
        self.column += 1;
    }
}

/// Appends a number in decimal.
fn push_digits(out: &mut Vec<u8>, value: u64) {
    if value > 9 {
        push_digits(out, value / 10);
    }
    out.push(b'0' + u8::try_from(value % 10).unwrap_or_default());
}

/// Appends the letters of a column, from 0: `A` to `Z`, `AA` and so on.
fn push_letters(out: &mut Vec<u8>, column: u16) {
    if let Some(before) = (column / 26).checked_sub(1) {
        push_letters(out, before);
    }
    out.push(b'A' + u8::try_from(column % 26).unwrap_or_default());
}

/// Returns the letters of a column, from 0.
pub(super) fn letters(column: u16) -> String {
    let mut out = Vec::new();
    push_letters(&mut out, column);
    out.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_letters() {
        let last = 16_383;
        let names = [0, 25, 26, 51, 52, 701, 702, last].map(letters);
        assert_eq!(names, ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA", "XFD"]);
    }

    #[test]
    fn rows_without_cells_are_left_out_and_counted() {
        let mut rows = Rows::below(2);
        rows.end_row();
        rows.skip();
        rows.real(Style::Fixed, 0.1 + 0.2);
        rows.count(Style::Plain, 7);
        rows.text(Style::Plain, " a<b_x0041_ ");
        rows.end_row();
        let xml = String::from_utf8(rows.xml).unwrap();
        let text = "<is><t xml:space=\"preserve\"> a&lt;b_x005F_x0041_ </t></is>";
        let cells = format!(
            "<c r=\"B4\" s=\"6\"><v>0.30000000000000004</v></c><c r=\"C4\"><v>7</v></c>\
             <c r=\"D4\" t=\"inlineStr\">{text}</c>"
        );
        assert_eq!(xml, format!("<row r=\"4\">{cells}</row>"));
        assert_eq!((rows.complete, rows.columns), (4, 4));
    }

    #[test]
    fn numbers_read_back_to_the_bit() {
        for value in [f64::MIN_POSITIVE, -5e-324, 1e300, 1.0 / 3.0, 2f64.powi(60), 1e21, -0.0, 123_456.789] {
            let mut rows = Rows::default();
            rows.real(Style::Plain, value);
            let xml = String::from_utf8(rows.xml).unwrap();
            let number = xml.split_once("<v>").unwrap().1.split_once('<').unwrap().0;
            assert_eq!(number.parse::<f64>().unwrap().to_bits(), value.to_bits(), "{number}");
        }
    }
}
