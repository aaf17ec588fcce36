//! Finds the folders of iterations below a path given at any depth: root, rank, net, graph or iteration.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Parts, name, statistics};
use crate::ReadError;
use probe_dump::{PartKey, RankId};
use probe_files::limits::MAX_FOLDER_ENTRIES;

/// Returns the folders of each step and rank; empty if nothing there looks like a dump of MindSpore. A folder of `.npy` files
/// that is given itself is no part: it is a folder of tensors.
///
/// # Errors
/// When a folder cannot be listed.
pub(crate) fn find_parts(path: &Path) -> Result<Parts, ReadError> {
    // A relative path such as `.` contains no names until it is resolved.
    let resolved = path.canonicalize().map_err(|error| ReadError::io(path, error))?;
    let mut iterations = Vec::new();
    if path.join(statistics::FILE).is_file() {
        iterations.push(path.to_path_buf());
    } else {
        let folders = subfolders(path)?;
        let ranks: Vec<&PathBuf> = folders.iter().filter(|folder| rank_of(folder).is_some()).collect();
        if ranks.is_empty() {
            of_net(path, rank_of(&resolved).is_some(), &mut iterations)?;
        }
        for rank in ranks {
            of_net(rank, true, &mut iterations)?;
        }
    }
    let mut found: Vec<(PartKey, u64, PathBuf)> = Vec::new();
    for folder in iterations {
        let whole = folder.canonicalize().map_err(|error| ReadError::io(&folder, error))?;
        let rank = whole.ancestors().skip(1).take(3).find_map(rank_of).unwrap_or(RankId::Single);
        let label = whole.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let key = PartKey { step: number(&whole).unwrap_or(0), rank, label: (&*label).into() };
        found.push((key, whole.parent().and_then(number).unwrap_or(0), folder));
    }
    found.sort();
    let mut parts = Parts::new();
    for (key, _, folder) in found {
        parts.entry(key).or_default().push(folder);
    }
    Ok(parts)
}

/// Adds the iterations below the folder of a rank (`is_rank`), of a net, or of a graph.
fn of_net(folder: &Path, is_rank: bool, found: &mut Vec<PathBuf>) -> Result<(), ReadError> {
    for inner in subfolders(folder)? {
        if is_rank {
            // Graphs and orders of execution lie beside the nets, in folders without numbers.
            of_net(&inner, false, found)?;
        } else if number(&inner).is_some() {
            if holds_dump(&inner)? {
                found.push(inner);
                continue;
            }
            for iteration in subfolders(&inner)? {
                if number(&iteration).is_some() && holds_dump(&iteration)? {
                    found.push(iteration);
                }
            }
        }
    }
    Ok(())
}

/// Returns true if a folder has statistics, or a file with a name as MindSpore gives.
fn holds_dump(folder: &Path) -> Result<bool, ReadError> {
    if folder.join(statistics::FILE).is_file() {
        return Ok(true);
    }
    let mut entries =
        fs::read_dir(folder).map_err(|error| ReadError::io(folder, error))?.take(MAX_FOLDER_ENTRIES);
    Ok(entries.any(|entry| {
        let path = entry.map(|entry| entry.path()).unwrap_or_default();
        path.extension().is_some_and(|extension| extension == "npy")
            && name::parse(&path.file_stem().unwrap_or_default().to_string_lossy()).is_some()
    }))
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let entries = fs::read_dir(folder).map_err(|error| ReadError::io(folder, error))?;
    let paths = entries.take(MAX_FOLDER_ENTRIES).filter_map(Result::ok).map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_dir()).collect())
}

fn number(folder: &Path) -> Option<u64> {
    let name = folder.file_name()?.to_str()?;
    name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok())?
}

/// Returns the rank of a folder called `rank_3`.
fn rank_of(folder: &Path) -> Option<RankId> {
    let digits = folder.file_name()?.to_str()?.strip_prefix("rank_")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok().map(RankId::Rank))?
}
