//! Collections of tensors as dumps: one tensor file, a sharded checkpoint, or a folder of tensor files.
//!
//! A collection has one part (step 0, no rank). Each tensor or scalar is one op with the slot `value`. Its name:
//!
//! | value | name |
//! |---|---|
//! | named in its file | that name; nested keys are joined by dots |
//! | the only one in its file, in a folder | the name of the file without extension, or without what MindSpore adds to it ([`name`]) |
//! | the only one in the given file | `tensor`, so that two files of different names can be compared |
//!
//! If two files of a folder hold the same name, every name is prefixed by the name of its file.

mod files;
mod index;
mod store;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mindspore::name;
use super::{ReadError, tensor_file};
use probe_dump::{
    Dump, Framework, Op, OpName, PartKey, PartReader, Rank, RankId, Slot, SlotSide, Task, Value,
};
use probe_files::map::FileAccess;
use store::Store;

pub(super) use files::{folder_holds_tensors, list};
pub(super) use store::NamedStore;

/// Opens a tensor file, the index of a sharded checkpoint, or a folder.
///
/// # Errors
/// [`ReadError`] when nothing can be read: the only file is damaged, or every file of the folder is. A folder with some
/// readable files opens, with the others in [`Dump::faults`].
pub(super) fn open(path: &Path, access: FileAccess) -> Result<Dump, ReadError> {
    let metadata = fs::metadata(path).map_err(|e| ReadError::io(path, e))?;
    if metadata.is_dir() {
        if let Some(index) = index::find(path) {
            return open_sharded(path, &index, access);
        }
        let files = files::list(path)?;
        let mut collection = Collection::open(&files, access)?;
        collection.faults.extend(files::lacking(path, &files));
        return Ok(collection.into_dump(path, "folder of tensor files"));
    }
    if index::is_index(path) {
        return open_sharded(path, path, access);
    }
    let file = tensor_file::open(path, access)?;
    let format = file.format();
    let mut store = Store::new(access);
    store.add(path.into(), "tensor".into(), file);
    Ok(Collection { store, faults: Vec::new() }.into_dump(path, format))
}

fn open_sharded(given: &Path, index: &Path, access: FileAccess) -> Result<Dump, ReadError> {
    let index = index::Index::read(index, access)?;
    let mut collection = Collection::open(&index.shards(), access)?;
    let missing = index.missing(&collection.store);
    collection.faults = collection.faults.into_iter().map(absent).chain(missing).collect();
    Ok(collection.into_dump(given, "sharded checkpoint"))
}

/// Says of a shard that is not there how it comes to be asked for.
fn absent(error: ReadError) -> ReadError {
    match error {
        ReadError::Io { path, source } if source.kind() == ErrorKind::NotFound => {
            ReadError::format(path, "the index names this file, and it is not there; copy it too")
        }
        other => other,
    }
}

/// Opens tensor files as one store, in the order given. Returns the reasons that some failed as well.
pub(super) fn open_files(
    paths: &[PathBuf],
    access: FileAccess,
) -> Result<(NamedStore, Vec<ReadError>), ReadError> {
    let Collection { store, faults } = Collection::open(paths, access)?;
    Ok((store.named(), faults))
}

/// Returns the values of a store as ops with the slot `value`.
pub(super) fn ops(store: &NamedStore) -> Vec<Op> {
    store.values().map(|(name, value)| op(name, value)).collect()
}

/// Returns a value that has a name of its own as an op.
pub(super) fn op(name: &str, value: Value) -> Op {
    Op { slots: vec![Slot::new("value", SlotSide::Output, value)], ..Op::new(OpName::tensor(name)) }
}

/// Opened files, and the reasons the others failed.
struct Collection {
    store: Store,
    faults: Vec<ReadError>,
}

impl Collection {
    fn open(paths: &[PathBuf], access: FileAccess) -> Result<Self, ReadError> {
        let mut store = Store::new(access);
        let mut faults = Vec::new();
        for path in paths {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let name = name::parse(&stem).map_or_else(|| stem.into(), |(name, _)| name.into());
            match tensor_file::open(path, access) {
                Ok(file) => store.add(path.clone(), name, file),
                Err(error) => faults.push(error),
            }
        }
        if store.is_empty() && !faults.is_empty() {
            return Err(faults.swap_remove(0));
        }
        Ok(Self { store, faults })
    }

    fn into_dump(self, path: &Path, format: &'static str) -> Dump {
        let label = path.file_name().unwrap_or_default().to_string_lossy().into();
        let key = PartKey { step: 0, rank: RankId::Single, label };
        let store = Arc::new(self.store.named());
        let framework = framework_of(store.values().map(|(name, _)| name));
        let reader = CollectionReader { key: key.clone(), framework, store };
        Dump {
            path: path.into(),
            format,
            parts: vec![key],
            reader: Box::new(reader),
            faults: self.faults,
            environment: BTreeMap::new(),
        }
    }
}

/// Returns the framework whose names the tensors have: MindSpore's buffers of batch norms and tables of embeddings, or
/// the gains of its norms, have names that PyTorch does not use.
fn framework_of<'a>(mut names: impl Iterator<Item = &'a str>) -> Framework {
    let is_own = |name: &str| {
        let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
        matches!(last, "moving_mean" | "moving_variance" | "embedding_table" | "gamma")
    };
    if names.any(is_own) { Framework::MindSpore } else { Framework::PyTorch }
}

struct CollectionReader {
    key: PartKey,
    framework: Framework,
    store: Arc<store::NamedStore>,
}

impl PartReader for CollectionReader {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        if *key != self.key {
            return Err(ReadError::usage(PathBuf::from(&*key.label), "no such part in this collection"));
        }
        Ok(Rank {
            key: key.clone(),
            framework: self.framework,
            task: Task::Tensor,
            level: "".into(),
            ops: ops(&self.store),
            stacks: Vec::new(),
            store: self.store.clone(),
            notes: Vec::new(),
            cut: false,
            faults: Vec::new(),
        })
    }
}
