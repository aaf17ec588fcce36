//! Small tensors, whose elements are stored in the table itself. For a million ops they take half a gigabyte, so they are read on demand
//! with their row group, mostly in order, and a few groups are kept in memory.

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

/// Row groups kept at a time. Tensors are requested nearly in order, from several threads, and some are views of earlier ones.
const GROUPS: usize = 8;

/// Chunk size from which no more tensors are added, in bytes.
const CHUNK: usize = 1 << 20;

/// A tensor stored in the table.
#[derive(Debug)]
pub(super) struct SmallTensor {
    row: u32,
    elements: u32,
    /// Record of the tensor's row.
    pub(super) record: Arc<TensorRecord>,
}

impl SmallTensor {
    /// Describes the tensor of `row`, with its bytes in row `elements`. `None` beyond 2^32, which no
    /// table reaches.
    pub(super) fn new(row: u64, elements: u64, record: Arc<TensorRecord>) -> Option<Self> {
        Some(Self { row: row.try_into().ok()?, elements: elements.try_into().ok()?, record })
    }

    /// Returns the row that describes it.
    pub(super) fn row(&self) -> u64 {
        self.row.into()
    }

    /// Returns the row that has its bytes.
    pub(super) fn elements(&self) -> u64 {
        self.elements.into()
    }

    /// Returns true if `record` describes the same tensor, provided the bytes are the same.
    pub(super) fn is_as(&self, record: &TensorRecord) -> bool {
        let own = &self.record;
        (&own.dtype, &own.shape, &own.checksum) == (&record.dtype, &record.shape, &record.checksum)
    }
}

/// Bytes of tensors, by the row that has them. Many share one allocation, since separate ones would take a fifth more.
#[derive(Debug, Default)]
pub(super) struct Elements {
    /// Rows, ascending, each with its chunk and its range there.
    rows: Vec<(u64, usize, Range<u32>)>,
    /// Full chunks.
    chunks: Vec<Arc<Vec<u8>>>,
    /// The chunk being filled.
    open: Vec<u8>,
    /// Bytes that may still be added: the file holds each one once.
    left: u64,
}

impl Elements {
    /// Creates an empty store for a file of `bytes` bytes.
    pub(super) fn within(bytes: u64) -> Self {
        Self { left: bytes, ..Self::default() }
    }

    /// Counts the bytes in a row of the table at `path`.
    ///
    /// # Errors
    /// [`ReadError::Format`] when there are more than the file has.
    pub(super) fn count(&mut self, path: &Path, bytes: &[u8]) -> Result<(), ReadError> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            ReadError::format(path, "its small tensors have more bytes than the file; capture it again")
        })?;
        Ok(())
    }

    /// Adds the bytes of a row; rows arrive in order.
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

    /// Ends the current chunk.
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

/// Small tensors of one part.
#[derive(Debug)]
pub(super) struct SmallTensors {
    /// By row, ascending.
    tensors: Vec<SmallTensor>,
    elements: Held,
}

/// Bytes kept in memory.
#[derive(Debug)]
pub(super) enum Held {
    /// All of them.
    All(Elements),
    /// Only those of some row groups, from least to most recently used.
    Groups(Mutex<VecDeque<Elements>>),
}

impl SmallTensors {
    pub(super) const fn new(tensors: Vec<SmallTensor>, elements: Held) -> Self {
        Self { tensors, elements }
    }

    /// Returns the key of the tensor that a row describes.
    pub(super) fn key(row: u64) -> String {
        format!("row {row}")
    }

    /// Returns the row of a [`key`](Self::key).
    pub(super) fn row(key: &str) -> Option<u64> {
        key.strip_prefix("row ")?.parse().ok()
    }

    pub(super) fn get(&self, key: &str) -> Option<&SmallTensor> {
        find(&self.tensors, Self::row(key)?)
    }

    /// Returns the bytes of a tensor in the table at `path`.
    ///
    /// # Errors
    /// [`ReadError`] when they must be read and cannot be.
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

    /// Drops the bytes that can be read again.
    pub(super) fn let_go(&self) {
        if let Held::Groups(groups) = &self.elements {
            groups.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

/// Returns the tensor that `row` describes.
pub(super) fn find(tensors: &[SmallTensor], row: u64) -> Option<&SmallTensor> {
    tensors.get(tensors.binary_search_by_key(&row, SmallTensor::row).ok()?)
}

/// Reads the elements in the row group of `row`.
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
