//! `NumPy`'s `.npy`: a magic number, a header that is a Python dict literal, and the bytes of one array.
//!
//! A dedicated parser reads the header literal that `NumPy` writes; it is never evaluated. The header length is
//! checked against the file size before anything is allocated, and the declared size must match the actual one.

mod literal;

use std::ops::Range;
use std::sync::Arc;

use literal::Literal;

use super::byte_order::swapped;
use super::{Entry, TensorFile, no_such_tensor, printable};
use crate::ReadError;
use probe_dump::{
    DType, RecordedDType, TensorData, TensorMetadata, TensorRecord, Value, contiguous_strides, element_count,
};
use probe_files::limits::MAX_HEADER_BYTES;
use probe_files::map::{Section, Source};

/// First bytes of every npy file.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest fixed part before the header text, in bytes.
pub(super) const PREAMBLE_BYTES: u64 = 12;

/// Content of an array's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    descr: Descr,
    fortran: bool,
    shape: Box<[usize]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Descr {
    Known {
        dtype: DType,
        big_endian: bool,
    },
    /// Strings, objects, dates, records, raw bytes: listed, but not comparable.
    Other(Box<str>),
}

/// Returns the record of an array with an unreadable header; loading it gives the same error.
pub(super) fn damaged(error: &ReadError) -> TensorRecord {
    let header = Header { descr: Descr::Other("unreadable".into()), fortran: false, shape: Box::default() };
    TensorMetadata { damage: Some(error.to_string().into()), ..header.metadata() }.into()
}

/// Reads the fixed part and returns the range of the header text, relative to the magic number.
pub(super) fn header_range(preamble: &[u8]) -> Result<Range<u64>, String> {
    if !preamble.starts_with(MAGIC) {
        return Err("does not begin with the npy magic number".into());
    }
    let version = preamble.get(6..8).ok_or("ends inside the npy preamble")?;
    match version {
        [1, 0] => {
            let length = preamble.get(8..10).ok_or("ends inside the npy preamble")?;
            let length = length.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
            Ok(10..10 + length)
        }
        [2 | 3, 0] => {
            let length = preamble.get(8..12).ok_or("ends inside the npy preamble")?;
            let length = length.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
            Ok(12..12 + length)
        }
        other => Err(format!("npy format version {other:?} is unknown; versions 1.0, 2.0 and 3.0 are read")),
    }
}

impl Header {
    /// Parses the header text.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut literal = Literal::new(text);
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        literal.expect(b'{')?;
        while !literal.take(b'}') {
            let key = literal.string()?;
            literal.expect(b':')?;
            let again = match key {
                "descr" => descr.replace(literal.descr()?).is_some(),
                "fortran_order" => fortran.replace(literal.truth()?).is_some(),
                "shape" => shape.replace(literal.shape()?).is_some(),
                other => return Err(format!("npy header has an unknown key '{}'", printable(other))),
            };
            if again {
                return Err(format!("npy header states '{key}' twice"));
            }
            if !literal.take(b',') {
                literal.expect(b'}')?;
                break;
            }
        }
        literal.skip_blanks();
        if literal.position() != text.len() {
            return Err(format!("npy header has text after its dict, at byte {}", literal.position()));
        }
        match (descr, fortran, shape) {
            (Some(descr), Some(fortran), Some(shape)) => Ok(Self { descr, fortran, shape }),
            _ => Err("npy header lacks one of 'descr', 'fortran_order' and 'shape'".into()),
        }
    }

    /// Returns the metadata of this array for a dump.
    pub(super) fn metadata(&self) -> TensorMetadata {
        let dtype = match &self.descr {
            Descr::Known { dtype, .. } => RecordedDType::Known(*dtype),
            Descr::Other(text) => RecordedDType::Other(text.clone()),
        };
        TensorMetadata::new(dtype, self.shape.iter().map(|&size| size as u64).collect())
    }

    /// Returns the number of bytes the array must have, if its element type is known.
    pub(super) fn byte_count(&self) -> Result<Option<u64>, String> {
        let Descr::Known { dtype, .. } = &self.descr else { return Ok(None) };
        element_count(&self.shape)
            .and_then(|count| count.checked_mul(dtype.size()))
            .map(|bytes| Some(bytes as u64))
            .ok_or_else(|| format!("the shape {:?} has more elements than can be addressed", self.shape))
    }

    /// Combines header and bytes; `data` must have the size given by [`byte_count`](Self::byte_count).
    pub(super) fn tensor(&self, data: Section) -> Result<TensorData, String> {
        let (dtype, big_endian) = match &self.descr {
            Descr::Known { dtype, big_endian } => (*dtype, *big_endian),
            Descr::Other(text) => {
                return Err(format!(
                    "element type '{}' is not numeric; save the array as a numeric type (bfloat16: as float32)",
                    printable(text)
                ));
            }
        };
        let (have, need) = (data.range.len() as u64, self.byte_count()?);
        if need != Some(have) {
            let need = need.unwrap_or(0);
            return Err(format!(
                "{dtype} of shape {:?} needs {need} bytes of data, {have} are there; the file is cut short or damaged, copy or write it again",
                self.shape
            ));
        }
        let data = if big_endian || self.fortran { data.into_memory()? } else { data };
        let Section { storage, range } = if big_endian {
            let copy = swapped(data.bytes(), dtype);
            let range = 0..copy.len();
            Section { storage: std::sync::Arc::new(copy), range }
        } else {
            data
        };
        let strides = if self.fortran {
            let reversed: Vec<usize> = self.shape.iter().rev().copied().collect();
            contiguous_strides(&reversed).into_iter().rev().collect()
        } else {
            contiguous_strides(&self.shape)
        };
        TensorData::strided(storage, range, dtype, self.shape.clone(), strides.into(), 0)
            .map_err(|e| e.to_string())
    }
}

