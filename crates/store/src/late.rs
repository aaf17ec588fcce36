//! Objects of which only the bytes that are read are copied: announced bytes are fetched together with few large requests, others when
//! they are read.
//!
//! A copy has holes and keeps track of them: it is read only through [`Pieces`], which waits until the bytes are there. The first error ends all
//! further reading, and [`Stage::sound`](super::Stage::sound) reports it. Copies that nobody has open are removed when the budget is needed for
//! others.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fetch::{Order, fetch, requests};
use super::scratch::Budget;
use super::spans::Spans;
use super::{Bucket, Object, StoreError};
use probe_files::late::{LateFiles, Pieces, Wanted};

/// Gap in bytes between two ranges up to which it is fetched along with them, because a separate request costs more: 1 MiB, as in the crate
/// `object_store`. A store with a latency of 30 ms that sends 50 MB/s per connection sends 1.5 MB in this time.
const GAP: u64 = 1 << 20;

/// Minimum number of bytes fetched for unannounced reads, such as headers.
const BLOCK: u64 = 64 << 10;

/// Maximum number of requests in flight for all readers, that is, several parts and both of their sides: two rounds of
/// requests.
const REQUESTS: usize = 32;

/// Late objects, by the path at which each is looked up.
#[derive(Clone)]
pub(super) struct LateObjects(Arc<Inner>);

struct Inner {
    /// Folder of the copies, whose names are numbers.
    folder: PathBuf,
    budget: Arc<Budget>,
    pauses: Vec<Duration>,
    known: Mutex<Known>,
    failure: Mutex<Failure>,
    /// Number of requests in flight.
    requests: Mutex<usize>,
    /// Signals that the number of requests has fallen.
    fewer: Condvar,
}

#[derive(Default)]
struct Known {
    objects: BTreeMap<PathBuf, LateObject>,
    /// Counter of opens, which also numbers the copies.
    count: u64,
}

struct LateObject {
    object: Arc<Object>,
    /// Its URL.
    name: PathBuf,
    bucket: Arc<dyn Bucket>,
    copy: Option<Arc<Copy>>,
    /// Value of the open counter when it was last opened.
    opened: u64,
}

/// Reason why nothing more can be read.
#[derive(Debug, Default)]
struct Failure {
    reason: Option<String>,
    /// Present until it is reported.
    error: Option<StoreError>,
}

/// Reason why bytes were not fetched.
enum Refusal {
    /// The budget is exhausted; other requests may fit.
    NoRoom(StoreError),
    /// No more bytes will be fetched.
    Failed(String),
}

/// A partial copy of an object.
struct Copy {
    object: Arc<Object>,
    name: PathBuf,
    bucket: Arc<dyn Bucket>,
    file: PathBuf,
    state: Mutex<State>,
    /// Signals that bytes have been fetched, or will not be.
    changed: Condvar,
    budget: Arc<Budget>,
}

#[derive(Default)]
struct State {
    here: Spans,
    /// Bytes being fetched, one entry per caller.
    coming: Vec<Spans>,
}

impl Drop for Copy {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A copy that was never written to has no file; other files are removed with the scratch folder at the latest.
        _ = fs::remove_file(&self.file);
        self.budget.give_back(state.here.bytes());
    }
}

/// An open copy.
struct Open {
    objects: LateObjects,
    copy: Arc<Copy>,
}

impl Pieces for Open {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        self.ready(at..at.saturating_add(out.len() as u64))?;
        File::open(&self.copy.file)?.read_at(at, out)
    }

    fn ready(&self, range: Range<u64>) -> io::Result<()> {
        let size = self.copy.object.size;
        if range.end > size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let missing = Spans::of(range).without(&self.copy.state().here);
        if missing.is_empty() {
            return Ok(());
        }
        let blocks = missing.ranges().iter().map(|range| {
            let end = range.end.checked_next_multiple_of(BLOCK).unwrap_or(size).min(size);
            range.start / BLOCK * BLOCK..end
        });
        let got = self.objects.get(&[(Arc::clone(&self.copy), Spans::joined(blocks, 0))]);
        let why = |refusal| match refusal {
            Refusal::NoRoom(error) => self.objects.fail(error),
            Refusal::Failed(reason) => reason,
        };
        got.map_err(|refusal| io::Error::other(why(refusal)))
    }
}

