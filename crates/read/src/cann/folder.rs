//! Finds dump files below a path, and the step and rank they belong to.
//!
//! | who dumped | folders |
//! |---|---|
//! | kernels, by the switch of the runtime | `step<N>/<YYYYmmddHHMMSS>/<device>/` |
//! | graphs | `<YYYYmmddHHMMSS>/<device>/<model>/<model id>/<step>/` |
//! | an older tool around them | `step<N>/rank<R>/` and the rest as above |
//!
//! The path may point to any depth: names above it count as well.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::name::{self, FileName, MAPPING, STOPPED};
use crate::ReadError;
use probe_dump::{PartKey, RankId};
use probe_files::limits::{MAX_CANN_FOLDERS, MAX_FOLDER_ENTRIES};
use probe_files::map::{FileAccess, Source};

/// Entries of a folder inspected for recognition.
const SAMPLE: usize = 256;

/// Folders inspected to recognise a dump.
const SAMPLED_FOLDERS: usize = 512;

/// Most bytes of a reason that are shown.
const STOPPED_BYTES: u64 = 1000;

/// Digits of a timestamp in a folder name.
const TIME_DIGITS: usize = 14;

/// Extensions of files that lie beside dump files but are not dumps.
const OTHER_FILES: [&str; 8] = ["csv", "json", "npy", "npz", "pt", "txt", "log", "bin"];

/// Parts of a dump, and faults of the rest.
#[derive(Debug, Default)]
pub(crate) struct CannParts {
    pub(super) parts: Vec<Part>,
    pub(super) faults: Vec<ReadError>,
}

/// Files of one step of one rank.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) key: PartKey,
    pub(super) files: Vec<File>,
}

/// One file, with its full name if it was shortened.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) full_name: Box<str>,
}

/// Returns true if a file is the dump of an operator, by its name or its first bytes.
pub fn is_dump_file(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| FileName::parse(name).is_some())
        || begins_like_one(path)
}

/// Returns true if the first bytes are a length that fits the file, followed by the tag of a header
/// field.
fn begins_like_one(path: &Path) -> bool {
    let Ok(source) = Source::open(path, FileAccess::Read) else { return false };
    let Ok(head) = source.section(0..source.len().min(9), "the first bytes") else { return false };
    let Some((&length, [tag])) = head.bytes().split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(length);
    // Tags of version, time, outputs, inputs, buffers, name, attributes, workspaces.
    length > 1
        && length <= source.len() - 8
        && matches!(tag, 0x0A | 0x10 | 0x1A | 0x22 | 0x2A | 0x32 | 0x3A | 0x42)
}

/// Returns true if some folder at or below `path` has a dump file in it, judging by a few names.
pub(crate) fn recognises(path: &Path) -> bool {
    let mut open = vec![(path.to_path_buf(), 0)];
    let mut looked = 0;
    while let Some((folder, depth)) = open.pop() {
        looked += 1;
        if looked > SAMPLED_FOLDERS {
            return false;
        }
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut below = Vec::new();
        for entry in entries.take(SAMPLE).filter_map(Result::ok) {
            let named = entry.file_name();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && depth < MAX_CANN_FOLDERS {
                below.push((entry.path(), depth + 1));
                continue;
            }
            let is_dump = |name: &str| FileName::parse(name).is_some();
            // Remains of an aborted capture count as well.
            let is_left = |name: &str| name == STOPPED || name::is_draft(name);
            let by_name = !is_folder && named.to_str().is_some_and(|name| is_dump(name) || is_left(name));
            let mapped =
                || name::mapping(&folder).is_ok_and(|names| names.values().any(|name| is_dump(name)));
            if by_name || named == MAPPING && mapped() {
                return true;
            }
        }
        // The first folder is searched first.
        below.sort_by(|a, b| b.0.cmp(&a.0));
        open.append(&mut below);
    }
    false
}

/// Finds the parts at `path`, which was recognised as a dump or one of its files.
///
/// # Errors
/// When the folder cannot be listed.
pub(crate) fn find_parts(path: &Path) -> Result<CannParts, ReadError> {
    let resolved = path.canonicalize().map_err(|source| ReadError::io(path, source))?;
    if resolved.is_file() {
        let full_name = resolved.file_name().unwrap_or_default().to_string_lossy().into();
        let place = Place::of(resolved.parent().unwrap_or(&resolved));
        let file = File { path: path.into(), full_name };
        return Ok(CannParts {
            parts: vec![Part { key: place.key(), files: vec![file] }],
            faults: Vec::new(),
        });
    }
    let mut search = Search::new(path);
    search.open.push(Folder { path: path.to_path_buf(), resolved, depth: 0 });
    while let Some(folder) = search.open.pop() {
        search.folder(&folder)?;
    }
    let parts = search.parts.into_iter().map(|(key, mut files)| {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Part { key, files }
    });
    Ok(CannParts { parts: parts.collect(), faults: search.faults })
}

/// A folder to be searched.
struct Folder {
    path: PathBuf,
    /// The same without links.
    resolved: PathBuf,
    /// Number of folders above it that were searched.
    depth: usize,
}

/// A search for dump files below a folder.
struct Search<'a> {
    root: &'a Path,
    open: Vec<Folder>,
    parts: BTreeMap<PartKey, Vec<File>>,
    faults: Vec<ReadError>,
    /// Number of entries seen.
    seen: usize,
}

