//! Data of tensors in the shards of a part.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::dump::native::{shard_name, shard_part_name};
use crate::dump::{DType, TensorData, TensorStore};
use crate::read::ReadError;
use crate::read::map::{FileAccess, Source};

/// Where the data of one tensor lies, and what it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) shard: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) dtype: Option<DType>,
    pub(super) shape: Box<[u64]>,
}

/// The shards of one part. Each is opened once.
#[derive(Debug)]
pub(super) struct NativeStore {
    folder: PathBuf,
    access: FileAccess,
    places: HashMap<Box<str>, Place>,
    open: Mutex<HashMap<u32, Arc<Source>>>,
}

impl NativeStore {
    pub(super) fn new(folder: PathBuf, access: FileAccess, places: HashMap<Box<str>, Place>) -> Self {
        Self { folder, access, places, open: Mutex::new(HashMap::new()) }
    }

    fn shard(&self, number: u32) -> Result<Arc<Source>, ReadError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = open.get(&number) {
            return Ok(source.clone());
        }
        let whole = self.folder.join(shard_name(number));
        let part = self.folder.join(shard_part_name(number));
        // A shard that was never completed is as good as one that was, up to what was written.
        let path = if !whole.exists() && part.exists() { part } else { whole };
        let source = Arc::new(Source::open(&path, self.access)?);
        open.insert(number, source.clone());
        Ok(source)
    }
}

impl TensorStore for NativeStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let place = self
            .places
            .get(key)
            .ok_or_else(|| ReadError::usage(&*self.folder, format!("no tensor {key:?} in this part")))?;
        let source = self.shard(place.shard)?;
        let damaged =
            |message: String| ReadError::format(source.path(), format!("tensor {key:?}: {message}"));
        let Some(dtype) = place.dtype else {
            return Err(damaged("its element type is not supported".into()));
        };
        let shape: Option<Box<[usize]>> =
            place.shape.iter().map(|&size| usize::try_from(size).ok()).collect();
        let shape = shape.ok_or_else(|| damaged("its shape cannot be addressed".into()))?;
        let end = place.offset.checked_add(place.bytes);
        let end = end.ok_or_else(|| damaged("lies beyond any file".into()))?;
        let section = source.section(place.offset..end, "its data")?;
        let wanted = crate::dump::element_count(&shape).and_then(|count| count.checked_mul(dtype.size()));
        if wanted != Some(section.range.len()) {
            return Err(damaged(format!("{} bytes are not {dtype} of shape {shape:?}", place.bytes)));
        }
        TensorData::contiguous(section.storage, section.range, dtype, shape)
            .map_err(|error| damaged(error.to_string()))
    }
}
