//! The files of one step of one rank as ops in execution order.
//!
//! An op is called `Kernel.<type>.<number>.forward`. Calls are counted stream by stream and by time within a stream: the interleaving of
//! streams changes from run to run, the order within one does not. The scope of an op is the name of its node, or of the call that
//! launched the kernel.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::debug::Overflow;
use super::file::DumpFile;
use super::folder::{File, Part};
use super::name::FileName;
use crate::ReadError;
use crate::tensor_file::TensorFile;
use probe_dump::{Framework, Op, OpName, Rank, Slot, Task, TensorData, TensorStore, Value};
use probe_files::map::FileAccess;

/// Prefix of op names.
const PREFIX: &str = "Kernel";

/// An op that has no number yet.
struct Launched {
    op: Op,
    op_type: Box<str>,
    stream: u64,
    task: u64,
    time: u64,
    context: Option<u64>,
    thread: Option<u64>,
}

/// Reads the headers of all files of a part.
///
/// # Errors
/// When none of the files can be read.
pub(super) fn read(part: &Part, access: FileAccess) -> Result<Rank, ReadError> {
    let mut launched: Vec<Launched> = Vec::new();
    let mut overflows: Vec<(u64, Overflow)> = Vec::new();
    let mut faults = Vec::new();
    for (index, file) in part.files.iter().enumerate() {
        // Only the header is needed, so the file is not mapped.
        let name = FileName::parse(&file.full_name);
        let opened = DumpFile::open(&file.path, FileAccess::Read).and_then(|opened| {
            let debug = name.as_ref().is_some_and(FileName::is_debug);
            let told = if debug { Some(opened.overflow()?) } else { None };
            Ok((opened, told))
        });
        match opened {
            Ok((opened, Some(told))) => {
                let time = name.map_or(opened.time(), |name| name.time);
                overflows.extend(told.into_iter().map(|overflow| (time, overflow)));
            }
            Ok((opened, None)) => launched.push(launch(index, file, name.as_ref(), &opened)),
            Err(fault) => faults.push(fault),
        }
    }
    if launched.is_empty() && overflows.is_empty() && !faults.is_empty() {
        return Err(faults.swap_remove(0));
    }
    number(&mut launched);
    overflows.sort_by_key(|(time, _)| *time);
    let mut notes = Vec::new();
    for (_, overflow) in overflows {
        let place = attach(&mut launched, &overflow);
        notes.push(format!("overflow in {place}: {overflow}"));
    }
    let store = CannStore { files: part.files.iter().map(|file| file.path.clone()).collect(), access };
    Ok(Rank {
        key: part.key.clone(),
        task: Task::Tensor,
        framework: Framework::default(),
        level: "kernel".into(),
        ops: launched.into_iter().map(|launched| launched.op).collect(),
        stacks: Vec::new(),
        store: Arc::new(store),
        faults,
        notes,
        cut: false,
    })
}

fn launch(index: usize, file: &File, name: Option<&FileName>, opened: &DumpFile) -> Launched {
    let slots = opened.entries().iter().enumerate().map(|(at, entry)| {
        let mut value = entry.value.clone();
        if let Value::Tensor(record) = &mut value {
            Arc::make_mut(record).data = Some(format!("{index} {at}").as_str().into());
        }
        Slot::new(&*entry.name, opened.side(at), value)
    });
    let mut op = Op { slots: slots.collect(), ..Op::new(OpName::parse("")) };
    op.note = extras(opened).as_deref().unwrap_or_default().into();
    let fallback = if opened.op_name().is_empty() { &*file.full_name } else { opened.op_name() };
    let (op_type, op_name, time) = match name {
        Some(name) => (name.op_type.clone(), &*name.op_name, name.time),
        None => (fallback.into(), fallback, opened.time()),
    };
    let op_name = if opened.op_name().is_empty() { op_name } else { opened.op_name() };
    op.parent = Some(op_name.into());
    let number = |of: fn(&FileName) -> Option<u64>| name.and_then(of);
    Launched {
        op,
        op_type,
        stream: number(|name| name.stream).unwrap_or(0),
        task: number(|name| name.task).unwrap_or(0),
        time,
        context: number(|name| name.context),
        thread: number(|name| name.thread),
    }
}

/// Describes the buffers and workspaces dumped beside the tensors.
fn extras(opened: &DumpFile) -> Option<Box<str>> {
    let (buffers, spaces) = opened.extras();
    let told =
        [("L1 buffer", buffers), ("workspace", spaces)].into_iter().filter(|(_, sizes)| !sizes.is_empty());
    let told: Vec<String> = told
        .map(|(what, sizes)| {
            let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            format!("{what} of {} bytes, not compared", sizes.join(", "))
        })
        .collect();
    (!told.is_empty()).then(|| told.join("; ").into())
}

/// Sorts ops by time and names them by their position in their stream.
fn number(launched: &mut [Launched]) {
    // Stable: files with equal time and task keep the order of their names.
    launched.sort_by_key(|op| (op.time, op.task));
    let mut streams: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, op) in launched.iter().enumerate() {
        streams.entry(op.stream).or_default().push(at);
    }
    let mut calls: HashMap<Box<str>, u32> = HashMap::new();
    for at in streams.into_values().flatten() {
        let op = &mut launched[at];
        let call = calls.entry(op.op_type.clone()).or_default();
        op.op.name = OpName::parse(&format!("{PREFIX}.{}.{call}.forward", op.op_type));
        *call += 1;
    }
}

/// Marks the op in which an overflow happened, and returns a description.
fn attach(launched: &mut [Launched], overflow: &Overflow) -> String {
    let (stream, task) = (overflow.field("stream_id"), overflow.field("task_id"));
    let same = |own: Option<u64>, told: Option<u64>| own.is_none() || told.is_none() || own == told;
    let found = launched.iter_mut().find(|op| {
        Some(op.task) == task
            && Some(op.stream) == stream
            && same(op.context, overflow.field("context_id"))
            && same(op.thread, overflow.field("thread_id"))
    });
    let Some(op) = found else {
        let number = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
        return format!("an op that was not dumped (stream {}, task {})", number(stream), number(task));
    };
    let mark = format!("overflow ({})", overflow.unit);
    match op.op.note.said() {
        // Several cores may report one op: the part's notes hold all reports.
        Some(note) if note.split("; ").any(|told| told == mark) => {}
        Some(note) => op.op.note = format!("{note}; {mark}").into(),
        None => op.op.note = mark.into(),
    }
    op.op.name.to_string()
}

/// Tensors of the files of a part; keys are the indices of file and tensor.
struct CannStore {
    files: Vec<PathBuf>,
    access: FileAccess,
}

impl TensorStore for CannStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let place = key.split_once(' ').and_then(|(file, tensor)| {
            Some((self.files.get(file.parse::<usize>().ok()?)?, tensor.parse::<usize>().ok()?))
        });
        let (path, tensor) =
            place.ok_or_else(|| ReadError::usage("", format!("no tensor {key:?} in this part")))?;
        DumpFile::open(path, self.access)?.load(tensor)
    }
}
