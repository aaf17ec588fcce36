//! Checkpoints of MindSpore: a protobuf message with a name, dimensions, element type and bytes for each parameter.
//!
//! ```text
//! Checkpoint { repeated Value value = 1 }
//! Value { string tag = 1; TensorProto tensor = 2 }
//! TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 }
//! ```
//!
//! A large parameter is written in several values with one tag, whose bytes follow one another. The mark of a checksum
//! may follow the message.

use std::ops::Range;
use std::sync::Arc;

use super::{Entry, TensorFile, no_such_tensor, printable, unsupported};
use crate::ReadError;
use crate::wire::{Field, WireError, header};
use probe_dump::{DType, MAX_DIMS, RecordedDType, Scalar, TensorData, TensorRecord, Value};
use probe_files::limits::{MAX_LISTED_VALUES, MAX_NAME_BYTES};
use probe_files::map::Source;

/// Tag and wire type of a value of the checkpoint, and of the tag of a value.
const FIRST_FIELD: u8 = 0x0A;

/// Mark before the ten bytes of a checksum at the end of a file.
const CHECKSUM_MARK: &[u8] = b"crc_num";
const CHECKSUM_BYTES: u64 = 17;

/// Element type of a text that a program added.
const TEXT: &str = "str";

/// Bytes that hold the head of any field: a tag and a length.
const HEAD_BYTES: u64 = 20;

/// An opened checkpoint.
#[derive(Debug)]
pub(super) struct CheckpointFile {
    source: Source,
    entries: Vec<Entry>,
    tensors: Vec<Parameter>,
}

/// One parameter, without its name.
#[derive(Debug, Default)]
struct Parameter {
    dtype: Option<DType>,
    shape: Box<[usize]>,
    /// Ranges in the file, which follow one another in the tensor.
    pieces: Vec<Range<u64>>,
}

/// A value as written.
#[derive(Debug, Default)]
struct Written {
    tag: String,
    dims: Vec<u64>,
    element: String,
    content: Range<u64>,
}

/// Returns true if the bytes begin like a checkpoint: a value that begins with its tag.
pub(super) fn recognises(head: &[u8]) -> bool {
    let Some((&FIRST_FIELD, rest)) = head.split_first() else { return false };
    let length = rest.iter().take_while(|&&byte| byte & 0x80 != 0).count() + 1;
    rest.get(length) == Some(&FIRST_FIELD) && rest.get(length + 1).is_some_and(|&size| size > 0)
}

impl CheckpointFile {
    pub(super) fn open(source: Source) -> Result<Self, ReadError> {
        let mut file = Self { entries: Vec::new(), tensors: Vec::new(), source };
        let end = end(&file.source)?;
        let mut at = 0;
        let mut open: Option<Written> = None;
        while at < end {
            let (value, next) = bytes_field(&file.source, at..end, 1, "a value of the checkpoint")?;
            at = next;
            let written = value_of(&file.source, value)?;
            if let (Some(before), Some(last)) = (&open, file.tensors.last_mut())
                && before.tag == written.tag
            {
                last.pieces.push(written.content);
                continue;
            }
            file.add(&written)?;
            open = Some(written);
        }
        Ok(file)
    }

    fn add(&mut self, written: &Written) -> Result<(), ReadError> {
        if self.entries.len() >= MAX_LISTED_VALUES {
            return Err(ReadError::Limit {
                path: self.source.path().into(),
                what: "number of values in the checkpoint",
                found: self.entries.len() as u64 + 1,
                limit: MAX_LISTED_VALUES as u64,
            });
        }
        // A scalar is written with the one dimension 0.
        let dims: &[u64] =
            if written.dims == [0] && !written.content.is_empty() { &[] } else { &written.dims };
        let shape: Result<Vec<usize>, _> = dims.iter().map(|&size| usize::try_from(size)).collect();
        let Ok(shape) = shape else {
            return Err(damaged(
                &self.source,
                &format!("'{}' has dimensions that no machine can hold", printable(&written.tag)),
            ));
        };
        let dtype = DType::parse(&written.element);
        let recorded =
            dtype.map_or_else(|| RecordedDType::Other(written.element.as_str().into()), RecordedDType::Known);
        let value = if written.element == TEXT {
            Value::Scalar(Scalar::Text(wide_text(&self.source, &written.content)?.into()))
        } else {
            Value::Tensor(Arc::new(TensorRecord::new(recorded, dims.into())))
        };
        self.entries.push(Entry { name: written.tag.as_str().into(), value });
        self.tensors.push(Parameter { dtype, shape: shape.into(), pieces: vec![written.content.clone()] });
        Ok(())
    }
}

impl TensorFile for CheckpointFile {
    fn format(&self) -> &'static str {
        "mindspore checkpoint"
    }

    fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn load(&self, index: usize) -> Result<TensorData, ReadError> {
        let path = self.source.path();
        let (Some(tensor), Some(entry)) = (self.tensors.get(index), self.entries.get(index)) else {
            return Err(no_such_tensor(path, index));
        };
        let fault = |message: String| {
            ReadError::format(path, format!("tensor '{}': {message}", printable(&entry.name)))
        };
        let dtype = tensor.dtype.ok_or_else(|| fault(unsupported(&entry.element())))?;
        let written: u64 = tensor.pieces.iter().map(|piece| piece.end - piece.start).sum();
        let needed =
            probe_dump::element_count(&tensor.shape).and_then(|count| count.checked_mul(dtype.size()));
        if needed.map(|needed| needed as u64) != Some(written) {
            return Err(fault(format!(
                "{written} bytes for {:?} elements of {dtype}; the file is damaged, save the checkpoint again",
                tensor.shape
            )));
        }
        if let [piece] = tensor.pieces.as_slice() {
            let bytes = self.source.data(piece.clone(), "a tensor")?;
            return TensorData::contiguous(bytes.storage, bytes.range, dtype, tensor.shape.clone())
                .map_err(|error| fault(error.to_string()));
        }
        // As many bytes as the file has at these places.
        let mut all = Vec::new();
        for piece in &tensor.pieces {
            all.extend_from_slice(self.source.section(piece.clone(), "a piece of a tensor")?.bytes());
        }
        let range = 0..all.len();
        TensorData::contiguous(Arc::new(all), range, dtype, tensor.shape.clone())
            .map_err(|error| fault(error.to_string()))
    }

    fn span(&self, index: usize) -> Option<Range<u64>> {
        let pieces = &self.tensors.get(index)?.pieces;
        Some(pieces.first()?.start..pieces.last()?.end)
    }
}

