//! Files that the CANN runtime hands over in chunks (`acldumpRegCallback`), placed where it would have written them
//! itself.
//!
//! Only the state of the files in progress is kept in memory: a chunk is written to disk as it arrives, so that a runtime faster than the
//! disk waits for it, as it would for its own files. A file gets its name with its last chunk; until then it is a draft, which identifies
//! leftovers of a killed program. A file with a missing chunk is stored as far as it came, so that readers report which tensors are
//! missing; gaps are never filled.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::hash::{Hash as _, Hasher as _};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Component, Path, PathBuf};

use super::folder::{free_name, only};
use super::{CaptureError, Existing};
use probe_dump::native::numbered;
use probe_files::limits::{MAX_CANN_CHUNKED_BYTES, MAX_CANN_HELD_FILES, MAX_CANN_OPEN_FILES};
use probe_files::map::FileAccess;
use probe_read::cann::{self, Chunk, DumpFile};

/// Longest file name that file systems accept. The runtime too shortens longer names and lists them.
const MAX_FILE_NAME: usize = 254;

/// Most files with a rejected chunk whose last chunk has not arrived.
const MAX_SPOILED: usize = 1 << 20;

/// Outcome of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Written to its file, which continues.
    Taken,
    /// Last of its file.
    Complete,
    /// Last of its file, which is not a complete dump.
    Damaged(String),
    /// Rejected for this reason, as is the rest of its file.
    Refused(String),
    /// Ignored, because its file was rejected earlier.
    Ignored,
}

/// The files of one process.
#[derive(Debug)]
pub struct CannFiles {
    root: PathBuf,
    /// Folder for files whose name is not below `root`.
    folder: PathBuf,
    open: HashMap<Box<str>, Open>,
    /// Hashes of the names of files with a rejected chunk.
    spoiled: HashSet<u64>,
    /// Number of chunks so far: the most recently used file has the highest.
    clock: u64,
    drafts: u64,
}

/// A file in progress.
#[derive(Debug)]
struct Open {
    place: PathBuf,
    draft: PathBuf,
    /// `None` while other files use the descriptor.
    file: Option<File>,
    size: u64,
    used: u64,
}

/// Prepares `root` for the runtime's dumps before a run begins: the folder must be new or empty, or, with
/// [`Existing::Replace`], hold such a dump, which is removed. `option` is the user's way to request that.
///
/// # Errors
/// [`CaptureError::Occupied`] when the folder holds anything else; [`CaptureError::Io`] when it cannot be read or
/// created.
pub fn prepare_cann(root: &Path, existing: Existing, option: &str) -> Result<(), CaptureError> {
    fs::create_dir_all(root).map_err(|error| CaptureError::io(root, error))?;
    let entries = list(root)?;
    if entries.is_empty() {
        return Ok(());
    }
    only(root, |name| numbered(name, "step").is_some())?;
    for step in &entries {
        only(step, |name| numbered(name, "rank").is_some())?;
        for rank in list(step)? {
            is_of_cann(&rank)?;
        }
    }
    if existing == Existing::Keep {
        let free = free_name(root).map_or_else(String::new, |free| format!(", such as {}", free.display()));
        return Err(CaptureError::occupied(
            root,
            format!("already holds a dump; record into another folder{free}, or replace it with {option}"),
        ));
    }
    entries
        .iter()
        .try_for_each(|step| fs::remove_dir_all(step).map_err(|error| CaptureError::io(step, error)))
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, CaptureError> {
    let entries = fs::read_dir(folder).map_err(|error| CaptureError::io(folder, error))?;
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
}

/// Rejects a folder that holds files not from the runtime.
fn is_of_cann(folder: &Path) -> Result<(), CaptureError> {
    for entry in list(folder)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() {
            is_of_cann(&entry)?;
        } else if !cann::is_draft(&name)
            && ![cann::MAPPING, cann::STOPPED].contains(&&*name)
            && !cann::is_dump_file(&entry)
        {
            return Err(CaptureError::occupied(
                entry,
                "is not part of a CANN dump, so the dump beside it is not replaced; move it away",
            ));
        }
    }
    Ok(())
}

