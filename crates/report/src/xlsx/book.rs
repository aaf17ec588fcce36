//! The workbook: `rust_xlsxwriter` writes it without cells, and the cells are put into its sheets.
//!
//! The library takes 0.3 us for a number and more for a text, most of it for finding the format of a cell among all and
//! for maps of cells; only one thread can write a sheet, and only one can compress. For 13,344 rows of values that is
//! 0.5 s of a processor, and 0.15 s here, on as many threads as there are.

use std::io::{self, BufWriter, Cursor, Read, Write};

use rust_xlsxwriter::{DocProperties, ExcelDateTime, Workbook, XlsxError};
use zip::ZipArchive;

use super::member::packed;
use super::package::Package;
use super::sheet::Sheet;
use super::style::Style;

/// Writes the workbook with `sheets` to `out`.
pub(super) fn save(sheets: Vec<Sheet>, out: &mut impl Write) -> io::Result<()> {
    let empty = without_cells(&sheets).map_err(|error| io::Error::other(error.to_string()))?;
    let mut empty = ZipArchive::new(Cursor::new(empty)).map_err(io::Error::other)?;
    let mut package = Package::new(BufWriter::with_capacity(1 << 20, out));
    let mut sheets = (1..).map(|number| format!("xl/worksheets/sheet{number}.xml")).zip(sheets).peekable();
    for index in 0..empty.len() {
        let mut member = empty.by_index(index).map_err(io::Error::other)?;
        let name = member.name().map_err(io::Error::other)?.into_owned();
        let mut text = String::new();
        member.read_to_string(&mut text)?;
        // The library writes the sheets in their order.
        if let Some((_, sheet)) = sheets.next_if(|(next, _)| *next == name) {
            sheet.place(&text, &name, &mut package)?;
        } else {
            let member = packed(text.as_bytes(), true)?;
            let bytes = member.bytes.len() as u64;
            package
                .member(&name, member.crc.sum(), member.length, bytes, |out| out.write_all(&member.bytes))?;
        }
    }
    if let Some((name, _)) = sheets.next() {
        return Err(io::Error::other(format!("the library that writes workbooks left out {name}")));
    }
    package.finish()?.flush()
}

/// Returns the package with every sheet, style and property, and no cell.
fn without_cells(sheets: &[Sheet]) -> Result<Vec<u8>, XlsxError> {
    let mut workbook = Workbook::new();
    // Reports of the same comparison must be byte-identical.
    let created = ExcelDateTime::from_ymd(1980, 1, 1)?;
    workbook.set_properties(&DocProperties::new().set_creation_datetime(&created));
    // Cells refer to styles by their place.
    for style in Style::ALL {
        workbook.register_format(&style.format());
    }
    for sheet in sheets {
        sheet.lay_out(workbook.add_worksheet())?;
    }
    workbook.save_to_buffer()
}