impl<'a> Search<'a> {
    const fn new(root: &'a Path) -> Self {
        Self { root, open: Vec::new(), parts: BTreeMap::new(), faults: Vec::new(), seen: 0 }
    }

    /// Takes the dump files of one folder, and leaves the folders in it open.
    fn folder(&mut self, folder: &Folder) -> Result<(), ReadError> {
        let entries = match fs::read_dir(&folder.path) {
            Ok(entries) => entries,
            Err(source) if folder.depth > 0 => {
                self.faults.push(ReadError::io(&folder.path, source));
                return Ok(());
            }
            Err(source) => return Err(ReadError::io(&folder.path, source)),
        };
        let names = name::mapping(&folder.path).unwrap_or_else(|fault| {
            self.faults.push(fault);
            HashMap::new()
        });
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| ReadError::io(&folder.path, source))?;
            self.count_entry()?;
            let name = entry.file_name();
            // Links to folders are not followed: they could form cycles.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if folder.depth < MAX_CANN_FOLDERS {
                    let resolved = folder.resolved.join(&name);
                    self.open.push(Folder { path: entry.path(), resolved, depth: folder.depth + 1 });
                }
                continue;
            }
            let name = name.to_string_lossy();
            if name == STOPPED {
                self.faults.push(given_up(&folder.path, &entry.path()));
            } else if name::is_draft(&name) {
                let message = "was being received when the program ended; its content is not compared";
                self.faults.push(ReadError::format(entry.path(), message));
            }
            if may_be_dump(&name) {
                let full_name = names.get(&*name).map_or(&*name, |full| full);
                files.push(File { path: entry.path(), full_name: full_name.into() });
            }
        }
        if !files.is_empty() {
            self.parts.entry(Place::of(&folder.resolved).key()).or_default().append(&mut files);
        }
        Ok(())
    }

    fn count_entry(&mut self) -> Result<(), ReadError> {
        self.seen += 1;
        if self.seen > MAX_FOLDER_ENTRIES {
            return Err(ReadError::Limit {
                path: self.root.into(),
                what: "the number of files in the folder",
                found: self.seen as u64,
                limit: MAX_FOLDER_ENTRIES as u64,
            });
        }
        Ok(())
    }
}

/// Returns true unless the name is that of a file which lies beside dump files.
fn may_be_dump(name: &str) -> bool {
    let is_other = |kind: &OsStr| OTHER_FILES.iter().any(|other| kind == *other);
    !name.starts_with('.') && !Path::new(name).extension().is_some_and(is_other)
}

/// Returns the error for a part that was captured incompletely.
fn given_up(folder: &Path, note: &Path) -> ReadError {
    let why = Source::open(note, FileAccess::Read)
        .and_then(|file| Ok(file.section(0..file.len().min(STOPPED_BYTES), "the reason")?.bytes().to_vec()));
    let why = why.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()).unwrap_or_default();
    let why = if why.is_empty() { "the disk may have been full" } else { &why };
    ReadError::format(folder, format!("not all of this part was recorded: {why}"))
}

/// Step, rank and label encoded in folder names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Place {
    step: u64,
    rank: Option<u32>,
    /// The timestamp, which distinguishes two dumps in one folder.
    label: Box<str>,
}

impl Place {
    fn of(folder: &Path) -> Self {
        let names: Vec<&str> = folder.iter().filter_map(OsStr::to_str).collect();
        let last = |find: &dyn Fn(&str) -> Option<u64>| {
            names.iter().enumerate().rev().find_map(|(at, name)| Some((at, find(name)?)))
        };
        let digits = |name: &str| -> Option<u64> {
            let all = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
            all.then(|| name.parse().ok()).flatten()
        };
        let prefixed = |prefix: &'static str| move |name: &str| digits(name.strip_prefix(prefix)?);
        let time = last(&|name| digits(name).filter(|_| name.len() == TIME_DIGITS));
        let numbers = |at: usize| names.get(at).and_then(|name| digits(name));
        let device = time.and_then(|(at, _)| numbers(at + 1));
        // Model, model id and step follow the device.
        let step_of_graph = time.and_then(|(at, _)| numbers(at + 4).filter(|_| names.len() == at + 5));
        let step = last(&prefixed("step")).map(|(_, step)| step).or(step_of_graph);
        let rank = last(&prefixed("rank")).map(|(_, rank)| rank).or(device);
        let label = time.and_then(|(at, _)| names.get(at)).or(names.last());
        Self {
            step: step.unwrap_or(0),
            rank: rank.and_then(|rank| u32::try_from(rank).ok()),
            label: label.map_or("", |label| label).into(),
        }
    }

    fn key(self) -> PartKey {
        let rank = self.rank.map_or(RankId::Single, RankId::Rank);
        PartKey { step: self.step, rank, label: self.label }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_and_rank_are_read_off_the_folders_of_each_kind() {
        let place = |path: &str| {
            let place = Place::of(Path::new(path));
            (place.step, place.rank, place.label)
        };
        assert_eq!(place("/d/step3/20241124120000/5"), (3, Some(5), "20241124120000".into()));
        assert_eq!(place("/d/20241124120000/5/resnet/1/12"), (12, Some(5), "20241124120000".into()));
        assert_eq!(place("/d/step2/rank9/20241124120000/1"), (2, Some(9), "20241124120000".into()));
        assert_eq!(place("/d/dumps"), (0, None, "dumps".into()));
    }
}
