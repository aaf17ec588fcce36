//! Files that the CANN runtime hands over in pieces (`acldumpRegCallback`), put where it would have written them itself.
//!
//! Nothing is kept in memory but what is known of the files under way: a piece goes to the disk as it comes, so that a runtime which is
//! faster than the disk waits for it, as it would for its own files. A file has its name from its last piece on; until then it is a draft,
//! and what is left of a program that is killed is known by that. A file of which a piece is missing is put down as far as it came, so
//! that readers say which tensors are not there; nothing is made up to fill a gap.

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

/// Longest name of a file that file systems take. The runtime gives longer ones a short name, too, and lists them.
const MAX_FILE_NAME: usize = 254;

/// Most files of which a piece was refused and the last one has not come.
const MAX_SPOILED: usize = 1 << 20;

/// What became of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is in its file, which goes on.
    Taken,
    /// It was the last of its file.
    Complete,
    /// It was the last of its file, which is no whole dump.
    Damaged(String),
    /// It was not taken, for this reason, and nothing more of its file will be.
    Refused(String),
    /// Its file was refused before.
    Ignored,
}

/// The files of one process.
#[derive(Debug)]
pub struct CannFiles {
    root: PathBuf,
    /// Where a file goes whose name is not below `root`.
    folder: PathBuf,
    open: HashMap<Box<str>, Open>,
    /// Hashes of the names of files of which a piece was refused.
    spoiled: HashSet<u64>,
    /// Pieces so far: what was used last has the highest.
    clock: u64,
    drafts: u64,
}

/// A file under way.
#[derive(Debug)]
struct Open {
    place: PathBuf,
    draft: PathBuf,
    /// `None` while others have the descriptor.
    file: Option<File>,
    size: u64,
    used: u64,
}

/// Sees to it that a run may have the runtime's dumps in `root`, before it begins: the folder is new or empty, or, with
/// [`Existing::Replace`], holds such a dump, which is removed. `option` is how the user asks for that.
///
/// # Errors
/// [`CaptureError::Occupied`] when the folder holds anything else; [`CaptureError::Io`] when it cannot be read or made.
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

/// Refuses a folder that holds files which are none of the runtime's.
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
    /// Files below `root`, which is there.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when the folder cannot be resolved.
    pub fn new(root: &Path) -> Result<Self, CaptureError> {
        let root = root.canonicalize().map_err(|error| CaptureError::io(root, error))?;
        let (open, spoiled) = (HashMap::new(), HashSet::new());
        Ok(Self { folder: root.clone(), root, open, spoiled, clock: 0, drafts: 0 })
    }

    /// Makes the folder of a part, which is where the runtime is to dump from now on.
    ///
    /// # Errors
    /// [`CaptureError::Occupied`] when there is something in it, [`CaptureError::Io`] when it cannot be made.
    pub fn begin(&mut self, step: u64, rank: u32) -> Result<PathBuf, CaptureError> {
        let folder = self.root.join(format!("step{step}")).join(format!("rank{rank}"));
        fs::create_dir_all(&folder).map_err(|error| CaptureError::io(&folder, error))?;
        if !list(&folder)?.is_empty() {
            return Err(CaptureError::occupied(folder, "holds an earlier dump; record into another folder"));
        }
        folder.clone_into(&mut self.folder);
        Ok(folder)
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when it cannot be written: the disk is full. What came of its file is removed as far as it can be.
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
                return self.refuse(chunk, "has no name that a file below the dump can have".to_owned());
            };
            self.open_anew(chunk.name, place)?;
        }
        let clock = self.clock;
        self.hold(chunk.name)?;
        let Some(open) = self.open.get_mut(chunk.name) else { return Ok(Fate::Ignored) };
        open.used = clock;
        let Some(data) = chunk.data else {
            return self.refuse(chunk, "has fewer bytes than it says".to_owned());
        };
        let start = chunk.offset.unwrap_or(open.size);
        let end = start.saturating_add(data.len() as u64);
        if start > open.size {
            let why = format!("is for byte {start} of a file with {} bytes so far", open.size);
            return self.refuse(chunk, why);
        }
        if end > MAX_CANN_CHUNKED_BYTES {
            return self
                .refuse(chunk, format!("ends at byte {end}, and {MAX_CANN_CHUNKED_BYTES} are the most"));
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

    /// Names of files that were begun and not ended.
    pub fn unfinished(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.open.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }

    /// Puts down what there is of the files under way.
    ///
    /// # Errors
    /// [`CaptureError::Io`] when one cannot be given its name; the others have theirs.
    pub fn finish(&mut self) -> Result<(), CaptureError> {
        let names: Vec<Box<str>> = self.open.keys().cloned().collect();
        let put: Vec<_> = names.iter().map(|name| self.put_down(name)).collect();
        put.into_iter().try_for_each(|put| put.map(drop))
    }

    /// Leaves a mark in the part at hand that not all of it was taken, and why.
    pub fn give_up(&mut self, why: &str) {
        // Where there is no room for the text, the file alone says so.
        _ = fs::write(self.folder.join(cann::STOPPED), why);
        _ = self.finish();
    }

    /// Where a file goes; `None` where its name is none that a file below the dump can have.
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

    /// Begins a file, or goes on with one that has its name already: the runtime appends, too.
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

    /// Sees to it that a file under way has a descriptor, and that not too many have one.
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

    /// Takes nothing more of a file. What came of it is put down, and is short.
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

    /// Gives a file under way its name.
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
