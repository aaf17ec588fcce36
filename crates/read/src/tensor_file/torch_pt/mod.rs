//! Torch checkpoints (`.pt`, `.pth`, `.bin`): a ZIP archive of one pickle program and one stored member per
//! storage.
//!
//! Storages are used in place; several tensors may share one. Shape, strides and offset come from the program and are
//! checked against the actual storage size before the first byte is read.

mod listing;

use std::ops::Range;
use std::sync::Arc;

use super::byte_order::swapped;
use super::pickle::{self, Element, Inline, Item, Rebuilt, StorageId};
use super::{Entry, TensorFile, no_such_tensor, printable, unsupported};
use crate::ReadError;
use crate::archive::{Archive, Member};
use probe_dump::{DType, TensorData, element_count, is_row_major};
use probe_files::limits::{MAX_EXPANDED_ELEMENTS, MAX_PICKLE_BYTES};
use probe_files::map::{Section, Source};

/// Archive member with the program, inside one folder of any name.
const PROGRAM: &str = "/data.pkl";

/// Loads the tensor of a file that holds exactly one tensor.
pub(super) fn load_single(archive: &Archive) -> Result<TensorData, ReadError> {
    let (root, section) = open_program(archive)?;
    let program = interpret(archive, &section)?;
    let tensors = &program.heap.tensors;
    match program.root {
        Item::Tensor(at) if let Some(tensor) = tensors.get(at as usize) => {
            let storage = tensor.storage.and_then(|at| program.heap.storages.get(at as usize));
            let storage = storage.map(|id| Stored::find(archive, root, id));
            load(archive, &section, tensor, storage.as_ref(), is_big_endian(archive, root)?)
        }
        _ => Err(ReadError::format(
            archive.source().path(),
            format!("holds {}; expected one tensor", listing::in_words(&program)),
        )),
    }
}

/// An opened checkpoint.
#[derive(Debug)]
pub(super) struct TorchFile {
    archive: Archive,
    /// Holds the elements of arrays.
    program: Section,
    big_endian: bool,
    entries: Vec<Entry>,
    /// Position of each entry's tensor.
    of_entry: Vec<Option<u32>>,
    tensors: Vec<Rebuilt>,
    storages: Vec<Stored>,
}

impl TorchFile {
    pub(super) fn open(archive: Archive) -> Result<Self, ReadError> {
        let (root, section) = open_program(&archive)?;
        let program = interpret(&archive, &section)?;
        let big_endian = is_big_endian(&archive, root)?;
        let listing::Listing { entries, of_entry } = listing::list(&program, archive.source().path())?;
        let storages = program.heap.storages.iter().map(|id| Stored::find(&archive, root, id)).collect();
        let tensors = program.heap.tensors;
        Ok(Self { archive, program: section, big_endian, entries, of_entry, tensors, storages })
    }
}

impl TensorFile for TorchFile {
    fn format(&self) -> &'static str {
        "torch checkpoint"
    }

    fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn load(&self, index: usize) -> Result<TensorData, ReadError> {
        let tensor = self.of_entry.get(index).copied().flatten().and_then(|at| self.tensors.get(at as usize));
        let tensor = tensor.ok_or_else(|| no_such_tensor(self.archive.source().path(), index))?;
        let storage = tensor.storage.and_then(|at| self.storages.get(at as usize));
        load(&self.archive, &self.program, tensor, storage, self.big_endian)
    }

    fn span(&self, index: usize) -> Option<Range<u64>> {
        let tensor = self.tensors.get(self.of_entry.get(index).copied().flatten()? as usize)?;
        let member = self.storages.get(tensor.storage? as usize)?.member.as_ref().ok()?;
        self.archive.span(*member)
    }
}

/// A storage of the program, with its location in the archive.
#[derive(Debug)]
struct Stored {
    member: Result<Member, Box<str>>,
    count: u64,
    typed: bool,
}

impl Stored {
    fn find(archive: &Archive, root: &str, id: &StorageId<'_>) -> Self {
        let name = [root, "/data/", id.key].concat();
        let member = archive.find(name.as_bytes()).ok_or_else(|| name.into());
        Self { member, count: id.count, typed: id.element.is_some() }
    }
}

fn load(
    archive: &Archive,
    program: &Section,
    tensor: &Rebuilt,
    storage: Option<&Stored>,
    big_endian: bool,
) -> Result<TensorData, ReadError> {
    let damaged = |message: String| ReadError::format(archive.source().path(), message);
    if let Some(fault) = tensor.fault {
        return Err(damaged(fault.into()));
    }
    let dtype = match tensor.element {
        Element::Known(dtype) => dtype,
        Element::Other(name) => return Err(damaged(unsupported(name))),
    };
    if let Some(inline) = tensor.inline {
        return of_program(program, inline, tensor, dtype).map_err(damaged);
    }
    let storage = storage.ok_or_else(|| damaged("a tensor has no storage".into()))?;
    let member = match &storage.member {
        Ok(member) => *member,
        Err(name) => return Err(damaged(format!("the archive has no member '{}'", printable(name)))),
    };
    let unit = if storage.typed { dtype.size() as u64 } else { 1 };
    if storage.count.checked_mul(unit) != Some(member.size) {
        let (name, count) = (printable(archive.name(member)), storage.count);
        let what =
            if storage.typed { format!("{count} elements of {dtype}") } else { format!("{count} bytes") };
        return Err(damaged(format!(
            "storage '{name}' should hold {what} but has {} bytes; the file is damaged, copy or write it again",
            member.size
        )));
    }
    let mut bytes = archive.stored_data(member)?;
    let held = bytes.range.len() / dtype.size();
    if element_count(&tensor.shape).is_some_and(|count| count > held.max(MAX_EXPANDED_ELEMENTS)) {
        return Err(damaged(format!(
            "the shape {:?} repeats {held} stored elements beyond the limit of {MAX_EXPANDED_ELEMENTS}",
            tensor.shape
        )));
    }
    let big_endian = big_endian && dtype != DType::Bool && dtype.size() > 1;
    if big_endian || !is_row_major(&tensor.shape, &tensor.strides) {
        bytes = bytes.into_memory().map_err(damaged)?;
    }
    if big_endian {
        let copy = swapped(bytes.bytes(), dtype);
        let range = 0..copy.len();
        bytes = Section { storage: Arc::new(copy), range };
    }
    let (shape, strides) = (tensor.shape.clone(), tensor.strides.clone());
    TensorData::strided(bytes.storage, bytes.range, dtype, shape, strides, tensor.offset)
        .map_err(|e| damaged(format!("storage '{}': {e}", printable(archive.name(member)))))
}

