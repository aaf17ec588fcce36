//! The folder that reports go to.

use std::path::Path;

/// Runs `work`, which creates `folder`. When it fails, nothing was reported, and folders that were not there before go again.
pub(super) fn in_new_folder<T>(folder: &Path, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let made: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    let outcome = work();
    if outcome.is_err() {
        // A folder with other content cannot be removed this way.
        for folder in made {
            _ = std::fs::remove_dir(folder);
        }
    }
    outcome
}
