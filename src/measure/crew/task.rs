//! One tensor that several threads measure, in pieces.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use twox_hash::XxHash3_128;

use crate::dump::{DType, TensorRef};
use crate::measure::segment::Segment;
use crate::measure::simd::Body;
use crate::measure::sums::SEGMENT;

/// Pieces that may wait to be hashed.
const AHEAD: usize = 8;

/// Most bytes of a piece that is gathered.
const LARGEST: usize = 1 << 20;

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
    /// Whether what is gathered is kept to be hashed.
    hashed: bool,
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

/// What one thread measures at once.
#[derive(Debug)]
struct Piece {
    segments: Vec<Segment>,
    gathered: Mutex<Option<Gathered>>,
}

/// The elements of a piece in row-major order, until they are hashed.
#[derive(Debug)]
struct Gathered {
    bytes: Vec<u8>,
    /// The part of `bytes` that is the piece.
    part: Range<usize>,
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
    pub(super) fn new(
        body: Body,
        tensor: TensorRef<'_>,
        sketch: bool,
        hashed: bool,
        room: &Arc<Room>,
    ) -> Option<Self> {
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
        let limit = if hashed && span.is_some() { AHEAD } else { usize::MAX };
        Some(Self {
            body,
            storage: Lent(tensor.storage()),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            strides: tensor.strides().to_vec(),
            offset: tensor.offset(),
            count,
            sketch,
            span,
            hashed,
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

    /// The part of who posted the task, which is `tensor`: the hash, and pieces that nobody has taken. Calls `done` when none
    /// are left.
    pub(super) fn lead(
        &self,
        tensor: TensorRef<'_>,
        mut hash: Option<&mut XxHash3_128>,
        done: impl FnOnce(),
    ) {
        if let (Some(hash), Some(bytes)) = (&mut hash, tensor.contiguous_bytes()) {
            hash.write(bytes);
        }
        let mut at = 0;
        // Hashes what is measured, and in any case the pieces before `end`.
        let mut keep_up = |end: usize| {
            while let Some(piece) = self.pieces.get(at) {
                // A helper that failed, or has not begun, has left its piece; one that is at it is waited for.
                let piece = if at < end { Some(piece.get_or_init(|| self.measure(at))) } else { piece.get() };
                let Some(piece) = piece else { return };
                let gathered = piece.gathered.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let (Some(hash), Some(Gathered { bytes, part })) = (&mut hash, gathered) {
                    hash.write(&bytes[part]);
                    self.room.put_back(bytes);
                }
                at += 1;
                self.limit.fetch_max(at + AHEAD, Ordering::Release);
            }
        };
        while let Some(index) = self.take() {
            self.work(index);
            keep_up(index.saturating_sub(AHEAD));
        }
        done();
        keep_up(self.pieces.len());
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
        self.pieces[index].get_or_init(|| self.measure(index));
    }

    /// Measures a piece. Called by who posted the task, and by who has joined it.
    fn measure(&self, index: usize) -> Piece {
        #[expect(unsafe_code, reason = "memory that another thread lends")]
        // SAFETY: who posted the task borrows the bytes and does not return before all have left that have joined it.
        let storage = unsafe { &*self.storage.0 };
        let Ok(tensor) = TensorRef::strided(storage, self.dtype, &self.shape, &self.strides, self.offset)
        else {
            unreachable!("what a tensor was made of makes one again")
        };
        let range = index * self.size..self.count.min((index + 1) * self.size);
        let first = range.start / SEGMENT;
        let Some(span) = self.span else {
            let segments = self.segments_of(tensor, range, first);
            return Piece { segments, gathered: Mutex::new(None) };
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
        if !self.hashed {
            self.room.put_back(bytes);
            return Piece { segments, gathered: Mutex::new(None) };
        }
        Piece { segments, gathered: Mutex::new(Some(Gathered { bytes, part })) }
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
