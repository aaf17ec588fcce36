//! `NumPy`'s `.npz`: a ZIP archive of npy members, stored or deflated.
//!
//! Stored members are used in place. Deflated ones are expanded into a buffer on loading, after their declared size
//! has passed the limits; the buffer grows only with the actual output, and size and checksum of the result must
//! match the declared ones.

use std::ops::Range;
use std::sync::Arc;

use zip::CompressionMethod;
use zip::read::OwnedZipFileEntry;

use super::{Entry, TensorFile, npy, printable};
use crate::ReadError;
use crate::archive::{ENCRYPTED, Zipped};
use probe_dump::{TensorData, Value};
use probe_files::limits::{
    LARGE_INFLATED_BYTES, MAX_DEFLATED_HEADER_BYTES, MAX_INFLATE_RATIO, MAX_INFLATED_BYTES,
    MAX_LARGE_INFLATE_RATIO, MAX_NPZ_MEMBERS,
};
use probe_files::map::{Section, Source};

const EXTENSION: &str = ".npy";

/// Bytes of the first member's header, before its name.
const LOCAL_BYTES: u64 = 30;

/// Returns true if the first member of the archive is an array, or there is none: a torch checkpoint begins with its
/// program.
pub(super) fn recognises(source: &Source) -> bool {
    let Ok(header) = source.section(0..LOCAL_BYTES, "a member's header") else { return true };
    let header = header.bytes();
    let length = header.get(26..28).map_or(0, |bytes| u64::from(bytes[0]) | u64::from(bytes[1]) << 8);
    let name = source.section(LOCAL_BYTES..LOCAL_BYTES + length, "a member's name");
    header.starts_with(b"PK\x05\x06") || name.is_ok_and(|name| name.bytes().ends_with(EXTENSION.as_bytes()))
}

/// An opened npz file.
#[derive(Debug)]
pub(super) struct NpzFile {
    archive: Zipped,
    entries: Vec<Entry>,
}

impl NpzFile {
    /// Reads the header of every member; a member with a damaged header stays listed and fails on loading.
    pub(super) fn open(source: Source) -> Result<Self, ReadError> {
        let archive = Zipped::open(source, MAX_NPZ_MEMBERS)?;
        let damaged = |message: String| ReadError::format(archive.source().path(), message);
        archive.check_names()?;
        let mut entries = Vec::with_capacity(archive.members().len());
        for member in archive.members() {
            let text = String::from_utf8_lossy(member.name_raw());
            let Some(name) = text.strip_suffix(EXTENSION) else {
                return Err(damaged(
                    "is a ZIP archive with neither data.pkl (torch) nor only .npy members (npz)".into(),
                ));
            };
            if member.encrypted() {
                // Nothing in such a file can be read, and its owner should know at once.
                return Err(damaged(format!("archive member '{}' {ENCRYPTED}", printable(&text))));
            }
            let value = match header(&archive, member) {
                Ok(header) => Value::Tensor(Arc::new(header.metadata().into())),
                Err(error) => Value::Tensor(Arc::new(npy::damaged(&error))),
            };
            entries.push(Entry { name: name.into(), value });
        }
        Ok(Self { archive, entries })
    }
}

impl TensorFile for NpzFile {
    fn format(&self) -> &'static str {
        "npz"
    }

    fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn load(&self, index: usize) -> Result<TensorData, ReadError> {
        let Some(member) = self.archive.members().get(index) else {
            return Err(ReadError::usage(self.archive.source().path(), format!("there is no array {index}")));
        };
        load(&self.archive, member)
    }
}

fn load(archive: &Zipped, member: &OwnedZipFileEntry) -> Result<TensorData, ReadError> {
    let damaged = |message: String| fault(archive, member, message);
    if member.compression() == CompressionMethod::Stored {
        let place = archive.stored_place(member).map_err(damaged)?;
        return npy::load(archive.source(), place).map_err(|e| named(archive, member, e));
    }
    check_expansion(archive, member)?;
    let bytes = archive.content(member, u64::MAX).map_err(damaged)?;
    let place = header_place(&bytes, member.size()).map_err(damaged)?;
    let header = npy::Header::parse(bytes.get(place.clone()).unwrap_or_default()).map_err(damaged)?;
    let range = place.end..bytes.len();
    header.tensor(Section { storage: Arc::new(bytes), range }).map_err(damaged)
}

