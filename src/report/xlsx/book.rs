//! The package around the worksheets: an Office Open XML workbook with the parts it must have and no others.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Seek, Write};

use zip::ZipWriter;

use super::sheet::{FinishedSheet, deflated};
use super::style::{MAIN, XML, style_sheet};
use super::text::SharedStrings;

const PACKAGE: &str = "http://schemas.openxmlformats.org/package/2006";
const DOCUMENT: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const TYPE: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml";

/// Writes the workbook. Sheets are copied as they were compressed.
pub(super) fn write<W: Write + Seek>(
    out: W,
    sheets: Vec<FinishedSheet>,
    strings: &SharedStrings,
) -> io::Result<()> {
    let mut zip = ZipWriter::new(BufWriter::with_capacity(1 << 20, out));
    for (name, text) in [
        ("[Content_Types].xml", content_types(sheets.len())),
        ("_rels/.rels", root_relations()),
        ("xl/workbook.xml", workbook(&sheets)),
        ("xl/_rels/workbook.xml.rels", relations(sheets.len())),
        ("xl/styles.xml", style_sheet()),
        ("xl/sharedStrings.xml", strings.part()),
    ] {
        zip.start_file(name, deflated())?;
        zip.write_all(text.as_bytes())?;
    }
    for (index, mut sheet) in sheets.into_iter().enumerate() {
        zip.raw_copy_file_rename(sheet.archive.by_index_raw(0)?, part_name(index))?;
    }
    zip.finish()?.flush()
}

fn part_name(index: usize) -> String {
    format!("xl/worksheets/sheet{}.xml", index + 1)
}

fn content_types(sheets: usize) -> String {
    let mut text = format!(
        "{XML}<Types xmlns=\"{PACKAGE}/content-types\">\
         <Default Extension=\"rels\" ContentType=\"application/vnd.openxmlformats-package.relationships+xml\"/>\
         <Default Extension=\"xml\" ContentType=\"application/xml\"/>\
         <Override PartName=\"/xl/workbook.xml\" ContentType=\"{TYPE}.sheet.main+xml\"/>"
    );
    for index in 0..sheets {
        let part = part_name(index);
        _ = write!(text, "<Override PartName=\"/{part}\" ContentType=\"{TYPE}.worksheet+xml\"/>");
    }
    _ = write!(
        text,
        "<Override PartName=\"/xl/styles.xml\" ContentType=\"{TYPE}.styles+xml\"/>\
         <Override PartName=\"/xl/sharedStrings.xml\" ContentType=\"{TYPE}.sharedStrings+xml\"/></Types>"
    );
    text
}

fn root_relations() -> String {
    format!(
        "{XML}<Relationships xmlns=\"{PACKAGE}/relationships\">\
         <Relationship Id=\"rId1\" Type=\"{DOCUMENT}/officeDocument\" Target=\"xl/workbook.xml\"/></Relationships>"
    )
}

fn relations(sheets: usize) -> String {
    let mut text = format!("{XML}<Relationships xmlns=\"{PACKAGE}/relationships\">");
    for number in 1..=sheets {
        _ = write!(
            text,
            "<Relationship Id=\"rId{number}\" Type=\"{DOCUMENT}/worksheet\" Target=\"worksheets/sheet{number}.xml\"/>"
        );
    }
    let (styles, strings) = (sheets + 1, sheets + 2);
    _ = write!(
        text,
        "<Relationship Id=\"rId{styles}\" Type=\"{DOCUMENT}/styles\" Target=\"styles.xml\"/>\
         <Relationship Id=\"rId{strings}\" Type=\"{DOCUMENT}/sharedStrings\" Target=\"sharedStrings.xml\"/>\
         </Relationships>"
    );
    text
}

fn workbook(sheets: &[FinishedSheet]) -> String {
    let mut text = format!(
        "{XML}<workbook xmlns=\"{MAIN}\" xmlns:r=\"{DOCUMENT}\"><bookViews><workbookView xWindow=\"0\" \
         yWindow=\"0\" windowWidth=\"28800\" windowHeight=\"15000\" activeTab=\"0\"/></bookViews><sheets>"
    );
    for (index, sheet) in sheets.iter().enumerate() {
        let (name, number) = (&sheet.name, index + 1);
        _ = write!(text, "<sheet name=\"{name}\" sheetId=\"{number}\" r:id=\"rId{number}\"/>");
    }
    text.push_str("</sheets>");
    // Excel keeps the range of a filter under a hidden name of the sheet as well.
    let mut names = String::new();
    for (index, sheet) in sheets.iter().enumerate() {
        if let Some((from, to)) = sheet.filter.as_deref().and_then(|range| range.split_once(':')) {
            _ = write!(
                names,
                "<definedName name=\"_xlnm._FilterDatabase\" localSheetId=\"{index}\" hidden=\"1\">'{}'!{}:{}</definedName>",
                sheet.name,
                absolute(from),
                absolute(to)
            );
        }
    }
    if !names.is_empty() {
        _ = write!(text, "<definedNames>{names}</definedNames>");
    }
    text.push_str("</workbook>");
    text
}

/// `Z99` as `$Z$99`.
fn absolute(cell: &str) -> String {
    let digits = cell.find(|c: char| c.is_ascii_digit()).unwrap_or(cell.len());
    let (letters, row) = cell.split_at(digits);
    format!("${letters}${row}")
}