impl LateFiles for LateObjects {
    fn open(&self, path: &Path) -> Option<(Arc<dyn Pieces>, u64)> {
        let copy = self.copy(path)?;
        let size = copy.object.size;
        Some((Arc::new(Open { objects: self.clone(), copy }), size))
    }

    fn expect(&self, wanted: &[Wanted]) {
        let mut ranges: BTreeMap<&Path, Vec<Range<u64>>> = BTreeMap::new();
        for Wanted { path, range } in wanted {
            ranges.entry(path).or_default().push(range.clone());
        }
        let copies = ranges.into_iter().filter_map(|(path, ranges)| {
            let copy = self.copy(path)?;
            let size = copy.object.size;
            let inside = ranges.into_iter().map(|range| range.start.min(size)..range.end.min(size));
            Some((copy, Spans::joined(inside, GAP)))
        });
        // Each read alone may fit where all together do not; errors are reported to the reader.
        _ = self.get(&copies.collect::<Vec<_>>());
    }
}

impl LateObjects {
    /// Creates an empty set. Copies will lie in `folder`, which exists.
    pub(super) fn new(folder: PathBuf, budget: Arc<Budget>, pauses: Vec<Duration>) -> Self {
        let (known, failure, requests) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { folder, budget, pauses, known, failure, requests, fewer: Condvar::new() }))
    }

    /// Registers the object called `name` to be read at `path`.
    pub(super) fn add(&self, path: PathBuf, object: &Object, name: PathBuf, bucket: Arc<dyn Bucket>) {
        let object = Arc::new(object.clone());
        let late = LateObject { object, name, bucket, copy: None, opened: 0 };
        self.known().objects.entry(path).or_insert(late);
    }

    /// # Errors
    /// The first error of a failed copy; it is returned only once.
    pub(super) fn sound(&self) -> Result<(), StoreError> {
        self.failure().error.take().map_or(Ok(()), Err)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> MutexGuard<'_, Failure> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops all further fetching. Only the first error is kept; returns its reason.
    fn fail(&self, error: StoreError) -> String {
        let mut failure = self.failure();
        if let Some(reason) = &failure.reason {
            return reason.clone();
        }
        let reason = error.to_string();
        *failure = Failure { reason: Some(reason.clone()), error: Some(error) };
        reason
    }

    /// Returns the copy of the object at `path`; a new copy has no bytes yet.
    fn copy(&self, path: &Path) -> Option<Arc<Copy>> {
        let mut known = self.known();
        let Known { objects, count } = &mut *known;
        let late = objects.get_mut(path)?;
        *count += 1;
        late.opened = *count;
        let copy = late.copy.get_or_insert_with(|| {
            Arc::new(Copy {
                object: Arc::clone(&late.object),
                name: late.name.clone(),
                bucket: Arc::clone(&late.bucket),
                file: self.0.folder.join(count.to_string()),
                state: Mutex::default(),
                changed: Condvar::new(),
                budget: Arc::clone(&self.0.budget),
            })
        });
        Some(Arc::clone(copy))
    }

    /// Ensures that all of `wanted`, which lie inside their objects, are present. Bytes that another caller is fetching
    /// are waited for.
    fn get(&self, wanted: &[(Arc<Copy>, Spans)]) -> Result<(), Refusal> {
        loop {
            if let Some(reason) = self.failure().reason.clone() {
                return Err(Refusal::Failed(reason));
            }
            let claims: Vec<(&Arc<Copy>, Spans)> = wanted
                .iter()
                .map(|(copy, spans)| (copy, copy.claim(spans)))
                .filter(|(_, claim)| !claim.is_empty())
                .collect();
            let got = self.get_claimed(&claims);
            for (copy, claim) in claims {
                copy.settle(&claim, got.is_ok());
            }
            got?;
            let mut all = true;
            for (copy, spans) in wanted {
                all &= copy.wait_for(spans);
            }
            // Otherwise the caller fetching the rest had no room for it, or failed.
            if all {
                return Ok(());
            }
        }
    }

    fn get_claimed(&self, claims: &[(&Arc<Copy>, Spans)]) -> Result<(), Refusal> {
        let Some((first, _)) = claims.first() else { return Ok(()) };
        // Sizes are only claims, so their sum may overflow.
        let bytes = claims.iter().map(|(_, claim)| claim.bytes()).fold(0, u64::saturating_add);
        self.make_room(bytes, &first.name).map_err(Refusal::NoRoom)?;
        let mut left: Vec<&(&Arc<Copy>, Spans)> = claims.iter().collect();
        let mut outcome = Ok(());
        while let (Ok(()), Some((copy, _))) = (&outcome, left.first()) {
            let bucket = &copy.bucket;
            let (here, elsewhere): (Vec<_>, Vec<_>) =
                left.iter().copied().partition(|(copy, _)| Arc::ptr_eq(&copy.bucket, bucket));
            let orders: Vec<Order<'_>> = here
                .into_iter()
                .map(|(copy, claim)| Order {
                    object: &copy.object,
                    name: copy.name.clone(),
                    file: copy.file.clone(),
                    ranges: claim.clone(),
                })
                .collect();
            outcome =
                self.in_turn(requests(&orders), || fetch(&**bucket, &orders, &self.0.pauses, &|_, _| {}));
            left = elsewhere;
        }
        outcome.map_err(|error| {
            self.0.budget.give_back(bytes);
            Refusal::Failed(self.fail(error))
        })
    }

    /// Runs `work`, which has this many requests in flight, as soon as few enough others are.
    fn in_turn<T>(&self, requests: usize, work: impl FnOnce() -> T) -> T {
        let Inner { requests: all, fewer, .. } = &*self.0;
        let count = || all.lock().unwrap_or_else(PoisonError::into_inner);
        let many = |all: &mut usize| *all + requests > REQUESTS;
        *fewer.wait_while(count(), many).unwrap_or_else(PoisonError::into_inner) += requests;
        let done = work();
        *count() -= requests;
        fewer.notify_all();
        done
    }

    /// Takes this many bytes from the budget; copies that nobody has open are removed to make room, least recently opened
    /// first.
    fn make_room(&self, bytes: u64, name: &Path) -> Result<(), StoreError> {
        loop {
            let full = match self.0.budget.take(bytes, name) {
                Ok(()) => return Ok(()),
                Err(full) => full,
            };
            let mut known = self.known();
            let unused = known
                .objects
                .values_mut()
                .filter(|late| late.copy.as_ref().is_some_and(|copy| Arc::strong_count(copy) == 1))
                .min_by_key(|late| late.opened);
            match unused {
                Some(late) => drop(late.copy.take()),
                None => return Err(full),
            }
        }
    }
}

impl Copy {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of `spans` that are neither present nor being fetched. From now on the caller fetches them, and
    /// [settles](Self::settle) the claim.
    fn claim(&self, spans: &Spans) -> Spans {
        let mut state = self.state();
        let coming = state.coming.iter().fold(state.here.clone(), |all, coming| all.with(coming));
        let claim = spans.without(&coming);
        if !claim.is_empty() {
            state.coming.push(claim.clone());
        }
        claim
    }

    /// Records that the claimed bytes were fetched, or were not.
    fn settle(&self, claim: &Spans, came: bool) {
        let mut state = self.state();
        if let Some(at) = state.coming.iter().position(|coming| coming == claim) {
            state.coming.swap_remove(at);
        }
        if came {
            state.here = state.here.with(claim);
        }
        self.changed.notify_all();
    }

    /// Waits until nobody is fetching any of `spans`. Returns true if all of them are present.
    fn wait_for(&self, spans: &Spans) -> bool {
        let mut state = self.state();
        loop {
            let missing = spans.without(&state.here);
            let left = state.coming.iter().fold(missing.clone(), |left, coming| left.without(coming));
            if left == missing {
                return missing.is_empty();
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