/// Reads the header of a member without expanding the rest.
fn header(archive: &Zipped, member: &OwnedZipFileEntry) -> Result<npy::Header, ReadError> {
    let damaged = |message: String| fault(archive, member, message);
    if member.compression() == CompressionMethod::Stored {
        let place = archive.stored_place(member).map_err(damaged)?;
        let header = npy::read_header(archive.source(), place).map_err(|e| named(archive, member, e));
        return header.map(|(header, _)| header);
    }
    check_expansion(archive, member)?;
    let head = archive.content(member, npy::PREAMBLE_BYTES).map_err(damaged)?;
    let place = header_place(&head, member.size()).map_err(damaged)?;
    let end = place.end as u64;
    if end > MAX_DEFLATED_HEADER_BYTES {
        return Err(ReadError::Limit {
            path: archive.source().path().into(),
            what: "length of a compressed npy header",
            found: end,
            limit: MAX_DEFLATED_HEADER_BYTES,
        });
    }
    let head = archive.content(member, end).map_err(damaged)?;
    npy::Header::parse(head.get(place).unwrap_or_default()).map_err(damaged)
}

/// Returns the position of the header text in a member of `size` bytes.
fn header_place(head: &[u8], size: u64) -> Result<Range<usize>, String> {
    let range = npy::header_range(head)?;
    if range.end > size {
        return Err(format!("npy header should end at byte {}, but the array has {size}", range.end));
    }
    match (usize::try_from(range.start), usize::try_from(range.end)) {
        (Ok(start), Ok(end)) => Ok(start..end),
        _ => Err("npy header is longer than this machine can address".into()),
    }
}

fn check_expansion(archive: &Zipped, member: &OwnedZipFileEntry) -> Result<(), ReadError> {
    let path = archive.source().path();
    match expansion_fault(member.compressed_size(), member.size()) {
        Some((what, found, limit)) => Err(ReadError::Limit { path: path.into(), what, found, limit }),
        None => Ok(()),
    }
}

/// Returns the limit violated by a member of `stored` bytes that claims to expand to `size`: quantity, value, limit.
fn expansion_fault(stored: u64, size: u64) -> Option<(&'static str, u64, u64)> {
    if size > MAX_INFLATED_BYTES {
        return Some(("expanded size of a compressed array", size, MAX_INFLATED_BYTES));
    }
    let ratio = size / stored.max(1);
    let most = if size > LARGE_INFLATED_BYTES { MAX_LARGE_INFLATE_RATIO } else { MAX_INFLATE_RATIO };
    let what = "expansion of a compressed array (a bomb; or else save it with numpy.savez)";
    (ratio > most).then_some((what, ratio, most))
}

/// Adds the name of the array to an error of the npy reader.
fn named(archive: &Zipped, member: &OwnedZipFileEntry, error: ReadError) -> ReadError {
    match error {
        ReadError::Format { message, .. } => fault(archive, member, message),
        other => other,
    }
}

fn fault(archive: &Zipped, member: &OwnedZipFileEntry, message: impl AsRef<str>) -> ReadError {
    let name = printable(&String::from_utf8_lossy(member.name_raw()));
    ReadError::format(archive.source().path(), format!("array '{name}': {}", message.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_cannot_be_true_are_refused_before_expanding() {
        assert_eq!(expansion_fault(100, 100_000), None);
        assert_eq!(expansion_fault(0, 0), None);
        assert!(expansion_fault(100, 200_000).is_some());
        assert!(expansion_fault(MAX_INFLATED_BYTES, MAX_INFLATED_BYTES + 1).is_some());
        // A large array of zeros stays within the ratio of deflate; from a small file it fills the
        // memory.
        assert!(expansion_fault(1 << 20, 300 << 20).is_some());
        assert_eq!(expansion_fault(4 << 20, 300 << 20), None);
    }
}
