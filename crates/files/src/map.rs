//! File contents: the only module that maps files into memory.
//!
//! A file below [`MAP_FROM_BYTES`] is read into a buffer; larger files are mapped, since the cost of a map and its page faults
//! pays off only for them. With [`FileAccess::Read`] nothing is mapped: large files are read range by range on demand, which is
//! slower but survives a file that shrinks meanwhile. Their tensors are read while they are measured, one mebibyte at a time per
//! thread.
//!
//! Touched pages of a mapped file count as memory of this process. They are given back after every 64 MiB used, so that a
//! comparison keeps little of what it reads.
//!
//! Only regular files are opened: a named pipe would block forever, a device may never end. Late files ([`late`]) are always read range by
//! range.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::{Deref, DerefMut, Range};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::late::{self, Pieces, Wanted};
use probe_dump::{Bytes, ReadError, Storage};

/// Size from which a file is mapped rather than read, in bytes.
pub const MAP_FROM_BYTES: u64 = 256 << 10;

/// Number of bytes of a mapped file used before its pages are given back.
const HELD_BYTES: usize = 64 << 20;

/// Size from which a tensor stays in its unmapped file until it is measured, in bytes.
const FAR_FROM_BYTES: usize = 4 << 20;

/// Access to the bytes of large files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FileAccess {
    /// Large files are mapped. Truncating a mapped file kills the process, so this is for files that are complete and
    /// on a local disk.
    #[default]
    Map,
    /// Nothing is mapped. For network file systems and files that may still change.
    Read,
}

/// Opens the whole file as one storage.
///
/// # Errors
/// [`ReadError::Io`] when the system refuses, [`ReadError::Usage`] when `path` is not a regular file.
pub fn open(path: &Path, access: FileAccess) -> Result<Storage, ReadError> {
    if let Some(content) = late_whole(path)? {
        return Ok(Arc::new(content));
    }
    let (file, len) = open_regular(path)?;
    if len >= MAP_FROM_BYTES && access == FileAccess::Map {
        map(path, &file)
    } else {
        read_whole(path, &file, len)
    }
}

/// Bytes of a file that this process may modify. Changes stay private: the file is not changed, and only modified pages of a
/// mapped file take memory.
#[derive(Debug)]
pub enum PrivateBytes {
    /// Read into memory.
    Buffer(Vec<u8>),
    /// Mapped, copied page by page on write.
    Mapped(memmap2::MmapMut),
}

impl Deref for PrivateBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Mapped(map) => map,
        }
    }
}

impl DerefMut for PrivateBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Mapped(map) => map,
        }
    }
}

/// Opens the whole file for private modification.
///
/// # Errors
/// As for [`open`].
pub fn open_private(path: &Path, access: FileAccess) -> Result<PrivateBytes, ReadError> {
    if let Some(content) = late_whole(path)? {
        return Ok(PrivateBytes::Buffer(content));
    }
    let (file, len) = open_regular(path)?;
    if len < MAP_FROM_BYTES || access == FileAccess::Read {
        return read_buffer(path, &file, len).map(PrivateBytes::Buffer);
    }
    // SAFETY: the map is private and copied on write, so the file is never changed and no other process sees our writes.
    // The risks are those of a read-only map: see `map`.
    #[expect(unsafe_code, reason = "mapping a file is the point of this module")]
    let map = unsafe { memmap2::MmapOptions::new().map_copy(&file) };
    map.map(PrivateBytes::Mapped).map_err(|e| ReadError::io(path, e))
}

/// A file that hands out ranges, without copying if it is mapped or already in a buffer.
pub struct Source {
    path: Box<Path>,
    len: u64,
    content: Content,
}

enum Content {
    Whole(Storage),
    Pieces(Arc<dyn Pieces>),
}

/// A mapped file.
struct Mapped {
    map: memmap2::Mmap,
    /// Bytes used since the pages were given back.
    used: AtomicUsize,
}

