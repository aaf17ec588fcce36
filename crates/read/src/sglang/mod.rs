//! Dumps of the dumper of `SGLang`, which Megatron-based trainers use as well: a folder with one `.pt` for each value,
//! `step=0___rank=0___dump_index=7___name=...___recompute_status=disabled.pt`, that holds `{value, meta}`.
//!
//! A step is one pass of the model: prefill of a batch, a chunk of it, or one token of each request. All passes of a rank are one part, in
//! which each module is called once a pass, as it is where a capture records them in one step.
//!
//! | `name` | becomes |
//! |---|---|
//! | `non_intrusive__{path}.inputs.{argument}` | an argument of the module |
//! | `non_intrusive__{path}.output` or `.output.{i}` | a result of the module |
//! | `input_ids`, `positions`, `seq_lens`, `cu_seqlens_q`, ... | an argument of the model |
//! | any other | a saved variable |
//!
//! `meta.dims` says which dimensions are spread over which axes, `meta.sglang_parallel_info` and `meta.megatron_parallel_info` where a rank stands along
//! these. The axes become the groups of the dump.

mod names;
mod spread;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tensor_file::{self, Entry};
use super::{ReadError, no_such_part};
use names::{FileName, Role};
use probe_dump::{
    Dump, Framework, Op, OpName, PartKey, PartReader, Rank, RankId, Slot, SlotSide, Task, TensorData,
    TensorStore, Value,
};
use probe_files::limits;
use probe_files::map::FileAccess;

/// [`Dump::format`] of these dumps.
const FORMAT: &str = "SGLang dump";

/// Returns true for a folder that holds such files.
pub(super) fn recognises(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let names = entries.take(limits::MAX_FOLDER_ENTRIES).filter_map(Result::ok);
    names.into_iter().any(|entry| FileName::parse(&entry.file_name().to_string_lossy()).is_some())
}

/// Opens a folder of such files.
///
/// # Errors
/// [`ReadError`] when the folder cannot be read.
pub(super) fn open(folder: &Path, access: FileAccess) -> Result<Dump, ReadError> {
    let mut ranks: BTreeMap<u32, Vec<FileName>> = BTreeMap::new();
    for entry in
        fs::read_dir(folder).map_err(|error| ReadError::io(folder, error))?.take(limits::MAX_FOLDER_ENTRIES)
    {
        let entry = entry.map_err(|error| ReadError::io(folder, error))?;
        if let Some(name) = FileName::parse(&entry.file_name().to_string_lossy()) {
            ranks.entry(name.rank).or_default().push(name);
        }
    }
    let key =
        |rank: &u32| PartKey { step: 0, rank: RankId::Rank(*rank), label: format!("rank {rank}").into() };
    let parts = ranks.keys().map(key).collect();
    for files in ranks.values_mut() {
        files.sort_by_key(|file| (file.step, file.index));
    }
    let environment = spread::groups(folder, &ranks, access);
    let reader = Reader { folder: folder.into(), access, ranks };
    Ok(Dump {
        path: folder.into(),
        format: FORMAT,
        parts,
        reader: Box::new(reader),
        faults: Vec::new(),
        environment,
    })
}

struct Reader {
    folder: PathBuf,
    access: FileAccess,
    /// Files of each rank, in the order in which they were written.
    ranks: BTreeMap<u32, Vec<FileName>>,
}

impl PartReader for Reader {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        let files = self.ranks.get(&key.rank.number()).ok_or_else(|| no_such_part(key))?;
        let mut faults = Vec::new();
        let mut calls = Calls::default();
        for name in files {
            let path = self.folder.join(&*name.file);
            match tensor_file::open(&path, self.access) {
                Ok(file) => calls.add(name, file.entries()),
                Err(error) => faults.push(error),
            }
        }
        if calls.ops.is_empty() && !faults.is_empty() {
            return Err(faults.swap_remove(0));
        }
        let mut ops = calls.ops;
        ops.iter_mut().for_each(in_order);
        Ok(Rank {
            key: key.clone(),
            framework: Framework::PyTorch,
            task: Task::Tensor,
            level: "L0".into(),
            ops,
            stacks: Vec::new(),
            store: Arc::new(Store { folder: self.folder.clone(), access: self.access }),
            notes: Vec::new(),
            cut: false,
            faults,
        })
    }
}

