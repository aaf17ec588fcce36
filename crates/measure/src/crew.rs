//! Threads that help to measure a tensor while a program waits for it, and do work it need not wait for.
//!
//! A pool would be too slow: an op of a training step is over in microseconds, and waking a thread takes tens
//! of them. So a helper that just had work looks for more without pause, and late helpers are not waited for.
//! A helper yields to any other thread that wants its processor.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::background;
use probe_dump::{Content, TensorRef};

use super::hashes::Hashes;
use super::segment::Numbers;
use super::sentinel::Sentinels;
use super::simd::Body;
use super::task::{Pieces, Room, Task, Wanted};

/// Time for which a helper looks for work before it sleeps: longer than most ops of a training step. Posting
/// work to a sleeping helper requires waking it, which takes as long as measuring a small tensor.
const PATIENCE: Duration = Duration::from_millis(10);

/// Polls of the posted work between two offers of the processor to other threads.
const LOOKS: usize = 256;

/// Helpers that sleep while nothing is measured. They end with the crew.
#[derive(Debug)]
pub struct Crew {
    board: Arc<Board>,
    helpers: usize,
}

/// Board where work is posted.
#[derive(Debug)]
struct Board {
    /// Number of tasks and errands so far; polled without the lock.
    posted: AtomicUsize,
    state: Mutex<State>,
    wake: Condvar,
    /// True if the errand is due.
    due: AtomicBool,
    errand: Errand,
    room: Arc<Room>,
}

/// Work that helpers do on request while the program continues.
struct Errand(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Errand")
    }
}

#[derive(Debug, Default)]
struct State {
    task: Option<Arc<Task>>,
    asleep: usize,
    ended: bool,
}

impl Crew {
    /// Starts a crew of `helpers` threads; fewer if the system refuses some. They run `errand` after
    /// [`ask`](Self::ask).
    pub fn new(helpers: usize, errand: impl Fn() + Send + Sync + 'static) -> Self {
        let board = Arc::new(Board {
            posted: AtomicUsize::new(0),
            state: Mutex::default(),
            wake: Condvar::new(),
            due: AtomicBool::new(false),
            errand: Errand(Box::new(errand)),
            room: Arc::default(),
        });
        let start = |_: &usize| {
            let own = Arc::clone(&board);
            background::spawn("probe-measure", move || own.help()).is_ok()
        };
        let helpers = (0..helpers).take_while(start).count();
        Self { board, helpers }
    }

    /// Requests the errand. It runs soon, once for all requests made until then; never if there are no
    /// helpers.
    pub fn ask(&self) {
        self.board.due.store(true, Ordering::Release);
        self.board.posted.fetch_add(1, Ordering::Release);
        // A thread that holds the board is awake.
        if self.board.try_lock().is_some_and(|state| state.asleep > 0) {
            self.board.wake.notify_one();
        }
    }

    /// Returns true if there are no helpers.
    pub const fn is_empty(&self) -> bool {
        self.helpers == 0
    }

    /// Measures a tensor and, if requested, its hash. Returns `None`, without doing anything, if the tensor
    /// cannot be shared.
    pub(crate) fn measure(
        &self,
        body: Body,
        tensor: TensorRef<'_>,
        content: Content,
    ) -> Option<(Numbers, Option<u128>)> {
        let pieces = Pieces::of(tensor)?;
        let hashes = content.hash.then(|| Hashes::new(tensor.dtype(), false));
        let sentinels = Sentinels::KeptOut;
        let wanted = Wanted { sketch: content.sketch, sentinels, hashes, ..Wanted::default() };
        let task = Arc::new(Task::new(body, tensor, pieces, wanted, &self.board.room));
        let posted = self.board.post(&task);
        task.lead(|| drop(posted));
        let mut numbers = Numbers::new(content.sketch);
        task.segments().for_each(|segment| numbers.append(segment));
        Some((numbers, task.hashes().map(|hashes| hashes.plain())))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Do not wait for the helpers. A forked process has none, and the lock may be held by one that does
        // not exist there: then there is nobody to notify.
        if let Some(mut state) = self.board.try_lock() {
            state.ended = true;
            self.board.posted.fetch_add(1, Ordering::Release);
            self.board.wake.notify_all();
        }
    }
}