impl Bytes for Mapped {
    fn size(&self) -> usize {
        self.map.len()
    }

    fn in_memory(&self) -> Option<&[u8]> {
        Some(&self.map)
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.map[at..at + out.len()]);
    }

    fn used(&self, bytes: usize) {
        if self.used.fetch_add(bytes, Ordering::Relaxed) + bytes >= HELD_BYTES {
            self.used.store(0, Ordering::Relaxed);
            self.give_back();
        }
    }
}

impl Mapped {
    #[cfg(unix)]
    fn give_back(&self) {
        // SAFETY: the map is shared with the file and never written to, so a dropped page is reread from the file with the same
        // bytes when touched again: concurrent readers notice nothing.
        #[expect(unsafe_code, reason = "mapping a file is the point of this module")]
        let advised = unsafe { self.map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        // A system that ignores the advice simply keeps the pages.
        drop(advised);
    }

    #[cfg(not(unix))]
    fn give_back(&self) {}
}

/// Bytes that stay in their file until requested.
struct Far {
    file: Arc<dyn Pieces>,
    /// File offset of the first byte.
    start: u64,
    size: usize,
    fault: OnceLock<String>,
}

impl Bytes for Far {
    fn size(&self) -> usize {
        self.size
    }

    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        if let Err(error) = self.file.read_at(self.start + at as u64, out) {
            out.fill(0);
            // Only the first fault is reported.
            _ = self.fault.set(error.to_string());
        }
    }

    fn fault(&self) -> Option<String> {
        self.fault.get().cloned()
    }
}

/// A range of a [`Source`], kept alive by its storage.
#[derive(Clone)]
pub struct Section {
    /// Bytes that contain the section.
    pub storage: Storage,
    /// Position within these bytes.
    pub range: Range<usize>,
}

impl Section {
    /// Returns the bytes of the section; empty if they are not in memory, which [`Source::data`] does not
    /// guarantee.
    pub fn bytes(&self) -> &[u8] {
        self.storage.in_memory().and_then(|all| all.get(self.range.clone())).unwrap_or(&[])
    }

    /// Loads the bytes of the section into memory.
    ///
    /// # Errors
    /// The system's reason when they cannot be read.
    pub fn into_memory(self) -> Result<Self, String> {
        if self.storage.in_memory().is_some() {
            return Ok(self);
        }
        let mut buffer = vec![0; self.range.len()];
        self.storage.read(self.range.start, &mut buffer);
        let range = 0..buffer.len();
        self.storage.fault().map_or_else(|| Ok(Self { storage: Arc::new(buffer), range }), Err)
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Section({:?})", self.range)
    }
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// As for [`open`].
    pub fn open(path: &Path, access: FileAccess) -> Result<Self, ReadError> {
        if let Some((file, len)) = late::open(path) {
            return Ok(Self { path: path.into(), len, content: Content::Pieces(file) });
        }
        let (file, len) = open_regular(path)?;
        let content = match access {
            _ if len < MAP_FROM_BYTES => Content::Whole(read_whole(path, &file, len)?),
            FileAccess::Map => Content::Whole(map(path, &file)?),
            FileAccess::Read => Content::Pieces(Arc::new(file)),
        };
        // If the file grew or shrank between the two calls, the bytes actually read count.
        let len = match &content {
            Content::Whole(storage) => storage.size() as u64,
            Content::Pieces(_) => len,
        };
        Ok(Self { path: path.into(), len, content })
    }

    /// Wraps bytes that are already in memory; `path` is used in errors.
    pub fn from_storage(path: &Path, storage: Storage) -> Self {
        let len = storage.size() as u64;
        Self { path: path.into(), len, content: Content::Whole(storage) }
    }

    /// Returns the same bytes under another name; `path` is used in errors.
    #[must_use]
    pub fn called(self, path: &Path) -> Self {
        Self { path: path.into(), ..self }
    }

