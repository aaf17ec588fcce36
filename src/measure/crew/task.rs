//! One tensor that several threads measure, in pieces.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::{fmt, hint, thread};

use twox_hash::XxHash3_128;

use crate::dump::{Content, DType, TensorRef};
use crate::measure::segment::Segment;
use crate::measure::simd::Body;
use crate::measure::sums::SEGMENT;

/// Pieces that may wait to be hashed.
const AHEAD: usize = 8;

/// Most bytes of a piece that is gathered.
const LARGEST: usize = 1 << 20;

/// How often a thread that has measured a piece looks whether it is that piece's turn to be hashed: for about as long as the
/// piece before it is measured.
const LOOKS: usize = 64;

/// Pauses between two looks.
const PAUSES: usize = 16;

/// A tensor that is being measured.
#[derive(Debug)]
pub(super) struct Task {
    body: Body,
    storage: Lent,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    /// Elements.
    count: usize,
    sketch: bool,
    /// Whether the elements are gathered, in multiples of so many.
    span: Option<usize>,
    hash: Option<Mutex<Hashing>>,
    room: Arc<Room>,
    /// The next piece that nobody has taken.
    next: AtomicUsize,
    /// Helpers do not yet take the pieces from here on.
    limit: AtomicUsize,
    /// Helpers that may still read.
    helpers: AtomicUsize,
    /// Elements of a piece: whole segments.
    size: usize,
    pieces: Vec<OnceLock<Piece>>,
}

/// The hash of a tensor, as far as it has come. One thread after another holds it: each hashes what it has measured, which is
/// in its cache.
struct Hashing {
    hash: XxHash3_128,
    /// The piece whose turn it is.
    turn: usize,
}

/// What one thread measures at once.
#[derive(Debug)]
struct Piece {
    segments: Vec<Segment>,
    /// Until it is hashed.
    elements: Mutex<Option<Elements>>,
}

/// The elements of a piece in row-major order.
#[derive(Debug)]
enum Elements {
    /// These, of the storage.
    InPlace(Range<usize>),
    Gathered {
        bytes: Vec<u8>,
        /// The part of `bytes` that is the piece.
        part: Range<usize>,
    },
}

/// Bytes that are only there until the task is taken off the board.
#[derive(Debug)]
struct Lent(*const [u8]);

#[expect(unsafe_code, reason = "bytes may be read in any thread")]
// SAFETY: it stands for a shared slice.
unsafe impl Send for Lent {}

#[expect(unsafe_code, reason = "bytes may be read in any thread")]
// SAFETY: as above.
unsafe impl Sync for Lent {}

/// Room to gather elements in, which is used again.
#[derive(Debug, Default)]
pub(super) struct Room {
    free: Mutex<Vec<Vec<u8>>>,
}

impl fmt::Debug for Hashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hashing").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl Room {
    fn free(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some room, with anything in it.
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

    /// Bytes that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.free().iter().map(Vec::capacity).sum()
    }
}

/// A helper's part in a task, until dropped.
pub(super) struct Joined(Arc<Task>);

impl Joined {
    /// Measures pieces until there are none left.
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
    /// None where sharing would not help: when there is one piece only, or pieces would have to be large, since their elements
    /// lie far from one another.
    pub(super) fn new(body: Body, tensor: TensorRef<'_>, content: Content, room: &Arc<Room>) -> Option<Self> {
        let span = tensor.contiguous_bytes().is_none().then(|| tensor.gather_span());
        let count = tensor.len();
        let size = span.map_or(1, TensorRef::worth_gathering);
        if count <= size {
            return None;
        }
        let size = size.next_multiple_of(SEGMENT);
        if count <= size || span.is_some() && size * tensor.dtype().size() > LARGEST {
            return None;
        }
        let limit = if content.hash && span.is_some() { AHEAD } else { usize::MAX };
        Some(Self {
            body,
            storage: Lent(tensor.storage()),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            strides: tensor.strides().to_vec(),
            offset: tensor.offset(),
            count,
            sketch: content.sketch,
            span,
            hash: content.hash.then(|| Mutex::new(Hashing { hash: XxHash3_128::new(), turn: 0 })),
            room: Arc::clone(room),
            next: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            helpers: AtomicUsize::new(0),
            size,
            pieces: std::iter::repeat_with(OnceLock::new).take(count.div_ceil(size)).collect(),
        })
    }

    /// Called with the board locked.
    pub(super) fn join(task: &Arc<Self>) -> Joined {
        task.helpers.fetch_add(1, Ordering::Relaxed);
        Joined(Arc::clone(task))
    }

    /// Whether a helper may still read.
    pub(super) fn is_joined(&self) -> bool {
        self.helpers.load(Ordering::Acquire) > 0
    }

    /// Lets helpers end that wait for the hash.
    pub(super) fn let_go(&self) {
        self.limit.store(usize::MAX, Ordering::Release);
    }

