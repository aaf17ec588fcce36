//! One tensor that several threads measure, in pieces. State that depends on the order of the elements passes
//! from thread to thread.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::{hint, mem, thread};

use probe_dump::{DType, SketchVersion, TensorRef};

use super::hashes::{Hashes, round};
use super::segment::Segment;
use super::sentinel::Sentinels;
use super::simd::{Body, unordered};
use super::sums::SEGMENT;

/// Number of pieces that may wait to be hashed.
const AHEAD: usize = 8;

/// Maximum size of a gathered piece, in bytes.
const LARGEST: usize = 1 << 20;

/// A piece this far behind the one whose turn it is does not wait: a thread has lost its processor. Larger
/// than the number of helpers.
const BEHIND: usize = 4;

/// Number of times a thread that has measured a piece checks if it is that piece's turn to be hashed: about as
/// long as the previous piece takes to measure.
const LOOKS: usize = 64;

/// Pauses between two checks.
const PAUSES: usize = 16;

/// Requested results besides the sums.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) sketch: Option<SketchVersion>,
    pub(super) sentinels: Sentinels,
    /// The hash that does not depend on the order of elements.
    pub(super) unordered: bool,
    /// Hashes, including the elements that precede those of the tensor.
    pub(super) hashes: Option<Hashes>,
    /// Number of segments that precede the tensor.
    pub(super) before: usize,
}

/// Division of a tensor into pieces.
#[derive(Debug)]
pub(super) struct Pieces {
    /// Number of elements in a piece: whole segments.
    size: usize,
    /// If the elements are gathered: the number of elements they are gathered in multiples of.
    span: Option<usize>,
}

impl Pieces {
    /// Returns `None` if sharing would not help: if there is only one piece, or if pieces would have to be
    /// large because their elements are far apart.
    pub(super) fn of(tensor: TensorRef<'_>) -> Option<Self> {
        let span = tensor.contiguous_bytes().is_none().then(|| tensor.gather_span());
        let count = tensor.len();
        let size = span.map_or(1, TensorRef::worth_gathering);
        if count <= size {
            return None;
        }
        let size = size.next_multiple_of(SEGMENT);
        let too_large = span.is_some() && size * tensor.dtype().size() > LARGEST;
        (count > size && !too_large).then_some(Self { size, span })
    }
}

/// A tensor being measured.
#[derive(Debug)]
pub(super) struct Task {
    body: Body,
    storage: Lent,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    /// Number of elements.
    count: usize,
    sketch: Option<SketchVersion>,
    sentinels: Sentinels,
    unordered: bool,
    before: usize,
    cut: Pieces,
    /// Types that elements are rounded to.
    types: Vec<DType>,
    hashing: Option<Mutex<Hashing>>,
    room: Arc<Room>,
    /// The next piece that nobody has taken.
    next: AtomicUsize,
    /// Helpers do not yet take pieces from here on.
    limit: AtomicUsize,
    /// Number of helpers that may still read.
    helpers: AtomicUsize,
    pieces: Vec<OnceLock<Piece>>,
}

/// The hashes of a tensor so far. One thread after another holds them: each hashes what it has measured, which
/// is in its cache.
#[derive(Debug)]
struct Hashing {
    hashes: Hashes,
    /// The piece whose turn it is.
    turn: usize,
}

/// Unit of work of one thread.
#[derive(Debug)]
struct Piece {
    segments: Vec<Segment>,
    unordered: u64,
    /// Present until the piece is hashed.
    waiting: Mutex<Option<Waiting>>,
}

/// Data of a piece that is to be hashed.
#[derive(Debug)]
struct Waiting {
    elements: Elements,
    /// The elements rounded to each of the types of [`Hashes`].
    rounded: Vec<Vec<u8>>,
}

/// The elements of a piece in row-major order.
#[derive(Debug)]
enum Elements {
    /// These bytes of a contiguous tensor.
    InPlace(Range<usize>),
    Gathered {
        bytes: Vec<u8>,
        /// The part of `bytes` that is the piece.
        part: Range<usize>,
    },
}

impl Elements {
    fn bytes<'a>(&'a self, tensor: TensorRef<'a>) -> &'a [u8] {
        match self {
            Self::InPlace(part) => &tensor.contiguous_bytes().unwrap_or_default()[part.clone()],
            Self::Gathered { bytes, part } => &bytes[part.clone()],
        }
    }
}

/// Bytes that are valid only until the task is taken off the board.
#[derive(Debug)]
struct Lent(*const [u8]);

#[expect(unsafe_code, reason = "bytes may be read in any thread")]
// SAFETY: it represents a shared slice.
unsafe impl Send for Lent {}

