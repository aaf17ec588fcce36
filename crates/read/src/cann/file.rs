//! One dump file: `u64 length`, the header, then the bytes of every input, output, buffer and workspace, in this order.
//!
//! A payload may be longer than its tensor, and a file longer than its payloads: devices pad. A tensor whose payload is missing, too short
//! or of a type that cannot be decoded stays listed and fails on loading, so that the others can still be compared.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::debug;
use super::header::{Described, Header};
use super::layout::{Layout, Stored, layout};
use super::types::{ElementType, decode_hifloat8};
use crate::ReadError;
use crate::tensor_file::{Entry, TensorFile};
use crate::wire::Message;
use probe_dump::{
    DType, RecordedDType, SlotSide, Storage, TensorData, TensorRecord, Value, contiguous_strides,
    element_count,
};
use probe_files::limits::MAX_CANN_HEADER_BYTES;
use probe_files::map::{FileAccess, Source};

/// Size of the length field at the start of the file.
const LENGTH: u64 = 8;

/// Magic number of dumps from edge chips, which have a different format.
const EDGE_MAGIC: [u8; 4] = 0x5A5A_5A5A_u32.to_le_bytes();

/// An opened dump file.
#[derive(Debug)]
pub struct DumpFile {
    source: Source,
    header: Header,
    entries: Vec<Entry>,
    payloads: Vec<Payload>,
}

/// Location and decoding of a tensor's bytes.
#[derive(Debug, Clone, PartialEq)]
struct Payload {
    side: SlotSide,
    /// Their range, or the reason there are none.
    bytes: Result<Range<u64>, String>,
    decoding: Decoding,
}

#[derive(Debug, Clone, PartialEq)]
enum Decoding {
    /// No tensor: an optional argument that was not passed.
    Absent,
    /// This many elements in the given layout, of the file's type.
    Tensor { element: ElementType, count: usize, layout: Layout },
    /// Not decodable, with the reason.
    Impossible(String),
}

impl DumpFile {
    /// Opens a file.
    ///
    /// # Errors
    /// [`ReadError`] when the file cannot be opened or its header is damaged.
    pub fn open(path: &Path, access: FileAccess) -> Result<Self, ReadError> {
        Self::of(Source::open(path, access)?)
    }

    /// Opens a file that is already in memory, as passed to the runtime's callback; `path` is used only in errors.
    ///
    /// # Errors
    /// As for [`open`](Self::open), without those of the system.
    pub fn of_bytes(path: &Path, bytes: Storage) -> Result<Self, ReadError> {
        Self::of(Source::from_storage(path, bytes))
    }

    fn of(source: Source) -> Result<Self, ReadError> {
        let range = header_range(&source)?;
        let header = source.section(range.clone(), "the header")?;
        let header = Header::read(Message { bytes: header.bytes(), start: range.start })
            .map_err(|error| ReadError::format(source.path(), format!("damaged header: {error}")))?;
        let (entries, payloads) = list(&header, range.end, source.len());
        Ok(Self { source, header, entries, payloads })
    }

    /// Returns the operator's name in the program; empty if the file lacks it.
    pub fn op_name(&self) -> &str {
        &self.header.op_name
    }

    /// Returns the time of the dump, in microseconds; 0 if the file lacks it.
    pub const fn time(&self) -> u64 {
        self.header.time
    }

    /// Returns the sizes of the L1 buffers and workspaces dumped beside the tensors, in bytes.
    pub fn extras(&self) -> (&[u64], &[u64]) {
        (&self.header.buffers, &self.header.spaces)
    }

    /// Returns whether the tensor at position `index` of the entries is an input or an output of
    /// the op.
    pub(super) fn side(&self, index: usize) -> SlotSide {
        self.payloads.get(index).map_or(SlotSide::Output, |payload| payload.side)
    }

    /// Returns the device's overflow report, if this is such a file: the payload of the first
    /// output.
    pub(super) fn overflow(&self) -> Result<Vec<debug::Overflow>, ReadError> {
        let output = self.payloads.iter().find(|payload| payload.side == SlotSide::Output);
        let damaged = |message: String| ReadError::format(self.source.path(), message);
        let output =
            output.ok_or_else(|| damaged("holds no output, where an overflow is recorded".into()))?;
        let range = output.bytes.clone().map_err(&damaged)?;
        // The old format has 2048 bytes, the new one fewer than 200; the rest is ignored.
        let end = range.end.min(range.start + debug::MAX_BYTES);
        let section = self.source.section(range.start..end, "the overflow")?;
        debug::read(section.bytes()).map_err(damaged)
    }

    fn damaged(&self, index: usize, message: &str) -> ReadError {
        let name = self.entries.get(index).map_or("", |entry| &*entry.name);
        ReadError::format(self.source.path(), format!("{name}: {message}"))
    }
}