    /// The part of who posted the task: pieces that nobody has taken, or has taken and not measured. Calls `done` when none are
    /// left to be taken.
    pub(super) fn lead(&self, done: impl FnOnce()) {
        let mut settled = 0;
        // A helper that failed, or has not begun, has left its piece; one that is at it is waited for.
        let mut settle = |end: usize| {
            (settled..end).for_each(|index| self.work(index));
            settled = settled.max(end);
        };
        while let Some(index) = self.take() {
            self.work(index);
            // What waits to be hashed is not to fill the memory.
            settle(index.saturating_sub(AHEAD));
        }
        done();
        settle(self.pieces.len());
    }

    /// The hash of the whole, when all pieces are measured.
    pub(super) fn hash(&self) -> Option<u128> {
        let mut hashing = self.hash.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        self.catch_up(&mut hashing);
        Some(hashing.hash.finish_128())
    }

    /// The segments that have been measured, in order.
    pub(super) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.pieces.iter().filter_map(OnceLock::get).flat_map(|piece| &piece.segments)
    }

    /// Takes a piece; who does not measure it leaves it to [`lead`](Self::lead).
    pub(super) fn take(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.pieces.len()).then_some(index)
    }

    fn work(&self, index: usize) {
        self.pieces[index].get_or_init(|| {
            let (segments, elements) = self.measure(index);
            let elements = elements.and_then(|elements| self.hash_in_turn(index, elements));
            Piece { segments, elements: Mutex::new(elements) }
        });
    }

    /// The tensor. Called by who posted the task, and by who has joined it.
    fn tensor(&self) -> TensorRef<'_> {
        #[expect(unsafe_code, reason = "memory that another thread lends")]
        // SAFETY: who posted the task borrows the bytes and does not return before all have left that have joined it.
        let storage = unsafe { &*self.storage.0 };
        match TensorRef::strided(storage, self.dtype, &self.shape, &self.strides, self.offset) {
            Ok(tensor) => tensor,
            Err(_) => unreachable!("what a tensor was made of makes one again"),
        }
    }

    /// Measures a piece, and gives its elements if they are to be hashed.
    fn measure(&self, index: usize) -> (Vec<Segment>, Option<Elements>) {
        let tensor = self.tensor();
        let range = index * self.size..self.count.min((index + 1) * self.size);
        let first = range.start / SEGMENT;
        let Some(span) = self.span else {
            let segments = self.segments_of(tensor, range.clone(), first);
            return (segments, self.hash.is_some().then_some(Elements::InPlace(range)));
        };
        // Whole spans are gathered more quickly, though some elements are of no use here.
        let whole = range.start / span * span..self.count.min(range.end.next_multiple_of(span));
        let size = self.dtype.size();
        let mut bytes = self.room.take(whole.len() * size);
        tensor.gather(whole.clone(), &mut bytes);
        let part = (range.start - whole.start) * size..(range.end - whole.start) * size;
        let shape = [range.len()];
        let segments = match TensorRef::strided(&bytes[part.clone()], self.dtype, &shape, &[1], 0) {
            Ok(row) => self.segments_of(row, 0..range.len(), first),
            Err(_) => unreachable!("a row of as many elements as the bytes hold"),
        };
        if self.hash.is_none() {
            self.room.put_back(bytes);
            return (segments, None);
        }
        (segments, Some(Elements::Gathered { bytes, part }))
    }

    /// Hashes a piece that this thread has measured when all before it are hashed. Gives the elements back where that takes too
    /// long: then they are hashed later, by another thread or this one.
    fn hash_in_turn(&self, index: usize, elements: Elements) -> Option<Elements> {
        let hashing = self.hash.as_ref()?;
        for _ in 0..LOOKS {
            let free = match hashing.try_lock() {
                Ok(free) => Some(free),
                Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut hashing) = free {
                self.catch_up(&mut hashing);
                if hashing.turn == index {
                    self.push(&mut hashing, elements);
                    return None;
                }
            }
            (0..PAUSES).for_each(|_| hint::spin_loop());
        }
        Some(elements)
    }

    /// Hashes the pieces that were left, up to one that is still being measured.
    fn catch_up(&self, hashing: &mut Hashing) {
        while let Some(piece) = self.pieces.get(hashing.turn).and_then(OnceLock::get) {
            let left = piece.elements.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(elements) = left else { return };
            self.push(hashing, elements);
        }
    }

    /// Adds the elements of the piece whose turn it is.
    fn push(&self, hashing: &mut Hashing, elements: Elements) {
        match elements {
            Elements::InPlace(range) => {
                let size = self.dtype.size();
                if let Some(bytes) = self.tensor().contiguous_bytes() {
                    hashing.hash.write(&bytes[range.start * size..range.end * size]);
                }
            }
            Elements::Gathered { bytes, part } => {
                hashing.hash.write(&bytes[part]);
                self.room.put_back(bytes);
            }
        }
        hashing.turn += 1;
        self.limit.fetch_max(hashing.turn + AHEAD, Ordering::Release);
    }

    /// Measures the elements `range` of `tensor`, of which the first segment is segment `first` of the whole.
    fn segments_of(&self, tensor: TensorRef<'_>, range: Range<usize>, first: usize) -> Vec<Segment> {
        let parts = range.clone().step_by(SEGMENT).map(|start| start..range.end.min(start + SEGMENT));
        parts
            .zip(first..)
            .map(|(part, index)| Segment::measure(self.body, tensor, part, index, self.sketch))
            .collect()
    }
}
