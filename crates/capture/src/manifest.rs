//! `manifest.json`: created by the first rank, changed under a lock.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use tempfile::NamedTempFile;

use super::CaptureError;
use probe_dump::native::{MANIFEST, RunManifest};

/// Writes the manifest of a new dump and locks it. `None` if another rank was faster.
pub(super) fn publish(root: &Path, manifest: &RunManifest) -> Result<Option<File>, CaptureError> {
    let path = root.join(MANIFEST);
    let draft = write_draft(root, &path, manifest)?;
    // Locked before anyone can see it; skipped on file systems without locks.
    _ = draft.as_file().lock_shared();
    match draft.persist_noclobber(&path) {
        Ok(file) => Ok(Some(file)),
        Err(refused) if refused.error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(refused) => Err(CaptureError::io(path, refused.error)),
    }
}

/// Locks the manifest of a dump, which marks its run as alive. `None` if it was replaced in the meantime.
pub(super) fn hold(root: &Path) -> Result<Option<File>, CaptureError> {
    let path = root.join(MANIFEST);
    let file = File::open(&path).map_err(|error| CaptureError::io(&path, error))?;
    _ = file.lock_shared();
    Ok(is_current(&path, &file).then_some(file))
}

/// Opens the manifest so that any file system can lock it; `None` if there is none.
pub(super) fn open(root: &Path) -> Option<File> {
    let path = root.join(MANIFEST);
    // On network file systems an exclusive lock requires write access.
    File::options().read(true).write(true).open(&path).or_else(|_| File::open(&path)).ok()
}

/// Waits until no other process inspects the folder or changes its manifest, and keeps others waiting while the result
/// lives. On file systems without locks the last writer wins.
pub(super) fn turn(root: &Path) -> Option<File> {
    let folder = File::open(root).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

/// Returns true if the path still leads to `file`.
fn is_current(path: &Path, file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let identity = |about: fs::Metadata| (about.dev(), about.ino());
        file.metadata().ok().map(identity) == fs::metadata(path).ok().map(identity)
    }
    #[cfg(not(unix))]
    {
        path.exists() && file.metadata().is_ok()
    }
}

/// Changes the manifest, and returns the lock on it. Concurrent ranks wait for one another if the file system can lock.
pub(super) fn amend(root: &Path, change: impl FnOnce(&mut RunManifest)) -> Result<File, CaptureError> {
    let path = root.join(MANIFEST);
    let _turn = turn(root);
    let gone = || CaptureError::io(&path, io::ErrorKind::NotFound.into());
    let mut manifest = read(&path)?.ok_or_else(gone)?;
    change(&mut manifest);
    let draft = write_draft(root, &path, &manifest)?;
    _ = draft.as_file().lock_shared();
    draft.persist(&path).map_err(|refused| CaptureError::io(path, refused.error))
}

/// Reads the manifest; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<RunManifest>, CaptureError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CaptureError::io(path, error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        CaptureError::occupied(
            path,
            format!("is not the manifest of a probe dump ({error}); record into another folder"),
        )
    })
}

fn write_draft(root: &Path, path: &Path, manifest: &RunManifest) -> Result<NamedTempFile, CaptureError> {
    let refused = |error: io::Error| CaptureError::io(path, error);
    let mut text = serde_json::to_vec_pretty(manifest).map_err(|error| CaptureError::format(path, error))?;
    text.push(b'\n');
    let mut builder = tempfile::Builder::new();
    builder.prefix(DRAFT_PREFIX).suffix(".part");
    // Dumps are meant for others too: permissions follow the umask, not owner-only.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut draft = builder.tempfile_in(root).map_err(refused)?;
    draft.write_all(&text).map_err(refused)?;
    Ok(draft)
}

/// Prefix of manifests being written.
const DRAFT_PREFIX: &str = ".manifest-";

/// Returns true if this is the name of a manifest being written.
pub(super) fn is_draft(name: &str) -> bool {
    name.starts_with(DRAFT_PREFIX)
}
