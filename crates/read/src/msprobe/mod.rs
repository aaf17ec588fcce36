//! Dumps of the older tool: `step<N>/{rank<R>, proc<PID>}/dump.json` and accompanying files.

mod index;
mod json;
mod layout;
mod leaf;
mod requests;
mod side_files;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use index::Index;
pub use json::with_quoted_numbers;
pub use layout::INDEX_NAMES;
pub(super) use layout::{MsprobeParts, find_parts, is_index_name};
pub use requests::{RequestLog, Requests};

use super::{ReadError, no_such_part, tensor_file};
use probe_dump::{
    Dump, Framework, Op, PartKey, PartReader, Phase, Rank, Repeated, SlotName, Task, TensorData,
    TensorRecord, TensorStore, Value,
};
use probe_files::late::{self, Wanted};
use probe_files::limits;
use probe_files::map::{self, FileAccess};

/// [`Dump::format`] of the older tool's dumps.
pub const FORMAT: &str = "msprobe dump";

/// Folder next to an index that holds the tensor files.
const TENSOR_FOLDER: &str = "dump_tensor_data";

/// Opens a dump whose parts were already found.
pub(super) fn open(path: &Path, found: MsprobeParts, access: FileAccess) -> Dump {
    let parts = found.parts.iter().map(|part| part.key.clone()).collect();
    Dump {
        path: path.to_path_buf(),
        format: FORMAT,
        parts,
        faults: found.faults,
        environment: BTreeMap::new(),
        reader: Box::new(MsprobeReader { parts: found.parts, access }),
    }
}

/// One index file and its place in the dump.
#[derive(Debug, Clone)]
pub(super) struct PartFile {
    pub(super) key: PartKey,
    /// Path of `dump.json` or `debug.json`.
    pub(super) index: PathBuf,
}

struct MsprobeReader {
    parts: Vec<PartFile>,
    access: FileAccess,
}

impl PartReader for MsprobeReader {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        let part = self.parts.iter().find(|part| part.key == *key).ok_or_else(|| no_such_part(key))?;
        read_part(part, self.access)
    }

    fn place(&self, key: &PartKey) -> Option<&Path> {
        self.parts.iter().find(|part| part.key == *key).map(|part| &*part.index)
    }
}

fn read_part(part: &PartFile, access: FileAccess) -> Result<Rank, ReadError> {
    let path = &part.index;
    let mut faults = Vec::new();
    let index = read_index(path, access, &mut faults)?;
    let (framework, task) = (framework_of(&index, path)?, task_of(&index, path)?);
    let mut ops = index.ops;
    tidy(&mut ops, framework, path, &mut faults);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut side_file = |name: &str, attach: &mut dyn FnMut(&[u8]) -> Result<(), serde_json::Error>| {
        let path = folder.join(name);
        if !path.exists() {
            return;
        }
        let read = open_index(&path, access).and_then(|bytes| {
            attach(&bytes).map_err(|error| ReadError::format(&path, format!("damaged: {error}")))
        });
        faults.extend(read.err());
    };
    let mut stacks = Vec::new();
    side_file("stack.json", &mut |bytes| {
        side_files::attach_stacks(bytes, &mut ops).map(|found| stacks = found)
    });
    side_file("construct.json", &mut |bytes| side_files::attach_parents(bytes, &mut ops));

    let store = MsprobeStore { folder: folder.join(TENSOR_FOLDER), access };
    let notes = unnamed_files(&store.folder, &ops).into_iter().collect();
    Ok(Rank {
        key: part.key.clone(),
        framework,
        task,
        level: index.level.into(),
        ops,
        stacks,
        store: Arc::new(store),
        faults,
        notes,
        cut: false,
    })
}

/// Reads an index. One that ends early adds a fault, unless nothing of it is left.
fn read_index(path: &Path, access: FileAccess, faults: &mut Vec<ReadError>) -> Result<Index, ReadError> {
    let (index, broken) = index::parse(&mut open_index(path, access)?);
    let Some(error) = broken else {
        if !index.has_data {
            return Err(ReadError::format(path, "has no key `data`; expected the dump.json of a capture"));
        }
        return Ok(index);
    };
    if index.ops.is_empty() {
        return Err(ReadError::format(path, format!("not a complete JSON index: {error}; capture it again")));
    }
    faults.push(ReadError::format(
        path,
        format!(
            "ends early ({error}); the first {} ops are compared, capture it again for the rest",
            index.ops.len()
        ),
    ));
    Ok(index)
}

