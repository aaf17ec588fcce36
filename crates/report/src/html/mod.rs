//! Writes `result.html`: one file that shows a result in a browser, without a server or network access.
//!
//! The page is a program, built from `web/` and embedded here, followed by its data: columns of ops and values, packed and compressed
//! in pieces that are written as parts arrive (`pack`), and finally the answer as JSON. Nothing from a dump becomes markup: it is all
//! in compressed pieces, and the program inserts it into the page as text.

pub(crate) mod head;
mod pack;
mod page;
mod stored;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use serde::Serialize;
use serde_json::value::RawValue;

use super::ReportWriter;
use super::gallery::Gallery;
use super::model::Report;
use super::rows::op_rows;
use head::{Comparison, Head, Looks};
use pack::Packer;
use page::Page;
use probe_compare::PartReport;
use probe_files::{Draft, ReportError};
use probe_judge::Summary;
pub use stored::from_result;

use super::replays::Replay;
use super::{StoredError, StoredRun};

/// Writer of `result.html`.
#[derive(Debug)]
pub struct HtmlReport {
    draft: Draft,
    page: Page<BufWriter<File>>,
    packer: Packer,
    gallery: Gallery,
    /// Portraits of earlier comparisons, as stored in their files.
    stored: Vec<Box<RawValue>>,
    /// Replays of an earlier comparison.
    replays: Vec<Replay>,
}

/// Begins the page that will become `draft`.
fn begin(draft: &mut Draft) -> Result<Page<BufWriter<File>>, ReportError> {
    let begun = draft.file().try_clone().and_then(|file| Page::begin(BufWriter::new(file)));
    begun.map_err(|error| draft.refused(error))
}

impl HtmlReport {
    /// Creates the file that will become `path`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        let mut draft = Draft::create(path)?;
        let page = begin(&mut draft)?;
        Ok(Self {
            draft,
            page,
            packer: Packer::default(),
            gallery: Gallery::default(),
            stored: Vec::new(),
            replays: Vec::new(),
        })
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
                self.page.add(self.packer.take()).map_err(|error| self.draft.refused(error))?;
            }
        }
        self.gallery.add(part);
        Ok(())
    }

    fn stored(&mut self, run: &StoredRun, summary: &Summary) -> Result<(), StoredError> {
        let Self { draft, page, packer, stored, .. } = self;
        *stored = stored::add_run(run, summary, packer, page, draft)?;
        self.replays.clone_from(&run.replays);
        Ok(())
    }

    fn finish(self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError> {
        let Self { draft, mut page, mut packer, gallery, stored, replays } = *self;
        let looks = if stored.is_empty() { Looks::Live(gallery.wire()) } else { Looks::Stored(&stored) };
        let comparison = Comparison { report: Report::from(summary), portraits: looks, replays: &replays };
        let done = page.add(packer.take()).and_then(|()| page.finish(&Head::comparison(&comparison)));
        match done {
            Ok(_) => Ok(draft),
            Err(error) => Err(draft.refused(error)),
        }
    }
}

/// Returns a page whose only data is JSON: `kind` names the view that shows `report` (`web/src/main.ts` lists them).
///
/// # Errors
/// When `report` cannot be written as JSON.
pub fn document(kind: &'static str, report: &impl Serialize) -> io::Result<Vec<u8>> {
    Page::begin(Vec::new())?.finish(&Head::of(kind, report))
}
