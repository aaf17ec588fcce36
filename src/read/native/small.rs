//! Small tensors, whose elements lie in the table itself. Once all of them were measured their bytes are let go, half a gigabyte for a
//! million ops; what is asked for again is read again, with the row group that it is in.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::Array as _;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;

use super::table;
use crate::dump::native::columns::Column;
use crate::dump::{DType, Storage};
use crate::read::ReadError;

/// Bytes from which on a chunk takes no more tensors.
const CHUNK: usize = 1 << 20;

/// A tensor in the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SmallTensor {
    /// Row that describes it.
    pub(super) row: u64,
    /// Row that has its bytes.
    pub(super) elements: u64,
    pub(super) dtype: Option<DType>,
    pub(super) shape: Arc<[u64]>,
    /// xxh3-128 of the bytes, big endian, where it was recorded.
    pub(super) hash: Option<[u8; 16]>,
}

impl SmallTensor {
    /// Whether both rows describe the same tensor.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        Self { row: other.row, ..self.clone() } == *other
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

    /// Adds the bytes that a row of the table at `path` has; rows come in order.
    ///
    /// # Errors
    /// [`ReadError::Format`] when there are more than the file has.
    pub(super) fn push(&mut self, path: &Path, row: u64, bytes: &[u8]) -> Result<(), ReadError> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            ReadError::format(path, "its small tensors have more bytes than the file; capture it again")
        })?;
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

    fn close(&mut self) {
        let mut full = std::mem::take(&mut self.open);
        full.shrink_to_fit();
        self.chunks.push(full.into());
    }

    pub(super) fn has(&self, row: u64) -> bool {
        self.rows.binary_search_by_key(&row, |(row, ..)| *row).is_ok()
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
    /// Of all tensors; once they were let go, of the row group that was read last.
    elements: Mutex<Elements>,
    /// Whether they can be read again: a journal has no groups to find them by.
    in_table: bool,
}

impl SmallTensors {
    pub(super) fn new(tensors: Vec<SmallTensor>, mut elements: Elements, in_table: bool) -> Self {
        elements.close();
        elements.rows.shrink_to_fit();
        Self { tensors, elements: Mutex::new(elements), in_table }
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
    /// [`ReadError`] when they have to be read again and cannot be.
    pub(super) fn bytes(
        &self,
        path: &Path,
        tensor: &SmallTensor,
    ) -> Result<(Storage, Range<usize>), ReadError> {
        let mut held = self.elements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = held.get(tensor.elements) {
            return Ok(found);
        }
        *held = group_of(path, tensor.elements)?;
        held.get(tensor.elements).ok_or_else(|| {
            ReadError::format(path, format!("row {} has no data any more; compare again", tensor.elements))
        })
    }

    /// Lets the bytes go.
    pub(super) fn let_go(&self) {
        if self.in_table {
            *self.elements.lock().unwrap_or_else(PoisonError::into_inner) = Elements::default();
        }
    }
}

/// The tensor that `row` describes.
pub(super) fn find(tensors: &[SmallTensor], row: u64) -> Option<&SmallTensor> {
    tensors.get(tensors.binary_search_by_key(&row, |tensor| tensor.row).ok()?)
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
