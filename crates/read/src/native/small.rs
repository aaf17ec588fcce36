//! Small tensors, whose elements lie in the table itself. Of a million ops they take half a gigabyte: they are read with the row group that
//! they are in when they are asked for, which is mostly in order, and some groups are held.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::Array as _;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;

use super::table;
use crate::ReadError;
use probe_dump::native::columns::Column;
use probe_dump::{Storage, TensorRecord};

/// Row groups that are held at a time. Tensors are asked for nearly in order, from several threads, and some are views of earlier ones.
const GROUPS: usize = 8;

/// Bytes from which on a chunk takes no more tensors.
const CHUNK: usize = 1 << 20;

/// A tensor in the table.
#[derive(Debug)]
pub(super) struct SmallTensor {
    row: u32,
    elements: u32,
    /// What the row says of it.
    pub(super) record: Arc<TensorRecord>,
}

impl SmallTensor {
    /// What `row` describes, and `elements` has the bytes of. `None` beyond 2^32, which no table has.
    pub(super) fn new(row: u64, elements: u64, record: Arc<TensorRecord>) -> Option<Self> {
        Some(Self { row: row.try_into().ok()?, elements: elements.try_into().ok()?, record })
    }

    /// Row that describes it.
    pub(super) fn row(&self) -> u64 {
        self.row.into()
    }

    /// Row that has its bytes.
    pub(super) fn elements(&self) -> u64 {
        self.elements.into()
    }

    /// Whether `record` describes the same tensor, if its bytes are the same.
    pub(super) fn is_as(&self, record: &TensorRecord) -> bool {
        let own = &self.record;
        (&own.dtype, &own.shape, &own.checksum) == (&record.dtype, &record.shape, &record.checksum)
    }
}

/// Bytes of tensors by the row that has them. Many lie in one piece of memory, since each by itself would take a fifth more.
#[derive(Debug, Default)]
pub(super) struct Elements {
    /// Rows, ascending, each with its chunk and its place there.
    rows: Vec<(u64, usize, Range<u32>)>,
    /// Full chunks.
    chunks: Vec<Arc<Vec<u8>>>,
    /// The chunk that is being filled.
    open: Vec<u8>,
    /// Bytes that they may still take: they lie in the file, each once.
    left: u64,
}

impl Elements {
    /// None yet, of a file of `bytes` bytes.
    pub(super) fn within(bytes: u64) -> Self {
        Self { left: bytes, ..Self::default() }
    }

    /// Counts the bytes that a row of the table at `path` has.
    ///
    /// # Errors
    /// [`ReadError::Format`] when there are more than the file has.
    pub(super) fn count(&mut self, path: &Path, bytes: &[u8]) -> Result<(), ReadError> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            ReadError::format(path, "its small tensors have more bytes than the file; capture it again")
        })?;
        Ok(())
    }

    /// Adds them; rows come in order.
    ///
    /// # Errors
    /// As for [`count`](Self::count).
    pub(super) fn push(&mut self, path: &Path, row: u64, bytes: &[u8]) -> Result<(), ReadError> {
        self.count(path, bytes)?;
        let start = self.open.len();
        self.open.extend(bytes);
        // One value of a table has less than 2 GiB.
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.rows.push((row, self.chunks.len(), place(start)..place(self.open.len())));
        if self.open.len() >= CHUNK {
            self.close();
        }
        Ok(())
    }

    /// No more come for now.
    pub(super) fn close(&mut self) {
        let mut full = std::mem::take(&mut self.open);
        full.shrink_to_fit();
        self.chunks.push(full.into());
    }

    fn get(&self, row: u64) -> Option<(Storage, Range<usize>)> {
        let index = self.rows.binary_search_by_key(&row, |(row, ..)| *row).ok()?;
        let (_, chunk, range) = self.rows.get(index)?;
        Some((self.chunks.get(*chunk)?.clone(), range.start as usize..range.end as usize))
    }
}

/// The small tensors of one part.
#[derive(Debug)]
pub(super) struct SmallTensors {
    /// By row, ascending.
    tensors: Vec<SmallTensor>,
    elements: Held,
}

/// Bytes that are in memory.
#[derive(Debug)]
pub(super) enum Held {
    /// All of them.
    All(Elements),
    /// Those of some row groups, from the one that was asked for least recently to the last.
    Groups(Mutex<VecDeque<Elements>>),
}

impl SmallTensors {
    pub(super) const fn new(tensors: Vec<SmallTensor>, elements: Held) -> Self {
        Self { tensors, elements }
    }

    /// The key of the tensor that a row describes.
    pub(super) fn key(row: u64) -> String {
        format!("row {row}")
    }

    /// The row of a [`key`](Self::key).
    pub(super) fn row(key: &str) -> Option<u64> {
        key.strip_prefix("row ")?.parse().ok()
    }

    pub(super) fn get(&self, key: &str) -> Option<&SmallTensor> {
        find(&self.tensors, Self::row(key)?)
    }

    /// Where the bytes of a tensor in the table at `path` are.
    ///
    /// # Errors
    /// [`ReadError`] when they have to be read and cannot be.
    pub(super) fn bytes(
        &self,
        path: &Path,
        tensor: &SmallTensor,
    ) -> Result<(Storage, Range<usize>), ReadError> {
        let row = tensor.elements();
        let found = match &self.elements {
            Held::All(elements) => elements.get(row),
            Held::Groups(groups) => {
                let mut groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
                let held = groups.iter().position(|group| group.get(row).is_some());
                let group = match held.and_then(|held| groups.remove(held)) {
                    Some(group) => group,
                    None => group_of(path, row)?,
                };
                let found = group.get(row);
                groups.push_back(group);
                if groups.len() > GROUPS {
                    groups.pop_front();
                }
                found
            }
        };
        found.ok_or_else(|| ReadError::format(path, format!("row {row} has no data any more; compare again")))
    }

    /// Lets the bytes go that can be read again.
    pub(super) fn let_go(&self) {
        if let Held::Groups(groups) = &self.elements {
            groups.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

/// The tensor that `row` describes.
pub(super) fn find(tensors: &[SmallTensor], row: u64) -> Option<&SmallTensor> {
    tensors.get(tensors.binary_search_by_key(&row, SmallTensor::row).ok()?)
}

/// The elements that lie in the row group of `row`.
fn group_of(path: &Path, row: u64) -> Result<Elements, ReadError> {
    let size = path.metadata().map_err(|error| ReadError::io(path, error))?.len();
    let mut elements = Elements::within(size);
    table::read_group(path, &[Column::Data.name()], row, |first, batch| {
        let column = batch.column_by_name(Column::Data.name());
        let Some(numbers) = column.and_then(|column| column.as_dictionary_opt::<Int32Type>()) else {
            return Ok(());
        };
        let Some(values) = numbers.values().as_binary_opt::<i32>() else { return Ok(()) };
        for (row, number) in (first..).zip(numbers.keys()) {
            let number = number.and_then(|number| usize::try_from(number).ok());
            if let Some(number) = number.filter(|&number| number < values.len() && values.is_valid(number)) {
                elements.push(path, row, values.value(number))?;
            }
        }
        Ok(())
    })?;
    elements.close();
    Ok(elements)
}
