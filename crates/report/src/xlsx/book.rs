//! The workbook: sheets whose rows are written to disk as they arrive, and the package assembled from them at the end.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use rust_xlsxwriter::{DocProperties, ExcelDateTime, Workbook};

use super::guard::{guarded, refused};
use super::sheet::{Formats, Layout, Sheet};
use super::style::Style;

/// Number of rows from which a sheet may exceed 4 GiB uncompressed, which a package must declare in advance.
const LARGE_ROWS: u32 = 1 << 19;

/// A workbook without sheets: it creates them, they are filled in parallel, and are handed back in order when it is saved.
pub(super) struct Book {
    workbook: Workbook,
    formats: Formats,
}

impl Book {
    /// Begins a workbook. Rows are buffered in unnamed files in `folder`, the report's folder, which is writable and has
    /// room for the report; the system's folder for temporary files may not be.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let mut workbook = Workbook::new();
        workbook.set_tempdir(folder).map_err(refused)?;
        workbook.set_zip_compression_level(COMPRESSION);
        // Reports of the same comparison must be byte-identical.
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

/// Compression level of the package. Level 2 of deflate takes hardly longer than level 1 and produces a quarter less;
/// the default level takes twice as long for another tenth.
const COMPRESSION: u8 = 2;

/// Passes bytes on until a write fails, then discards them. An archive writer that is dropped after a failure tries to
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
