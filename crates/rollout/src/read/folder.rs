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
        // A mask of msprobe is read with its differences.
        let mask = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("prob_mask"));
        if ENDINGS.contains(&&*ending) && file.is_file() && !mask {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}
