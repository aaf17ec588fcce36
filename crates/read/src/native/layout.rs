//! Finds the parts of a dump below a path given at any depth: dump root, step folder, rank folder, table or journal.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::part::incomplete;
use super::{PartFolder, manifest};
use crate::ReadError;
use probe_dump::native::{JOURNAL, MANIFEST, OPS, RunManifest, numbered};
use probe_dump::{PartKey, RankId};
use probe_files::limits;

/// Step folders inspected to recognise a dump without a manifest; one of another tool may have
/// thousands.
const SAMPLE: usize = 8;

/// Parts of a dump, and faults of the rest.
#[derive(Debug, Default)]
pub(crate) struct NativeParts {
    pub(super) parts: Vec<PartFolder>,
    pub(super) faults: Vec<ReadError>,
    pub(super) manifest: Option<RunManifest>,
}

/// Returns true for the names of files that hold the ops of a part.
pub(crate) fn is_table_name(name: &OsStr) -> bool {
    name == OPS || name == JOURNAL
}

/// Finds parts at `path`. `None` if nothing there looks like a dump of this format.
///
/// # Errors
/// When a folder cannot be listed, the manifest is of a newer version, or nothing was recorded.
pub(crate) fn find_parts(path: &Path) -> Result<Option<NativeParts>, ReadError> {
    let mut found = NativeParts::default();
    if path.is_file() {
        return one_part(path.parent().unwrap_or(Path::new(".")), found).map(Some);
    }
    if holds_tables(path) {
        return one_part(path, found).map(Some);
    }
    let named = manifest::is_manifest(&path.join(MANIFEST));
    let mut steps: Vec<(u64, PathBuf)> = numbered_folders(path, "step")?;
    if !named && !steps.iter().take(SAMPLE).any(|(_, step)| is_step(step)) {
        if !is_step(path) {
            return Ok(None);
        }
        let resolved = path.canonicalize().unwrap_or_else(|_| path.into());
        let step = number(&resolved, "step").unwrap_or(0);
        found.take_manifest(resolved.parent())?;
        found.add_step(step, path)?;
    } else {
        steps.sort_unstable();
        found.take_manifest(Some(path))?;
        for (step, folder) in steps {
            found.add_step(step, &folder)?;
        }
    }
    if found.parts.is_empty() && found.faults.is_empty() {
        return Err(ReadError::usage(
            path,
            "a probe dump without a step; the capture ended before its first one",
        ));
    }
    found.parts.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(Some(found))
}

impl NativeParts {
    /// Reads the manifest of `root`. A damaged one is only a fault: the tables suffice.
    fn take_manifest(&mut self, root: Option<&Path>) -> Result<(), ReadError> {
        let Some(path) = root.map(|root| root.join(MANIFEST)).filter(|path| path.exists()) else {
            return Ok(());
        };
        match manifest::read(&path) {
            Ok(manifest) => {
                if let Some(reason) = &manifest.stopped {
                    self.faults.push(ReadError::format(
                        path,
                        format!("the capture stopped before its end: {reason}; what it recorded until then is read"),
                    ));
                }
                self.manifest = Some(manifest);
            }
            Err(newer @ ReadError::Usage { .. }) => return Err(newer),
            Err(damaged) => self.faults.push(damaged),
        }
        Ok(())
    }

    fn add_step(&mut self, step: u64, folder: &Path) -> Result<(), ReadError> {
        let ranks = numbered_folders(folder, "rank")?;
        if ranks.is_empty() {
            self.faults.push(ReadError::format(folder, "a step folder without rank folders"));
        }
        for (rank, folder) in ranks {
            let Ok(rank) = u32::try_from(rank) else { continue };
            if holds_tables(&folder) {
                self.parts.push(part(step, rank, folder));
            } else {
                self.faults.push(ReadError::format(
                    folder,
                    format!("{}; the capture was interrupted before its first batch", incomplete(0)),
                ));
            }
        }
        Ok(())
    }
}

/// Finds a rank folder given directly; its step and rank come from its own name and its parent's.
fn one_part(folder: &Path, mut found: NativeParts) -> Result<NativeParts, ReadError> {
    let resolved = folder.canonicalize().unwrap_or_else(|_| folder.into());
    let rank = number(&resolved, "rank").and_then(|rank| u32::try_from(rank).ok()).unwrap_or(0);
    let step = resolved.parent().and_then(|parent| number(parent, "step")).unwrap_or(0);
    found.take_manifest(resolved.parent().and_then(Path::parent))?;
    found.parts.push(part(step, rank, folder.to_path_buf()));
    Ok(found)
}

fn part(step: u64, rank: u32, folder: PathBuf) -> PartFolder {
    let label = folder.file_name().map_or_else(|| format!("rank{rank}").into(), OsStr::to_string_lossy);
    let key = PartKey { step, rank: RankId::Rank(rank), label: (&*label).into() };
    PartFolder { key, folder }
}

fn holds_tables(folder: &Path) -> bool {
    [OPS, JOURNAL].iter().any(|name| folder.join(name).is_file())
}

/// Returns true for a folder that contains the rank folder of a part.
fn is_step(folder: &Path) -> bool {
    numbered_folders(folder, "rank").is_ok_and(|ranks| ranks.iter().any(|(_, folder)| holds_tables(folder)))
}

fn numbered_folders(path: &Path, prefix: &str) -> Result<Vec<(u64, PathBuf)>, ReadError> {
    let entries = fs::read_dir(path).map_err(|source| ReadError::io(path, source))?;
    let mut folders = Vec::new();
    for entry in entries.take(limits::MAX_FOLDER_ENTRIES) {
        let path = entry.map_err(|source| ReadError::io(path, source))?.path();
        if let Some(number) = number(&path, prefix)
            && path.is_dir()
        {
            folders.push((number, path));
        }
    }
    Ok(folders)
}

fn number(folder: &Path, prefix: &str) -> Option<u64> {
    numbered(folder.file_name()?.to_str()?, prefix)
}
