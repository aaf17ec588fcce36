//! The folder of a dump: its owner, the ranks that may join it, and the replacement of an old one.
//!
//! A dump belongs to one run. Its ranks share the folder; every other run is rejected, so that an existing dump is never
//! modified. Ranks recognise their run by its identity in the manifest, if the launcher set one, and otherwise by its being
//! alive: a rank holds a shared lock on the manifest for as long as others may join.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{CaptureError, manifest};
use probe_dump::native::{
    FORMAT, FORMAT_VERSION, MANIFEST, NOISE_FOLDER, RUNTIME_FOLDER, RunManifest, is_dump_file, numbered,
};

/// Treatment of a dump from another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Kept; the new dump is rejected.
    #[default]
    Keep,
    /// Removed, if there is nothing else in the folder.
    Replace,
}

/// Number of attempts to inspect a folder that other processes keep changing, if the file system has no locks.
const ATTEMPTS: usize = 100;

/// Locks of ranks that others may still join, released when the process ends.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Content of a folder.
enum State {
    /// Empty, or no folder.
    Vacant,
    /// A dump; without a manifest its run is unknown.
    Dump(Option<Box<RunManifest>>),
}

/// State of the run that recorded a dump.
enum Life {
    Over,
    Running,
    /// The file system has no locks.
    Unknown,
}

/// Prepares `root` for recording before a run begins: the folder must be empty, new, or in use by ranks that are recording
/// now. With [`Existing::Replace`] an old dump is removed. `option` is the user's way to request that.
///
/// # Errors
/// [`CaptureError::Occupied`] when the folder holds a dump or anything else; [`CaptureError::Io`] when it cannot be read or
/// the old dump cannot be removed.
pub fn prepare(root: &Path, existing: Existing, option: &str) -> Result<(), CaptureError> {
    let _turn = manifest::turn(root);
    for _ in 0..ATTEMPTS {
        let State::Dump(there) = look(root)? else { return Ok(()) };
        let several = there.as_ref().is_some_and(|there| there.world_size > 1);
        match life(root) {
            Life::Running if several => return Ok(()),
            Life::Running => return Err(in_use(root)),
            // Each rank checks whether it already has a part there.
            Life::Unknown if several && existing == Existing::Keep => return Ok(()),
            Life::Over | Life::Unknown => {}
        }
        if holds_parts(root) && existing == Existing::Keep {
            return Err(used(root, there.as_deref(), option));
        }
        clear(root)?;
    }
    Err(restless(root))
}

/// Creates the dump of `manifest` for `rank`, or joins it. Returns the lock that marks the run as alive; it is kept until the
/// process ends if there are other ranks.
pub(super) fn claim(
    root: &Path,
    manifest: &RunManifest,
    rank: u32,
    existing: Existing,
) -> Result<Option<File>, CaptureError> {
    fs::create_dir_all(root).map_err(|error| CaptureError::io(root, error))?;
    let _turn = manifest::turn(root);
    for _ in 0..ATTEMPTS {
        let lock = match look(root)? {
            State::Vacant => manifest::publish(root, manifest)?,
            State::Dump(Some(there)) if is_same_run(root, &there, manifest, rank)? => {
                check_kind(root, &there, manifest)?;
                manifest::hold(root)?
            }
            State::Dump(there) => {
                if holds_parts(root) && existing == Existing::Keep {
                    return Err(used(root, there.as_deref(), "overwrite = true"));
                }
                clear(root)?;
                None
            }
        };
        match lock {
            Some(lock) if manifest.world_size > 1 => {
                keep_alive(lock);
                return Ok(None);
            }
            Some(lock) => return Ok(Some(lock)),
            None => {}
        }
    }
    Err(restless(root))
}

/// Keeps a lock until the process ends.
pub(super) fn keep_alive(lock: File) {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
}

