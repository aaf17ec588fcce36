//! Dumps in probe's own format: `manifest.json`, `step<N>/rank<R>/ops.parquet` with its shards, or the journal left by
//! an interrupted capture.
//!
//! A journal is trusted up to its last complete batch. Tables and journals may come from anyone, so their sizes are checked
//! against the file before anything is allocated, columns are taken by name and type, and a panic in the underlying library
//! becomes an error.

mod journal;
mod layout;
mod manifest;
mod part;
mod rows;
mod small;
mod stacks;
mod store;
mod table;

use std::path::{Path, PathBuf};

pub(super) use layout::{NativeParts, find_parts, is_table_name};
pub(super) use manifest::is_manifest;

use super::{ReadError, no_such_part};
use probe_dump::native::RunManifest;
use probe_dump::{Dump, NATIVE, PartKey, PartReader, Rank};
use probe_files::map::FileAccess;

/// Opens a dump whose parts were already found.
pub(super) fn open(path: &Path, found: NativeParts, access: FileAccess) -> Dump {
    let parts = found.parts.iter().map(|part| part.key.clone()).collect();
    Dump {
        path: path.to_path_buf(),
        format: NATIVE,
        parts,
        faults: found.faults,
        environment: found.manifest.as_ref().map(RunManifest::facts).unwrap_or_default(),
        reader: Box::new(NativeReader { parts: found.parts, manifest: found.manifest, access }),
    }
}

/// Folder of one part.
#[derive(Debug, Clone)]
struct PartFolder {
    key: PartKey,
    folder: PathBuf,
}

struct NativeReader {
    parts: Vec<PartFolder>,
    manifest: Option<RunManifest>,
    access: FileAccess,
}

impl PartReader for NativeReader {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        let part = self.parts.iter().find(|part| part.key == *key).ok_or_else(|| no_such_part(key))?;
        part::read(part, self.manifest.as_ref(), self.access)
    }

    fn place(&self, key: &PartKey) -> Option<&Path> {
        self.parts.iter().find(|part| part.key == *key).map(|part| &*part.folder)
    }
}

/// Runs library code on untrusted bytes, turning panics into errors.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    probe_files::guarded(read).unwrap_or_else(|| {
        Err(ReadError::format(path, "is damaged in a way that its reader does not handle; capture it again"))
    })
}
