//! Memory that the launches of one stream use, one after the other: tables, partial results, and rows of results until they are fetched.

use std::sync::Arc;

use pyo3::prelude::*;

use super::batch::{COUNTERS, ITEMS, LAUNCHED, PARTIAL};
use super::driver::{Failed, Function, OnDevice};
use crate::interrupt;

/// Bytes of results that are allocated at once.
const CHUNK: usize = 4 << 20;

/// Results begin at multiples of this, the largest element that is copied.
const ALIGNED: usize = 16;

/// Words of the table of signs, 2^24 in all, after which they come again.
const SIGNS: u32 = 1 << 18;

/// Threads of a block that fills it.
const FILLING: u32 = 256;

/// Gives so many bytes of zeros on a device: the tensor that they are, and their address.
pub(super) type Allocate<'a> = dyn Fn(Python<'_>, usize) -> PyResult<(Py<PyAny>, u64)> + 'a;

/// Memory on the device that torch has allocated, and that belongs to a stream.
#[derive(Debug)]
struct Memory {
    /// The tensor that it is.
    _tensor: Py<PyAny>,
    address: u64,
}

/// Allocates memory of a device: `allocate(index, bytes)` gives a tensor of zeros and its address.
pub(super) fn allocated(
    py: Python<'_>,
    allocate: &Py<PyAny>,
    index: i32,
    bytes: usize,
) -> PyResult<(Py<PyAny>, u64)> {
    interrupt::asked(py, || allocate.call1(py, (index, bytes))?.extract(py))
}

/// Results that are fetched together.
#[derive(Debug)]
pub(super) struct Chunk {
    memory: Memory,
    pub(super) device: OnDevice,
}

impl Chunk {
    pub(super) const fn address(&self) -> u64 {
        self.memory.address
    }
}

/// Resources of one stream.
#[derive(Debug)]
pub(super) struct Stream {
    device: OnDevice,
    tables: [Memory; 3],
    chunks: Vec<Arc<Chunk>>,
    /// The chunk that takes results now, and bytes of it that are taken.
    open: usize,
    taken: usize,
}

impl Stream {
    /// Allocates the tables, and fills that of signs in `stream`, the current one.
    pub(super) fn new(
        py: Python<'_>,
        device: OnDevice,
        fill: Function,
        stream: usize,
        allocate: &Allocate<'_>,
    ) -> PyResult<Result<Self, Failed>> {
        let memory = |bytes| {
            let (tensor, address) = allocate(py, bytes)?;
            PyResult::Ok(Memory { _tensor: tensor, address })
        };
        let signs = memory(SIGNS as usize * 8)?;
        let partials = memory(LAUNCHED as usize * PARTIAL)?;
        let counters = memory(ITEMS * COUNTERS * 4)?;
        #[expect(unsafe_code, reason = "a kernel runs on memory that it is given")]
        // SAFETY: the kernel takes the address of the table, whose memory is kept as long as this.
        let filled = unsafe { device.launch(fill, SIGNS / FILLING, FILLING, stream, &signs.address) };
        let tables = [signs, partials, counters];
        Ok(filled.map(|()| Self { device, tables, chunks: Vec::new(), open: 0, taken: 0 }))
    }

    /// Addresses of the tables.
    pub(super) fn tables(&self) -> [u64; 3] {
        [self.tables[0].address, self.tables[1].address, self.tables[2].address]
    }

    /// Room for results of so many bytes: the chunk, and where they begin in it.
    pub(super) fn room(
        &mut self,
        py: Python<'_>,
        bytes: usize,
        allocate: &Allocate<'_>,
    ) -> PyResult<(Arc<Chunk>, usize)> {
        let bytes = bytes.next_multiple_of(ALIGNED);
        if self.chunks.is_empty() || self.taken + bytes > CHUNK {
            // One whose results were all fetched, if there is one.
            let free = self.chunks.iter().position(|chunk| Arc::strong_count(chunk) == 1);
            self.open = if let Some(free) = free {
                free
            } else {
                let (tensor, address) = allocate(py, CHUNK)?;
                let memory = Memory { _tensor: tensor, address };
                self.chunks.push(Arc::new(Chunk { memory, device: self.device }));
                self.chunks.len() - 1
            };
            self.taken = 0;
        }
        let chunk = self
            .chunks
            .get(self.open)
            .cloned()
            .ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("no chunk"))?;
        let begin = self.taken;
        self.taken += bytes;
        Ok((chunk, begin))
    }
}