    /// Returns the path used in errors.
    pub const fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size in bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the file is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of `range`; `what` describes them in errors.
    ///
    /// # Errors
    /// [`ReadError::Format`] when the range does not lie inside the file, [`ReadError::Io`] when reading it fails.
    pub fn section(&self, range: Range<u64>, what: &str) -> Result<Section, ReadError> {
        let (file, start, size) = match (self.within(&range, what)?, &self.content) {
            (range, Content::Whole(storage)) => return Ok(Section { storage: Arc::clone(storage), range }),
            (range, Content::Pieces(file)) => (file, range.start, range.len()),
        };
        file.ready(range).map_err(|e| ReadError::io(&*self.path, e))?;
        // Bounded by the file size, which was checked above.
        let mut buffer = vec![0; size];
        file.read_at(start as u64, &mut buffer).map_err(|e| ReadError::io(&*self.path, e))?;
        Ok(Section { storage: Arc::new(buffer), range: 0..size })
    }

    /// Like [`section`](Self::section), for tensor data: in a file read by ranges, large data stays there until it is measured.
    ///
    /// # Errors
    /// As for [`section`](Self::section); later failures become the [`fault`](Bytes::fault) of the
    /// storage.
    pub fn data(&self, range: Range<u64>, what: &str) -> Result<Section, ReadError> {
        let place = self.within(&range, what)?;
        match &self.content {
            Content::Pieces(file) if place.len() >= FAR_FROM_BYTES => {
                late::expect(&[Wanted { path: self.path.to_path_buf(), range: range.clone() }]);
                let (file, start, size) = (Arc::clone(file), range.start, place.len());
                let far = Far { file, start, size, fault: OnceLock::new() };
                Ok(Section { storage: Arc::new(far), range: 0..size })
            }
            _ => self.section(range, what),
        }
    }