impl TensorFile for DumpFile {
    fn format(&self) -> &'static str {
        super::FORMAT
    }

    fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn load(&self, index: usize) -> Result<TensorData, ReadError> {
        let damaged = |message: String| self.damaged(index, &message);
        let payload =
            self.payloads.get(index).ok_or_else(|| damaged(format!("there is no tensor {index}")))?;
        let (element, count, layout) = match &payload.decoding {
            Decoding::Tensor { element, count, layout } => (*element, *count, layout),
            Decoding::Absent => return Err(damaged("was not given".into())),
            Decoding::Impossible(reason) => return Err(damaged(reason.clone())),
        };
        let bytes = payload.bytes.clone().map_err(&damaged)?;
        let size = element.size().unwrap_or(1);
        // Both were checked against the payload when the file was opened.
        let end = bytes.start + (count * size) as u64;
        let what = self.entries.get(index).map_or("", |entry| &*entry.name);
        let decoded = |bytes: &[u8]| -> Storage {
            Arc::new(if element == ElementType::HiFloat8 { decode_hifloat8(bytes) } else { bytes.to_vec() })
        };
        let (storage, range, shape) = match layout {
            Layout::Same(shape) if element != ElementType::HiFloat8 => {
                let section = self.source.data(bytes.start..end, what)?;
                (section.storage, section.range, shape.clone())
            }
            Layout::Same(shape) => {
                let storage = decoded(self.source.section(bytes.start..end, what)?.bytes());
                (Arc::clone(&storage), 0..storage.size(), shape.clone())
            }
            Layout::Gather(gather) => {
                let section = self.source.section(bytes.start..end, what)?;
                let gathered = gather.collect(section.bytes(), size);
                let gathered = gathered.ok_or_else(|| damaged("its layout exceeds its payload".into()))?;
                let storage = decoded(&gathered);
                (Arc::clone(&storage), 0..storage.size(), gather.shape.clone())
            }
            Layout::Unknown(_) => {
                let section = self.source.data(bytes.start..end, what)?;
                (section.storage, section.range, self.stored_shape(index))
            }
        };
        TensorData::contiguous(storage, range, decoded_type(element), shape)
            .map_err(|error| damaged(error.to_string()))
    }
}

impl DumpFile {
    /// Returns the shape in the record: the stored one if no other is known.
    fn stored_shape(&self, index: usize) -> Box<[usize]> {
        let record = self.entries.get(index).and_then(|entry| entry.value.tensor());
        record.map_or_else(Box::default, |record| {
            record.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect()
        })
    }
}

/// Returns the byte range of the header.
fn header_range(source: &Source) -> Result<Range<u64>, ReadError> {
    let damaged = |message: String| ReadError::format(source.path(), message);
    let size = source.len();
    if size <= LENGTH {
        return Err(damaged(format!(
            "{size} bytes are not a dump of an operator; it was not written completely"
        )));
    }
    let first = source.section(0..LENGTH, "the length of the header")?;
    let length = first.bytes().try_into().map_or(0, u64::from_le_bytes);
    let magic = source.section(LENGTH..size.min(LENGTH + 4), "the header")?;
    if magic.bytes() == EDGE_MAGIC {
        return Err(ReadError::usage(
            source.path(),
            "is a dump of an edge chip, whose format differs and is not read yet",
        ));
    }
    if length > size - LENGTH {
        return Err(damaged(format!(
            "the header should have {length} bytes, but {} follow; the file is cut short or not a dump of an operator",
            size - LENGTH
        )));
    }
    if length > MAX_CANN_HEADER_BYTES {
        return Err(ReadError::Limit {
            path: source.path().into(),
            what: "the size of the header in bytes",
            found: length,
            limit: MAX_CANN_HEADER_BYTES,
        });
    }
    Ok(LENGTH..LENGTH + length)
}

/// Lists the tensors of the header, with the location of each payload. Payloads begin at `start`.
fn list(header: &Header, start: u64, size: u64) -> (Vec<Entry>, Vec<Payload>) {
    let inputs = header.inputs.iter().enumerate().map(|(at, tensor)| (SlotSide::Input, at, tensor));
    let outputs = header.outputs.iter().enumerate().map(|(at, tensor)| (SlotSide::Output, at, tensor));
    // `None` once the sizes exceed anything a file could hold.
    let mut next = Some(start);
    inputs
        .chain(outputs)
        .map(|(side, at, described)| {
            let begin = next;
            next = begin.and_then(|begin| begin.checked_add(described.size));
            let bytes = match (begin, next) {
                (Some(begin), Some(end)) if end <= size => Ok(begin..end),
                (Some(begin), Some(end)) => Err(format!(
                    "its bytes {begin} to {end} are not in the file, which has {size}; it is cut short"
                )),
                _ => Err("the sizes in the header add up to more than any file can hold".into()),
            };
            let (value, decoding) = entry(described);
            let word = if side == SlotSide::Input { "input" } else { "output" };
            (Entry { name: format!("{word}.{at}").into(), value }, Payload { side, bytes, decoding })
        })
        .unzip()
}

