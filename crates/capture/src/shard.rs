//! Tensor data, appended to safetensors files.
//!
//! Space for the header is reserved at the front of a shard and filled when the shard is full or the step ends, so the data
//! is written once and never moved. Until then the file is called `.part`, and only the journal knows its content.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::{CaptureError, DataLocation};
use probe_dump::native::{shard_name, shard_part_name};

/// Bytes reserved for the header of the first shard, enough for about 500 tensors; each later shard has four times as many, up to
/// [`MAX_HEADER`].
const FIRST_HEADER: u64 = 64 << 10;
const MAX_HEADER: u64 = 16 << 20;

/// Largest file, unless one tensor alone is larger.
const MAX_SHARD: u64 = 4 << 30;

/// Buffer size before data is passed to the system; larger tensors bypass it.
const BUFFER: usize = 256 << 10;

/// Size of the header's length field.
const LENGTH: u64 = 8;

/// Size of a header without tensors.
const EMPTY_HEADER: u64 = r#"{"__metadata__":{"format":"pt"}}"#.len() as u64;

/// The shards of one part.
#[derive(Debug)]
pub(crate) struct Shards {
    folder: PathBuf,
    open: Option<Shard>,
    next: u32,
}

#[derive(Debug)]
struct Shard {
    number: u32,
    path: PathBuf,
    file: BufWriter<File>,
    header: Vec<(String, TensorInfo)>,
    /// Size of the header so far.
    header_bytes: u64,
    reserved: u64,
    /// Names in use; they must be unique within a shard.
    names: HashSet<Arc<str>>,
    /// Bytes of data so far.
    data: u64,
}

impl Shards {
    pub(crate) const fn new(folder: PathBuf) -> Self {
        Self { folder, open: None, next: 0 }
    }

    /// Appends one tensor. `bytes` are its elements in row-major order.
    pub(crate) fn push(
        &mut self,
        name: &str,
        dtype: &str,
        shape: &[u64],
        bytes: &[u8],
    ) -> Result<DataLocation, CaptureError> {
        let length = bytes.len() as u64;
        let (dtype, shape) = match safetensors_dtype(dtype) {
            Some(known) => match elements(shape) {
                Some((sizes, count)) if count.checked_mul(known.bitsize() / 8) == Some(bytes.len()) => {
                    (known, sizes)
                }
                _ => {
                    return Err(CaptureError::Usage(format!(
                        "tensor {name:?}: {length} bytes do not make {shape:?} elements of {known}"
                    )));
                }
            },
            None => (Dtype::U8, vec![bytes.len()]),
        };
        if self.open.as_ref().is_some_and(|shard| !shard.has_room(name, length)) {
            self.finish()?;
        }
        let shard = match &mut self.open {
            Some(shard) => shard,
            none => none.insert(Shard::create(&self.folder, self.next, name.len())?),
        };
        self.next = shard.number + 1;
        shard.push(name, dtype, shape, bytes)
    }

    /// Passes everything written so far to the system.
    pub(super) fn flush(&mut self) -> Result<(), CaptureError> {
        match &mut self.open {
            Some(shard) => shard.file.flush().map_err(|error| CaptureError::io(&shard.path, error)),
            None => Ok(()),
        }
    }

    /// Completes the open shard.
    pub(crate) fn finish(&mut self) -> Result<(), CaptureError> {
        self.open.take().map_or(Ok(()), |shard| shard.finish(&self.folder))
    }
}

impl Shard {
    fn create(folder: &Path, number: u32, name: usize) -> Result<Self, CaptureError> {
        let path = folder.join(shard_part_name(number));
        let file = File::create_new(&path).map_err(|error| CaptureError::io(&path, error))?;
        let wanted = FIRST_HEADER.saturating_mul(1 << (2 * number.min(8))).min(MAX_HEADER);
        // At least one entry must fit, however long its name.
        let reserved = wanted.max((entry_bytes(name) + 1024).next_multiple_of(4096));
        let mut file = BufWriter::with_capacity(BUFFER, file);
        file.seek(SeekFrom::Start(LENGTH + reserved)).map_err(|error| CaptureError::io(&path, error))?;
        let (header, names) = (Vec::new(), HashSet::new());
        Ok(Self { number, path, file, header, header_bytes: EMPTY_HEADER, reserved, names, data: 0 })
    }

