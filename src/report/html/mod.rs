//! Writes `result.html`: one file that shows a result in a browser, without a server and without the network.
//!
//! The page is a program, built from `web/` and embedded here, with data beside it: columns of ops and values, packed, compressed, in
//! pieces that are written as parts come ([`pack`]), and at the end the answer as JSON. Nothing of a dump is ever markup: all of it is in
//! compressed pieces, and the program puts it into the page as text.

mod head;
mod pack;
mod page;
#[cfg(feature = "parquet")]
mod stored;

use std::path::Path;

use serde::Serialize;

use super::model::Report;
use super::portrait::Gallery;
use super::rows::op_rows;
use super::{Draft, PartReport, ReportError, ReportWriter};
use crate::judge::Summary;
use head::{Comparison, Head};
use pack::Packer;
use page::Page;
#[cfg(feature = "parquet")]
pub use stored::{StoredError, from_parquet};

/// Writer of `result.html`.
#[derive(Debug)]
pub struct HtmlReport {
    page: Page,
    packer: Packer,
    gallery: Gallery,
}

impl HtmlReport {
    /// Creates the file that will become `path`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        Ok(Self { page: Page::create(path)?, packer: Packer::default(), gallery: Gallery::default() })
    }
}

impl ReportWriter for HtmlReport {
    fn part(&mut self, part: &PartReport<'_>) -> Result<(), ReportError> {
        for op in op_rows(part) {
            self.packer.op(part.pair.step, part.pair.rank, |column| op.shared(column));
            for slot in op.slots() {
                self.packer.slot(|column| slot.cell(column));
            }
            if self.packer.is_full() {
                self.page.add(self.packer.take())?;
            }
        }
        self.gallery.add(part);
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError> {
        self.page.add(self.packer.take())?;
        let comparison = Comparison { report: Report::from(summary), portraits: self.gallery.wire() };
        self.page.finish(&Head::comparison(&comparison))
    }
}

/// Writes a page whose data is JSON alone: `kind` names the view of the page, which reads `report`.
///
/// # Errors
/// [`ReportError`] when the file cannot be written.
pub(super) fn write(draft: Draft, kind: &'static str, report: &impl Serialize) -> Result<Draft, ReportError> {
    Page::on(draft)?.finish(&Head::of(kind, report))
}
