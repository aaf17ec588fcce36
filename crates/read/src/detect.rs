//! Detects the format of a path from folder names, file names and, for tensor files, content.

use std::fs;
use std::path::Path;

use super::native;
use super::{ReadError, cann, collection, mindspore, msprobe, sglang};
use probe_dump::Dump;
use probe_files::limits;
use probe_files::map::FileAccess;

/// Accepted inputs, for error messages.
const EXPECTED: &str = "expected a dump folder (step*/rank* with ops.parquet or dump.json, dump files of CANN, or rank_*/NET/GRAPH/ITERATION of MindSpore), one of these files, or tensors (.safetensors, .pt, .pth, .bin, .ckpt, .npy, .npz, or a folder of them)";

/// Opens whatever is at `path`.
///
/// # Errors
/// [`ReadError`] that says what was found and what was expected, when nothing at `path` can be read as a dump.
pub fn open(path: &Path, access: FileAccess) -> Result<Dump, ReadError> {
    let metadata = fs::metadata(path).map_err(|source| ReadError::io(path, source))?;
    if metadata.is_dir() {
        return open_folder(path, access);
    }
    if !metadata.is_file() {
        return Err(ReadError::usage(path, format!("neither a file nor a folder; {EXPECTED}")));
    }
    let name = path.file_name().unwrap_or_default();
    if name == probe_dump::native::MANIFEST
        && native::is_manifest(path)
        && let Some(folder) = path.parent()
    {
        // `parent` of a bare name is empty.
        return open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }, access);
    }
    if native::is_table_name(name)
        && let Some(found) = native::find_parts(path)?
    {
        return Ok(native::open(path, found, access));
    }
    if msprobe::is_index_name(name) || is_other_index(path) {
        let found = msprobe::find_parts(path)?.unwrap_or_default();
        return Ok(msprobe::open(path, found, access));
    }
    if name == mindspore::STATISTICS
        && let Some(folder) = path.parent()
    {
        let found =
            mindspore::find_parts(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
        return Ok(mindspore::open(path, found, access));
    }
    if cann::is_dump_file(path) {
        return Ok(cann::open(path, cann::find_parts(path)?, access));
    }
    collection::open(path, access)
}

fn open_folder(path: &Path, access: FileAccess) -> Result<Dump, ReadError> {
    if let Some(found) = native::find_parts(path)? {
        return Ok(native::open(path, found, access));
    }
    let found = msprobe::find_parts(path)?;
    // Step folders alone may come from either tool.
    if !found.as_ref().is_some_and(msprobe::MsprobeParts::holds_parts) && cann::recognises(path) {
        return Ok(cann::open(path, cann::find_parts(path)?, access));
    }
    if let Some(found) = found {
        return Ok(msprobe::open(path, found, access));
    }
    if sglang::recognises(path) {
        return sglang::open(path, access);
    }
    let found = mindspore::find_parts(path)?;
    if !found.is_empty() {
        return Ok(mindspore::open(path, found, access));
    }
    if collection::folder_holds_tensors(path) {
        return collection::open(path, access);
    }
    let entries = fs::read_dir(path).map_err(|source| ReadError::io(path, source))?;
    let mut names: Vec<String> = entries
        .take(limits::MAX_FOLDER_ENTRIES)
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    let found = match names.as_slice() {
        [] => "the folder is empty".to_owned(),
        [one] => format!("the folder holds only {one:?}"),
        [first, second, ..] => format!("the folder holds {first:?}, {second:?} and so on"),
    };
    Err(ReadError::usage(path, format!("no dump here: {found}; {EXPECTED}")))
}

/// Returns true for a JSON file with an unusual name that is not the index of a sharded checkpoint.
fn is_other_index(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".json") && !name.ends_with(".index.json")
}
