//! The workbook: sheets whose rows go to disk as they come, and the package made of them at the end.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use rust_xlsxwriter::{DocProperties, ExcelDateTime, Workbook};

use super::guard::{guarded, refused};
use super::sheet::{Formats, Layout, Sheet};
use super::style::Style;

/// From so many rows a sheet may take more than 4 GiB before it is compressed, which a package must say in advance.
const LARGE_ROWS: u32 = 1 << 19;

/// A workbook without sheets: they are made by it, filled one beside the other, and handed back in order when it is saved.
pub(super) struct Book {
    workbook: Workbook,
    formats: Formats,
}

impl Book {
    /// Begins a workbook. Rows wait in files without a name in `folder`, the place of the report, which can be written and
    /// has room for it; the system's folder for temporary files may have neither.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let mut workbook = Workbook::new();
        workbook.set_tempdir(folder).map_err(refused)?;
        workbook.set_zip_compression_level(COMPRESSION);
        // Reports of the same comparison are the same bytes.
        let created = ExcelDateTime::from_ymd(1980, 1, 1).map_err(refused)?;
        workbook.set_properties(&DocProperties::new().set_creation_datetime(&created));
        Ok(Self { workbook, formats: Style::ALL.map(Style::format) })
    }

    /// Begins a sheet.
    pub(super) fn sheet(&mut self, layout: &Layout) -> io::Result<Sheet> {
        let worksheet = self.workbook.new_worksheet_with_constant_memory().map_err(refused)?;
        Sheet::create(worksheet, layout, self.formats.clone())
    }

    /// Writes the package with `sheets` to `out`.
    pub(super) fn save(mut self, sheets: Vec<Sheet>, out: &mut (impl Write + Send)) -> io::Result<()> {
        self.workbook.use_zip_large_file(sheets.iter().any(|sheet| sheet.row() > LARGE_ROWS));
        for sheet in sheets {
            self.workbook.push_worksheet(sheet.finish()?);
        }
        let mut latch = Latch { out: BufWriter::with_capacity(1 << 20, out), fault: None };
        let saved = guarded(|| self.workbook.save_to_writer(&mut latch));
        latch.finish().and(saved)
    }
}

/// How the package is compressed. The second level of deflate takes hardly longer than the first and leaves a quarter
/// less; the default takes twice as long for another tenth.
const COMPRESSION: u8 = 2;

/// Passes bytes on until that fails, then swallows them. A writer of archives that is dropped after a failure tries to
/// complete its archive and prints the second failure; here nothing fails twice.
struct Latch<W: Write> {
    out: W,
    fault: Option<io::Error>,
}

impl<W: Write> Latch<W> {
    fn finish(mut self) -> io::Result<()> {
        _ = self.flush();
        self.fault.map_or(Ok(()), Err)
    }
}

impl<W: Write> Write for Latch<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.fault.is_none() {
            self.fault = self.out.write_all(bytes).err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.fault.is_none() {
            self.fault = self.out.flush().err();
        }
        Ok(())
    }
}
