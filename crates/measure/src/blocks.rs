//! Cuts tensors into chunks, distributes the chunks to threads and merges the results in index order.
//!
//! Runs on the threads of the current rayon pool.

use std::ops::Range;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use probe_dump::{DType, TensorRef};

use super::arithmetic::{
    Arithmetic, ComplexDouble, ComplexSingle, Double, Signed64, Single, Unsigned64, Wide,
};
use super::decode::Decode;
use super::kernel::{Chunk, Decoded, Kernel, one_side};
use super::simd::{self, Body, DefaultFloat, Path};
use super::sums::{BLOCK, CHUNK, SideSums, Totals};

/// Tensors of fewer elements stay on the calling thread.
const PARALLEL: usize = 1 << 20;

/// Number of chunks whose results are held at once, so that memory does not grow with the tensor.
const BATCH: usize = 4096;

/// Threads that may work on one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Only the calling thread.
    Caller,
    /// The caller's pool, if the tensor is large.
    Pool,
}

/// Runs `chunk` on every chunk of `0..count` and passes the results to `merge` in index order.
pub(crate) fn for_chunks<T: Send>(
    threads: Threads,
    count: usize,
    chunk: impl Fn(Range<usize>) -> T + Sync,
    mut merge: impl FnMut(Range<usize>, T),
) {
    let range = |index: usize| index * CHUNK..count.min((index + 1) * CHUNK);
    let chunks = count.div_ceil(CHUNK);
    if threads == Threads::Caller || count < PARALLEL {
        (0..chunks).for_each(|index| merge(range(index), chunk(range(index))));
        return;
    }
    for first in (0..chunks).step_by(BATCH) {
        let batch = first..chunks.min(first + BATCH);
        let results: Vec<T> = batch.clone().into_par_iter().map(|index| chunk(range(index))).collect();
        for (index, result) in batch.zip(results) {
            merge(range(index), result);
        }
    }
}

/// One tensor as a source of blocks: in place when contiguous, else gathered block by block.
pub(crate) struct Blocks<'a> {
    tensor: TensorRef<'a>,
    contiguous: Option<&'a [u8]>,
    /// True if the elements come in row-major order.
    row_major: bool,
    /// Elements beyond this are not requested.
    end: usize,
    /// The elements in `scratch`.
    window: Range<usize>,
    scratch: Vec<u8>,
}

impl<'a> Blocks<'a> {
    /// Returns the blocks of the elements of `tensor` before `end`.
    pub(crate) fn of(tensor: TensorRef<'a>, end: usize) -> Self {
        let contiguous = tensor.contiguous_bytes();
        Self { tensor, contiguous, row_major: true, end, window: 0..0, scratch: Vec::new() }
    }

    /// Returns the blocks of all elements of `tensor`, in memory order if that avoids gathering.
    pub(crate) fn in_any_order(tensor: TensorRef<'a>) -> Self {
        let blocks = Self::of(tensor, tensor.len());
        let Some(in_memory) = tensor.dense_bytes().filter(|_| blocks.contiguous.is_none()) else {
            return blocks;
        };
        Self { contiguous: Some(in_memory), row_major: false, ..blocks }
    }

    /// Returns true if elements come in row-major order rather than memory order.
    pub(crate) const fn is_row_major(&self) -> bool {
        self.row_major
    }

    /// Returns the tensor that blocks are taken from.
    pub(crate) const fn tensor(&self) -> TensorRef<'a> {
        self.tensor
    }

    /// Returns the bytes of the elements `range`, in block order.
    pub(crate) fn bytes(&mut self, range: Range<usize>) -> &[u8] {
        let size = self.tensor.dtype().size();
        if let Some(bytes) = self.contiguous {
            return &bytes[range.start * size..range.end * size];
        }
        if range.start < self.window.start || range.end > self.window.end {
            self.window = self.tensor.window(range.clone(), self.end);
            self.scratch.resize(self.window.len() * size, 0);
            self.tensor.gather(self.window.clone(), &mut self.scratch);
        }
        &self.scratch[(range.start - self.window.start) * size..(range.end - self.window.start) * size]
    }
}

/// Iterates over the blocks of a chunk.
pub(crate) fn blocks_of(chunk: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    chunk.clone().step_by(BLOCK).map(move |start| start..chunk.end.min(start + BLOCK))
}

