//! Finds the parts of a dump below a path given at any depth: dump root, step folder, rank folder or index file.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::PartFile;
use crate::ReadError;
use probe_dump::{PartKey, RankId};
use probe_files::limits;

/// The index files, in order of preference when both exist.
pub const INDEX_NAMES: [&str; 2] = ["dump.json", "debug.json"];

/// Folders above the steps that a capture of MindSpore makes, one for each mode that the program ran in.
const MODES: [&str; 2] = ["pynative", "graph"];

/// Parts of a dump, and folders that should hold one but do not.
#[derive(Debug, Default)]
pub(crate) struct MsprobeParts {
    pub(super) parts: Vec<PartFile>,
    pub(super) faults: Vec<ReadError>,
}

impl MsprobeParts {
    /// Returns true if it has any part to read.
    pub(crate) fn holds_parts(&self) -> bool {
        !self.parts.is_empty()
    }
}

/// Returns true for index file names.
pub(crate) fn is_index_name(name: &OsStr) -> bool {
    INDEX_NAMES.iter().any(|index| name == *index)
}

/// Finds parts at `path`. `None` if nothing there looks like a dump of the older tool.
///
/// # Errors
/// When a folder cannot be listed.
pub(crate) fn find_parts(path: &Path) -> Result<Option<MsprobeParts>, ReadError> {
    let mut found = MsprobeParts::default();
    if path.is_file() {
        let (step, rank) = place_from_parents(path.parent());
        found.parts.push(part(step, rank, path.parent(), path.to_path_buf()));
        return Ok(Some(found));
    }
    if let Some(index) = index_in(path) {
        let (step, rank) = place_from_parents(Some(path));
        found.parts.push(part(step, rank, Some(path), index));
        return Ok(Some(found));
    }
    let folders = subfolders(path)?;
    let ranks: Vec<_> = folders.iter().filter_map(|folder| Some((rank_of(folder)?, folder))).collect();
    if !ranks.is_empty() {
        let step = numbered(path, "step").unwrap_or(0);
        for (rank, folder) in ranks {
            add_rank(&mut found, step, rank, folder);
        }
    } else {
        let mut steps: Vec<_> =
            folders.iter().filter_map(|folder| Some((numbered(folder, "step")?, folder))).collect();
        if steps.is_empty() {
            return match modes(&folders).as_slice() {
                [] => Ok(None),
                [only] => find_parts(only),
                _ => Err(ReadError::usage(
                    path,
                    format!("holds dumps of two modes of MindSpore; name one: {}", MODES.join(" or ")),
                )),
            };
        }
        steps.sort_unstable();
        for (step, folder) in steps {
            // A step may hold its index directly.
            if let Some(index) = index_in(folder) {
                found.parts.push(part(step, RankId::Single, Some(folder), index));
                continue;
            }
            let before = found.parts.len() + found.faults.len();
            for rank_folder in subfolders(folder)? {
                if let Some(rank) = rank_of(&rank_folder) {
                    add_rank(&mut found, step, rank, &rank_folder);
                }
            }
            if found.parts.len() + found.faults.len() == before {
                found.faults.push(ReadError::format(folder, "a step folder without rank or proc folders"));
            }
        }
    }
    found.parts.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(Some(found))
}

/// Returns the folders of modes that hold steps.
fn modes(folders: &[PathBuf]) -> Vec<&Path> {
    let holds_steps = |folder: &Path| {
        let inner = subfolders(folder).unwrap_or_default();
        inner.iter().any(|folder| numbered(folder, "step").is_some())
    };
    let is_mode = |folder: &Path| MODES.iter().any(|mode| folder.file_name() == Some(OsStr::new(mode)));
    folders.iter().map(PathBuf::as_path).filter(|folder| is_mode(folder) && holds_steps(folder)).collect()
}

fn add_rank(found: &mut MsprobeParts, step: u64, rank: RankId, folder: &Path) {
    match index_in(folder) {
        Some(index) => found.parts.push(part(step, rank, Some(folder), index)),
        None => found.faults.push(ReadError::format(
            folder,
            "no dump.json in it; the capture did not finish writing, capture this step again",
        )),
    }
}

fn part(step: u64, rank: RankId, folder: Option<&Path>, index: PathBuf) -> PartFile {
    let label = folder.and_then(Path::file_name).map_or_else(|| ".".into(), OsStr::to_string_lossy);
    PartFile { key: PartKey { step, rank, label: (&*label).into() }, index }
}

fn index_in(folder: &Path) -> Option<PathBuf> {
    INDEX_NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Returns step and rank of a rank folder given directly, from its own name and its parent's.
fn place_from_parents(folder: Option<&Path>) -> (u64, RankId) {
    // A relative path such as `.` contains no names until it is resolved.
    let resolved = folder.and_then(|folder| folder.canonicalize().ok());
    let folder = resolved.as_deref().or(folder);
    let rank = folder.and_then(rank_of).unwrap_or(RankId::Single);
    let parent = folder.and_then(Path::parent);
    let step = folder
        .and_then(|folder| numbered(folder, "step"))
        .or_else(|| parent.and_then(|p| numbered(p, "step")));
    (step.unwrap_or(0), rank)
}

/// Returns the rank of a folder: `rank3` is rank 3; `rank` (old dumps) and `proc1234` belong to a
/// run without ranks.
fn rank_of(folder: &Path) -> Option<RankId> {
    let name = folder.file_name()?.to_str()?;
    if name == "rank" || numbered(folder, "proc").is_some() {
        return Some(RankId::Single);
    }
    numbered(folder, "rank").and_then(|rank| u32::try_from(rank).ok()).map(RankId::Rank)
}

fn numbered(folder: &Path, prefix: &str) -> Option<u64> {
    let digits = folder.file_name()?.to_str()?.strip_prefix(prefix)?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

fn subfolders(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let entries = fs::read_dir(path).map_err(|source| ReadError::io(path, source))?;
    let mut folders = Vec::new();
    for entry in entries.take(limits::MAX_FOLDER_ENTRIES) {
        let entry = entry.map_err(|source| ReadError::io(path, source))?;
        let path = entry.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort_unstable();
    Ok(folders)
}
