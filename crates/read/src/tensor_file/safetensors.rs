//! Safetensors: the length of a JSON header, the header, and the bytes of all tensors in one block.
//!
//! The `safetensors` crate knows the element types and decides whether a header is valid. This module adds a header budget
//! and handles what the crate does not: it rejects a whole file for one unknown element type, silently keeps the last of two
//! equal names, and does not say which tensor is wrong.
//!
//! Invariants of an opened file, as the format requires: tensors are contiguous without gap or overlap, their sizes follow
//! from type and shape, and the last ends at the end of the file.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::Deserialize;
use serde::de::value::Error as UnknownName;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor,
};

use super::{Entry, TensorFile, no_such_tensor, printable, unsupported};
use crate::ReadError;
use probe_dump::{DType, MAX_DIMS, RecordedDType, TensorData, TensorRecord, Value};
use probe_files::limits::MAX_HEADER_BYTES;
use probe_files::map::Source;

/// Size of the header's length field.
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
    /// Range in the file.
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
        let infos = described.iter().map(|(name, tensor)| (name.to_string(), tensor.info())).collect();
        let refused = Metadata::new(None, infos).err().map(|refusal| {
            explain(&described)
                .unwrap_or_else(|| format!("header is refused: {}", printable(&refusal.to_string())))
        });
        if let Some(message) = refused.or_else(|| too_many_dimensions(&described)) {
            return Err(damaged(format!("{message}; the header is damaged, copy or write the file again")));
        }
        let free = described.last().map_or(0, |(_, tensor)| tensor.data_offsets.1 as u64);
        if start.checked_add(free) != Some(source.len()) {
            let have = source.len() - start;
            return Err(damaged(format!(
                "the header describes {free} bytes of tensors, {have} are there; the file is cut short or damaged, copy or write it again"
            )));
        }
        let (entries, tensors) =
            described.into_iter().map(|(name, tensor)| tensor.entry(name, start)).unzip();
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
            return Err(no_such_tensor(path, index));
        };
        let damaged = |message: String| {
            ReadError::format(path, format!("tensor '{}': {message}", printable(&entry.name)))
        };
        let dtype = tensor.dtype.ok_or_else(|| damaged(unsupported(&entry.element())))?;
        let bytes = self.source.data(tensor.bytes.clone(), "a tensor")?;
        TensorData::contiguous(bytes.storage, bytes.range, dtype, tensor.shape.clone())
            .map_err(|e| damaged(e.to_string()))
    }

    fn span(&self, index: usize) -> Option<Range<u64>> {
        self.tensors.get(index).map(|tensor| tensor.bytes.clone())
    }
}

/// Returns true if the bytes begin like a safetensors file: a length, and the brace of a JSON
/// object.
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

/// Description of a tensor in the header.
#[derive(Debug, Deserialize)]
struct Description {
    dtype: Element,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// Two binary64 numbers: written by some tools, and by older captures, but unknown to the crate.
const COMPLEX128: &str = "C128";

/// An element type, or the name of one unknown to the crate.
#[derive(Debug)]
enum Element {
    Known(Dtype),
    Other(Box<str>),
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Name(name) = Name::deserialize(deserializer)?;
        let known: Result<Dtype, UnknownName> = Dtype::deserialize(name.as_ref().into_deserializer());
        Ok(known.map_or_else(|_| Self::Other(name.into()), Self::Known))
    }
}

impl Description {
    /// Returns the description that the crate checks. For an unknown element type, only the bytes are
    /// checked.
    fn info(&self) -> TensorInfo {
        let (begin, end) = self.data_offsets;
        let (dtype, shape) = match self.dtype {
            Element::Known(dtype) => (dtype, self.shape.clone()),
            // Twice as large as the crate's type.
            Element::Other(ref name) if &**name == COMPLEX128 => {
                (Dtype::C64, self.shape.iter().copied().chain([2]).collect())
            }
            Element::Other(_) => (Dtype::U8, vec![end.saturating_sub(begin)]),
        };
        TensorInfo { dtype, shape, data_offsets: self.data_offsets }
    }

    /// Converts a checked description; all data begins at `start`.
    fn entry(self, name: Box<str>, start: u64) -> (Entry, Tensor) {
        let dtype = match &self.dtype {
            Element::Known(dtype) => known(*dtype),
            Element::Other(name) => (&**name == COMPLEX128).then_some(DType::C128),
        };
        let recorded = dtype.map_or_else(
            || match &self.dtype {
                Element::Known(dtype) => RecordedDType::Other(dtype.to_string().into()),
                Element::Other(name) => RecordedDType::Other(name.clone()),
            },
            RecordedDType::Known,
        );
        let shape = self.shape.iter().map(|&size| size as u64).collect();
        let (begin, end) = (self.data_offsets.0 as u64, self.data_offsets.1 as u64);
        let value = Value::Tensor(Arc::new(TensorRecord::new(recorded, shape)));
        let tensor = Tensor { dtype, shape: self.shape.into(), bytes: start + begin..start + end };
        (Entry { name, value }, tensor)
    }
}