/// Arithmetic for a pair of element types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pairing {
    Single,
    Double,
    Signed64,
    Unsigned64,
    Wide,
    ComplexSingle,
    ComplexDouble,
}

impl Pairing {
    const fn of(b: DType, c: DType) -> Self {
        const fn narrow(dtype: DType) -> bool {
            matches!(dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::F8E4M3 | DType::F8E5M2)
        }
        const fn whole(dtype: DType) -> bool {
            dtype.is_integer() || matches!(dtype, DType::Bool)
        }
        if b.is_complex() || c.is_complex() {
            let single = (narrow(b) || matches!(b, DType::C64)) && (narrow(c) || matches!(c, DType::C64));
            return if single { Self::ComplexSingle } else { Self::ComplexDouble };
        }
        match (b, c) {
            (DType::I64, DType::I64) => Self::Signed64,
            (DType::U64, DType::U64) => Self::Unsigned64,
            _ if narrow(b) && narrow(c) => Self::Single,
            (DType::I64 | DType::U64, other) | (other, DType::I64 | DType::U64) if whole(other) => Self::Wide,
            _ => Self::Double,
        }
    }
}

/// Returns the kernel for two dtypes: a vector kernel if `body` has one, else the portable one.
pub(crate) fn kernel(body: Body, b: DType, c: DType) -> Box<dyn Kernel> {
    fn decoded<A: Arithmetic<Item: Decode> + 'static>(body: Body, b: DType, c: DType) -> Box<dyn Kernel> {
        Box::new(Decoded::<A>::new(body, b, c))
    }
    if b == c
        && let Some(kernel) = simd::kernel(body, b)
    {
        return kernel;
    }
    match Pairing::of(b, c) {
        Pairing::Single => decoded::<Single>(body, b, c),
        Pairing::Double => decoded::<Double>(body, b, c),
        Pairing::Signed64 => decoded::<Signed64>(body, b, c),
        Pairing::Unsigned64 => decoded::<Unsigned64>(body, b, c),
        Pairing::Wide => decoded::<Wide>(body, b, c),
        Pairing::ComplexSingle => decoded::<ComplexSingle>(body, b, c),
        Pairing::ComplexDouble => decoded::<ComplexDouble>(body, b, c),
    }
}

/// Returns the totals of a pair of equal length.
pub(crate) fn pair(body: Body, b: TensorRef<'_>, c: TensorRef<'_>) -> Totals {
    let comparable = b.dtype() == c.dtype();
    let chunk = |range: Range<usize>| {
        let _control = DefaultFloat::enter();
        let (mut kernel, mut state) = (kernel(body, b.dtype(), c.dtype()), Chunk::new(comparable));
        let (mut blocks_b, mut blocks_c) = (Blocks::of(b, range.end), Blocks::of(c, range.end));
        let elements = range.len();
        for block in blocks_of(range) {
            let count = block.len();
            state.push(&mut *kernel, count, blocks_b.bytes(block.clone()), blocks_c.bytes(block));
        }
        b.used(elements);
        c.used(elements);
        state.finish()
    };
    let _control = DefaultFloat::enter();
    let mut totals = Totals { identical: comparable, ..Totals::EMPTY };
    for_chunks(Threads::Pool, b.len(), chunk, |range, next| totals.append(&next, range.start as u64));
    totals
}

/// Returns the sums of one tensor.
pub(crate) fn side(body: Body, tensor: TensorRef<'_>) -> SideSums {
    let dtype = tensor.dtype();
    let chunk = |range: Range<usize>| {
        let _control = DefaultFloat::enter();
        let (mut kernel, mut path, mut sums) = (kernel(body, dtype, dtype), Path::Plain, SideSums::EMPTY);
        let mut blocks = Blocks::of(tensor, range.end);
        let elements = range.len();
        for block in blocks_of(range) {
            let count = block.len();
            sums.append(&one_side(&mut *kernel, &mut path, count, blocks.bytes(block)));
        }
        tensor.used(elements);
        sums
    };
    let _control = DefaultFloat::enter();
    let mut sums = SideSums::EMPTY;
    for_chunks(Threads::Pool, tensor.len(), chunk, |_, next| sums.append(&next));
    sums
}
