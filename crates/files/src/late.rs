//! Files that are not here yet: their provider hands over bytes as they are read.
//!
//! An empty file lies at the path of such a file, so that directory listings show it. Everything that opens files through [`map`](super::map) reads
//! the late file instead; anything else finds an empty file. Missing bytes can therefore never be mistaken for content.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// A file whose bytes are fetched on demand.
pub trait Pieces: Send + Sync {
    /// Fills `out` with the bytes starting at `at`; the range lies inside the file.
    ///
    /// # Errors
    /// The reason they are unavailable.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    /// Makes sure that the bytes of `range`, which lies inside the file, are available. Called before memory is allocated for them, since the
    /// file's size is only claimed.
    ///
    /// # Errors
    /// As for [`read_at`](Self::read_at).
    fn ready(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }
}

/// A byte range of a late file that will be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The file.
    pub path: PathBuf,
    /// Its bytes; any beyond the end of the file are ignored.
    pub range: Range<u64>,
}

/// Provider of late files below one folder.
pub trait LateFiles: Send + Sync {
    /// Returns the late file at `path` and its size in bytes; `None` if there is none.
    fn open(&self, path: &Path) -> Option<(Arc<dyn Pieces>, u64)>;

    /// Announces ranges that will be read soon, so that they can be fetched. Failures are reported
    /// when they are read.
    fn expect(&self, wanted: &[Wanted]);
}

/// Folders, with the provider of the late files below each.
static FOLDERS: RwLock<Vec<(PathBuf, Arc<dyn LateFiles>)>> = RwLock::new(Vec::new());

/// Makes the files below a folder late until it is dropped.
#[derive(Debug)]
pub struct LateFolder(PathBuf);

impl LateFolder {
    /// Registers `files` as the provider of files below `folder`.
    pub fn new(folder: PathBuf, files: Arc<dyn LateFiles>) -> Self {
        FOLDERS.write().unwrap_or_else(PoisonError::into_inner).push((folder.clone(), files));
        Self(folder)
    }
}

impl Drop for LateFolder {
    fn drop(&mut self) {
        FOLDERS.write().unwrap_or_else(PoisonError::into_inner).retain(|(folder, _)| *folder != self.0);
    }
}

fn of(path: &Path) -> Option<Arc<dyn LateFiles>> {
    let folders = FOLDERS.read().unwrap_or_else(PoisonError::into_inner);
    folders.iter().find(|(folder, _)| path.starts_with(folder)).map(|(_, files)| Arc::clone(files))
}

/// Returns true if files below `path` may be late.
pub fn may_be(path: &Path) -> bool {
    of(path).is_some()
}

/// Returns the late file at `path`, if it is one.
pub(crate) fn open(path: &Path) -> Option<(Arc<dyn Pieces>, u64)> {
    of(path)?.open(path)
}

/// Announces to the provider which ranges of one dump's files will be read soon; local files need
/// nothing.
pub fn expect(wanted: &[Wanted]) {
    if let Some(files) = wanted.first().and_then(|first| of(&first.path)) {
        files.expect(wanted);
    }
}
