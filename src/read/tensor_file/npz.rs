//! `NumPy`'s `.npz`: a ZIP archive of npy members, stored or deflated.
//!
//! Stored members are used where they lie. Deflated ones are expanded into a buffer when they are loaded, after their
//! declared size has passed the limits; the buffer grows with what really comes out, never ahead of it, and size and
//! checksum of the result must be the declared ones.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use flate2::read::DeflateDecoder;

use super::{Entry, TensorFile, npy, printable};
use crate::dump::{TensorData, Value};
use crate::read::ReadError;
use crate::read::archive::{Archive, Member, Method};
use crate::read::limits::{
    LARGE_INFLATED_BYTES, MAX_DEFLATED_HEADER_BYTES, MAX_INFLATE_RATIO, MAX_INFLATED_BYTES,
    MAX_LARGE_INFLATE_RATIO,
};
use crate::read::map::Section;

const EXTENSION: &str = ".npy";

/// True when the archive holds arrays and nothing else.
pub(super) fn recognises(archive: &Archive) -> bool {
    archive.members().iter().all(|member| archive.name(member).ends_with(EXTENSION))
}

/// An opened npz file.
#[derive(Debug)]
pub(super) struct NpzFile {
    archive: Archive,
    entries: Vec<Entry>,
}

impl NpzFile {
    /// Reads the header of every member; a member whose header is damaged stays listed and fails when it is loaded.
    pub(super) fn open(archive: Archive) -> Result<Self, ReadError> {
        let mut entries = Vec::with_capacity(archive.members().len());
        for member in archive.members() {
            if member.encrypted {
                // Nothing can be said of such a file, and its owner should know at once.
                archive.raw(member)?;
            }
            let name = archive.name(member);
            let name = name.strip_suffix(EXTENSION).unwrap_or(name).into();
            let value = match header(&archive, member) {
                Ok(header) => Value::Tensor(Box::new(header.record())),
                Err(_) => Value::Tensor(Box::new(npy::unreadable())),
            };
            entries.push(Entry { name, value });
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

fn load(archive: &Archive, member: &Member) -> Result<TensorData, ReadError> {
    if member.method == Method::Stored {
        let place = archive.stored_place(member)?;
        return npy::load(archive.source(), place).map_err(|e| named(archive, member, e));
    }
    let damaged = |message| fault(archive, member, message);
    let bytes = inflate(archive, member)?;
    let all = bytes.bytes();
    let place = header_place(all, member.size).map_err(damaged)?;
    let header = npy::Header::parse(all.get(place.clone()).unwrap_or_default()).map_err(damaged)?;
    header.tensor(Section { storage: bytes.storage, range: place.end..bytes.range.end }).map_err(damaged)
}

/// Reads the header of a member without expanding the rest.
fn header(archive: &Archive, member: &Member) -> Result<npy::Header, ReadError> {
    if member.method == Method::Stored {
        let place = archive.stored_place(member)?;
        let header = npy::read_header(archive.source(), place).map_err(|e| named(archive, member, e));
        return header.map(|(header, _)| header);
    }
    let damaged = |message| fault(archive, member, message);
    check_expansion(archive, member)?;
    let raw = archive.raw(member)?;
    let mut stream = DeflateDecoder::new(raw.bytes());
    let mut head = Vec::new();
    let broken = |e: std::io::Error| damaged(format!("cannot be expanded: {e}"));
    (&mut stream).take(npy::PREAMBLE_BYTES).read_to_end(&mut head).map_err(broken)?;
    let place = header_place(&head, member.size).map_err(damaged)?;
    let end = place.end as u64;
    if end > MAX_DEFLATED_HEADER_BYTES {
        return Err(ReadError::Limit {
            path: archive.source().path().into(),
            what: "length of a compressed npy header",
            found: end,
            limit: MAX_DEFLATED_HEADER_BYTES,
        });
    }
    let rest = end.saturating_sub(head.len() as u64);
    stream.take(rest).read_to_end(&mut head).map_err(broken)?;
    npy::Header::parse(head.get(place).unwrap_or_default()).map_err(damaged)
}

/// Where the header text lies in a member of `size` bytes.
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

fn check_expansion(archive: &Archive, member: &Member) -> Result<(), ReadError> {
    let path = archive.source().path();
    if let Method::Other(code) = member.method {
        return Err(fault(
            archive,
            member,
            format!("has compression method {code}; save it with numpy.savez"),
        ));
    }
    match expansion_fault(member.stored, member.size) {
        Some((what, found, limit)) => Err(ReadError::Limit { path: path.into(), what, found, limit }),
        None => Ok(()),
    }
}

/// What is wrong with a member of `stored` bytes that claims to expand to `size`: the quantity, its value, its limit.
fn expansion_fault(stored: u64, size: u64) -> Option<(&'static str, u64, u64)> {
    if size > MAX_INFLATED_BYTES {
        return Some(("expanded size of a compressed array", size, MAX_INFLATED_BYTES));
    }
    let ratio = size / stored.max(1);
    let most = if size > LARGE_INFLATED_BYTES { MAX_LARGE_INFLATE_RATIO } else { MAX_INFLATE_RATIO };
    let what = "expansion of a compressed array (a bomb; or else save it with numpy.savez)";
    (ratio > most).then_some((what, ratio, most))
}

fn inflate(archive: &Archive, member: &Member) -> Result<Section, ReadError> {
    check_expansion(archive, member)?;
    let damaged = |message: String| fault(archive, member, message);
    let expanded = archive.inflate(member, &damaged)?;
    let range = 0..expanded.len();
    Ok(Section { storage: Arc::new(expanded), range })
}

/// Adds the name of the array to what the npy reader found.
fn named(archive: &Archive, member: &Member, error: ReadError) -> ReadError {
    match error {
        ReadError::Format { message, .. } => fault(archive, member, message),
        other => other,
    }
}

fn fault(archive: &Archive, member: &Member, message: impl AsRef<str>) -> ReadError {
    let name = printable(archive.name(member));
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
        // A large array of zeros would pass the ratio of deflate; from a small file it fills the memory.
        assert!(expansion_fault(1 << 20, 300 << 20).is_some());
        assert_eq!(expansion_fault(4 << 20, 300 << 20), None);
    }
}