/// A task on the board, until dropped. After that nobody works on it.
struct Posted<'a> {
    board: &'a Board,
    task: &'a Task,
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        self.board.lock().task = None;
        // Nobody joins any more; joined helpers are at their last piece.
        self.task.let_go();
        while self.task.is_joined() {
            thread::yield_now();
        }
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock if it is free.
    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Shows a task to the helpers. Returns `None` if they have a task of another thread, or if the board is
    /// locked.
    fn post<'a>(&'a self, task: &'a Arc<Task>) -> Option<Posted<'a>> {
        let mut state = self.try_lock()?;
        if state.task.is_some() {
            return None;
        }
        state.task = Some(Arc::clone(task));
        self.posted.fetch_add(1, Ordering::Release);
        let asleep = state.asleep > 0;
        drop(state);
        if asleep {
            self.wake.notify_all();
        }
        Some(Posted { board: self, task })
    }

    /// Main loop of a helper.
    fn help(&self) {
        let mut seen = 0;
        let mut since = Instant::now();
        loop {
            if (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                self.posted.load(Ordering::Acquire) != seen
            }) {
                let state = self.lock();
                if state.ended {
                    return;
                }
                seen = self.posted.load(Ordering::Acquire);
                let joined = state.task.as_ref().map(Task::join);
                drop(state);
                if let Some(joined) = joined {
                    joined.help();
                }
                if self.due.swap(false, Ordering::AcqRel) {
                    (self.errand.0)();
                }
                since = Instant::now();
            } else if since.elapsed() < PATIENCE {
                thread::yield_now();
            } else {
                let mut state = self.lock();
                state.asleep += 1;
                let looking = |_: &mut State| self.posted.load(Ordering::Acquire) == seen;
                let mut state = self.wake.wait_while(state, looking).unwrap_or_else(PoisonError::into_inner);
                state.asleep -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::SEGMENT;
    use crate::{observe, observe_with};
    use probe_dump::{DType, SketchVersion};

    const CONTENTS: [Content; 3] = [Content::STATISTICS, Content::HASH, Content::SKETCH];

    /// Arbitrary bits: numbers of all sizes, and some non-finite values.
    fn elements(dtype: DType, count: usize) -> Vec<u8> {
        let mut state = 7_u64;
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[5]
        })
        .take(count * dtype.size())
        .collect();
        if dtype == DType::Bool {
            for byte in &mut bytes {
                *byte &= 1;
            }
        }
        bytes
    }

    fn same(crew: &Crew, dtype: DType, count: usize) {
        let bytes = elements(dtype, count);
        let shape = [count];
        same_view(crew, TensorRef::strided(&bytes, dtype, &shape, &[1], 0).unwrap());
    }

    fn same_view(crew: &Crew, tensor: TensorRef<'_>) {
        for content in CONTENTS {
            let (alone, helped) = (observe(tensor, content), observe_with(crew, tensor, content));
            assert_eq!(format!("{alone:?}"), format!("{helped:?}"), "{tensor:?} {content:?}");
        }
    }

    #[test]
    fn helpers_change_no_bit() {
        let crew = Crew::new(3, || {});
        for dtype in probe_dump::ALL_DTYPES {
            for count in [2 * SEGMENT, 5 * SEGMENT - 1, 3 * SEGMENT + 4097] {
                same(&crew, dtype, count);
            }
        }
    }

    #[test]
    fn helpers_change_no_bit_of_what_is_gathered() {
        let crew = Crew::new(2, || {});
        for dtype in [DType::U8, DType::Bf16, DType::F32, DType::F64, DType::C128] {
            for (shape, strides) in [
                // Heads of attention; matrices transposed whole, in a batch, with a gap; every other column;
                // one row repeated; rows that are too long to share.
                (vec![8, 8, 128, 32], vec![98_304, 32, 768, 1]),
                (vec![700, 300], vec![1, 700]),
                (vec![300, 1500], vec![1, 300]),
                (vec![3, 257, 511], vec![131_327, 1, 257]),
                (vec![400, 500], vec![1, 403]),
                (vec![500, 400], vec![800, 2]),
                (vec![500, 400], vec![0, 1]),
                (vec![16, 20_000], vec![1, 16]),
                (vec![70, 5000], vec![1, 70]),
            ] {
                let last: usize = shape.iter().zip(&strides).map(|(size, stride)| (size - 1) * stride).sum();
                let bytes = elements(dtype, last + 8);
                same_view(&crew, TensorRef::strided(&bytes, dtype, &shape, &strides, 7).unwrap());
            }
        }
    }

    #[test]
    fn large_tensors_do_not_fill_the_memory() {
        let crew = Crew::new(3, || {});
        let bytes = elements(DType::F32, 4 << 20);
        same_view(
            &crew,
            TensorRef::strided(&bytes, DType::F32, &[1 << 10, 4 << 10], &[1, 1 << 10], 0).unwrap(),
        );
        assert!(crew.board.room.kept() <= 8 << 20, "{}", crew.board.room.kept());
    }

    #[test]
    fn several_threads_share_a_crew() {
        let crew = Crew::new(2, || {});
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..20).for_each(|_| same(&crew, DType::F32, 3 * SEGMENT)));
            }
        });
    }

    #[test]
    fn a_crew_without_helpers_measures_too() {
        same(&Crew::new(0, || {}), DType::F32, 2 * SEGMENT + 1);
    }

    fn task(crew: &Crew, bytes: &[u8]) -> Arc<Task> {
        let shape = [bytes.len() / 4];
        let tensor = TensorRef::strided(bytes, DType::F32, &shape, &[1], 0).unwrap();
        let pieces = Pieces::of(tensor).unwrap();
        Arc::new(Task::new(Body::detected(), tensor, pieces, Wanted::default(), &crew.board.room))
    }

    #[test]
    fn helpers_take_part() {
        let crew = Crew::new(1, || {});
        let bytes = elements(DType::F32, 2 * SEGMENT);
        let task = task(&crew, &bytes);
        let _posted = crew.board.post(&task);
        // The helper has as much time as it needs.
        while task.segments().count() < 2 {
            thread::yield_now();
        }
    }

    #[test]
    fn pieces_that_a_helper_took_and_left_are_measured() {
        let crew = Crew::new(0, || {});
        let (shape, strides) = ([400, 5000], [1, 400]);
        let bytes = elements(DType::F32, 2_000_000);
        let tensor = TensorRef::strided(&bytes, DType::F32, &shape, &strides, 0).unwrap();
        assert!(Pieces::of(tensor).is_none(), "rows that are too long");
        let tensor = TensorRef::strided(&bytes, DType::F32, &[5000, 400], &[1, 5000], 0).unwrap();
        let hashes = Some(Hashes::new(DType::F32, false));
        let wanted = Wanted { sketch: Some(SketchVersion::CURRENT), hashes, ..Wanted::default() };
        let pieces = Pieces::of(tensor).unwrap();
        let task = Task::new(Body::detected(), tensor, pieces, wanted, &crew.board.room);
        let lost = [task.take(), task.take()];
        assert_eq!(lost, [Some(0), Some(1)]);
        task.lead(|| {});
        assert_eq!(task.segments().count(), tensor.len().div_ceil(SEGMENT));
        assert_eq!(task.hashes().map(|hashes| hashes.plain()), observe(tensor, Content::HASH).hash);
    }

    #[test]
    fn errands_are_run_awake_or_asleep() {
        let run = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&run);
        let crew = Crew::new(1, move || {
            counter.fetch_add(1, Ordering::Release);
        });
        for round in 1..=3 {
            // A request made while the helper falls asleep may be lost, so repeat it.
            while run.load(Ordering::Acquire) < round {
                crew.ask();
                thread::yield_now();
            }
            thread::sleep(2 * PATIENCE);
        }
    }

    #[test]
    fn helpers_end_with_the_crew() {
        let crew = Crew::new(2, || {});
        let board = Arc::downgrade(&crew.board);
        drop(crew);
        // Ends after the helpers, which releases the board.
        while board.strong_count() > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_panic_of_the_caller_waits_for_helpers() {
        let crew = Crew::new(1, || {});
        let bytes = elements(DType::F32, 8 * SEGMENT);
        let caller = || {
            let task = task(&crew, &bytes);
            let _posted = crew.board.post(&task);
            panic!("on purpose");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(caller)).is_err());
        assert!(crew.board.lock().task.is_none());
        same(&crew, DType::F32, 2 * SEGMENT);
    }
}