impl CannFiles {
    /// Creates a receiver of files below `root`, which must exist.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when the folder cannot be resolved.
    pub fn new(root: &Path) -> Result<Self, CaptureError> {
        let root = root.canonicalize().map_err(|error| CaptureError::io(root, error))?;
        let (open, spoiled) = (HashMap::new(), HashSet::new());
        Ok(Self { folder: root.clone(), root, open, spoiled, clock: 0, drafts: 0 })
    }

    /// Creates the folder of a part, into which the runtime dumps from now on.
    ///
    /// # Errors
    /// [`CaptureError::Occupied`] when it is not empty, [`CaptureError::Io`] when it cannot be created.
    pub fn begin(&mut self, step: u64, rank: u32) -> Result<PathBuf, CaptureError> {
        let folder = self.root.join(format!("step{step}")).join(format!("rank{rank}"));
        fs::create_dir_all(&folder).map_err(|error| CaptureError::io(&folder, error))?;
        if !list(&folder)?.is_empty() {
            return Err(CaptureError::occupied(folder, "holds an earlier dump; record into another folder"));
        }
        folder.clone_into(&mut self.folder);
        Ok(folder)
    }

    /// Receives a chunk.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when it cannot be written: the disk is full. The data received of its file is removed as far as possible.
    pub fn receive(&mut self, chunk: Chunk<'_>) -> Result<Fate, CaptureError> {
        self.clock += 1;
        if self.spoiled.contains(&hash(chunk.name)) {
            if chunk.last {
                self.spoiled.remove(&hash(chunk.name));
            }
            return Ok(Fate::Ignored);
        }
        if !self.open.contains_key(chunk.name) {
            let Some(place) = self.place(chunk.name)? else {
                return self.refuse(chunk, "has no name that is valid for a file in the dump".to_owned());
            };
            self.open_anew(chunk.name, place)?;
        }
        let clock = self.clock;
        self.hold(chunk.name)?;
        let Some(open) = self.open.get_mut(chunk.name) else { return Ok(Fate::Ignored) };
        open.used = clock;
        let Some(data) = chunk.data else {
            return self.refuse(chunk, "has fewer bytes than its header states".to_owned());
        };
        let start = chunk.offset.unwrap_or(open.size);
        let end = start.saturating_add(data.len() as u64);
        if start > open.size {
            let why = format!("is for byte {start} of a file with {} bytes so far", open.size);
            return self.refuse(chunk, why);
        }
        if end > MAX_CANN_CHUNKED_BYTES {
            return self
                .refuse(chunk, format!("ends at byte {end}, beyond the limit of {MAX_CANN_CHUNKED_BYTES}"));
        }
        if let Err(error) = open.write(start, data) {
            let error = CaptureError::io(&open.place, error);
            if open.draft != open.place {
                _ = fs::remove_file(&open.draft);
            }
            self.open.remove(chunk.name);
            return Err(error);
        }
        open.size = open.size.max(end);
        if !chunk.last {
            return Ok(Fate::Taken);
        }
        let place = self.put_down(chunk.name)?;
        let named = place.file_name().and_then(|name| name.to_str()).is_some_and(cann::is_dump_name);
        Ok(match DumpFile::open(&place, FileAccess::Read) {
            Err(error) if named => Fate::Damaged(error.to_string()),
            _ => Fate::Complete,
        })
    }

    /// Returns the names of files that were begun but not completed.
    pub fn unfinished(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.open.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }

    /// Stores the files in progress, as far as they came.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when one cannot be renamed; the others are.
    pub fn finish(&mut self) -> Result<(), CaptureError> {
        let names: Vec<Box<str>> = self.open.keys().cloned().collect();
        let put: Vec<_> = names.iter().map(|name| self.put_down(name)).collect();
        put.into_iter().try_for_each(|put| put.map(drop))
    }

    /// Marks the current part as incomplete, with the reason.
    pub fn give_up(&mut self, why: &str) {
        // If there is no space for the text, the file's existence alone says so.
        _ = fs::write(self.folder.join(cann::STOPPED), why);
        _ = self.finish();
    }

