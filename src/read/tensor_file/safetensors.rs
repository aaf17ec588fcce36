//! Safetensors: the length of a JSON header, the header, and the bytes of all tensors in one block.
//!
//! The header is read here rather than by the `safetensors` crate, because that refuses a whole file for one element type
//! it does not know, keeps the last of two equal names without a word, and does not say which tensor is wrong.
//!
//! Invariants of an opened file, as the format demands: tensors lie one after the other without gap or overlap, their sizes
//! follow from type and shape, and the last ends where the file ends.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::{Entry, TensorFile, printable};
use crate::dump::{DType, MAX_DIMS, RecordedDType, TensorData, TensorRecord, Value, element_count};
use crate::read::ReadError;
use crate::read::limits::MAX_HEADER_BYTES;
use crate::read::map::Source;

/// Bytes of the header's length.
pub(super) const LENGTH_BYTES: u64 = 8;

/// An opened safetensors file.
#[derive(Debug)]
pub(super) struct SafetensorsFile {
    source: Source,
    entries: Vec<Entry>,
    tensors: Vec<Tensor>,
}

#[derive(Debug)]
struct Tensor {
    dtype: Option<DType>,
    shape: Box<[usize]>,
    /// In the file.
    bytes: Range<u64>,
}

impl SafetensorsFile {
    pub(super) fn open(source: Source) -> Result<Self, ReadError> {
        let damaged = |message: String| ReadError::format(source.path(), message);
        let length = header_length(&source)?;
        let start = LENGTH_BYTES + length;
        let header = source.section(LENGTH_BYTES..start, "the header")?;
        let text = std::str::from_utf8(header.bytes())
            .map_err(|e| damaged(format!("the header is not UTF-8 at byte {}", e.valid_up_to())))?;
        let mut described: Vec<(Box<str>, Description)> = Vec::new();
        let mut json = serde_json::Deserializer::from_str(text);
        Header { into: &mut described }.deserialize(&mut json).and_then(|()| json.end()).map_err(|e| {
            let e = printable(&e.to_string());
            damaged(format!("the header is not what safetensors writes: {e}; write the file again"))
        })?;
        described.sort_by_key(|(_, tensor)| tensor.data_offsets);
        let (mut entries, mut tensors) =
            (Vec::with_capacity(described.len()), Vec::with_capacity(described.len()));
        let mut free = 0;
        for (name, description) in described {
            let named = |message: String| {
                damaged(format!(
                    "tensor '{}' {message}; the header is damaged, copy or write the file again",
                    printable(&name)
                ))
            };
            let tensor = description.check(free, start).map_err(named)?;
            free = description.data_offsets.1;
            entries.push(Entry { name, value: Value::Tensor(Box::new(description.record())) });
            tensors.push(tensor);
        }
        if start.checked_add(free) != Some(source.len()) {
            let have = source.len() - start;
            return Err(damaged(format!(
                "the header describes {free} bytes of tensors, {have} are there; the file is cut short or damaged, copy or write it again"
            )));
        }
        Ok(Self { source, entries, tensors })
    }
}

impl TensorFile for SafetensorsFile {
    fn format(&self) -> &'static str {
        "safetensors"
    }

    fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn load(&self, index: usize) -> Result<TensorData, ReadError> {
        let path = self.source.path();
        let (Some(tensor), Some(entry)) = (self.tensors.get(index), self.entries.get(index)) else {
            return Err(ReadError::usage(path, format!("there is no tensor {index}")));
        };
        let damaged = |message: String| {
            ReadError::format(path, format!("tensor '{}': {message}", printable(&entry.name)))
        };
        let Some(dtype) = tensor.dtype else {
            let name = entry.value.tensor().map(|record| record.dtype.to_string()).unwrap_or_default();
            let name = printable(&name);
            return Err(damaged(format!("element type {name} is not supported; save the tensor as float32")));
        };
        let bytes = self.source.section(tensor.bytes.clone(), "a tensor")?;
        TensorData::contiguous(bytes.storage, bytes.range, dtype, tensor.shape.clone())
            .map_err(|e| damaged(e.to_string()))
    }
}

/// True when the bytes begin as a safetensors file does: a length, and the brace of a JSON object.
pub(super) fn recognises(source: &Source, head: &[u8]) -> bool {
    let by_name = source.path().extension().is_some_and(|extension| extension == "safetensors");
    by_name || head.get(8) == Some(&b'{')
}

