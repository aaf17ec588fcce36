//! The folder of the copies. It goes when the command ends, also when a signal ends it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::StoreError;

/// Bytes that the copies of a command may take, where nothing else is said: 64 GiB.
pub const SCRATCH_BYTES: u64 = 64 << 30;

/// Scratch folders of this process.
static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn folders() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes every scratch folder of this process, for one that is about to end: their destructors will not run.
pub fn discard_scratch() {
    for folder in std::mem::take(&mut *folders()) {
        // What is written meanwhile may keep a folder from going.
        while fs::remove_dir_all(&folder).is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// A folder with a budget of bytes.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: TempDir,
    limit: u64,
    left: u64,
}

impl Scratch {
    /// A new folder in `parent`, for at most `limit` bytes.
    pub(super) fn create(parent: &Path, limit: u64) -> Result<Self, StoreError> {
        let mut listed = folders();
        let folder = tempfile::Builder::new().prefix(".probe-scratch-").tempdir_in(parent);
        let folder = folder.map_err(|error| StoreError::scratch(parent, error))?;
        listed.insert(folder.path().to_path_buf());
        Ok(Self { folder, limit, left: limit })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Takes `bytes` of the budget, for copies of `name`.
    pub(super) fn reserve(&mut self, bytes: u64, name: &Path) -> Result<(), StoreError> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| StoreError::Budget {
            name: name.into(),
            bytes,
            left: self.left,
            limit: self.limit,
        })?;
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        folders().remove(self.folder.path());
    }
}
