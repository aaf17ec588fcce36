//! The index of a sharded checkpoint: a JSON map from tensor names to shard files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::store::Store;
use crate::ReadError;
use crate::tensor_file::{foreign, printable};
use probe_files::limits::MAX_HEADER_BYTES;
use probe_files::map::{self, FileAccess};

/// Index names in order of preference; if both exist they describe the same weights twice.
const NAMES: [&str; 3] = [
    "model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors.index.json",
    "pytorch_model.bin.index.json",
];

/// Suffix of every index name.
const SUFFIX: &str = ".index.json";

/// Returns true for the name of an index.
pub(super) fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX))
}

/// Returns the index that describes a folder, if there is one.
pub(super) fn find(folder: &Path) -> Option<PathBuf> {
    NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// An index and its path.
#[derive(Debug)]
pub(super) struct Index {
    path: PathBuf,
    weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Content {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    pub(super) fn read(path: &Path, access: FileAccess) -> Result<Self, ReadError> {
        let bytes = map::open(path, access)?;
        let bytes = bytes.in_memory().unwrap_or_default();
        if bytes.len() as u64 > MAX_HEADER_BYTES {
            return Err(ReadError::Limit {
                path: path.into(),
                what: "size of the checkpoint index",
                found: bytes.len() as u64,
                limit: MAX_HEADER_BYTES,
            });
        }
        let Content { weight_map } = serde_json::from_slice(bytes).map_err(|error| {
            let is_json = bytes.trim_ascii_start().starts_with(b"{");
            let foreign = if is_json { None } else { foreign::told(bytes) };
            let message =
                foreign.unwrap_or_else(|| format!("is not an index of a sharded checkpoint: {error}"));
            ReadError::format(path, message)
        })?;
        if weight_map.is_empty() {
            return Err(ReadError::format(path, "the index names no tensors"));
        }
        for (tensor, shard) in &weight_map {
            if !is_plain_name(shard) {
                let (tensor, shard) = (printable(tensor), printable(shard));
                return Err(ReadError::format(
                    path,
                    format!(
                        "tensor '{tensor}' is assigned to '{shard}', which is not the name of a file beside the index"
                    ),
                ));
            }
        }
        Ok(Self { path: path.into(), weight_map })
    }

    /// Returns the shards without duplicates, in name order.
    pub(super) fn shards(&self) -> Vec<PathBuf> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let names: BTreeSet<&String> = self.weight_map.values().collect();
        names.into_iter().map(|name| folder.join(name)).collect()
    }

    /// Returns errors for tensors that the index names but their shard, although readable, lacks.
    pub(super) fn missing(&self, store: &Store) -> Vec<ReadError> {
        let mut lacking: BTreeMap<&Path, (usize, &str)> = BTreeMap::new();
        for (path, entries) in store.files() {
            let shard = path.file_name().unwrap_or_default().to_string_lossy();
            let present: BTreeSet<&str> = entries.iter().map(|entry| &*entry.name).collect();
            for (tensor, _) in self.weight_map.iter().filter(|(_, file)| **file == shard) {
                if !present.contains(tensor.as_str()) {
                    lacking.entry(path).or_insert((0, tensor)).0 += 1;
                }
            }
        }
        let fault = |(path, (count, first)): (&Path, (usize, &str))| {
            let first = printable(first);
            ReadError::format(
                path,
                format!("lacks {count} of the tensors that the index puts here, first '{first}'"),
            )
        };
        lacking.into_iter().map(fault).collect()
    }
}

fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0', ':'])
}
