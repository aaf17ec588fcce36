//! The folder of the copies. It is removed when the command ends, including by a signal.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::StoreError;

/// Default number of bytes that the copies of a command may take: 64 GiB.
pub const SCRATCH_BYTES: u64 = 64 << 30;

/// Scratch folders of this process.
static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn folders() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes every scratch folder of this process, for a process that is about to end without running destructors.
pub fn discard_scratch() {
    for folder in std::mem::take(&mut *folders()) {
        // Files written meanwhile may prevent the removal of a folder.
        while fs::remove_dir_all(&folder).is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Budget of bytes for copies, and the bytes left.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    left: Mutex<u64>,
}

impl Budget {
    const fn new(limit: u64) -> Self {
        Self { limit, left: Mutex::new(limit) }
    }

    fn left(&self) -> MutexGuard<'_, u64> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` from the budget, for copies of `name`.
    pub(super) fn take(&self, bytes: u64, name: &Path) -> Result<(), StoreError> {
        let mut left = self.left();
        let rest = left.checked_sub(bytes);
        *left = rest.ok_or_else(|| StoreError::Budget {
            name: name.into(),
            bytes,
            left: *left,
            limit: self.limit,
        })?;
        Ok(())
    }

    /// Returns `bytes` that were taken to the budget.
    pub(super) fn give_back(&self, bytes: u64) {
        *self.left() += bytes;
    }
}

/// A folder with a budget of bytes.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: TempDir,
    budget: Arc<Budget>,
}

impl Scratch {
    /// Creates a folder in `parent`, for at most `limit` bytes.
    pub(super) fn create(parent: &Path, limit: u64) -> Result<Self, StoreError> {
        let mut listed = folders();
        let folder = tempfile::Builder::new().prefix(".probe-scratch-").tempdir_in(parent);
        let folder = folder.map_err(|error| StoreError::scratch(parent, error))?;
        listed.insert(folder.path().to_path_buf());
        Ok(Self { folder, budget: Arc::new(Budget::new(limit)) })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) const fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        folders().remove(self.folder.path());
    }
}