/// Calls of modules, as files are put together. A module ends when its result is written, so that it comes behind those inside it.
#[derive(Default)]
struct Calls {
    ops: Vec<Op>,
    /// Arguments of modules that have no result yet, by path.
    open: HashMap<Box<str>, Vec<Slot>>,
    /// Place of the call that the results of a module belong to, and its step.
    last: HashMap<Box<str>, (usize, u64)>,
    /// Calls so far, by name.
    count: HashMap<String, u32>,
}

impl Calls {
    fn add(&mut self, file: &FileName, entries: &[Entry]) {
        let dims = spread::dims(entries);
        let values = entries.iter().filter_map(|entry| value(file, entry, dims.as_deref()));
        match &file.role {
            Role::Input { path, argument } => {
                let side = |rest: &str| Slot::new(format!("{argument}{rest}"), SlotSide::Input, Value::None);
                let slots = values.map(|(rest, value)| Slot { value, ..side(&rest) });
                self.open.entry(path.clone()).or_default().extend(slots);
                self.last.remove(path);
            }
            Role::Output { path, result } => {
                let known = self.last.get(path).filter(|(_, step)| *step == file.step).map(|(at, _)| *at);
                let same = |at: &usize| self.ops[*at].slots.iter().all(|slot| slot.path != *result);
                let at = known.filter(same).unwrap_or_else(|| self.begin(path, file));
                let slots =
                    values.map(|(rest, value)| Slot::new(format!("{result}{rest}"), SlotSide::Output, value));
                let slots: Vec<Slot> = slots.collect();
                self.ops[at].slots.extend(slots);
            }
            Role::Saved(name) => {
                let count = self.count.entry(name.to_string()).or_default();
                let mut op = Op::new(OpName::parse(&format!("{name}.{count}.debug")));
                op.slots =
                    values.map(|(_, value)| Slot::new("value", SlotSide::Output, value)).take(1).collect();
                *count += 1;
                self.ops.push(op);
            }
        }
    }

    /// Begins a call of a module with the arguments that were written before.
    fn begin(&mut self, path: &str, file: &FileName) -> usize {
        let slots = self.open.remove(path).unwrap_or_default();
        // The dumper does not write classes.
        let class = if path.is_empty() { "Model" } else { "Module" };
        let stem =
            ["Module", path, class].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
        let count = self.count.entry(stem.clone()).or_default();
        let mut op = Op::new(OpName::parse(&format!("{stem}.forward.{count}")));
        *count += 1;
        (op.slots, op.recomputed) = (slots, file.recomputed);
        self.ops.push(op);
        let at = self.ops.len() - 1;
        self.last.insert(path.into(), (at, file.step));
        at
    }
}

/// Returns what an entry of a file holds: the rest of its path, and the value with its key. `meta` is none.
fn value(file: &FileName, entry: &Entry, dims: Option<&str>) -> Option<(String, Value)> {
    let rest = entry.name.strip_prefix("value").filter(|rest| rest.is_empty() || rest.starts_with('.'));
    // Older files hold the bare value.
    let rest = if entry.name.is_empty() { Some("") } else { rest }?;
    let mut value = entry.value.clone();
    if let Value::Tensor(record) = &mut value {
        let record = Arc::make_mut(record);
        record.data = Some((&*format!("{}/{}", file.file, entry.name)).into());
        record.placement = dims.filter(|_| rest.is_empty()).map(|dims| format!("dims {dims}").into());
    }
    Some((rest.to_owned(), value))
}

/// Puts arguments in front of results.
fn in_order(op: &mut Op) {
    op.slots.sort_by_key(|slot| slot.side.is_result());
}

struct Store {
    folder: PathBuf,
    access: FileAccess,
}

impl TensorStore for Store {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let absent = || ReadError::usage(PathBuf::from(key), "no such tensor in this dump");
        let (file, name) = key.split_once('/').ok_or_else(absent)?;
        let file = tensor_file::open(&self.folder.join(file), self.access)?;
        let at = file.entries().iter().position(|entry| &*entry.name == name).ok_or_else(absent)?;
        file.load(at)
    }
}

#[cfg(test)]
mod tests;
