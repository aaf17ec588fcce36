//! A report file that is not there yet: written under a temporary name, put in place when it is whole.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

use super::ReportError;

/// A file being written beside its target. Dropped without [`Draft::place`] it leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    file: NamedTempFile,
    target: PathBuf,
    _listed: Listed,
}

/// Temporary files of this process that are not in place yet.
static UNPLACED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn unplaced() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNPLACED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a file among the unplaced ones.
#[derive(Debug)]
struct Listed(PathBuf);

impl Drop for Listed {
    fn drop(&mut self) {
        unplaced().remove(&self.0);
    }
}

/// Keeps drafts from being created.
#[derive(Debug)]
pub struct Discarded(
    #[expect(dead_code, reason = "held for its lock")] MutexGuard<'static, BTreeSet<PathBuf>>,
);

/// Removes the temporary files of every draft of this process, for one that is about to end: their destructors will not run.
pub fn discard_drafts() -> Discarded {
    let mut files = unplaced();
    for path in std::mem::take(&mut *files) {
        // One that has just been put in place, or removed by its owner, is no longer there.
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
        // Reports are for others to read too: what the umask grants, not the owner alone.
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

    /// Where the file will stand.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The folder where the file will stand.
    pub fn folder(&self) -> &Path {
        folder(&self.target)
    }

    /// The error for this file when the system refused.
    pub fn refused(&self, error: io::Error) -> ReportError {
        ReportError::io(&self.target, error)
    }

    /// Puts the file in place of whatever stood there.
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