fn header_length(source: &Source) -> Result<u64, ReadError> {
    let head = source.section(0..LENGTH_BYTES.min(source.len()), "the length of the header")?;
    let Some(length) = head.bytes().first_chunk() else {
        return Err(ReadError::format(
            source.path(),
            format!("has {} bytes, too few for a safetensors file; the write was interrupted", source.len()),
        ));
    };
    let length = u64::from_le_bytes(*length);
    let left = source.len() - LENGTH_BYTES;
    if length > left {
        return Err(ReadError::format(
            source.path(),
            format!(
                "the header should have {length} bytes, but {left} follow; the file is cut short or damaged, copy or write it again"
            ),
        ));
    }
    if length > MAX_HEADER_BYTES {
        return Err(ReadError::Limit {
            path: source.path().into(),
            what: "length of the safetensors header",
            found: length,
            limit: MAX_HEADER_BYTES,
        });
    }
    Ok(length)
}

/// A tensor as the header describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Description {
    /// Checks the description against its place; `free` is where the tensor before it ends, `start` where all begin.
    fn check(&self, free: u64, start: u64) -> Result<Tensor, String> {
        let (begin, end) = self.data_offsets;
        if begin > end {
            return Err(format!("ends at byte {end} of the data, before it begins at {begin}"));
        }
        if begin < free {
            return Err(format!(
                "begins at byte {begin} of the data, inside the tensor before it, which ends at {free}"
            ));
        }
        if begin > free {
            return Err(format!("begins at byte {begin} of the data, leaving a gap after byte {free}"));
        }
        if self.shape.len() > MAX_DIMS {
            return Err(format!("has {} dimensions, at most {MAX_DIMS} are supported", self.shape.len()));
        }
        let overflow = || format!("has a shape, {:?}, of more elements than can be addressed", self.shape);
        let shape: Option<Box<[usize]>> = self.shape.iter().map(|&size| usize::try_from(size).ok()).collect();
        let shape = shape.ok_or_else(overflow)?;
        let count = element_count(&shape).ok_or_else(overflow)?;
        let dtype = dtype(&self.dtype);
        if let Some(dtype) = dtype {
            let size = count.checked_mul(dtype.size()).ok_or_else(overflow)? as u64;
            if size != end - begin {
                let have = end - begin;
                return Err(format!(
                    "needs {size} bytes as {dtype} of shape {:?}, but has {have}",
                    self.shape
                ));
            }
        }
        let place = (start.checked_add(begin), start.checked_add(end));
        let (Some(begin), Some(end)) = place else { return Err(overflow()) };
        Ok(Tensor { dtype, shape, bytes: begin..end })
    }

    fn record(&self) -> TensorRecord {
        let dtype = dtype(&self.dtype)
            .map_or_else(|| RecordedDType::Other(self.dtype.as_str().into()), RecordedDType::Known);
        TensorRecord::new(dtype, self.shape.as_slice().into())
    }
}

fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "F64" => DType::F64,
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::Bf16,
        "F8_E4M3" => DType::F8E4M3,
        "F8_E5M2" => DType::F8E5M2,
        "I8" => DType::I8,
        "I16" => DType::I16,
        "I32" => DType::I32,
        "I64" => DType::I64,
        "U8" => DType::U8,
        "U16" => DType::U16,
        "U32" => DType::U32,
        "U64" => DType::U64,
        "BOOL" => DType::Bool,
        "C64" => DType::C64,
        "C128" => DType::C128,
        _ => return None,
    })
}

/// Reads the header entry by entry, so that a repeated name is seen and an error can name its tensor.
struct Header<'h> {
    into: &'h mut Vec<(Box<str>, Description)>,
}

impl<'de> DeserializeSeed<'de> for Header<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Header<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(Name(name)) = map.next_key()? {
            if name == "__metadata__" {
                map.next_value::<HashMap<Cow<'de, str>, IgnoredAny>>()?;
                continue;
            }
            let description = map
                .next_value()
                .map_err(|e| A::Error::custom(format_args!("tensor '{}': {e}", printable(&name))))?;
            self.into.push((name.as_ref().into(), description));
            if let Some(again) = seen.replace(name) {
                return Err(A::Error::custom(format_args!("two tensors named '{}'", printable(&again))));
            }
        }
        Ok(())
    }
}

/// A key, borrowed where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