/// Returns true if the dump at `root` belongs to the run of `manifest`, so that `rank` may join.
fn is_same_run(
    root: &Path,
    there: &RunManifest,
    manifest: &RunManifest,
    rank: u32,
) -> Result<bool, CaptureError> {
    if !manifest.run.is_empty() && there.run == manifest.run {
        return Ok(true);
    }
    let several = there.world_size > 1 && manifest.world_size > 1;
    match life(root) {
        Life::Running if !several => Err(in_use(root)),
        Life::Running | Life::Unknown if several => {
            if steps(root).any(|step| step.join(format!("rank{rank}")).exists()) {
                return Err(CaptureError::occupied(
                    root,
                    format!("holds an earlier recording of rank {rank}; record into another folder"),
                ));
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn check_kind(root: &Path, there: &RunManifest, manifest: &RunManifest) -> Result<(), CaptureError> {
    if there.format != FORMAT || there.format_version != FORMAT_VERSION {
        return Err(CaptureError::occupied(
            root.join(MANIFEST),
            format!(
                "is a dump of another version ({} {}); record into another folder",
                there.format, there.format_version
            ),
        ));
    }
    if (there.task, there.level) != (manifest.task, manifest.level) {
        return Err(CaptureError::occupied(
            root,
            "holds a dump of another task or level; record into another folder",
        ));
    }
    Ok(())
}

/// Inspects the content of `root`.
fn look(root: &Path) -> Result<State, CaptureError> {
    let path = root.join(MANIFEST);
    if path.exists() {
        return match manifest::read(&path)? {
            Some(there) => Ok(State::Dump(Some(there.into()))),
            // It has disappeared.
            None => Ok(State::Vacant),
        };
    }
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(State::Vacant),
        Err(error) => return Err(CaptureError::io(root, error)),
    };
    let mut foreign = None;
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if numbered(&name, "step").is_some() && holds_tables(&entry.path()) {
            // Other ranks may have created their folders in the meantime.
            return Ok(State::Dump(
                path.exists().then(|| manifest::read(&path)).transpose()?.flatten().map(Box::new),
            ));
        }
        // Operators below Python may have been recorded before torch's first op.
        let runtime = name == RUNTIME_FOLDER && is_dump(&entry.path());
        if name != MANIFEST && !manifest::is_draft(&name) && !runtime {
            foreign.get_or_insert(entry.path());
        }
    }
    match foreign {
        Some(_) if path.exists() => look(root),
        Some(first) => Err(CaptureError::occupied(
            root,
            format!(
                "is not empty and not a probe dump (it holds {}); record into another folder",
                first.display()
            ),
        )),
        None => Ok(State::Vacant),
    }
}

/// Checks whether a process holds the lock on the manifest.
fn life(root: &Path) -> Life {
    let Some(file) = manifest::open(root) else { return Life::Over };
    match file.try_lock() {
        Ok(()) => Life::Over,
        Err(TryLockError::WouldBlock) => Life::Running,
        Err(TryLockError::Error(_)) => Life::Unknown,
    }
}

/// Returns the step folders.
fn steps(root: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| numbered(name, "step").is_some()))
        .map(|entry| entry.path())
}

/// Returns the rank folders of a step folder.
fn ranks(step: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(step).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| numbered(name, "rank").is_some()))
        .map(|entry| entry.path())
}

fn holds_parts(root: &Path) -> bool {
    steps(root).any(|step| ranks(&step).next().is_some())
}

/// Returns true if a step folder has a part that contains any dump files.
fn holds_tables(step: &Path) -> bool {
    ranks(step).any(|rank| {
        fs::read_dir(rank)
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_str().is_some_and(is_dump_file))
    })
}

/// Removes the dump in `root`, the manifest last. Removes nothing if the folder has any other content.
fn clear(root: &Path) -> Result<(), CaptureError> {
    let nested = [RUNTIME_FOLDER, NOISE_FOLDER].map(|name| (name, root.join(name)));
    let nested: Vec<_> = nested.into_iter().filter(|(_, folder)| is_dump(folder)).collect();
    only(root, |name| {
        name == MANIFEST
            || manifest::is_draft(name)
            || numbered(name, "step").is_some()
            || nested.iter().any(|(nested, _)| *nested == name)
    })?;
    for step in steps(root) {
        only(&step, |name| numbered(name, "rank").is_some())?;
        ranks(&step).try_for_each(|rank| only(&rank, is_dump_file))?;
    }
    let gone = |path: &Path, removed: std::io::Result<()>| match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(CaptureError::io(path, error)),
        _ => Ok(()),
    };
    for step in steps(root).collect::<Vec<_>>() {
        for rank in ranks(&step).collect::<Vec<_>>() {
            gone(&rank, fs::remove_dir_all(&rank))?;
        }
        gone(&step, fs::remove_dir(&step))?;
    }
    for (_, folder) in nested {
        clear(&folder)?;
        gone(&folder, fs::remove_dir(&folder))?;
    }
    let path = root.join(MANIFEST);
    gone(&path, fs::remove_file(&path))
}

/// Returns true if a nested folder holds a dump.
fn is_dump(folder: &Path) -> bool {
    folder.join(MANIFEST).is_file()
}

/// Checks that a folder holds only files accepted by `ours`.
pub(super) fn only(folder: &Path, ours: impl Fn(&str) -> bool) -> Result<(), CaptureError> {
    let entries = fs::read_dir(folder).map_err(|error| CaptureError::io(folder, error))?;
    match entries.filter_map(Result::ok).find(|entry| !entry.file_name().to_str().is_some_and(&ours)) {
        Some(foreign) => Err(CaptureError::occupied(
            foreign.path(),
            "is not part of a probe dump, so the dump beside it is not replaced; move it away",
        )),
        None => Ok(()),
    }
}

fn used(root: &Path, there: Option<&RunManifest>, option: &str) -> CaptureError {
    let of = there.map(|there| &there.started).filter(|started| !started.is_empty());
    let of = of.map_or_else(String::new, |started| format!(" of {started}"));
    let free = free_name(root).map_or_else(String::new, |free| format!(", such as {}", free.display()));
    CaptureError::occupied(
        root,
        format!("already holds a dump{of}; record into another folder{free}, or replace it with {option}"),
    )
}

fn in_use(root: &Path) -> CaptureError {
    CaptureError::occupied(root, "is in use by a run that is still recording; record into another folder")
}

fn restless(root: &Path) -> CaptureError {
    CaptureError::occupied(root, "is being changed by other processes; record into another folder")
}

/// Returns the first of `dump-2`, `dump-3`, … that does not exist.
pub(super) fn free_name(root: &Path) -> Option<PathBuf> {
    let name = root.file_name()?.to_str()?;
    (2..1000).map(|number| root.with_file_name(format!("{name}-{number}"))).find(|path| !path.exists())
}