    /// Returns the path of a file; `None` if its name is not valid below the dump.
    fn place(&mut self, name: &str) -> Result<Option<PathBuf>, CaptureError> {
        let path = Path::new(name);
        let Some(file) = path.file_name().and_then(|file| file.to_str()) else { return Ok(None) };
        let place = match path.strip_prefix(&self.root) {
            Ok(below) => self.root.join(below),
            Err(_) => self.folder.join(file),
        };
        let normal = place
            .strip_prefix(&self.root)
            .is_ok_and(|below| below.components().all(|part| matches!(part, Component::Normal(_))));
        if !normal || file.starts_with('.') || name.contains(char::is_control) || place.is_dir() {
            return Ok(None);
        }
        let folder = place.parent().unwrap_or(&self.root).to_path_buf();
        fs::create_dir_all(&folder).map_err(|error| CaptureError::io(&folder, error))?;
        if file.len() <= MAX_FILE_NAME {
            return Ok(Some(place));
        }
        let short = hash(name).to_string();
        let place = folder.join(&short);
        if !place.exists() {
            let list = folder.join(cann::MAPPING);
            let open = OpenOptions::new().create(true).append(true).open(&list);
            open.and_then(|mut list| writeln!(list, "{short},{file}"))
                .map_err(|error| CaptureError::io(&list, error))?;
        }
        Ok(Some(place))
    }

    /// Begins a file, or continues a completed one: the runtime may also append.
    fn open_anew(&mut self, name: &str, place: PathBuf) -> Result<(), CaptureError> {
        if self.open.len() >= MAX_CANN_OPEN_FILES {
            let oldest = self.open.iter().min_by_key(|(_, open)| open.used).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                self.put_down(&oldest)?;
            }
        }
        let size = fs::metadata(&place).ok().map(|about| about.len());
        let draft = if size.is_some() {
            place.clone()
        } else {
            self.drafts += 1;
            place.with_file_name(format!(".{}-{}.part", std::process::id(), self.drafts))
        };
        let open = Open { place, draft, file: None, size: size.unwrap_or(0), used: self.clock };
        self.open.insert(name.into(), open);
        Ok(())
    }

    /// Ensures that a file in progress has a descriptor, and limits the number of open ones.
    fn hold(&mut self, name: &str) -> Result<(), CaptureError> {
        if self.open.get(name).is_none_or(|open| open.file.is_some()) {
            return Ok(());
        }
        let held = self.open.values_mut().filter(|open| open.file.is_some());
        if held.count() >= MAX_CANN_HELD_FILES {
            let held = self.open.values_mut().filter(|open| open.file.is_some());
            if let Some(oldest) = held.min_by_key(|open| open.used) {
                oldest.file = None;
            }
        }
        let Some(open) = self.open.get_mut(name) else { return Ok(()) };
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&open.draft);
        open.file = Some(file.map_err(|error| CaptureError::io(&open.place, error))?);
        Ok(())
    }

    /// Rejects the rest of a file. The data received so far is stored, incomplete.
    fn refuse(&mut self, chunk: Chunk<'_>, why: String) -> Result<Fate, CaptureError> {
        if self.open.contains_key(chunk.name) {
            self.put_down(chunk.name)?;
        }
        if !chunk.last {
            if self.spoiled.len() >= MAX_SPOILED {
                return Err(CaptureError::Usage(format!("pieces of {MAX_SPOILED} files were refused")));
            }
            self.spoiled.insert(hash(chunk.name));
        }
        Ok(Fate::Refused(why))
    }

    /// Renames a file in progress to its final name.
    fn put_down(&mut self, name: &str) -> Result<PathBuf, CaptureError> {
        let Some(open) = self.open.remove(name) else { return Ok(PathBuf::new()) };
        drop(open.file);
        if open.draft != open.place {
            fs::rename(&open.draft, &open.place).map_err(|error| CaptureError::io(&open.place, error))?;
        }
        Ok(open.place)
    }
}

impl Open {
    fn write(&mut self, start: u64, data: &[u8]) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Err(std::io::ErrorKind::NotFound.into()) };
        file.seek(SeekFrom::Start(start))?;
        file.write_all(data)
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
