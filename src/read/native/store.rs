//! Data of tensors: in the shards of a part, or of small tensors in its table. Each is held against the hash that was recorded of it,
//! once, before it is handed out: what a damaged disk or a broken copy made of it must not pass for what an op computed.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::dump::native::{shard_name, shard_part_name};
use crate::dump::{DType, Storage, TensorData, TensorStore};
use crate::measure;
use crate::read::ReadError;
use crate::read::late::{self, Wanted};
use crate::read::map::{FileAccess, Source};

/// Where the data of one tensor lies.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum At {
    /// In the table; here it is.
    Table(Arc<Vec<u8>>),
    /// At these bytes of a shard.
    Shard { shard: u32, offset: u64, bytes: u64 },
}

/// Where the data of one tensor lies, and what it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) at: At,
    pub(super) dtype: Option<DType>,
    pub(super) shape: Arc<[u64]>,
    /// xxh3-128 of the bytes, where it was recorded.
    pub(super) hash: Option<u128>,
}

/// Whether the bytes of a tensor have the hash that was recorded; empty until they were looked at.
type Intact = OnceLock<bool>;

/// The data of one part. Each shard is opened once.
#[derive(Debug)]
pub(super) struct NativeStore {
    folder: PathBuf,
    /// What the rows were read from.
    table: PathBuf,
    access: FileAccess,
    places: HashMap<Arc<str>, (Place, Intact)>,
    open: Mutex<HashMap<u32, Arc<Source>>>,
}

impl NativeStore {
    /// The data at `places` in `table`, and in the shards of the folder that this is in.
    pub(super) fn new(table: PathBuf, access: FileAccess, places: HashMap<Arc<str>, Place>) -> Self {
        let folder = table.parent().map(Into::into).unwrap_or_default();
        let places = places.into_iter().map(|(key, place)| (key, (place, Intact::new()))).collect();
        Self { folder, table, access, places, open: Mutex::new(HashMap::new()) }
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

    /// The file that holds what lies at `at`.
    fn path(&self, at: &At) -> PathBuf {
        match at {
            At::Table(_) => self.table.clone(),
            At::Shard { shard, .. } => self
                .shard(*shard)
                .map_or_else(|_| self.folder.join(shard_name(*shard)), |source| source.path().into()),
        }
    }
}

impl TensorStore for NativeStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let (place, intact) = self
            .places
            .get(key)
            .ok_or_else(|| ReadError::usage(&*self.folder, format!("no tensor {key:?} in this part")))?;
        let damaged =
            |message: String| ReadError::format(self.path(&place.at), format!("tensor {key:?}: {message}"));
        let Some(dtype) = place.dtype else {
            return Err(damaged("its element type is not supported".into()));
        };
        let shape: Option<Box<[usize]>> =
            place.shape.iter().map(|&size| usize::try_from(size).ok()).collect();
        let shape = shape.ok_or_else(|| damaged("its shape cannot be addressed".into()))?;
        let (storage, range): (Storage, Range<usize>) = match &place.at {
            At::Table(bytes) => (bytes.clone(), 0..bytes.len()),
            At::Shard { shard, offset, bytes } => {
                let end = offset.checked_add(*bytes);
                let end = end.ok_or_else(|| damaged("lies beyond any file".into()))?;
                let section = self.shard(*shard)?.section(*offset..end, "its data")?;
                (section.storage, section.range)
            }
        };
        let wanted = crate::dump::element_count(&shape).and_then(|count| count.checked_mul(dtype.size()));
        if wanted != Some(range.len()) {
            return Err(damaged(format!("{} bytes are not {dtype} of shape {shape:?}", range.len())));
        }
        let data = TensorData::contiguous(storage, range, dtype, shape)
            .map_err(|error| damaged(error.to_string()))?;
        if let Some(hash) = place.hash {
            let same = *intact.get_or_init(|| measure::hash(data.view()) == hash);
            if let Some(fault) = data.fault() {
                return Err(damaged(fault));
            }
            if !same {
                let message = "its bytes are not those that were recorded, by their hash; the file is damaged, copy it or capture it again";
                return Err(damaged(message.into()));
            }
        }
        Ok(data)
    }
    fn expect(&self, keys: &[&str]) {
        let wanted = keys.iter().filter_map(|&key| {
            let (Place { at: At::Shard { shard, offset, bytes }, .. }, _) = self.places.get(key)? else {
                return None;
            };
            let path = self.folder.join(shard_name(*shard));
            Some(Wanted { path, range: *offset..offset.checked_add(*bytes)? })
        });
        late::expect(&wanted.collect::<Vec<_>>());
    }

    fn is_late(&self) -> bool {
        late::may_be(&self.folder)
    }
}
