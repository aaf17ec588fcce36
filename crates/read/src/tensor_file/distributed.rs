//! Torch distributed checkpoints: a folder with an index, `.metadata`, and files of ranks, `.distcp`.
//!
//! The index is a bare pickle, read by the closed reader: it says of every tensor its type and shape, and of every piece its place in the
//! tensor, its file, and its bytes there, which are those of a torch file of one tensor.

use std::collections::HashMap;
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probe_dump::{Bytes, RecordedDType, Storage, TensorData, TensorStore, element_count};
use probe_files::limits::MAX_PICKLE_BYTES;
use probe_files::map::{FileAccess, Source};

use super::pickle::{self, Class, Element, Heap, Item};
use super::{load_single_bytes, printable};
use crate::ReadError;

/// Name of the index.
pub const INDEX: &str = ".metadata";

/// A tensor of a distributed checkpoint.
#[derive(Debug)]
pub struct DistributedTensor {
    /// Name; keys of nested maps are joined by dots.
    pub name: Box<str>,
    /// Element type.
    pub dtype: RecordedDType,
    /// Sizes of the dimensions.
    pub shape: Box<[usize]>,
    /// The pieces: the index of the first element of each, per dimension, and the key of its bytes in the store.
    pub pieces: Vec<(Box<[usize]>, String)>,
}

/// An opened distributed checkpoint.
#[derive(Debug)]
pub struct Distributed {
    /// The tensors, in the order of the index.
    pub tensors: Vec<DistributedTensor>,
    /// The pieces.
    pub store: Arc<Pieces>,
    /// Tensors whose pieces do not make them up.
    pub faults: Vec<ReadError>,
}

/// Bytes of the pieces.
#[derive(Debug)]
pub struct Pieces {
    folder: PathBuf,
    access: FileAccess,
    listed: HashMap<String, Listed>,
}

#[derive(Debug)]
struct Listed {
    file: Box<str>,
    bytes: Range<u64>,
    sizes: Box<[usize]>,
}

/// A part of a storage, as one of its own.
struct Part {
    of: Storage,
    range: Range<usize>,
}

impl Bytes for Part {
    fn size(&self) -> usize {
        self.range.len()
    }

    fn in_memory(&self) -> Option<&[u8]> {
        self.of.in_memory()?.get(self.range.clone())
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        self.of.read(self.range.start + at, out);
    }

    fn fault(&self) -> Option<String> {
        self.of.fault()
    }

    fn used(&self, bytes: usize) {
        self.of.used(bytes);
    }
}

impl TensorStore for Pieces {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let listed = self.listed.get(key).ok_or_else(|| ReadError::usage(key, "no such piece"))?;
        let path = self.folder.join(&*listed.file);
        let source = Source::open(&path, self.access).map_err(|error| match error {
            ReadError::Io { path, source } if source.kind() == ErrorKind::NotFound => ReadError::format(
                path,
                "the index names this file, and it is not there; copy the whole folder",
            ),
            other => other,
        })?;
        let section = source.section(listed.bytes.clone(), "a piece").map_err(|error| {
            let reason = error.reason();
            ReadError::format(
                &*path,
                format!("{reason}; the file is cut short or another one, copy it again"),
            )
        })?;
        let part = Part { of: section.storage, range: section.range };
        let data = load_single_bytes(&path, Arc::new(part))?;
        if data.shape() != &*listed.sizes {
            let message = format!(
                "piece {} has the shape {:?}, the index says {:?}; the file is damaged, copy or write it again",
                printable(key),
                data.shape(),
                listed.sizes
            );
            return Err(ReadError::format(path, message));
        }
        Ok(data)
    }
}

/// Returns true for a folder with an index.
pub fn recognises(folder: &Path) -> bool {
    folder.join(INDEX).is_file()
}

/// Returns true for a folder with files of ranks and no index.
pub fn lacks_index(folder: &Path) -> bool {
    let is_of_rank =
        |entry: DirEntry| entry.path().extension().is_some_and(|extension| extension == "distcp");
    !recognises(folder)
        && fs::read_dir(folder).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_of_rank)))
}

/// Opens a distributed checkpoint; reads its index only.
///
/// # Errors
/// [`ReadError`] when the index cannot be read, or is not one.
pub fn open(folder: &Path, access: FileAccess) -> Result<Distributed, ReadError> {
    let path = folder.join(INDEX);
    let source = Source::open(&path, access)?;
    if source.len() > MAX_PICKLE_BYTES {
        let (found, limit) = (source.len(), MAX_PICKLE_BYTES);
        return Err(ReadError::Limit { path, what: "size of the index", found, limit });
    }
    let bytes = source.section(0..source.len(), "the index")?;
    let damaged = |message: String| ReadError::format(&*path, message);
    let program = pickle::interpret(bytes.bytes())
        .map_err(|error| damaged(error.to_string().replacen("data.pkl", "the index", 1)))?;
    let heap = &program.heap;
    let part = |name: &str| match heap.field(program.root, name) {
        Some(Item::Dict(dict)) => Ok(heap.dict(dict)),
        _ => Err(damaged(format!("is not an index of a torch distributed checkpoint: it has no {name}"))),
    };
    let places = places(heap, part("storage_data")?);
    let store = Pieces { folder: folder.into(), access, listed: HashMap::new() };
    let mut found = Distributed { tensors: Vec::new(), store: Arc::new(store), faults: Vec::new() };
    let mut listed = HashMap::new();
    for (name, described) in part("state_dict_metadata")? {
        let (Item::Text(name), Some(properties)) = (name, heap.field(*described, "properties")) else {
            continue;
        };
        match tensor(heap, name, *described, properties, &places, &mut listed) {
            Ok(tensor) => found.tensors.push(tensor),
            Err(reason) => found.faults.push(damaged(format!("{}: {reason}", printable(name)))),
        }
    }
    found.store = Arc::new(Pieces { folder: folder.into(), access, listed });
    Ok(found)
}

