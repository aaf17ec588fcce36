//! The seal of a file: its hash, in the file itself, in the metadata of a table or at the end of a text.
//!
//! A table with a changed byte often still decodes, to other numbers. The seal tells. It covers the whole file, in which
//! its own digits count as zeros: the writer leaves room for them, hashes what it writes, and fills them in at the end.
//! Files without a seal, by earlier versions or other programs, are as they are.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::Path;

use twox_hash::XxHash3_128;

use probe_dump::ReadError;

/// Key of the seal in the metadata of a table.
pub const KEY: &str = "probe_seal";

/// First characters of its value, which name the hash. The digits follow.
const HASH: &str = "xxh3_128:";

/// Number of digits: hexadecimal, most significant first.
pub const DIGITS: usize = 32;

/// Bytes at the end of a Parquet file: the length of the metadata in front of them, and a mark.
const TAIL: usize = 8;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Returns the value of a seal whose digits are not known yet.
pub fn blank() -> String {
    format!("{HASH}{}", "0".repeat(DIGITS))
}

/// A file that is hashed as it is written.
pub struct Sealed {
    file: File,
    hash: XxHash3_128,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Sealed {
    /// Begins an empty file.
    pub fn new(file: File) -> Self {
        Self { file, hash: XxHash3_128::new() }
    }

    /// Fills in the digits of the complete table.
    ///
    /// # Errors
    /// Those of the file, and one if the table has no seal.
    pub fn close(mut self) -> io::Result<()> {
        let length = self.file.stream_position()?;
        let metadata = metadata(&mut self.file, length)?;
        let place =
            place(&metadata.bytes).ok().flatten().ok_or_else(|| io::Error::other("no seal in the table"))?;
        self.file.seek(SeekFrom::Start(metadata.at + place as u64))?;
        write!(self.file, "{:032x}", self.hash.finish_128())
    }
}

impl Write for Sealed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.write(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Checks the seal of the table at `path`, of `length` bytes, if it has one.
///
/// # Errors
/// [`ReadError::Format`] when the file is not as it was written, [`ReadError::Io`] when it cannot be read.
pub fn check(path: &Path, file: &File, length: u64) -> Result<(), ReadError> {
    let changed = || {
        ReadError::format(
            path,
            "has changed since it was written: its bytes do not match its seal; copy it or capture it again",
        )
    };
    let io = |error| ReadError::io(path, error);
    let mut file = file;
    let metadata = metadata(&mut file, length).map_err(io)?;
    let Some(place) = place(&metadata.bytes).map_err(|Damaged| changed())? else { return Ok(()) };
    let digits = metadata.bytes.get(place..place + DIGITS).unwrap_or_default();
    let hash = hash(&mut file, length, metadata.at + place as u64).map_err(io)?;
    if digits == format!("{hash:032x}").as_bytes() { Ok(()) } else { Err(changed()) }
}

/// Returns the digits of `bytes`, of which those at `place` count as zeros; `None` if that is beyond the end.
pub fn digits(bytes: &[u8], place: usize) -> Option<String> {
    let (before, rest) = bytes.split_at_checked(place)?;
    let mut hash = XxHash3_128::new();
    hash.write(before);
    hash.write(&b"0".repeat(DIGITS));
    hash.write(rest.get(DIGITS..)?);
    Some(format!("{:032x}", hash.finish_128()))
}

/// Hashes a file as if there were zeros in place of the digits at byte `digits`.
fn hash(file: &mut (impl io::Read + io::Seek), length: u64, digits: u64) -> io::Result<u128> {
    file.rewind()?;
    let mut hash = XxHash3_128::new();
    let mut chunk = Vec::with_capacity(CHUNK);
    for (end, zeros) in [(digits, DIGITS), (length, 0)] {
        let mut at = file.stream_position()?;
        while at < end {
            chunk.clear();
            let read = file.by_ref().take((end - at).min(CHUNK as u64)).read_to_end(&mut chunk)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            hash.write(&chunk);
            at += read as u64;
        }
        hash.write(&b"0".repeat(zeros));
        file.seek_relative(i64::try_from(zeros).unwrap_or_default())?;
    }
    Ok(hash.finish_128())
}

/// The metadata of a Parquet file, and the byte at which it begins.
struct Metadata {
    bytes: Vec<u8>,
    at: u64,
}

/// Reads the metadata of a file of `length` bytes. A length of the metadata that is beyond the file counts as all of it.
fn metadata(file: &mut (impl io::Read + io::Seek), length: u64) -> io::Result<Metadata> {
    let end = length.saturating_sub(TAIL as u64);
    file.seek(SeekFrom::Start(end))?;
    let mut tail = Vec::new();
    file.by_ref().take(TAIL as u64).read_to_end(&mut tail)?;
    let claimed = tail.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let at = end.saturating_sub(claimed.into());
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.by_ref().take(end - at).read_to_end(&mut bytes)?;
    Ok(Metadata { bytes, at })
}

/// The metadata has only a part of a seal.
struct Damaged;

/// Returns the place of the digits in the metadata; `None` if there is no seal. Key and value tell of one another, so that
/// one changed byte does not make a seal disappear.
fn place(metadata: &[u8]) -> Result<Option<usize>, Damaged> {
    let after = |text: &str| {
        let found = metadata.windows(text.len()).rposition(|window| window == text.as_bytes());
        found.map(|at| at + text.len())
    };
    match (after(KEY), after(HASH)) {
        (None, None) => Ok(None),
        // Between both are a type and the length of the value.
        (Some(key), Some(place)) if place == key + 2 + HASH.len() => Ok(Some(place)),
        _ => Err(Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file that ends as a table does.
    fn sealed() -> Vec<u8> {
        let mut file = tempfile::tempfile().unwrap();
        let metadata = format!("{KEY}\x18\x29{}...", blank());
        let mut sealed = Sealed::new(file.try_clone().unwrap());
        sealed.write_all(&vec![7; 3 * CHUNK / 2]).unwrap();
        sealed.write_all(metadata.as_bytes()).unwrap();
        sealed.write_all(&u32::try_from(metadata.len()).unwrap().to_le_bytes()).unwrap();
        sealed.write_all(b"PAR1").unwrap();
        sealed.close().unwrap();
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        io::copy(&mut file, &mut bytes).unwrap();
        bytes
    }

    fn checked(bytes: &[u8]) -> Result<(), ReadError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        check(Path::new("ops.parquet"), &file, bytes.len() as u64)
    }

    #[test]
    fn a_changed_byte_breaks_the_seal_wherever_it_is() {
        let bytes = sealed();
        checked(&bytes).unwrap();
        let last = bytes.len() - 1;
        let places =
            [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK / 2].into_iter().chain(last - 3 - TAIL - 60..last - 7);
        for place in places.chain(last - 3..=last) {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            let error = checked(&changed).unwrap_err().to_string();
            assert!(
                error.starts_with("ops.parquet: has changed since it was written"),
                "byte {place}: {error}"
            );
        }
        // A changed length of the metadata finds the seal or no table at all.
        assert!(checked(&bytes[1..]).is_err(), "a byte is missing");
    }

    #[test]
    fn bytes_in_memory_have_the_digits_of_their_file() {
        let bytes = sealed();
        let place = bytes.len() - TAIL - 3 - DIGITS;
        assert_eq!(digits(&bytes, place).unwrap().as_bytes(), &bytes[place..place + DIGITS]);
        assert_eq!(digits(&bytes, bytes.len() - DIGITS + 1), None);
        assert_eq!(digits(&bytes, bytes.len() + 1), None);
    }

    #[test]
    fn files_without_a_seal_pass() {
        for bytes in [&b""[..], b"PAR1", b"\xff\xff\xff\xffPAR1", &[0; 100]] {
            checked(bytes).unwrap();
        }
    }
}
