//! Copies objects into files with several parallel requests, from threads that wait for the network, checking every answer against the
//! listing.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::spans::Spans;
use super::{Answer, Bucket, Fault, Object, StoreError};

/// Maximum number of requests in flight.
const IN_FLIGHT: usize = 16;

/// Number of files uploaded at a time; a large one takes several requests of its own.
const PUTS: usize = 8;

/// Bytes per request: large enough that latency does not matter, small enough that one large object keeps all requests busy.
const PIECE: u64 = 16 << 20;

/// Bytes read from an answer at a time.
const BUFFER: usize = 256 << 10;

/// An object to be copied, or some of its bytes.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) object: &'a Object,
    /// Its URL.
    pub(super) name: PathBuf,
    /// The file, in an existing folder.
    pub(super) file: PathBuf,
    /// The ranges of bytes, which are written to the same positions of the file.
    pub(super) ranges: Spans,
}

impl<'a> Order<'a> {
    /// Orders a whole object, into a new file.
    pub(super) fn whole(object: &'a Object, name: PathBuf, file: PathBuf) -> Result<Self, StoreError> {
        let made = OpenOptions::new().write(true).create(true).truncate(true).open(&file);
        let sized = made.and_then(|file| file.set_len(object.size));
        sized.map_err(|error| StoreError::scratch(&file, error))?;
        Ok(Self { object, name, file, ranges: Spans::of(0..object.size) })
    }
}