#[expect(unsafe_code, reason = "bytes may be read in any thread")]
// SAFETY: as above.
unsafe impl Sync for Lent {}

/// Reusable buffers to gather elements in.
#[derive(Debug, Default)]
pub(super) struct Room {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Room {
    fn free(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a buffer with arbitrary contents.
    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut room = self.free().pop().unwrap_or_default();
        room.resize(bytes, 0);
        room
    }

    fn put_back(&self, room: Vec<u8>) {
        let mut free = self.free();
        if free.len() < AHEAD {
            free.push(room);
        }
    }

    /// Returns the number of bytes kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.free().iter().map(Vec::capacity).sum()
    }
}

/// A helper's part in a task, until dropped.
pub(super) struct Joined(Arc<Task>);

impl Joined {
    /// Measures pieces until none are left.
    pub(super) fn help(&self) {
        while self.0.take().is_some_and(|index| {
            while index >= self.0.limit.load(Ordering::Acquire) {
                thread::yield_now();
            }
            self.0.work(index);
            true
        }) {}
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.0.helpers.fetch_sub(1, Ordering::Release);
    }
}

impl Task {
    pub(super) fn new(
        body: Body,
        tensor: TensorRef<'_>,
        cut: Pieces,
        wanted: Wanted,
        room: &Arc<Room>,
    ) -> Self {
        let Wanted { sketch, sentinels, unordered, hashes, before } = wanted;
        let types: Vec<DType> = hashes.iter().flat_map(Hashes::types).collect();
        let takes_room = cut.span.is_some() || !types.is_empty();
        let limit = if hashes.is_some() && takes_room { AHEAD } else { usize::MAX };
        let pieces = tensor.len().div_ceil(cut.size);
        Self {
            body,
            storage: Lent(tensor.storage()),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            strides: tensor.strides().to_vec(),
            offset: tensor.offset(),
            count: tensor.len(),
            sketch,
            sentinels,
            unordered,
            before,
            cut,
            types,
            hashing: hashes.map(|hashes| Mutex::new(Hashing { hashes, turn: 0 })),
            room: Arc::clone(room),
            next: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            helpers: AtomicUsize::new(0),
            pieces: std::iter::repeat_with(OnceLock::new).take(pieces).collect(),
        }
    }

    /// Returns the part of a helper, which may read until it is dropped. The poster of the task must wait for
    /// that.
    pub(super) fn join(task: &Arc<Self>) -> Joined {
        task.helpers.fetch_add(1, Ordering::Relaxed);
        Joined(Arc::clone(task))
    }

    /// Returns true if a helper may still read.
    pub(super) fn is_joined(&self) -> bool {
        self.helpers.load(Ordering::Acquire) > 0
    }

    /// Releases helpers that wait for the hash.
    pub(super) fn let_go(&self) {
        self.limit.store(usize::MAX, Ordering::Release);
    }

    /// Does the poster's part: measures pieces that nobody has taken, or that were taken but not measured.
    /// Calls `done` when none are left to take.
    pub(super) fn lead(&self, done: impl FnOnce()) {
        let mut settled = 0;
        // A helper that failed, or has not begun, has left its piece; a piece in progress is waited for.
        let mut settle = |end: usize| {
            (settled..end).for_each(|index| self.work(index));
            settled = settled.max(end);
        };
        while let Some(index) = self.take() {
            self.work(index);
            // Pieces that wait to be hashed must not fill the memory.
            settle(index.saturating_sub(AHEAD));
        }
        done();
        settle(self.pieces.len());
    }

    /// Returns the hashes including the whole tensor, once, after all pieces are measured.
    pub(super) fn hashes(&self) -> Option<Hashes> {
        let mut hashing = self.hashing.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        self.catch_up(&mut hashing);
        Some(mem::take(&mut hashing.hashes))
    }

    /// Returns the hash that does not depend on order, after all pieces are measured.
    pub(super) fn unordered(&self) -> u64 {
        self.pieces.iter().filter_map(OnceLock::get).fold(0, |sum, piece| sum.wrapping_add(piece.unordered))
    }

