//! The arguments of one launch: up to 32 tensors, in the layout of `device_cuda.cu`.

use probe::dump::{DType, SKETCH_LANES};

use crate::tensor::{Facts, Order};

/// Tensors of a launch at most.
pub(super) const ITEMS: usize = 32;

/// Dimensions of a tensor at most, after those that follow one another in memory are joined.
const DIMENSIONS: usize = 5;

/// Lanes of the sketch in use; the recorded ones behind them are 0.
pub(super) const LANES: usize = 251;
const _: () = assert!(LANES < SKETCH_LANES, "the last lanes are 0");

/// Blocks whose results are joined at once.
const GROUP: u32 = 32;

/// Most blocks that share a tensor: about two for each multiprocessor of a large card, which has room for two. The number depends on the size alone, and so do the sums.
const MOST_BLOCKS: u32 = 256;

/// Elements that are worth a block of their own.
const ELEMENTS_OF_A_BLOCK: u64 = 32 * LANES as u64;

/// Blocks of a launch at most, which bounds the memory of partial results.
pub(super) const LAUNCHED: u32 = 4096;

/// Threads of a block.
pub(super) const THREADS: u32 = 256;

/// Counts of ended blocks that a tensor needs: one for itself, and one for each group.
pub(super) const COUNTERS: usize = 1 + MOST_BLOCKS.div_ceil(GROUP) as usize;
const _: () = assert!(COUNTERS == 9, "as in device_cuda.cu");

/// Bytes of the numbers that are found, and of those with the lanes.
pub(super) const NUMBERS: usize = 72;
const ROW: usize = NUMBERS + 4 * LANES;

/// Bytes of a block's result.
pub(super) const PARTIAL: usize = NUMBERS + 8 * LANES;

/// Work on a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Floats of 32 or 16 bits are measured: 0 for float32, 1 for float16, 2 for bfloat16.
    Measure(u8),
    /// Elements of so many bytes, as a power of two, are copied.
    Copy(u8),
}

impl Work {
    const fn code(self) -> u8 {
        match self {
            Self::Measure(kind) => kind,
            Self::Copy(power) => 3 + power,
        }
    }
}

/// One tensor: its place, and the wanted measurements.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    address: usize,
    count: u64,
    order: Order,
    pub(super) work: Work,
    /// Bytes of an element.
    size: usize,
}

impl Spec {
    /// None where the kernel has no way to do it. `is_copied`: the elements are wanted, not their numbers.
    pub(crate) fn new(facts: &Facts, is_copied: bool) -> Option<Self> {
        let (dtype, memory) = (facts.dtype?, facts.memory.as_ref()?);
        let work = match dtype {
            _ if is_copied => Work::Copy(u8::try_from(dtype.size().ilog2()).ok()?),
            DType::F32 => Work::Measure(0),
            DType::F16 => Work::Measure(1),
            DType::Bf16 => Work::Measure(2),
            _ => return None,
        };
        let mut order = Order::of_rows(facts);
        if order.shape.is_empty() {
            order = Order { shape: vec![1], strides: vec![1] };
        }
        let count = order
            .shape
            .iter()
            .try_fold(1_u64, |count, &size| count.checked_mul(u64::try_from(size).ok()?))?;
        let last: usize =
            order.shape.iter().zip(&order.strides).try_fold(facts.offset, |last, (&size, &stride)| {
                last.checked_add(size.checked_sub(1)?.checked_mul(stride)?)
            })?;
        let within = memory.address != 0 && last.checked_add(1)?.checked_mul(dtype.size())? <= memory.size;
        let fits = count > 0
            && order.shape.len() <= DIMENSIONS
            && order.shape.iter().all(|&size| u32::try_from(size).is_ok() || order.shape.len() == 1);
        (within && fits && dtype.size().is_power_of_two()).then_some(Self {
            address: memory.address.checked_add(facts.offset * dtype.size())?,
            count,
            order,
            work,
            size: dtype.size(),
        })
    }

    pub(super) const fn elements(&self) -> u64 {
        self.count
    }

    /// Bytes that are fetched.
    pub(super) fn room(&self, sketch: bool) -> usize {
        match self.work {
            Work::Copy(_) => usize::try_from(self.count).unwrap_or(usize::MAX).saturating_mul(self.size),
            Work::Measure(_) if sketch => ROW,
            Work::Measure(_) => NUMBERS,
        }
    }

    /// Blocks that share it.
    pub(super) fn blocks(&self) -> u32 {
        match self.work {
            Work::Copy(_) => 1,
            Work::Measure(_) => u32::try_from(self.count.div_ceil(ELEMENTS_OF_A_BLOCK))
                .map_or(MOST_BLOCKS, |blocks| blocks.min(MOST_BLOCKS)),
        }
    }

    fn item(&self, row: u64, first: u32) -> Item {
        let mut item = Item {
            data: self.address as u64,
            row,
            count: self.count,
            first,
            blocks: self.blocks(),
            kind: self.work.code(),
            ..Item::default()
        };
        for (dim, (&size, &stride)) in self.order.shape.iter().zip(&self.order.strides).enumerate() {
            // The size of a tensor of one dimension is its count.
            item.sizes[dim] = u32::try_from(size).unwrap_or(u32::MAX);
            item.strides[dim] = i64::try_from(stride).unwrap_or(i64::MAX);
        }
        item.dims = u8::try_from(self.order.shape.len()).unwrap_or(u8::MAX);
        item
    }
}

/// One tensor, as the kernel takes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Item {
    data: u64,
    row: u64,
    count: u64,
    strides: [i64; DIMENSIONS],
    sizes: [u32; DIMENSIONS],
    first: u32,
    blocks: u32,
    kind: u8,
    dims: u8,
    spare: u16,
}

/// The argument of the kernel.
#[repr(C)]
#[derive(Debug, Clone)]
pub(super) struct Batch {
    signs: u64,
    partials: u64,
    counters: u64,
    items: u32,
    sketch: u32,
    item: [Item; ITEMS],
}
const _: () =
    assert!(size_of::<Item>() == 96 && size_of::<Batch>() == 32 + 96 * ITEMS, "as in device_cuda.cu");

impl Batch {
    pub(super) const fn new([signs, partials, counters]: [u64; 3], sketch: bool) -> Self {
        let none = Item {
            data: 0,
            row: 0,
            count: 0,
            strides: [0; DIMENSIONS],
            sizes: [0; DIMENSIONS],
            first: 0,
            blocks: 0,
            kind: 0,
            dims: 0,
            spare: 0,
        };
        Self { signs, partials, counters, items: 0, sketch: sketch as u32, item: [none; ITEMS] }
    }

    /// Blocks of all tensors so far.
    pub(super) fn blocks(&self) -> u32 {
        self.item.iter().take(self.items as usize).map(|item| item.blocks).sum()
    }

    /// Adds a tensor whose results go to `row`; false where there is no room.
    pub(super) fn add(&mut self, spec: &Spec, row: u64) -> bool {
        let blocks = self.blocks();
        if self.items > 0 && blocks + spec.blocks() > LAUNCHED {
            return false;
        }
        let Some(item) = self.item.get_mut(self.items as usize) else { return false };
        *item = spec.item(row, blocks);
        self.items += 1;
        true
    }
}
