//! Objects of which only what is read is copied: bytes that will be read come together, by few large requests; others when they are read.
//!
//! A copy has holes, and knows them: it is read through [`Pieces`] alone, which waits until the bytes are there. The first error ends all later reading, and
//! [`Stage::sound`](super::Stage::sound) tells it. Copies that nobody has open go when the budget is needed for others.

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

/// Bytes between two ranges that are fetched with them, for one request costs more: 1 MiB, as the crate `object_store` has it. A store that takes 30 ms to
/// answer and sends 50 MB/s on a connection sends 1.5 MB in this time.
const GAP: u64 = 1 << 20;

/// Bytes that come at least where nobody said what will be read, such as headers.
const BLOCK: u64 = 64 << 10;

/// Requests under way for all that reads, several parts and both of their sides: those of two rounds.
const REQUESTS: usize = 32;

/// Objects that are late, by the path at which each is looked for.
#[derive(Clone)]
pub(super) struct LateObjects(Arc<Inner>);

struct Inner {
    /// Where the copies lie, with numbers for names.
    folder: PathBuf,
    budget: Arc<Budget>,
    pauses: Vec<Duration>,
    known: Mutex<Known>,
    failure: Mutex<Failure>,
    /// Requests under way.
    requests: Mutex<usize>,
    /// There are fewer than before.
    fewer: Condvar,
}

#[derive(Default)]
struct Known {
    objects: BTreeMap<PathBuf, LateObject>,
    /// Copies that were made, and times that one was opened.
    count: u64,
}

struct LateObject {
    object: Arc<Object>,
    /// Its URL.
    name: PathBuf,
    bucket: Arc<dyn Bucket>,
    copy: Option<Arc<Copy>>,
    /// When it was opened last, in times that any was.
    opened: u64,
}

/// Why nothing more can be read.
#[derive(Debug, Default)]
struct Failure {
    reason: Option<String>,
    /// Until it is told.
    error: Option<StoreError>,
}

/// Why bytes did not come.
enum Refusal {
    /// The budget; others may fit.
    NoRoom(StoreError),
    /// Nothing will come from now on.
    Failed(String),
}

/// Some bytes of an object.
struct Copy {
    object: Arc<Object>,
    name: PathBuf,
    bucket: Arc<dyn Bucket>,
    file: PathBuf,
    state: Mutex<State>,
    /// Something has come, or will not.
    changed: Condvar,
    budget: Arc<Budget>,
}

#[derive(Default)]
struct State {
    here: Spans,
    /// Under way, for one caller each.
    coming: Vec<Spans>,
}

impl Drop for Copy {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Of one that was never written to, there is no file; others go with the scratch folder at the latest.
        _ = fs::remove_file(&self.file);
        self.budget.give_back(state.here.bytes());
    }
}

/// A copy that is open.
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
        // Each for itself may have room where all together have not; what failed is told to who reads.
        _ = self.get(&copies.collect::<Vec<_>>());
    }
}

impl LateObjects {
    /// None yet. Copies will lie in `folder`, which is there.
    pub(super) fn new(folder: PathBuf, budget: Arc<Budget>, pauses: Vec<Duration>) -> Self {
        let (known, failure, requests) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { folder, budget, pauses, known, failure, requests, fewer: Condvar::new() }))
    }

    /// Has the object called `name` be read at `path`.
    pub(super) fn add(&self, path: PathBuf, object: &Object, name: PathBuf, bucket: Arc<dyn Bucket>) {
        let object = Arc::new(object.clone());
        let late = LateObject { object, name, bucket, copy: None, opened: 0 };
        self.known().objects.entry(path).or_insert(late);
    }

    /// # Errors
    /// The first that anything could not be copied for; it is told once.
    pub(super) fn sound(&self) -> Result<(), StoreError> {
        self.failure().error.take().map_or(Ok(()), Err)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> MutexGuard<'_, Failure> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing comes from now on. The first error counts; returns why.
    fn fail(&self, error: StoreError) -> String {
        let mut failure = self.failure();
        if let Some(reason) = &failure.reason {
            return reason.clone();
        }
        let reason = error.to_string();
        *failure = Failure { reason: Some(reason.clone()), error: Some(error) };
        reason
    }

    /// The copy of the object at `path`, which has no bytes yet where there was none.
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

    /// Has all of `wanted` be here, which lie inside their objects. What somebody else is getting is waited for.
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
            // Who was getting the rest had no room for it, or failed.
            if all {
                return Ok(());
            }
        }
    }

    fn get_claimed(&self, claims: &[(&Arc<Copy>, Spans)]) -> Result<(), Refusal> {
        let Some((first, _)) = claims.first() else { return Ok(()) };
        // Sizes are claims: their sum may be beyond any number.
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

    /// Does `work`, which has so many requests under way, once there are few enough others.
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

    /// Takes so many bytes of the budget, for which copies go that nobody has open, those that were opened longest ago first.
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

    /// Those of `spans` that are not here and that nobody gets. The caller does from now on, and [settles](Self::settle) it.
    fn claim(&self, spans: &Spans) -> Spans {
        let mut state = self.state();
        let coming = state.coming.iter().fold(state.here.clone(), |all, coming| all.with(coming));
        let claim = spans.without(&coming);
        if !claim.is_empty() {
            state.coming.push(claim.clone());
        }
        claim
    }

    /// What was claimed has come, or has not.
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

    /// Waits until nobody is getting any of `spans`. Whether all of them are here.
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
