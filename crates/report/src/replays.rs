//! `replays.json`: what `probe replay` found of calls of a comparison. It lies beside the reports; page and workbook show each at its op.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::stored::StoredError;
use probe_files::ReportError;

/// Name of the file; `python/probe/replay/reports.py` writes it.
const REPLAYS: &str = "replays.json";

/// Version of the file.
const VERSION: u32 = 1;

/// Maximum size of the file: a replay takes 1 to 4 KiB.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Debug, Deserialize)]
struct Content {
    schema_version: u32,
    replays: Vec<Replay>,
}

/// A call that was run again, held against float64.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Replay {
    pub(super) step: u64,
    pub(super) rank: u32,
    pub(super) op: String,
    /// The side whose result is wrong: `candidate`, `baseline` or `both`; null if it is nobody's.
    pub(super) guilty: Option<String>,
    /// The answer in one sentence.
    pub(super) answer: String,
    /// A lower precision that the result is equal to, in one sentence.
    pub(super) equal_to: Option<String>,
    pub(super) results: Vec<Compared>,
}

/// One result of all sides.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ReplayedResult"))]
pub(super) struct Compared {
    pub(super) output: String,
    /// The field's standard, and its verdict on the candidate.
    pub(super) standard: String,
    pub(super) rows: Vec<Distances>,
}

/// A result against float64.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ReplayedRow"))]
pub(super) struct Distances {
    /// Whose it is.
    pub(super) of: String,
    pub(super) rmse: Number,
    pub(super) largest_relative: Number,
    pub(super) largest_ulp: Number,
    /// Share of elements beyond the bound of the standard.
    pub(super) beyond: Number,
    /// Error in units of what a relative error of 1 in the inputs does to the result.
    pub(super) l2: Number,
}

/// A number, or `inf` or `nan` in words.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ReplayedNumber"))]
#[serde(untagged)]
pub(super) enum Number {
    Finite(f64),
    Word(String),
}

/// Returns the replays in a folder of reports; none if there is no file of them.
pub(super) fn of_folder(folder: &Path) -> Result<Vec<Replay>, StoredError> {
    let path = folder.join(REPLAYS);
    let unreadable = |reason: String| StoredError::Unreadable { path: path.clone(), reason };
    let file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(|error| unreadable(error.to_string()))?,
    };
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable(format!("holds more than {MAX_BYTES} bytes; remove it")));
    }
    let content: Content = serde_json::from_slice(&bytes)
        .map_err(|error| unreadable(format!("is not what probe replay wrote: {error}; remove it")))?;
    if content.schema_version != VERSION {
        return Err(unreadable("was written by another version of probe; remove it".into()));
    }
    Ok(content.replays)
}

/// Removes the replays of an earlier comparison from a folder of reports.
///
/// # Errors
/// [`ReportError::Io`] when the file cannot be removed.
pub fn remove(folder: &Path) -> Result<(), ReportError> {
    let path = folder.join(REPLAYS);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(ReportError::io(&path, error)),
        _ => Ok(()),
    }
}
