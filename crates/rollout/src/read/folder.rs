//! The files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use probe_files::limits::MAX_FOLDER_ENTRIES;
use probe_read::ReadError;

/// Endings of files that may hold log-probabilities.
const ENDINGS: [&str; 10] =
    ["jsonl", "ndjson", "json", "pt", "pth", "safetensors", "npz", "npy", "parquet", "csv"];

/// Returns `path` if it is a file, else the files in it that may hold log-probabilities, sorted.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let metadata = fs::metadata(path).map_err(|error| ReadError::io(path, error))?;
    if !metadata.is_dir() {
        return Ok(vec![path.into()]);
    }
    let mut found = Vec::new();
    for (count, entry) in fs::read_dir(path).map_err(|error| ReadError::io(path, error))?.enumerate() {
        if count >= MAX_FOLDER_ENTRIES {
            return Err(ReadError::Limit {
                path: path.into(),
                what: "the number of files",
                found: count as u64,
                limit: MAX_FOLDER_ENTRIES as u64,
            });
        }
        let file = entry.map_err(|error| ReadError::io(path, error))?.path();
        let ending = file.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        if ENDINGS.contains(&&*ending) && file.is_file() && !read_with_another(&file) {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns true for a mask of msprobe whose differences are there: it is read with them.
fn read_with_another(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("prob_mask") && file.with_file_name(name.replace("prob_mask", "prob_diff")).exists()
}
