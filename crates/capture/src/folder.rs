//! The folder of a dump: whose it is, who may join it, and how an old one makes room.
//!
//! A dump belongs to one run. Its ranks share the folder; every other run is refused, so that a dump that stands is never
//! written on. Ranks know their run by its identity in the manifest, where whoever started them gave it one, and else by its
//! being alive: a rank holds a shared lock on the manifest for as long as others may come.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{CaptureError, manifest};
use probe_dump::native::{
    FORMAT, FORMAT_VERSION, MANIFEST, RUNTIME_FOLDER, RunManifest, is_dump_file, numbered,
};

/// What is done with a dump of another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// It stays, and the new one is refused.
    #[default]
    Keep,
    /// It is removed, if there is nothing else in the folder.
    Replace,
}

/// How often the folder is looked at again because another process has changed it meanwhile, where the file system has no locks.
const ATTEMPTS: usize = 100;

/// Locks of ranks that others may still join: they end with the process.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// What a folder holds.
enum State {
    /// Nothing, or no folder.
    Vacant,
    /// A dump; without its manifest it is nobody's run.
    Dump(Option<Box<RunManifest>>),
}

/// Whether the run that made a dump is still recording into it.
enum Life {
    Over,
    Running,
    /// The file system has no locks.
    Unknown,
}

/// Sees to it that a run may record into `root`, before it begins: the folder is empty, or new, or in use by ranks that are
/// recording now. With [`Existing::Replace`] an old dump is removed. `option` is how the user asks for that.
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
            // Each rank finds out whether it has a part in it.
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

/// Creates the dump of `manifest` for `rank`, or joins it. Returns the lock that says that the run is alive; it is kept for the
/// whole process where there are other ranks.
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

/// Whether the dump at `root` is that of the run that `manifest` speaks of, so that `rank` may join.
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

/// Looks at what `root` holds.
fn look(root: &Path) -> Result<State, CaptureError> {
    let path = root.join(MANIFEST);
    if path.exists() {
        return match manifest::read(&path)? {
            Some(there) => Ok(State::Dump(Some(there.into()))),
            // Gone again.
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
            // Ranks that came first may have made their folders since.
            return Ok(State::Dump(
                path.exists().then(|| manifest::read(&path)).transpose()?.flatten().map(Box::new),
            ));
        }
        // What runs below Python may have been recorded before the first op of torch.
        if name != MANIFEST && !manifest::is_draft(&name) && !is_runtime(&entry.path()) {
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

/// Whether somebody holds the lock on the manifest.
fn life(root: &Path) -> Life {
    let Some(file) = manifest::open(root) else { return Life::Over };
    match file.try_lock() {
        Ok(()) => Life::Over,
        Err(TryLockError::WouldBlock) => Life::Running,
        Err(TryLockError::Error(_)) => Life::Unknown,
    }
}

/// Folders of steps.
fn steps(root: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| numbered(name, "step").is_some()))
        .map(|entry| entry.path())
}

/// Folders of ranks in a folder of a step.
fn ranks(step: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(step).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| numbered(name, "rank").is_some()))
        .map(|entry| entry.path())
}

fn holds_parts(root: &Path) -> bool {
    steps(root).any(|step| ranks(&step).next().is_some())
}

/// Whether a folder of a step has a part with anything of a dump in it.
fn holds_tables(step: &Path) -> bool {
    ranks(step).any(|rank| {
        fs::read_dir(rank)
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_str().is_some_and(is_dump_file))
    })
}

/// Removes the dump in `root`, the manifest last. Where there is anything else in the folder, nothing is removed.
fn clear(root: &Path) -> Result<(), CaptureError> {
    let runtime = root.join(RUNTIME_FOLDER);
    only(root, |name| {
        name == MANIFEST
            || manifest::is_draft(name)
            || numbered(name, "step").is_some()
            || name == RUNTIME_FOLDER && is_runtime(&runtime)
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
    if is_runtime(&runtime) {
        clear(&runtime)?;
        gone(&runtime, fs::remove_dir(&runtime))?;
    }
    let path = root.join(MANIFEST);
    gone(&path, fs::remove_file(&path))
}

/// Whether this is the dump of operators below Python that stands in another dump.
fn is_runtime(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == RUNTIME_FOLDER) && folder.join(MANIFEST).is_file()
}

/// Sees to it that a folder holds nothing but what `ours` names.
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

/// The first of `dump-2`, `dump-3`, … that is not there.
pub(super) fn free_name(root: &Path) -> Option<PathBuf> {
    let name = root.file_name()?.to_str()?;
    (2..1000).map(|number| root.with_file_name(format!("{name}-{number}"))).find(|path| !path.exists())
}