    fn has_room(&self, name: &str, bytes: u64) -> bool {
        let header = self.header_bytes + entry_bytes(name.len());
        header <= self.reserved && self.data.saturating_add(bytes) <= MAX_SHARD - LENGTH - self.reserved
    }

    fn push(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: Vec<usize>,
        bytes: &[u8],
    ) -> Result<DataLocation, CaptureError> {
        let mut unique: Arc<str> = name.into();
        let mut again = 1;
        while !self.names.insert(unique.clone()) {
            again += 1;
            unique = format!("{name}#{again}").into();
        }
        self.file.write_all(bytes).map_err(|error| CaptureError::io(&self.path, error))?;
        let (start, length) = (self.data, bytes.len() as u64);
        self.data += length;
        let place = |at| usize::try_from(at).map_err(|error| CaptureError::format(&self.path, error));
        let info = TensorInfo { dtype, shape, data_offsets: (place(start)?, place(self.data)?) };
        self.header_bytes +=
            json_bytes(&self.path, &*unique)? + json_bytes(&self.path, &info)? + ",:".len() as u64;
        self.header.push((unique.to_string(), info));
        Ok(DataLocation {
            shard: self.number,
            name: unique,
            offset: LENGTH + self.reserved + start,
            bytes: length,
        })
    }

    fn finish(mut self, folder: &Path) -> Result<(), CaptureError> {
        let refused = |error: &dyn std::fmt::Display| CaptureError::format(&self.path, error);
        let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let metadata =
            Metadata::new(Some(about), std::mem::take(&mut self.header)).map_err(|error| refused(&error))?;
        let mut header = serde_json::to_string(&metadata).map_err(|error| refused(&error))?;
        let padding = self.reserved.saturating_sub(header.len() as u64);
        header.extend(std::iter::repeat_n(' ', usize::try_from(padding).unwrap_or(0)));
        let write = |file: &mut BufWriter<File>, header: &str| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(header.as_bytes())?;
            file.flush()
        };
        write(&mut self.file, &header).map_err(|error| CaptureError::io(&self.path, error))?;
        let target = folder.join(shard_name(self.number));
        fs::rename(&self.path, &target).map_err(|error| CaptureError::io(target, error))
    }
}

/// Largest size of a tensor's entry in the header: every byte of the name may need an escape, and the shape may have
/// 64 sizes.
const fn entry_bytes(name: usize) -> u64 {
    6 * name as u64 + 64 * 21 + 160
}

/// Returns the size of `value` in the header.
fn json_bytes(path: &Path, value: &(impl serde::Serialize + ?Sized)) -> Result<u64, CaptureError> {
    let text = serde_json::to_string(value).map_err(|error| CaptureError::format(path, error))?;
    Ok(text.len() as u64)
}

/// Returns the sizes and the number of elements.
fn elements(shape: &[u64]) -> Option<(Vec<usize>, usize)> {
    let sizes: Vec<usize> = shape.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<_>>()?;
    let count = sizes.iter().try_fold(1_usize, |count, &size| count.checked_mul(size))?;
    Some((sizes, count))
}

/// Returns the safetensors dtype; `None` for types it does not know, which are stored as bytes.
fn safetensors_dtype(name: &str) -> Option<Dtype> {
    Some(match name.strip_prefix("torch.").unwrap_or(name) {
        "float64" => Dtype::F64,
        "float32" => Dtype::F32,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::BF16,
        "float8_e4m3fn" => Dtype::F8_E4M3,
        "float8_e5m2" => Dtype::F8_E5M2,
        "int8" => Dtype::I8,
        "int16" => Dtype::I16,
        "int32" => Dtype::I32,
        "int64" => Dtype::I64,
        "uint8" => Dtype::U8,
        "uint16" => Dtype::U16,
        "uint32" => Dtype::U32,
        "uint64" => Dtype::U64,
        "bool" => Dtype::BOOL,
        "complex64" => Dtype::C64,
        _ => return None,
    })
}
