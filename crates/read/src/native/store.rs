//! Tensor data: in the shards of a part, or, for small tensors, in its table. All data is checked once against its recorded hash
//! before it is handed out: damage by a disk or a broken copy must not pass for the result of an op.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::small::SmallTensors;
use crate::ReadError;
use probe_dump::native::{shard_name, shard_part_name};
use probe_dump::{Checksum, DType, Storage, TensorData, TensorStore};
use probe_files::late::{self, Wanted};
use probe_files::map::{FileAccess, Source};
use probe_measure as measure;

/// Location and type of one tensor's data in a shard.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) shard: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) dtype: Option<DType>,
    pub(super) shape: Arc<[u64]>,
    /// xxh3-128 of the bytes, if recorded.
    pub(super) hash: Option<u128>,
}

/// True if the bytes of a tensor match the recorded hash; empty until checked.
type Intact = OnceLock<bool>;

/// Data of one part. Each shard is opened once.
#[derive(Debug)]
pub(super) struct NativeStore {
    folder: PathBuf,
    /// The file the rows were read from.
    table: PathBuf,
    access: FileAccess,
    places: HashMap<Arc<str>, (Place, Intact)>,
    small: SmallTensors,
    open: Mutex<HashMap<u32, Arc<Source>>>,
}

impl NativeStore {
    /// Creates a store of the tensors `small` in `table`, and those at `places` in the shards of the
    /// table's folder.
    pub(super) fn new(
        table: PathBuf,
        access: FileAccess,
        places: HashMap<Arc<str>, Place>,
        small: SmallTensors,
    ) -> Self {
        let folder = table.parent().map(Into::into).unwrap_or_default();
        let places = places.into_iter().map(|(key, place)| (key, (place, Intact::new()))).collect();
        Self { folder, table, access, places, small, open: Mutex::new(HashMap::new()) }
    }

    fn shard(&self, number: u32) -> Result<Arc<Source>, ReadError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = open.get(&number) {
            return Ok(source.clone());
        }
        let whole = self.folder.join(shard_name(number));
        let part = self.folder.join(shard_part_name(number));
        // An incomplete shard is as good as a complete one, up to what was written.
        let path = if !whole.exists() && part.exists() { part } else { whole };
        let source = Arc::new(Source::open(&path, self.access)?);
        open.insert(number, source.clone());
        Ok(source)
    }

    /// Returns the file that holds the data at `place`.
    fn path(&self, place: &Place) -> PathBuf {
        self.shard(place.shard)
            .map_or_else(|_| self.folder.join(shard_name(place.shard)), |source| source.path().into())
    }

    fn load_small(&self, key: &str) -> Result<TensorData, ReadError> {
        let tensor = self
            .small
            .get(key)
            .ok_or_else(|| ReadError::usage(&*self.folder, format!("no tensor {key:?} in this part")))?;
        let damaged =
            |message: String| ReadError::format(self.table.clone(), format!("tensor {key:?}: {message}"));
        let bytes = || self.small.bytes(&self.table, tensor);
        let record = &tensor.record;
        let data = checked(record.dtype.known(), &record.shape, bytes, &damaged)?;
        // Not cached: hashing so few bytes is cheaper than a look-up.
        let same = match record.checksum {
            Some(Checksum::Xxh3(hash)) => measure::hash(data.view()) == hash.bits(),
            _ => true,
        };
        if same { Ok(data) } else { Err(damaged(OTHER_BYTES.into())) }
    }
}

/// Error text for bytes that do not match the hash.
const OTHER_BYTES: &str =
    "its bytes do not match the recorded hash; the file is damaged, copy it or capture it again";

/// Returns a tensor of this type and shape, with the bytes that `bytes` returns.
fn checked(
    dtype: Option<DType>,
    shape: &[u64],
    bytes: impl FnOnce() -> Result<(Storage, Range<usize>), ReadError>,
    damaged: &impl Fn(String) -> ReadError,
) -> Result<TensorData, ReadError> {
    let dtype = dtype.ok_or_else(|| damaged("its element type is not supported".into()))?;
    let shape: Option<Box<[usize]>> = shape.iter().map(|&size| usize::try_from(size).ok()).collect();
    let shape = shape.ok_or_else(|| damaged("its shape cannot be addressed".into()))?;
    let (storage, range) = bytes()?;
    let wanted = probe_dump::element_count(&shape).and_then(|count| count.checked_mul(dtype.size()));
    if wanted != Some(range.len()) {
        return Err(damaged(format!("{} bytes are not {dtype} of shape {shape:?}", range.len())));
    }
    TensorData::contiguous(storage, range, dtype, shape).map_err(|error| damaged(error.to_string()))
}

impl TensorStore for NativeStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let Some((place, intact)) = self.places.get(key) else { return self.load_small(key) };
        let damaged =
            |message: String| ReadError::format(self.path(place), format!("tensor {key:?}: {message}"));
        let bytes = || {
            let end = place.offset.checked_add(place.bytes);
            let end = end.ok_or_else(|| damaged("lies beyond any file".into()))?;
            let section = self.shard(place.shard)?.section(place.offset..end, "its data")?;
            Ok((section.storage, section.range))
        };
        let data = checked(place.dtype, &place.shape, bytes, &damaged)?;
        if let Some(hash) = place.hash {
            let same = *intact.get_or_init(|| measure::hash(data.view()) == hash);
            if let Some(fault) = data.fault() {
                return Err(damaged(fault));
            }
            if !same {
                return Err(damaged(OTHER_BYTES.into()));
            }
        }
        Ok(data)
    }

    fn expect(&self, keys: &[&str]) {
        let wanted = keys.iter().filter_map(|&key| {
            let (Place { shard, offset, bytes, .. }, _) = self.places.get(key)?;
            let path = self.folder.join(shard_name(*shard));
            Some(Wanted { path, range: *offset..offset.checked_add(*bytes)? })
        });
        late::expect(&wanted.collect::<Vec<_>>());
    }

    fn is_late(&self) -> bool {
        late::may_be(&self.folder)
    }

    fn let_go(&self) {
        self.small.let_go();
    }
}