/// Returns the record of a tensor, and how to decode its bytes.
fn entry(described: &Described) -> (Value, Decoding) {
    let element = ElementType::of(described.data_type);
    if described.size == 0 && described.shape.is_empty() {
        return (Value::None, Decoding::Absent);
    }
    let scalar = element.size().is_some_and(|size| size as u64 == described.size);
    if element == ElementType::Bytes || (described.shape.is_empty() && !scalar) {
        return bytes(described);
    }
    let Some(size) = element.size() else {
        let record = TensorRecord::new(recorded(element), described.shape.clone().into());
        let reason = format!("elements of type {} are not decoded", recorded(element));
        return (Value::Tensor(Arc::new(record)), Decoding::Impossible(reason));
    };
    match elements(described, element, size) {
        Ok(Elements { count, layout, shape }) => {
            let record = record(described, element, &layout, &shape);
            (Value::Tensor(Arc::new(record)), Decoding::Tensor { element, count, layout })
        }
        Err(reason) => {
            let record = TensorRecord::new(recorded(element), described.shape.clone().into());
            (Value::Tensor(Arc::new(record)), Decoding::Impossible(reason))
        }
    }
}

/// The elements of a tensor whose type is decoded.
struct Elements {
    count: usize,
    layout: Layout,
    /// The stored shape.
    shape: Box<[usize]>,
}

/// Returns the elements of a tensor, or why they cannot be decoded: shape and payload must fit. An element has `size` bytes.
fn elements(described: &Described, element: ElementType, size: usize) -> Result<Elements, String> {
    let sizes = |shape: &[u64]| -> Option<Box<[usize]>> {
        let shape: Box<[usize]> =
            shape.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<_>>()?;
        // Strides must not overflow either, even for an empty tensor.
        shape.iter().try_fold(size, |product, &size| product.checked_mul(size.max(1)))?;
        Some(shape)
    };
    let (Some(shape), Some(original)) = (sizes(&described.shape), sizes(&described.original_shape)) else {
        return Err(format!(
            "the shape {:?} of {:?} has more elements than can be addressed",
            described.shape, described.original_shape
        ));
    };
    let count = element_count(&shape).unwrap_or(usize::MAX);
    let needed = count.checked_mul(size).map(|needed| needed as u64);
    if needed.is_none_or(|needed| needed > described.size) {
        return Err(format!(
            "{} elements of {} need {} bytes, its payload has {}",
            count,
            recorded(element),
            count.saturating_mul(size),
            described.size
        ));
    }
    let layout = layout(Stored {
        format: described.format,
        shape: &shape,
        original: &original,
        original_format: described.original_format,
        groups: described.groups,
    });
    Ok(Elements { count, layout, shape })
}

/// Returns the record of a decoded tensor, in its logical shape if the layout is known.
fn record(described: &Described, element: ElementType, layout: &Layout, stored: &[usize]) -> TensorRecord {
    let logical: &[usize] = match layout {
        Layout::Gather(gather) => &gather.shape,
        Layout::Same(shape) => shape,
        Layout::Unknown(_) => stored,
    };
    let widened = logical.iter().map(|&size| size as u64).collect();
    let mut record = TensorRecord::new(recorded(element), widened);
    if let Layout::Unknown(reason) = layout {
        record.layout = Some(super::types::format_name(described.format).into());
        record.note = Some(reason.clone().into());
    }
    let steps = contiguous_strides(logical);
    record.strides = steps.iter().map(|&step| i64::try_from(step).ok()).collect();
    record
}

/// Describes a value without type or shape as raw bytes.
fn bytes(described: &Described) -> (Value, Decoding) {
    let record = TensorRecord::new(RecordedDType::Known(DType::I8), [described.size].into());
    let decoding = match usize::try_from(described.size) {
        Ok(count) => {
            let layout = Layout::Same([count].into());
            Decoding::Tensor { element: ElementType::Known(DType::I8), count, layout }
        }
        Err(_) => Decoding::Impossible("its size cannot be addressed".into()),
    };
    (Value::Tensor(Arc::new(record)), decoding)
}

fn recorded(element: ElementType) -> RecordedDType {
    match element {
        ElementType::Known(dtype) => RecordedDType::Known(dtype),
        ElementType::HiFloat8 => RecordedDType::Other("hifloat8".into()),
        ElementType::Named(name) => RecordedDType::Other(name.into()),
        ElementType::Bytes => RecordedDType::Known(DType::I8),
    }
}

/// Returns the dtype of the decoded elements.
const fn decoded_type(element: ElementType) -> DType {
    match element {
        ElementType::Known(dtype) => dtype,
        ElementType::HiFloat8 => DType::F32,
        ElementType::Named(_) | ElementType::Bytes => DType::I8,
    }
}