/// Called with the bytes copied so far and the total, from any thread.
pub(super) type Watch<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// Copies all of `orders`, or returns the error of one that failed: none of the copies is usable then. Transient failures are retried after
/// each of `pauses`.
pub(super) fn fetch(
    bucket: &dyn Bucket,
    orders: &[Order<'_>],
    pauses: &[Duration],
    watch: &Watch<'_>,
) -> Result<(), StoreError> {
    let pieces: Vec<(&Order<'_>, Range<u64>)> = orders
        .iter()
        .flat_map(|order| order.ranges.ranges().iter().flat_map(pieces_of).map(move |piece| (order, piece)))
        .collect();
    let total: u64 = pieces.iter().map(|(_, range)| range.end - range.start).sum();
    let done = AtomicU64::new(0);
    each(&pieces, IN_FLIGHT, |(order, range), failed| {
        let mut left = pauses.iter();
        loop {
            match piece(bucket, order, range.clone()) {
                Err(Failure::Passing(fault)) if !failed() => match left.next() {
                    Some(pause) => std::thread::sleep(*pause),
                    None => return Err(fault),
                },
                Err(Failure::Passing(error) | Failure::Final(error)) => return Err(error),
                Ok(()) => break,
            }
        }
        let bytes = range.end - range.start;
        watch(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
        Ok(())
    })
}

/// Returns the number of requests that [`fetch`] has in flight for these orders.
pub(super) fn requests(orders: &[Order<'_>]) -> usize {
    let ranges = orders.iter().flat_map(|order| order.ranges.ranges());
    ranges.flat_map(pieces_of).take(IN_FLIGHT).count()
}

/// Runs `work` on all `items`, at most `at_a_time` in parallel, until one fails; returns the first error. `work` can query whether another
/// one has failed.
fn each<T: Sync>(
    items: &[T],
    at_a_time: usize,
    work: impl Fn(&T, &dyn Fn() -> bool) -> Result<(), StoreError> + Sync,
) -> Result<(), StoreError> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let first: Mutex<Option<StoreError>> = Mutex::new(None);
    let worker = || {
        while !failed.load(Ordering::Relaxed) {
            let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            if let Err(error) = work(item, &|| failed.load(Ordering::Relaxed)) {
                failed.store(true, Ordering::Relaxed);
                first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_a_time.min(items.len()) {
            scope.spawn(worker);
        }
    });
    first.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Splits a range into pieces of one request each; an empty range has none.
fn pieces_of(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let Range { start, end } = *range;
    let count = end.saturating_sub(start).div_ceil(PIECE);
    (0..count).map(move |piece| start + piece * PIECE..end.min(start + (piece + 1) * PIECE))
}

/// Failure to copy a piece.
enum Failure {
    /// Transient; a retry may succeed.
    Passing(StoreError),
    /// Permanent.
    Final(StoreError),
}

/// Copies one piece of an object to its position in the file.
fn piece(bucket: &dyn Bucket, order: &Order<'_>, range: Range<u64>) -> Result<(), Failure> {
    let Order { object, name, file, ranges: _ } = order;
    let unsound = |message: String| StoreError::unsound(name, message);
    let mut answer = bucket.get(&object.key, range.clone()).map_err(|fault| match fault {
        Fault::Missing => Failure::Final(unsound(
            "was listed, but is no longer there; copy it where nothing changes it, or try again".into(),
        )),
        Fault::Refused(_) => Failure::Final(StoreError::of(name, fault)),
        Fault::Passing(_) => Failure::Passing(StoreError::of(name, fault)),
    })?;
    check(object, &answer, &range).map_err(|message| Failure::Final(unsound(message)))?;
    let scratch = |error| Failure::Final(StoreError::scratch(file, error));
    let mut out = OpenOptions::new().write(true).create(true).truncate(false).open(file).map_err(scratch)?;
    out.seek(SeekFrom::Start(range.start)).map_err(scratch)?;
    let wanted = range.end - range.start;
    let mut buffer = vec![0; BUFFER];
    let mut seen = 0_u64;
    loop {
        let count = match answer.body.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let reason = format!("the response broke off after {seen} of {wanted} bytes: {error}");
                return Err(Failure::Passing(StoreError::of(name, Fault::Passing(reason))));
            }
        };
        seen += count as u64;
        if seen > wanted {
            let message =
                format!("more than the {wanted} requested bytes arrived; the store cannot be trusted");
            return Err(Failure::Final(unsound(message)));
        }
        out.write_all(&buffer[..count]).map_err(scratch)?;
    }
    if seen < wanted {
        let reason = format!("the response ended after {seen} of {wanted} bytes");
        return Err(Failure::Passing(StoreError::of(name, Fault::Passing(reason))));
    }
    Ok(())
}

/// Checks that the answer is for the listed object and for the requested bytes.
fn check(object: &Object, answer: &Answer<'_>, range: &Range<u64>) -> Result<(), String> {
    if answer.size != object.size {
        return Err(format!(
            "was listed with {} bytes, but now has {}; something still writes it, or the store cannot be trusted",
            object.size, answer.size
        ));
    }
    if let (Some(listed), Some(now)) = (&object.tag, &answer.tag)
        && bare(listed) != bare(now)
    {
        return Err("changed while it was copied; wait until nothing writes it, and try again".into());
    }
    if answer.range != *range {
        return Err(format!(
            "bytes {} to {} were requested, but {} to {} arrived; the store cannot be trusted",
            range.start, range.end, answer.range.start, answer.range.end
        ));
    }
    Ok(())
}

/// Strips quotation marks, which some stores omit in listings.
fn bare(tag: &str) -> &str {
    tag.trim_start_matches("W/").trim_matches('"')
}

/// Uploads the file to the store and checks that it is there.
pub(super) fn put(
    bucket: &dyn Bucket,
    key: &str,
    name: &Path,
    file: &Path,
    pauses: &[Duration],
) -> Result<(), StoreError> {
    let size = std::fs::metadata(file).map_err(|error| StoreError::scratch(file, error))?.len();
    patiently(pauses, name, || bucket.put(key, file))?;
    let stored = patiently(pauses, name, || bucket.head(key))?;
    if stored.size == size {
        return Ok(());
    }
    Err(StoreError::unsound(
        name,
        format!("{size} bytes were uploaded, but it has {}; upload it again", stored.size),
    ))
}

/// A file to upload.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) key: String,
    /// Its URL.
    pub(super) name: PathBuf,
    pub(super) file: PathBuf,
}

/// Uploads all of `files` (see [`put`]), in any order.
pub(super) fn put_all(
    bucket: &dyn Bucket,
    files: &[Delivery],
    pauses: &[Duration],
) -> Result<(), StoreError> {
    each(files, PUTS, |Delivery { key, name, file }, _| put(bucket, key, name, file, pauses))
}

/// Runs `work`, retrying transient failures after each of `pauses`.
pub(super) fn patiently<T>(
    pauses: &[Duration],
    name: &Path,
    mut work: impl FnMut() -> Result<T, Fault>,
) -> Result<T, StoreError> {
    let mut left = pauses.iter();
    loop {
        match work() {
            Ok(done) => return Ok(done),
            Err(fault @ Fault::Passing(_)) => match left.next() {
                Some(pause) => std::thread::sleep(*pause),
                None => return Err(StoreError::of(name, fault)),
            },
            Err(fault) => return Err(StoreError::of(name, fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range_once() {
        let ends =
            |start, end| pieces_of(&(start..end)).map(|range| (range.start, range.end)).collect::<Vec<_>>();
        assert_eq!(ends(0, 0), []);
        assert_eq!(ends(0, 5), [(0, 5)]);
        assert_eq!(ends(0, PIECE), [(0, PIECE)]);
        assert_eq!(ends(7, PIECE + 8), [(7, PIECE + 7), (PIECE + 7, PIECE + 8)]);
    }
}
