//! Files that are not here yet: somebody who has them hands over their bytes as they are read.
//!
//! At the path of such a file lies an empty one, so that it is seen where files are looked for. Everything that opens files through [`map`](super::map) reads
//! the late file instead; what does not, finds no bytes at all. Nothing that did not come can be taken for content.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// A file whose bytes are read where they are asked for.
pub trait Pieces: Send + Sync {
    /// Fills `out` with the bytes from `at` on, which lie inside the file.
    ///
    /// # Errors
    /// Why they cannot be had.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    /// Sees to it that the bytes of `range`, which lie inside the file, are there: before memory is taken for them, for its size is only claimed.
    ///
    /// # Errors
    /// As for [`read_at`](Self::read_at).
    fn ready(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of a late file that will be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The file.
    pub path: PathBuf,
    /// Its bytes; those beyond its end count for nothing.
    pub range: Range<u64>,
}

/// Has late files, which lie below one folder.
pub trait LateFiles: Send + Sync {
    /// The file that stands for the one at `path`, and its size in bytes; `None` where there is none.
    fn open(&self, path: &Path) -> Option<(Arc<dyn Pieces>, u64)>;

    /// Hears what will be read soon, and gets it. What fails is told when it is read.
    fn expect(&self, wanted: &[Wanted]);
}

/// Folders, and who has the late files below them.
static FOLDERS: RwLock<Vec<(PathBuf, Arc<dyn LateFiles>)>> = RwLock::new(Vec::new());

/// Has the files below a folder be late, until it is dropped.
#[derive(Debug)]
pub struct LateFolder(PathBuf);

impl LateFolder {
    /// `files` has those below `folder`.
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

/// Whether the files below `path` may be late.
pub fn may_be(path: &Path) -> bool {
    of(path).is_some()
}

/// The late file at `path`, if it is one.
pub(crate) fn open(path: &Path) -> Option<(Arc<dyn Pieces>, u64)> {
    of(path)?.open(path)
}

/// Tells who has them what of the files of one dump will be read soon; files that are here need nothing.
pub fn expect(wanted: &[Wanted]) {
    if let Some(files) = wanted.first().and_then(|first| of(&first.path)) {
        files.expect(wanted);
    }
}