    /// Returns `range` if it lies inside the file.
    fn within(&self, range: &Range<u64>, what: &str) -> Result<Range<usize>, ReadError> {
        let outside = || {
            let Range { start, end } = *range;
            let message =
                format!("{what} should be at bytes {start} to {end}, but the file has {}", self.len);
            ReadError::format(&*self.path, message)
        };
        if range.start > range.end || range.end > self.len {
            return Err(outside());
        }
        let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else {
            return Err(outside());
        };
        Ok(start..end)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Opens a regular file and returns its length.
///
/// # Errors
/// As for [`open`].
pub fn open_regular(path: &Path) -> Result<(File, u64), ReadError> {
    // Checked before opening, because opening a pipe without a writer blocks, and again afterwards, because the
    // name may refer to another file by then.
    regular_len(path, &fs::metadata(path).map_err(|e| ReadError::io(path, e))?)?;
    let file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    let len = regular_len(path, &file.metadata().map_err(|e| ReadError::io(path, e))?)?;
    Ok((file, len))
}

fn regular_len(path: &Path, metadata: &fs::Metadata) -> Result<u64, ReadError> {
    if metadata.is_file() {
        Ok(metadata.len())
    } else if metadata.is_dir() {
        Err(ReadError::usage(path, "is a folder; expected a file"))
    } else {
        Err(ReadError::usage(path, "is a pipe, socket or device; only regular files can be read"))
    }
}

/// Returns the whole content of the late file at `path`, if there is one.
fn late_whole(path: &Path) -> Result<Option<Vec<u8>>, ReadError> {
    let Some((file, len)) = late::open(path) else { return Ok(None) };
    let read = || {
        file.ready(0..len)?;
        let mut buffer = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_at(0, &mut buffer).map(|()| Some(buffer))
    };
    read().map_err(|error| ReadError::io(path, error))
}

fn read_whole(path: &Path, file: &File, len: u64) -> Result<Storage, ReadError> {
    Ok(Arc::new(read_buffer(path, file, len)?))
}

fn read_buffer(path: &Path, file: &File, len: u64) -> Result<Vec<u8>, ReadError> {
    let capacity = usize::try_from(len).map_err(|_| {
        ReadError::format(path, format!("{len} bytes are more than this machine can address"))
    })?;
    let mut buffer = Vec::with_capacity(capacity);
    // `take` ends the loop at the known size, saving one more call to detect the end.
    file.take(len).read_to_end(&mut buffer).map_err(|e| ReadError::io(path, e))?;
    Ok(buffer)
}

#[expect(clippy::disallowed_methods, reason = "this is the file the lint points to")]
fn map(path: &Path, file: &File) -> Result<Storage, ReadError> {
    // SAFETY: the map is read-only and private to this process. The risks: if another process truncates the file,
    // touching the lost pages raises SIGBUS, and if it rewrites the file, bytes change under a shared slice.
    // `FileAccess::Read` exists for such files, and every reader checks sizes against the length on opening.
    #[expect(unsafe_code, reason = "mapping a file is the point of this module")]
    let map = unsafe { memmap2::Mmap::map(file) };
    let map = map.map_err(|e| ReadError::io(path, e))?;
    Ok(Arc::new(Mapped { map, used: AtomicUsize::new(0) }))
}

impl Pieces for File {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        read_exact_at(self, out, at)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        let count = std::os::windows::fs::FileExt::seek_read(file, buffer, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = buffer.get_mut(count..).unwrap_or(&mut []);
        offset += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large() -> Vec<u8> {
        (0..300_000_u32).flat_map(|i| (i % 251).to_le_bytes()).collect()
    }

    #[test]
    fn every_way_of_access_gives_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        for content in [Vec::new(), vec![1, 2, 3], large()] {
            let path = folder.path().join("f");
            fs::write(&path, &content).unwrap();
            for access in [FileAccess::Map, FileAccess::Read] {
                assert_eq!(open(&path, access).unwrap().in_memory().unwrap(), content);
                let mut private = open_private(&path, access).unwrap();
                assert_eq!(&*private, content);
                private.fill(0);
                assert_eq!(fs::read(&path).unwrap(), content, "the file keeps its bytes");
                let source = Source::open(&path, access).unwrap();
                assert_eq!(source.section(0..source.len(), "all").unwrap().bytes(), content);
                let middle = content.len() / 2;
                let part = source.section(middle as u64..source.len(), "the second half").unwrap();
                assert_eq!(part.bytes(), &content[middle..]);
            }
        }
    }

    #[test]
    fn ranges_outside_the_file_are_refused_and_say_what_was_looked_for() {
        let source = Source::from_storage(Path::new("x.npy"), Arc::new(vec![0; 10]));
        for range in [0..11, 11..11, 4..u64::MAX] {
            let error = source.section(range, "the header").unwrap_err().to_string();
            assert!(error.starts_with("x.npy: the header should be at bytes"), "{error}");
        }
        #[expect(clippy::reversed_empty_ranges, reason = "the case under test")]
        let reversed = 5..4;
        assert!(source.section(reversed, "the header").is_err());
    }

    #[test]
    fn folders_and_missing_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = open(folder.path(), FileAccess::Map).err().unwrap();
        assert!(matches!(error, ReadError::Usage { .. }), "{error}");
        let error = open(&folder.path().join("none"), FileAccess::Map).err().unwrap();
        assert!(matches!(error, ReadError::Io { .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn pipes_devices_and_link_loops_are_refused_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.npy");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for path in [&*pipe, Path::new("/dev/zero")] {
            let error = open(path, FileAccess::Map).err().unwrap();
            assert!(matches!(error, ReadError::Usage { .. }), "{error}");
        }
        let link = folder.path().join("loop.npy");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        assert!(matches!(open(&link, FileAccess::Map).err().unwrap(), ReadError::Io { .. }));
    }
}
