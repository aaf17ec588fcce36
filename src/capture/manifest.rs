//! `manifest.json`: made by whichever rank comes first, changed under a lock.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::CaptureError;
use crate::dump::native::{FORMAT, FORMAT_VERSION, MANIFEST, RunManifest};

/// Creates the folder of a dump and its manifest, or joins the one that is there.
pub(super) fn create(root: &Path, manifest: &RunManifest) -> Result<(), CaptureError> {
    fs::create_dir_all(root).map_err(|error| CaptureError::io(root, error))?;
    let path = root.join(MANIFEST);
    if !path.exists() {
        refuse_foreign(root)?;
        let draft = write_draft(root, &path, manifest)?;
        match draft.persist_noclobber(&path) {
            Ok(_) => return Ok(()),
            // Another rank was faster.
            Err(refused) if refused.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(refused) => return Err(CaptureError::io(path, refused.error)),
        }
    }
    let there = read(&path)?;
    if there.format != FORMAT || there.format_version != FORMAT_VERSION {
        return Err(CaptureError::occupied(
            path,
            format!(
                "is a dump of another version ({} {}); capture into another folder",
                there.format, there.format_version
            ),
        ));
    }
    if (there.task, there.level) != (manifest.task, manifest.level) {
        return Err(CaptureError::occupied(
            root,
            "holds a dump of another task or level; capture into another folder, or remove this one",
        ));
    }
    Ok(())
}

/// Changes the manifest. Ranks that do so at the same time wait for one another where the file system can lock.
pub(super) fn amend(root: &Path, change: impl FnOnce(&mut RunManifest)) -> Result<(), CaptureError> {
    let path = root.join(MANIFEST);
    // Held until the end of this function; a file system without locks lets the last one win.
    let folder = File::open(root).ok();
    let _locked = folder.as_ref().map(File::lock);
    let mut manifest = read(&path)?;
    change(&mut manifest);
    let draft = write_draft(root, &path, &manifest)?;
    draft.persist(&path).map_err(|refused| CaptureError::io(path, refused.error))?;
    Ok(())
}

fn read(path: &Path) -> Result<RunManifest, CaptureError> {
    let text = fs::read(path).map_err(|error| CaptureError::io(path, error))?;
    serde_json::from_slice(&text).map_err(|error| {
        CaptureError::occupied(
            path,
            format!("is not the manifest of a probe dump ({error}); capture into another folder"),
        )
    })
}

fn write_draft(root: &Path, path: &Path, manifest: &RunManifest) -> Result<NamedTempFile, CaptureError> {
    let refused = |error: io::Error| CaptureError::io(path, error);
    let mut text = serde_json::to_vec_pretty(manifest).map_err(|error| CaptureError::format(path, error))?;
    text.push(b'\n');
    let mut builder = tempfile::Builder::new();
    builder.prefix(DRAFT_PREFIX).suffix(".part");
    // Dumps are for others to read too: what the umask grants, not the owner alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut draft = builder.tempfile_in(root).map_err(refused)?;
    draft.write_all(&text).map_err(refused)?;
    Ok(draft)
}

/// Begins the names of manifests that are being written.
const DRAFT_PREFIX: &str = ".manifest-";

/// A folder that holds anything else is somebody's and stays as it is.
fn refuse_foreign(root: &Path) -> Result<(), CaptureError> {
    let entries = fs::read_dir(root).map_err(|error| CaptureError::io(root, error))?;
    let foreign: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        // Manifests that other ranks are writing, or wrote since we looked.
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name != MANIFEST && !name.starts_with(DRAFT_PREFIX)
        })
        .map(|entry| entry.path())
        .take(1)
        .collect();
    match foreign.first() {
        // Ranks that came first may have made their folders already.
        Some(_) if root.join(MANIFEST).exists() => Ok(()),
        Some(first) => Err(CaptureError::occupied(
            root,
            format!(
                "is not empty and not a probe dump (it holds {}); capture into another folder",
                first.display()
            ),
        )),
        None => Ok(()),
    }
}
