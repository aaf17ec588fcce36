//! Selects and orders the tensor files of a folder.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::index;
use crate::ReadError;
use crate::mindspore::name;
use crate::tensor_file::printable;
use probe_files::limits::MAX_FOLDER_ENTRIES;

/// Extensions of tensor files; the content decides the actual format.
const EXTENSIONS: [&str; 7] = ["safetensors", "pt", "pth", "bin", "ckpt", "npy", "npz"];

/// Files without tensors that training libraries put next to a checkpoint under such an extension.
const NOT_TENSORS: [&str; 1] = ["training_args.bin"];

/// Returns true if a folder has anything that [`list`] would find, or the index of a sharded
/// checkpoint.
pub(crate) fn folder_holds_tensors(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let mut paths = entries.take(MAX_FOLDER_ENTRIES).filter_map(Result::ok).map(|entry| entry.path());
    paths.any(|path| is_tensor_file(&path) || index::is_index(&path))
}

/// Lists the tensor files of a folder, not of its subfolders, in natural order: `2.npy` before
/// `10.npy`. Those that MindSpore dumped of a graph are in the order in which they were written.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let mut paths = Vec::new();
    for (count, entry) in fs::read_dir(folder).map_err(|e| ReadError::io(folder, e))?.enumerate() {
        if count >= MAX_FOLDER_ENTRIES {
            return Err(ReadError::Limit {
                path: folder.into(),
                what: "number of files in the folder",
                found: count as u64 + 1,
                limit: MAX_FOLDER_ENTRIES as u64,
            });
        }
        let path = entry.map_err(|e| ReadError::io(folder, e))?.path();
        if is_tensor_file(&path) && !path.is_dir() {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(ReadError::usage(folder, "the folder holds no tensor files"));
    }
    paths.sort_by(|a, b| natural_order(&a.to_string_lossy(), &b.to_string_lossy()));
    // Files that MindSpore dumped are in the order of the run; sorting is stable, and others come first.
    paths.sort_by_cached_key(|path| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        name::parse(&stem).map(|(_, time)| time)
    });
    Ok(paths)
}

/// Returns an error for each set of shards (`model-00001-of-00003.safetensors`) of which files are missing; without an index, their names
/// are all that tells.
pub(super) fn lacking(folder: &Path, paths: &[PathBuf]) -> Vec<ReadError> {
    let mut sets: BTreeMap<(String, u64, String), BTreeSet<u64>> = BTreeMap::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some((stem, number, of, end)) = shard(&name) {
            sets.entry((stem.into(), of, end.into())).or_default().insert(number);
        }
    }
    let fault = |((stem, of, end), present): ((String, u64, String), BTreeSet<u64>)| {
        // Some number from 0, most from 1. A number beyond the limit is no set of files.
        let first = u64::from(!present.contains(&0));
        let all = first..(of + first).min(MAX_FOLDER_ENTRIES as u64);
        let missing: Vec<u64> = all.filter(|number| !present.contains(number)).collect();
        let number = missing.first()?;
        let message = format!(
            "lacks {} of the {of} shards {}-*-of-{of:05}{}, first number {number:05}; copy it too",
            missing.len(),
            printable(&stem),
            printable(&end)
        );
        Some(ReadError::format(folder, message))
    };
    sets.into_iter().filter_map(fault).collect()
}

/// Takes the name of a shard apart: `model-00001-of-00003.safetensors` is `model`, 1, 3, `.safetensors`.
fn shard(name: &str) -> Option<(&str, u64, u64, &str)> {
    let (start, rest) = name.rsplit_once("-of-")?;
    let (stem, number) = start.rsplit_once('-')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (of, end) = rest.split_at(digits);
    Some((stem, number.parse().ok()?, of.parse().ok()?, end))
}

fn is_tensor_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default();
    EXTENSIONS.iter().any(|known| extension == *known)
        && !name.starts_with('.')
        && !NOT_TENSORS.contains(&&*name)
}

/// Compares runs of digits as numbers and everything else as text.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while !left.is_empty() && !right.is_empty() {
        let (left_run, left_rest) = split_run(left);
        let (right_run, right_rest) = split_run(right);
        let numbers = starts_with_digit(left_run) && starts_with_digit(right_run);
        let order = if numbers { number_order(left_run, right_run) } else { left_run.cmp(right_run) };
        if order != Ordering::Equal {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
    // Numerically equal (`1` and `01`): any fixed order will do.
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn number_order(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Splits off the leading run of digits or of other characters.
fn split_run(text: &str) -> (&str, &str) {
    let digits = starts_with_digit(text);
    let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["10.npy", "2.npy", "a10b2", "a9b10", "a", "", "01.npy", "1.npy", "b1", "é1"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["", "01.npy", "1.npy", "2.npy", "10.npy", "a", "a9b10", "a10b2", "b1", "é1"]);
    }

    #[test]
    fn shards_that_are_not_there_are_missed() {
        let said = |names: &[&str]| -> Vec<String> {
            let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            lacking(Path::new("f"), &paths).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            said(&["m-00001-of-00003.safetensors", "other.safetensors"]),
            ["f: lacks 2 of the 3 shards m-*-of-00003.safetensors, first number 00002; copy it too"]
        );
        assert!(said(&["m-1-of-2.bin", "m-2-of-2.bin", "n-00000-of-00001.pt"]).is_empty());
        assert!(said(&["part-of-2.bin", "a-x-of-2.bin", "b-1-of-.bin"]).is_empty());
    }

    #[test]
    fn only_visible_files_with_a_known_extension_are_taken() {
        for (name, taken) in [
            ("a.pt", true),
            ("a.safetensors", true),
            ("a.b.npz", true),
            (".a.pt", false),
            ("a.PT", false),
            ("pt", false),
            ("a.json", false),
            ("training_args.bin", false),
        ] {
            assert_eq!(is_tensor_file(Path::new(name)), taken, "{name}");
        }
    }
}
