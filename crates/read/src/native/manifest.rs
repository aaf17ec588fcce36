//! `manifest.json` of a dump.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;

use crate::ReadError;
use crate::tensor_file::printable;
use probe_dump::native::{FORMAT, FORMAT_VERSION, RunManifest};
use probe_files::limits::MAX_MANIFEST_BYTES;
use probe_files::map;

/// Identifies a manifest of this format among other files of that name.
#[derive(Deserialize)]
struct Head {
    format: String,
    format_version: u32,
}

/// Returns true if the file at `path` claims to belong to this format, in any version.
pub(crate) fn is_manifest(path: &Path) -> bool {
    text(path)
        .ok()
        .and_then(|text| serde_json::from_str::<Head>(&text).ok())
        .is_some_and(|head| head.format == FORMAT)
}

/// Reads a manifest.
///
/// # Errors
/// [`ReadError::Usage`] when it is of a newer version, anything else when it is damaged.
pub(super) fn read(path: &Path) -> Result<RunManifest, ReadError> {
    let text = text(path)?;
    let damaged = |error: serde_json::Error| {
        ReadError::format(
            path,
            format!("is not the manifest of a probe dump: {}", printable(&error.to_string())),
        )
    };
    let head: Head = serde_json::from_str(&text).map_err(damaged)?;
    if head.format == FORMAT && head.format_version > FORMAT_VERSION {
        return Err(ReadError::usage(
            path,
            format!(
                "is of format version {}, this program reads up to {FORMAT_VERSION}; use a newer probe",
                head.format_version
            ),
        ));
    }
    serde_json::from_str(&text).map_err(damaged)
}

fn text(path: &Path) -> Result<String, ReadError> {
    let (file, len): (File, u64) = map::open_regular(path)?;
    if len > MAX_MANIFEST_BYTES {
        return Err(ReadError::Limit {
            path: path.into(),
            what: "the size in bytes",
            found: len,
            limit: MAX_MANIFEST_BYTES,
        });
    }
    let mut text = String::new();
    file.take(len).read_to_string(&mut text).map_err(|error| ReadError::io(path, error))?;
    Ok(text)
}