fn framework_of(index: &Index, path: &Path) -> Result<Framework, ReadError> {
    Framework::parse(&index.framework).ok_or_else(|| {
        ReadError::usage(
            path,
            format!("framework `{}` is not supported, only pytorch and mindspore", index.framework),
        )
    })
}

fn task_of(index: &Index, path: &Path) -> Result<Task, ReadError> {
    index.recorded_task().ok_or_else(|| {
        ReadError::usage(
            path,
            format!("task `{}` holds nothing to compare; statistics, md5 and tensor do", index.task),
        )
    })
}

/// Brings the ops of an index into the form of all dumps: gradients in the order of inputs, names and records shared, and
/// damaged records taken out, each with a fault.
fn tidy(ops: &mut [Op], framework: Framework, path: &Path, faults: &mut Vec<ReadError>) {
    let mut repeated = Repeated::default();
    for op in ops {
        if framework == Framework::MindSpore {
            gradients_in_order_of_inputs(op);
        }
        for slot in &mut op.slots {
            slot.name = repeated.name(&slot.path, slot.side);
            if let Value::Tensor(record) = &mut slot.value {
                *record = repeated.record(TensorRecord::clone(record));
            }
        }
        for slot in leaf::take_damaged(op) {
            let message = format!(
                "{} {slot}: this record is damaged, it has no known name, or no valid type with a value, or with dtype and shape",
                op.name
            );
            faults.push(ReadError::format(path, message));
        }
    }
}

/// Gives the gradients of a primitive the order of its inputs: msprobe lists those of the last input first.
fn gradients_in_order_of_inputs(op: &mut Op) {
    if op.name.phase() != Phase::Backward || !op.name.stem().starts_with("Primitive.") {
        return;
    }
    let results = op.slots.iter().filter(|slot| slot.side.is_result()).count();
    let first = op.slots.len() - results;
    if let Some(gradients) = op.slots.get_mut(first..) {
        gradients.reverse();
        for (at, slot) in gradients.iter_mut().enumerate() {
            slot.name = SlotName { path: format!("output.{at}").into(), side: slot.side }.into();
        }
    }
}

fn open_index(path: &Path, access: FileAccess) -> Result<map::PrivateBytes, ReadError> {
    let size = std::fs::metadata(path).map_err(|source| ReadError::io(path, source))?.len();
    if size > limits::MAX_INDEX_BYTES {
        return Err(ReadError::Limit {
            path: path.to_path_buf(),
            what: "the size in bytes",
            found: size,
            limit: limits::MAX_INDEX_BYTES,
        });
    }
    map::open_private(path, access)
}

/// Returns a remark if the tensor folder holds files that the index does not name (a partially lost
/// index).
fn unnamed_files(folder: &Path, ops: &[probe_dump::Op]) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?;
    let named: HashSet<&str> =
        ops.iter().flat_map(|op| &op.slots).filter_map(|slot| slot.value.tensor()?.data.as_deref()).collect();
    let count = entries
        .take(limits::MAX_FOLDER_ENTRIES)
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_none_or(|name| !named.contains(name)))
        .count();
    let plural = if count == 1 { "" } else { "s" };
    (count > 0)
        .then(|| format!("{}: {count} file{plural} not named by the index, left out", folder.display()))
}

/// Tensor files next to an index.
struct MsprobeStore {
    folder: PathBuf,
    access: FileAccess,
}

impl TensorStore for MsprobeStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        if !is_plain(key) {
            return Err(ReadError::format(
                &self.folder,
                format!(
                    "data_name {key:?} is not a plain file name; the index is damaged or was tampered with"
                ),
            ));
        }
        tensor_file::load_single(&self.folder.join(key), self.access)
    }

    fn expect(&self, keys: &[&str]) {
        let whole = |key: &&str| Wanted { path: self.folder.join(key), range: 0..u64::MAX };
        late::expect(&keys.iter().filter(|key| is_plain(key)).map(whole).collect::<Vec<_>>());
    }

    fn is_late(&self) -> bool {
        late::may_be(&self.folder)
    }
}

/// Returns true if a name read from a file can only refer to a file directly inside a folder.
fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}
