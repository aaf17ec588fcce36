//! Files that hold tensors and nothing else: safetensors, npy, npz, checkpoints of torch and of MindSpore,
//! behind one trait.
//!
//! Opening a file reads only its header or index; a tensor's bytes are read when it is loaded, and copied only if
//! necessary (compressed, or in the other byte order). The format is detected from the content, never from the file
//! name.
//!
//! A damaged header is an error of the file. A tensor that cannot be represented (an unsupported element type, a
//! storage of the wrong size) stays listed and fails on loading, so that the others can still be compared.

mod byte_order;
pub mod distributed;
pub(super) mod foreign;
mod mindspore_ckpt;
mod npy;
mod npz;
mod pickle;
mod printable;
mod safetensors;
mod torch_pt;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::ReadError;
use super::archive::Archive;
use probe_dump::{Storage, TensorData, Value};
use probe_files::map::{FileAccess, Source};

pub use printable::printable;

/// A named value of a tensor file.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Name; keys of nested maps and positions in lists are joined by dots. Empty when the file is one bare tensor.
    pub name: Box<str>,
    /// Tensor or scalar. A tensor's `data` key is left empty for the collector of files to fill.
    pub value: Value,
}

/// An opened tensor file.
pub trait TensorFile: Send + Sync + fmt::Debug {
    /// Returns the name of the format, such as `npy`.
    fn format(&self) -> &'static str;

    /// Returns the content, in file order.
    fn entries(&self) -> &[Entry];

    /// Loads the tensor at position `index` of [`entries`](Self::entries).
    ///
    /// # Errors
    /// [`ReadError`] when the tensor cannot be represented or its bytes are damaged, or when there is no tensor at `index`.
    fn load(&self, index: usize) -> Result<TensorData, ReadError>;

    /// Returns the byte range of the file that [`load`](Self::load) reads, or slightly more, if known without
    /// reading.
    fn span(&self, _index: usize) -> Option<Range<u64>> {
        None
    }
}

/// Returns the error for a position beyond the content of a file.
fn no_such_tensor(path: &Path, index: usize) -> ReadError {
    ReadError::usage(path, format!("there is no tensor {index}"))
}

/// Describes a tensor whose elements cannot be read.
fn unsupported(element: &str) -> String {
    format!("element type {} is not supported; save the tensor as float32", printable(element))
}

impl Entry {
    /// Returns the name of its element type.
    fn element(&self) -> String {
        self.value.tensor().map(|record| record.dtype.to_string()).unwrap_or_default()
    }
}

/// Opens any tensor file, detecting its format from its content.
///
/// # Errors
/// [`ReadError`] when the file cannot be opened, has no known format, or its header is damaged.
pub fn open(path: &Path, access: FileAccess) -> Result<Box<dyn TensorFile>, ReadError> {
    open_source(Source::open(path, access)?)
}

/// Opens a tensor file that is already in memory; `path` is used only in errors.
///
/// # Errors
/// As for [`open`], without those of the system.
pub fn open_bytes(path: &Path, bytes: Storage) -> Result<Box<dyn TensorFile>, ReadError> {
    open_source(Source::from_storage(path, bytes))
}

/// Loads the only tensor of a torch or npy file, as capture tools write them: one file per tensor.
///
/// # Errors
/// [`ReadError`] when the file cannot be read, or holds anything but one tensor.
pub fn load_single(path: &Path, access: FileAccess) -> Result<TensorData, ReadError> {
    single(Source::open(path, access)?)
}

/// Like [`load_single`], for bytes already in memory; `path` is used only in errors.
///
/// # Errors
/// As for [`load_single`].
pub fn load_single_bytes(path: &Path, bytes: Storage) -> Result<TensorData, ReadError> {
    single(Source::from_storage(path, bytes))
}

fn single(source: Source) -> Result<TensorData, ReadError> {
    match Format::of(&source)? {
        Format::Npy => npy::load(&source, 0..source.len()),
        Format::Zip => {
            if npz::recognises(&source) {
                let message = "is an npz archive; expected one tensor";
                return Err(ReadError::usage(source.path(), message));
            }
            torch_pt::load_single(&Archive::open(source)?)
        }
        Format::Safetensors => {
            Err(ReadError::usage(source.path(), "is a safetensors file; expected one tensor"))
        }
        Format::Checkpoint => {
            Err(ReadError::usage(source.path(), "is a checkpoint of MindSpore; expected one tensor"))
        }
    }
}

fn open_source(source: Source) -> Result<Box<dyn TensorFile>, ReadError> {
    Ok(match Format::of(&source)? {
        Format::Npy => Box::new(npy::NpyFile::open(source)?),
        Format::Safetensors => Box::new(safetensors::SafetensorsFile::open(source)?),
        Format::Checkpoint => Box::new(mindspore_ckpt::CheckpointFile::open(source)?),
        Format::Zip => {
            if npz::recognises(&source) {
                Box::new(npz::NpzFile::open(source)?)
            } else {
                Box::new(torch_pt::TorchFile::open(Archive::open(source)?)?)
            }
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Npy,
    Zip,
    Safetensors,
    Checkpoint,
}

impl Format {
    fn of(source: &Source) -> Result<Self, ReadError> {
        let head = source.section(0..source.len().min(16), "the first bytes")?;
        let head = head.bytes();
        if head.starts_with(npy::MAGIC) {
            Ok(Self::Npy)
        } else if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
            Ok(Self::Zip)
        } else if let Some(message) = foreign::in_its_place(source) {
            Err(ReadError::format(source.path(), message))
        } else if safetensors::recognises(source, head) {
            Ok(Self::Safetensors)
        } else if mindspore_ckpt::recognises(head) {
            Ok(Self::Checkpoint)
        } else {
            Err(torch_pt::not_a_zip(source, head))
        }
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod mutation;
#[cfg(test)]
mod tests;
