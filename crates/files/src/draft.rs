//! A report file in progress: written under a temporary name, moved into place once complete.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

use super::ReportError;

/// A file being written next to its target. Dropping it without [`Draft::place`] leaves nothing
/// behind.
#[derive(Debug)]
pub struct Draft {
    file: NamedTempFile,
    target: PathBuf,
    _listed: Listed,
}

/// Temporary files of this process that have not been moved into place.
static UNPLACED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn unplaced() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNPLACED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a file in the list of unplaced ones.
#[derive(Debug)]
struct Listed(PathBuf);

impl Drop for Listed {
    fn drop(&mut self) {
        unplaced().remove(&self.0);
    }
}

/// Prevents new drafts while it exists.
#[derive(Debug)]
pub struct Discarded(
    #[expect(dead_code, reason = "held for its lock")] MutexGuard<'static, BTreeSet<PathBuf>>,
);

/// Removes the temporary files of all drafts; for a process about to end, whose destructors will not run.
pub fn discard_drafts() -> Discarded {
    let mut files = unplaced();
    for path in std::mem::take(&mut *files) {
        // One that was just placed, or removed by its owner, no longer exists.
        _ = fs::remove_file(path);
    }
    Discarded(files)
}

impl Draft {
    /// Creates the temporary file in the folder of `target`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written, or `target` is a folder.
    pub fn create(target: &Path) -> Result<Self, ReportError> {
        if target.is_dir() {
            return Err(ReportError::io(target, io::ErrorKind::IsADirectory.into()));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".probe-").suffix(".part");
        // Reports are meant for others too: permissions follow the umask, not owner-only.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut files = unplaced();
        let file = builder.tempfile_in(folder(target)).map_err(|error| ReportError::io(target, error))?;
        files.insert(file.path().to_path_buf());
        let listed = Listed(file.path().to_path_buf());
        Ok(Self { file, target: target.to_path_buf(), _listed: listed })
    }

    /// The file to write to.
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Returns the final path of the file.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Returns the folder of the final path.
    pub fn folder(&self) -> &Path {
        folder(&self.target)
    }

    /// Returns an I/O error for this file.
    pub fn refused(&self, error: io::Error) -> ReportError {
        ReportError::io(&self.target, error)
    }

    /// Moves the file into place, replacing any existing one.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the system refuses; nothing is left behind then.
    pub fn place(self) -> Result<PathBuf, ReportError> {
        match self.file.persist(&self.target) {
            Ok(_) => Ok(self.target),
            Err(refused) => Err(ReportError::io(self.target, refused.error)),
        }
    }
}

fn folder(target: &Path) -> &Path {
    target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