/// Returns the end of the message.
fn end(source: &Source) -> Result<u64, ReadError> {
    let Some(mark) = source.len().checked_sub(CHECKSUM_BYTES) else { return Ok(source.len()) };
    let found = source.section(mark..mark + CHECKSUM_MARK.len() as u64, "the end")?;
    Ok(if found.bytes() == CHECKSUM_MARK { mark } else { source.len() })
}

/// Reads tag, dimensions and element type, and finds the bytes.
fn value_of(source: &Source, value: Range<u64>) -> Result<Written, ReadError> {
    let mut written = Written::default();
    let mut tensor = None;
    let mut at = value.start;
    while at < value.end {
        let (number, content, next) = field(source, at..value.end)?;
        match (number, content) {
            (1, Content::Bytes(range)) => written.tag = text(source, range, "the name of a parameter")?,
            (2, Content::Bytes(range)) => tensor = Some(range),
            _ => {}
        }
        at = next;
    }
    let Some(tensor) = tensor else {
        return Err(damaged(
            source,
            &format!("'{}' has no tensor; hash tables of parameters are not read", printable(&written.tag)),
        ));
    };
    let mut at = tensor.start;
    while at < tensor.end {
        let (number, content, next) = field(source, at..tensor.end)?;
        match (number, content) {
            (1, Content::Number(size)) => written.dims.push(size),
            (2, Content::Bytes(range)) => written.element = text(source, range, "an element type")?,
            (3, Content::Bytes(range)) => written.content = range,
            _ => {}
        }
        if written.dims.len() > MAX_DIMS {
            return Err(damaged(
                source,
                &format!("'{}' has more than {MAX_DIMS} dimensions", printable(&written.tag)),
            ));
        }
        at = next;
    }
    Ok(written)
}

/// Content of a field.
enum Content {
    Number(u64),
    Bytes(Range<u64>),
    Skipped,
}

/// Returns number, content and end of the field at the start of `within`.
fn field(source: &Source, within: Range<u64>) -> Result<(u32, Content, u64), ReadError> {
    let head = source.section(within.start..within.end.min(within.start + HEAD_BYTES), "a field")?;
    let (number, found, used) = header(head.bytes(), within.start).map_err(|error| wire(source, &error))?;
    let at = within.start + used as u64;
    let (content, size) = match found {
        Field::Varint(value) => (Content::Number(value), 0),
        Field::Fixed(size) => (Content::Skipped, size),
        Field::Bytes(size) => (Content::Bytes(at..at.saturating_add(size)), size),
    };
    match at.checked_add(size).filter(|&end| end <= within.end) {
        Some(end) => Ok((number, content, end)),
        None => Err(damaged(
            source,
            &format!(
                "byte {}: a field of {size} bytes in a message with {} left",
                within.start,
                within.end - at
            ),
        )),
    }
}

/// Returns range and end of a field of bytes that must have the given number.
fn bytes_field(
    source: &Source,
    within: Range<u64>,
    number: u32,
    what: &str,
) -> Result<(Range<u64>, u64), ReadError> {
    let start = within.start;
    match field(source, within)? {
        (found, Content::Bytes(range), next) if found == number => Ok((range, next)),
        _ => Err(damaged(source, &format!("byte {start}: {what} was expected"))),
    }
}

fn text(source: &Source, range: Range<u64>, what: &'static str) -> Result<String, ReadError> {
    if range.end - range.start > MAX_NAME_BYTES as u64 {
        return Err(ReadError::Limit {
            path: source.path().into(),
            what,
            found: range.end - range.start,
            limit: MAX_NAME_BYTES as u64,
        });
    }
    let start = range.start;
    let section = source.section(range, what)?;
    let text = std::str::from_utf8(section.bytes());
    text.map(str::to_owned).map_err(|_| damaged(source, &format!("byte {start}: {what} is not UTF-8")))
}

/// Returns a text that is written with four bytes a character, little endian.
fn wide_text(source: &Source, range: &Range<u64>) -> Result<String, ReadError> {
    if range.end - range.start > MAX_NAME_BYTES as u64 {
        return Ok("(a long text)".into());
    }
    let section = source.section(range.clone(), "a text")?;
    let (characters, _) = section.bytes().as_chunks::<4>();
    let decoded = characters.iter().map(|&bytes| char::from_u32(u32::from_le_bytes(bytes)));
    decoded
        .collect::<Option<String>>()
        .ok_or_else(|| damaged(source, &format!("byte {}: not a text", range.start)))
}

fn wire(source: &Source, error: &WireError) -> ReadError {
    damaged(source, &error.to_string())
}

fn damaged(source: &Source, message: &str) -> ReadError {
    ReadError::format(source.path(), format!("{message}; the checkpoint is damaged, copy or save it again"))
}