/// Name and offsets of a piece.
type PieceKey<'a> = (&'a str, Box<[usize]>);

/// Returns file and bytes of every piece.
fn places<'a>(
    heap: &Heap<'a>,
    entries: &[(Item<'a>, Item<'a>)],
) -> HashMap<PieceKey<'a>, (&'a str, Range<u64>)> {
    let place = |(key, place): &(Item<'a>, Item<'a>)| {
        let Item::Text(name) = heap.field(*key, "fqn")? else { return None };
        let offsets = sizes(heap, heap.field(*key, "offset")?)?;
        let Item::Text(file) = heap.field(*place, "relative_path")? else { return None };
        let number = |name: &str| match heap.field(*place, name) {
            Some(Item::Int(number)) => u64::try_from(number).ok(),
            _ => None,
        };
        let (start, length) = (number("offset")?, number("length")?);
        Some(((name, offsets), (file, start..start.checked_add(length)?)))
    };
    entries.iter().filter_map(place).collect()
}

fn tensor<'a>(
    heap: &Heap<'a>,
    name: &'a str,
    described: Item<'a>,
    properties: Item<'a>,
    places: &HashMap<PieceKey<'a>, (&'a str, Range<u64>)>,
    listed: &mut HashMap<String, Listed>,
) -> Result<DistributedTensor, String> {
    let shape = heap.field(described, "size").and_then(|size| sizes(heap, size)).ok_or("has no shape")?;
    let dtype = dtype(heap, properties).ok_or("has no element type")?;
    let Some(Item::List(chunks)) = heap.field(described, "chunks") else {
        return Err("has no list of pieces".to_owned());
    };
    let (mut pieces, mut elements) = (Vec::new(), 0_usize);
    for chunk in heap.list(chunks) {
        let part = |name: &str| heap.field(*chunk, name).and_then(|item| sizes(heap, item));
        let (Some(offsets), Some(sizes)) = (part("offsets"), part("sizes")) else {
            return Err("a piece of it has no place".to_owned());
        };
        let inside = offsets.len() == shape.len()
            && sizes.len() == shape.len()
            && offsets
                .iter()
                .zip(&sizes)
                .zip(&shape)
                .all(|((&offset, &size), &of)| offset.checked_add(size).is_some_and(|end| end <= of));
        if !inside {
            return Err(format!("a piece at {offsets:?} of {sizes:?} does not lie inside {shape:?}"));
        }
        elements = elements.saturating_add(element_count(&sizes).unwrap_or(usize::MAX));
        let (file, bytes) = places
            .get(&(name, offsets.clone()))
            .ok_or_else(|| format!("the index does not say where the piece at {offsets:?} is"))?;
        if matches!(*file, "" | "." | "..") || file.contains(['/', '\\', '\0', ':']) {
            return Err(format!(
                "a piece is in '{}', which is not the name of a file beside the index",
                printable(file)
            ));
        }
        let key = format!("{name} {offsets:?}");
        let place = Listed { file: (*file).into(), bytes: bytes.clone(), sizes };
        if listed.insert(key.clone(), place).is_some() {
            return Err(format!("has two pieces at {offsets:?}"));
        }
        pieces.push((offsets, key));
    }
    if element_count(&shape) != Some(elements) {
        return Err(format!(
            "its pieces have {elements} elements, its shape is {shape:?}; a file of a rank may be missing"
        ));
    }
    Ok(DistributedTensor { name: name.into(), dtype, shape, pieces })
}

/// Returns the element type among the properties of a tensor: a field, or the first of a tuple.
fn dtype<'a>(heap: &Heap<'a>, properties: Item<'a>) -> Option<RecordedDType> {
    let Item::Record(fields) = properties else { return None };
    heap.dict(fields).iter().find_map(|(_, value)| match value {
        Item::Class(Class::DType(Element::Known(dtype))) => Some(RecordedDType::Known(*dtype)),
        Item::Class(Class::DType(Element::Other(name))) => Some(RecordedDType::Other((*name).into())),
        _ => None,
    })
}

fn sizes<'a>(heap: &Heap<'a>, item: Item<'a>) -> Option<Box<[usize]>> {
    let (Item::Size(span) | Item::Tuple(span)) = item else { return None };
    let size = |item: &Item<'a>| match item {
        Item::Int(size) => usize::try_from(*size).ok(),
        _ => None,
    };
    heap.tuple(span).iter().map(size).collect()
}