/// Explains why the crate rejects a header, with the tensor and its place; in the order of the
/// data.
fn explain(described: &[(Box<str>, Description)]) -> Option<String> {
    let mut free = 0;
    described.iter().find_map(|(name, tensor)| {
        let (begin, end) = tensor.data_offsets;
        let fault = if begin > end {
            Some(format!("ends at byte {end} of the data, before it begins at {begin}"))
        } else if begin < free {
            Some(format!(
                "begins at byte {begin} of the data, inside the tensor before it, which ends at {free}"
            ))
        } else if begin > free {
            Some(format!("begins at byte {begin} of the data, leaving a gap after byte {free}"))
        } else {
            size_fault(&tensor.info())
        };
        free = end;
        fault.map(|fault| format!("tensor '{}' {fault}", printable(name)))
    })
}

fn size_fault(TensorInfo { dtype, shape, data_offsets: (begin, end) }: &TensorInfo) -> Option<String> {
    let bits = (shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size)))
        .and_then(|count| count.checked_mul(dtype.bitsize()));
    let Some(bits) = bits else {
        return Some(format!("has a shape, {shape:?}, of more elements than can be addressed"));
    };
    let (needs, has) = (bits.div_ceil(8), end - begin);
    let name = known(*dtype).map_or_else(|| dtype.to_string(), |dtype| dtype.to_string());
    (needs != has || bits % 8 != 0)
        .then(|| format!("needs {needs} bytes as {name} of shape {shape:?}, but has {has}"))
}

fn too_many_dimensions(described: &[(Box<str>, Description)]) -> Option<String> {
    described.iter().find(|(_, tensor)| tensor.shape.len() > MAX_DIMS).map(|(name, tensor)| {
        let (name, count) = (printable(name), tensor.shape.len());
        format!("tensor '{name}' has {count} dimensions, at most {MAX_DIMS} are supported")
    })
}

/// Returns the dtype, if its values can be compared.
fn known(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::F8_E5M2 => DType::F8E5M2,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::BOOL => DType::Bool,
        Dtype::C64 => DType::C64,
        _ => return None,
    })
}

/// Reads the header entry by entry, to detect repeated names and to name the tensor in errors.
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

/// A key, borrowed if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn described() -> impl Strategy<Value = Vec<(Box<str>, Description)>> {
        let element = prop_oneof![
            Just(Dtype::F32),
            Just(Dtype::BF16),
            Just(Dtype::U8),
            Just(Dtype::F4),
            Just(Dtype::F6_E2M3)
        ];
        let tensor = (element, proptest::collection::vec(0_usize..5, 0..3), any::<bool>(), -2_isize..3);
        proptest::collection::vec(tensor, 0..5).prop_map(|tensors| {
            let mut free = 0_usize;
            let place = |(index, (dtype, shape, sound, shift)): (usize, (Dtype, Vec<usize>, bool, isize))| {
                let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
                let shift = if sound { 0 } else { shift };
                let begin = free.saturating_add_signed(shift);
                free = (begin + bytes).saturating_add_signed(shift / 2);
                let dtype = Element::Known(dtype);
                (index.to_string().into(), Description { dtype, shape, data_offsets: (begin, free) })
            };
            tensors.into_iter().enumerate().map(place).collect()
        })
    }

    proptest! {
        /// The crate decides: everything it rejects is explained, and there is nothing to explain in what it
        /// accepts.
        #[test]
        fn every_refusal_of_the_crate_names_its_tensor(tensors in described()) {
            let infos = tensors.iter().map(|(name, tensor)| (name.to_string(), tensor.info())).collect();
            prop_assert_eq!(Metadata::new(None, infos).is_err(), explain(&tensors).is_some());
        }
    }

    #[test]
    fn one_unknown_element_type_leaves_the_others() {
        let header = br#"{"a":{"dtype":"F3","shape":[9],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[1, 2, 3, 4, 5, 6]].concat();
        let source = Source::from_storage(std::path::Path::new("x.safetensors"), std::sync::Arc::new(bytes));
        let file = SafetensorsFile::open(source).unwrap();
        assert!(file.load(0).unwrap_err().to_string().contains("element type F3 is not supported"));
        assert_eq!(file.load(1).unwrap().view().to_bytes(), [5, 6]);
    }
}