/// Reads the header of an array in `range` of `source`; returns it with the range of its data.
pub(super) fn read_header(source: &Source, range: Range<u64>) -> Result<(Header, Range<u64>), ReadError> {
    let damaged = |message: String| ReadError::format(source.path(), message);
    let size = range.end.saturating_sub(range.start);
    let preamble = source.section(range.start..range.start + size.min(PREAMBLE_BYTES), "the npy preamble")?;
    let header = header_range(preamble.bytes()).map_err(|e| damaged(format!("{e}; write the file again")))?;
    let length = header.end - header.start;
    if header.end > size {
        return Err(damaged(format!(
            "npy header should be {length} bytes long, but only {} bytes follow; the file is cut short or damaged, copy or write it again",
            size.saturating_sub(header.start)
        )));
    }
    if length > MAX_HEADER_BYTES {
        return Err(ReadError::Limit {
            path: source.path().into(),
            what: "length of the npy header",
            found: length,
            limit: MAX_HEADER_BYTES,
        });
    }
    let text = source.section(range.start + header.start..range.start + header.end, "the npy header")?;
    let parsed = Header::parse(text.bytes())
        .map_err(|e| damaged(format!("{e}; write the file again with numpy.save")))?;
    Ok((parsed, range.start + header.end..range.end))
}

/// Loads the array in `range` of `source`.
pub(super) fn load(source: &Source, range: Range<u64>) -> Result<TensorData, ReadError> {
    let (header, data) = read_header(source, range)?;
    header
        .tensor(source.data(data, "the array")?)
        .map_err(|message| ReadError::format(source.path(), message))
}

/// An opened npy file; its only entry has an empty name.
#[derive(Debug)]
pub(super) struct NpyFile {
    source: Source,
    entries: [Entry; 1],
}

impl NpyFile {
    pub(super) fn open(source: Source) -> Result<Self, ReadError> {
        let (header, _) = read_header(&source, 0..source.len())?;
        let value = Value::Tensor(Arc::new(header.metadata().into()));
        Ok(Self { source, entries: [Entry { name: "".into(), value }] })
    }
}

impl TensorFile for NpyFile {
    fn format(&self) -> &'static str {
        "npy"
    }

    fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn load(&self, index: usize) -> Result<TensorData, ReadError> {
        if index != 0 {
            return Err(no_such_tensor(self.source.path(), index));
        }
        load(&self.source, 0..self.source.len())
    }

    fn span(&self, _index: usize) -> Option<Range<u64>> {
        Some(0..self.source.len())
    }
}

/// Returns the type that `NumPy` calls by a letter and a number of bytes, such as `f4`.
pub(in crate::tensor_file) fn element_type(kind: &str) -> Option<DType> {
    Some(match kind {
        "f8" => DType::F64,
        "f4" => DType::F32,
        "f2" => DType::F16,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "b1" => DType::Bool,
        "c8" => DType::C64,
        "c16" => DType::C128,
        _ => return None,
    })
}

impl Descr {
    fn parse(text: &str) -> Self {
        let other = || Self::Other(text.into());
        let Some((order @ ("<" | ">" | "|" | "="), kind)) = text.split_at_checked(1) else {
            return other();
        };
        let Some(dtype) = element_type(kind) else { return other() };
        // Without a byte order only single bytes can be read; `=` would mean the machine that wrote the
        // file.
        match order {
            "<" => Self::Known { dtype, big_endian: false },
            ">" => Self::Known { dtype, big_endian: true },
            _ if dtype.size() == 1 => Self::Known { dtype, big_endian: false },
            _ => other(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Header, String> {
        Header::parse(text.as_bytes())
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        let header =
            parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n").unwrap();
        assert_eq!(header.descr, Descr::Known { dtype: DType::F32, big_endian: false });
        assert_eq!((header.fortran, &*header.shape, header.byte_count()), (false, &[2, 3][..], Ok(Some(24))));
        for (shape, sizes) in [("()", &[][..]), ("(7,)", &[7]), ("(7L, 1L)", &[7, 1])] {
            let header =
                parse(&format!("{{'descr': '|b1', 'fortran_order': True, 'shape': {shape}}}")).unwrap();
            assert_eq!(&*header.shape, sizes);
        }
        let records =
            "{'descr': [('a)', '<f4'), ('b', '<i2', (2,))], 'fortran_order': False, 'shape': (1,), }";
        assert!(matches!(parse(records).unwrap().descr, Descr::Other(_)));
    }

    #[test]
    fn only_numeric_types_with_a_byte_order_are_known() {
        for text in
            ["|O", "<U5", "|S3", "<M8[ns]", "|V2", "<V2", "<f16", "f4", "|f4", "=f4", "", "é", "<", "<e"]
        {
            assert_eq!(Descr::parse(text), Descr::Other(text.into()));
        }
    }

    #[test]
    fn damaged_headers_are_refused_with_the_place() {
        for (text, expected) in [
            ("", "'{' at byte 0"),
            ("{'descr': '<f4', 'fortran_order': False}", "lacks one of"),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", "True or False at byte 34"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (-1,)}", "a size at byte 50"),
            (
                "{'descr': '<f4', 'fortran_order': True, 'shape': (99999999999999999999,)}",
                "this machine can address",
            ),
            ("{'descr': __import__('os').system('x'), ", "a quoted name at byte 10"),
            ("{'descr': '<f4', 'descr': '<f4', ", "'descr' twice"),
            ("{'descr': [('a', '<f4')", "the end of 'descr'"),
            ("{'x': 1}", "unknown key 'x'"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': ()} x", "text after its dict"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
