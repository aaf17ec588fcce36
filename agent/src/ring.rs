//! Memory of fixed size between the streams of the program and the writer.
//!
//! A launch takes a piece before it runs, streams copy into the piece, and the writer returns the pieces in the order
//! in which they were taken. If there is no room a launch waits, and is finally dropped and counted: recording may
//! slow a program down, but never uses unbounded memory.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Alignment of pieces, for efficient copies.
const ALIGNMENT: usize = 64;

/// An item passed to the writer, in order.
#[derive(Debug)]
pub(crate) enum Item<T> {
    /// A launch under way.
    Open,
    /// A finished launch.
    Ready(T),
    /// A launch without a record.
    Dropped,
}

/// Next item for the writer.
#[derive(Debug)]
pub(crate) enum Next<T> {
    /// The next item in order.
    Item(T),
    /// The next item was not ready in time.
    Late,
    /// No more items will come.
    End,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    /// End of the room that becomes free after it.
    end: u64,
    item: Item<T>,
}

#[derive(Debug)]
struct State<T> {
    entries: VecDeque<Entry<T>>,
    next: u64,
    /// Bytes ever taken, and ever returned; the room in use lies between.
    taken: u64,
    returned: u64,
    closed: bool,
}

/// The ring. It is created once and never freed.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    start: *mut u8,
    size: usize,
    state: Mutex<State<T>>,
    /// Signalled when something is ready, or room has been returned.
    changed: Condvar,
}

// SAFETY: the memory is written to by devices and read through pieces, which do not overlap.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above; everything else is behind a lock.
unsafe impl<T: Send> Sync for Ring<T> {}

/// A piece of pinned memory: of the ring, while its entry exists, or of a graph.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl Piece {
    /// Returns the data copied into it.
    ///
    /// # Safety
    /// The copies into it are finished, and it is not returned meanwhile.
    pub(crate) unsafe fn content<'a>(self) -> &'a [u8] {
        // SAFETY: as the caller vouches.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }
}

/// Number of an entry, and the address of its piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) number: u64,
    pub(crate) address: usize,
}

/// Returns the bytes that a piece occupies.
pub(crate) const fn rounded(bytes: usize) -> usize {
    bytes.div_ceil(ALIGNMENT) * ALIGNMENT
}

impl<T> Ring<T> {
    /// Creates a ring on `size` bytes at `start`, which belong to it permanently.
    pub(crate) fn new(start: *mut u8, size: usize) -> Self {
        let state = State { entries: VecDeque::new(), next: 0, taken: 0, returned: 0, closed: false };
        Self { start, size, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of the ring in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Takes a piece, and the next place in the order. Waits for room; `None` if there is none in time.
    pub(crate) fn take(&self, bytes: usize, patience: Duration) -> Option<Taken> {
        let bytes = rounded(bytes);
        if bytes > self.size {
            return None;
        }
        let until = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some((offset, end)) = self.room(&state, bytes) {
                let number = state.next;
                state.next += 1;
                state.taken = end;
                state.entries.push_back(Entry { number, end, item: Item::Open });
                return Some(Taken { number, address: self.start.wrapping_add(offset).addr() });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the offset of this many contiguous free bytes, and the count of bytes taken after them.
    fn room(&self, state: &State<T>, bytes: usize) -> Option<(usize, u64)> {
        let size = self.size as u64;
        let offset = state.taken % size;
        // The remainder before the end is skipped if it is too small.
        let skipped = if offset + bytes as u64 > size { size - offset } else { 0 };
        let end = state.taken + skipped + bytes as u64;
        let offset = usize::try_from((state.taken + skipped) % size).ok()?;
        (end - state.returned <= size || state.entries.is_empty() && bytes as u64 <= size)
            .then_some((offset, end))
    }

    /// Appends an item that takes no room. If the ring is closed nobody would take it: it is dropped.
    pub(crate) fn push(&self, item: T) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let (number, end) = (state.next, state.taken);
        state.next += 1;
        state.entries.push_back(Entry { number, end, item: Item::Ready(item) });
        drop(state);
        self.changed.notify_all();
    }

    /// Sets the state of an entry.
    pub(crate) fn set(&self, number: u64, item: Item<T>) {
        let mut state = self.lock();
        let first = state.entries.front().map_or(0, |entry| entry.number);
        let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        if let Some(entry) = place.and_then(|place| state.entries.get_mut(place)) {
            entry.item = item;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Accepts no more launches; existing items are still handed out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Returns the next item in order, once it is ready. Waits no longer than `patience`.
    pub(crate) fn next(&self, patience: Duration) -> Next<T> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            let closed = state.closed;
            match state.entries.front_mut() {
                None if closed => return Next::End,
                Some(entry) => match std::mem::replace(&mut entry.item, Item::Open) {
                    Item::Ready(item) => return Next::Item(item),
                    Item::Dropped => {
                        give_back(&mut state);
                        self.changed.notify_all();
                        continue;
                    }
                    Item::Open => {}
                },
                None => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::Late;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Frees the room of the item that [`next`](Self::next) handed out last.
    pub(crate) fn done(&self) {
        give_back(&mut self.lock());
        self.changed.notify_all();
    }

    /// Returns true if the front entry keeps others from being handed out, or the ring from ending.
    pub(crate) fn holds_back(&self) -> bool {
        let state = self.lock();
        state.entries.len() > 1 || state.closed && !state.entries.is_empty()
    }

    /// Drops the front entry, which nobody will finish.
    pub(crate) fn skip(&self) {
        self.done();
    }
}

fn give_back<T>(state: &mut State<T>) {
    if let Some(entry) = state.entries.pop_front() {
        state.returned = entry.end;
    }
}