/// Returns an array whose elements lie in the program.
fn of_program(
    program: &Section,
    inline: Inline,
    tensor: &Rebuilt,
    dtype: DType,
) -> Result<TensorData, String> {
    let held = program.bytes().get(inline.at as usize..).and_then(|rest| rest.get(..inline.length as usize));
    let held = held.ok_or("an array lies outside of the program")?;
    let bytes: Vec<u8> = if inline.is_text {
        let text = std::str::from_utf8(held).map_err(|error| error.to_string())?;
        let byte = |letter: char| u8::try_from(u32::from(letter));
        text.chars()
            .map(byte)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("an array's bytes: {error}"))?
    } else {
        held.to_vec()
    };
    let count = element_count(&tensor.shape).and_then(|count| count.checked_mul(dtype.size()));
    if count != Some(bytes.len()) {
        return Err(format!("an array of shape {:?} has {} bytes", tensor.shape, bytes.len()));
    }
    let range = 0..bytes.len();
    let (shape, strides) = (tensor.shape.clone(), tensor.strides.clone());
    TensorData::strided(Arc::new(bytes), range, dtype, shape, strides, 0).map_err(|error| error.to_string())
}

/// Returns the program's member and its folder.
fn program(archive: &Archive) -> Result<(&str, Member), ReadError> {
    let mut found = archive.members().filter_map(|member| {
        let root = archive.name(member).strip_suffix(PROGRAM)?;
        (!root.is_empty() && !root.contains('/')).then_some((root, member))
    });
    let path = archive.source().path();
    match (found.next(), found.next()) {
        (Some(found), None) => Ok(found),
        (None, _) => Err(ReadError::format(
            path,
            "is a ZIP archive with neither data.pkl (torch) nor only .npy members (npz)",
        )),
        (Some(_), Some(_)) => {
            Err(ReadError::format(path, "has more than one data.pkl, which torch never writes"))
        }
    }
}

fn open_program(archive: &Archive) -> Result<(&str, Section), ReadError> {
    let (root, member) = program(archive)?;
    if member.size > MAX_PICKLE_BYTES {
        return Err(ReadError::Limit {
            path: archive.source().path().into(),
            what: "size of data.pkl",
            found: member.size,
            limit: MAX_PICKLE_BYTES,
        });
    }
    Ok((root, archive.stored(member)?))
}

fn interpret<'a>(archive: &Archive, section: &'a Section) -> Result<pickle::Program<'a>, ReadError> {
    pickle::interpret(section.bytes()).map_err(|e| ReadError::format(archive.source().path(), e.to_string()))
}

/// Returns true if the checkpoint is big-endian. Older checkpoints do not say; they were written on
/// little-endian machines.
fn is_big_endian(archive: &Archive, root: &str) -> Result<bool, ReadError> {
    let is_order = |member: &Member| archive.name(*member).strip_prefix(root) == Some("/byteorder");
    let Some(member) = archive.members().find(is_order) else { return Ok(false) };
    let text = archive.stored(member)?;
    match text.bytes() {
        b"little" => Ok(false),
        b"big" => Ok(true),
        other => {
            let shown = printable(&String::from_utf8_lossy(other));
            let message = format!(
                "byte order '{shown}' is neither little nor big; the file is damaged, copy or write it again"
            );
            Err(ReadError::format(archive.source().path(), message))
        }
    }
}

/// First bytes of torch files from before version 1.6: a pickled magic number.
const LEGACY: &[u8] = &[0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// Returns the error for a file of unknown format, describing its content.
pub(super) fn not_a_zip(source: &Source, head: &[u8]) -> ReadError {
    let tar = || source.section(257..262, "a tar header").is_ok_and(|mark| mark.bytes() == b"ustar");
    let message = if head.starts_with(LEGACY) {
        "is in the format that torch wrote before 1.6; load it with torch on a machine you trust and save it again with torch.save"
    } else if tar() {
        "is a tar archive, the format that torch wrote before 0.1.10; load it with torch on a machine you trust and save it again"
    } else if matches!(head, [0x80, 2..=5, ..]) {
        "is a bare pickle, which can hold anything; save the tensors with torch.save, numpy.save or safetensors"
    } else if head.is_empty() {
        "is empty; the write was interrupted or the disk was full"
    } else if head.iter().all(|&byte| byte == 0) {
        "begins with zeros; the write was interrupted or the disk was full"
    } else {
        "is not a tensor file: neither safetensors, npy, npz nor a checkpoint of torch or MindSpore; it may be damaged"
    };
    ReadError::format(source.path(), message)
}