    /// Iterates over the measured segments, in order.
    pub(super) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.pieces.iter().filter_map(OnceLock::get).flat_map(|piece| &piece.segments)
    }

    /// Takes a piece; a taker that does not measure it leaves it to [`lead`](Self::lead).
    pub(super) fn take(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.pieces.len()).then_some(index)
    }

    fn work(&self, index: usize) {
        self.pieces[index].get_or_init(|| {
            let (mut piece, waiting) = self.measure(index);
            if let Some(waiting) = waiting {
                *piece.waiting.get_mut().unwrap_or_else(PoisonError::into_inner) =
                    self.hash_in_turn(index, waiting);
            }
            piece
        });
    }

    /// Returns the tensor. Called by the poster of the task and by helpers that have joined it.
    fn tensor(&self) -> TensorRef<'_> {
        #[expect(unsafe_code, reason = "memory that another thread lends")]
        // SAFETY: the poster borrows the bytes and does not return before all helpers that joined have left.
        let storage = unsafe { &*self.storage.0 };
        match TensorRef::strided(storage, self.dtype, &self.shape, &self.strides, self.offset) {
            Ok(tensor) => tensor,
            Err(_) => unreachable!("what a tensor was made of makes one again"),
        }
    }

    /// Measures a piece, and returns the data to be hashed.
    fn measure(&self, index: usize) -> (Piece, Option<Waiting>) {
        let tensor = self.tensor();
        let range = index * self.cut.size..self.count.min((index + 1) * self.cut.size);
        let elements = self.elements(tensor, range.clone());
        let (bytes, size) = (elements.bytes(tensor), self.dtype.size());
        let shape = [range.len()];
        let row = row(bytes, self.dtype, &shape);
        let parts = (0..row.len()).step_by(SEGMENT).map(|start| start..row.len().min(start + SEGMENT));
        let segments = parts
            .zip(self.before + range.start / SEGMENT..)
            .map(|(part, index)| Segment::measure(self.body, row, part, index, self.sketch, self.sentinels))
            .collect();
        let unordered = self.unordered.then(|| unordered::unordered(self.body, size, bytes));
        let piece =
            Piece { segments, unordered: unordered.flatten().unwrap_or_default(), waiting: Mutex::default() };
        if self.hashing.is_none() {
            self.give_back(elements);
            return (piece, None);
        }
        let rounded = self.types.iter().map(|&to| {
            let mut out = self.room.take(0);
            round(self.dtype, bytes, to, &mut out);
            out
        });
        let rounded = rounded.collect();
        (piece, Some(Waiting { elements, rounded }))
    }

    /// Returns the elements `range`, in row-major order.
    fn elements(&self, tensor: TensorRef<'_>, range: Range<usize>) -> Elements {
        let size = self.dtype.size();
        let Some(span) = self.cut.span else {
            return Elements::InPlace(range.start * size..range.end * size);
        };
        // Whole spans are gathered faster, though some elements are not needed here.
        let whole = range.start / span * span..self.count.min(range.end.next_multiple_of(span));
        let mut bytes = self.room.take(whole.len() * size);
        tensor.gather(whole.clone(), &mut bytes);
        Elements::Gathered {
            bytes,
            part: (range.start - whole.start) * size..(range.end - whole.start) * size,
        }
    }

    fn give_back(&self, elements: Elements) {
        if let Elements::Gathered { bytes, .. } = elements {
            self.room.put_back(bytes);
        }
    }

    /// Hashes a piece that this thread has measured once all earlier ones are hashed. Returns it if that takes
    /// too long: then it is hashed later, by this thread or another one.
    fn hash_in_turn(&self, index: usize, waiting: Waiting) -> Option<Waiting> {
        let hashing = self.hashing.as_ref()?;
        for _ in 0..LOOKS {
            let free = match hashing.try_lock() {
                Ok(free) => Some(free),
                Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut hashing) = free {
                self.catch_up(&mut hashing);
                if hashing.turn == index {
                    self.push(&mut hashing, waiting);
                    return None;
                }
                if hashing.turn + BEHIND < index {
                    break;
                }
            }
            (0..PAUSES).for_each(|_| hint::spin_loop());
        }
        Some(waiting)
    }

    /// Hashes the pieces that were left, up to one that is still being measured.
    fn catch_up(&self, hashing: &mut Hashing) {
        while let Some(piece) = self.pieces.get(hashing.turn).and_then(OnceLock::get) {
            let left = piece.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(waiting) = left else { return };
            self.push(hashing, waiting);
        }
    }

    /// Adds the piece whose turn it is.
    fn push(&self, hashing: &mut Hashing, waiting: Waiting) {
        let Waiting { elements, rounded } = waiting;
        hashing.hashes.write(elements.bytes(self.tensor()), &rounded);
        self.give_back(elements);
        for bytes in rounded {
            self.room.put_back(bytes);
        }
        hashing.turn += 1;
        self.limit.fetch_max(hashing.turn + AHEAD, Ordering::Release);
    }
}

/// Returns consecutive elements as a tensor of the given shape.
pub(super) fn row<'a>(bytes: &'a [u8], dtype: DType, shape: &'a [usize; 1]) -> TensorRef<'a> {
    match TensorRef::strided(bytes, dtype, shape, &[1], 0) {
        Ok(row) => row,
        Err(_) => unreachable!("a row of as many elements as the bytes hold"),
    }
}
