//! The members of any archive, as the `zip` crate finds them.
//!
//! The end records are checked before the crate reads its first entry: location and size of the directory, and the number of
//! members it claims. The places of the members are checked afterwards. Of members with the same name the last one counts, as in
//! Python. Only the directory describes members, and names are labels that never become paths: [`name_fault`](super::name_fault)
//! checks them.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use zip::read::{ArchiveOffset, Config, OwnedZipFileEntry};
use zip::{CompressionMethod, ZipArchive, ZipReadOptions};

use super::end::{EndRecord, Fields};
use super::name_fault;
use crate::ReadError;
use crate::tensor_file::printable;
use probe_files::limits::MAX_DIRECTORY_BYTES;
use probe_files::map::Source;

/// Initial size of the buffer for a member's content, in bytes.
const FIRST_BUFFER: u64 = 1 << 20;

/// First bytes of a member's header, and its size up to the name.
const LOCAL: &[u8] = b"PK\x03\x04";
const LOCAL_BYTES: u64 = 30;
/// Method code of an uncompressed member.
const STORED: u16 = 0;

/// Error text for a member that needs a password.
pub const ENCRYPTED: &str = "is encrypted; save the file without a password";

/// An opened archive.
#[derive(Debug)]
pub struct Zipped {
    source: Arc<Source>,
    members: Vec<OwnedZipFileEntry>,
    /// Number of members replaced by a later one of the same name.
    repeated: u64,
}

impl Zipped {
    /// Opens an archive of at most `most` members.
    ///
    /// # Errors
    /// [`ReadError`] when the file is not a zip, when its directory is damaged, or when a limit would be exceeded.
    pub fn open(source: Source, most: u64) -> Result<Self, ReadError> {
        let end = EndRecord::find(&source)?;
        let (size, count) = (end.directory.end - end.directory.start, end.members);
        for (what, found, limit) in [
            ("size of the archive's directory", size, MAX_DIRECTORY_BYTES),
            ("number of archive members", count, most),
        ] {
            if found > limit {
                return Err(ReadError::Limit { path: source.path().into(), what, found, limit });
            }
        }
        let source = Arc::new(source);
        let damaged = |reason: &dyn std::fmt::Display| {
            let reason = printable(&reason.to_string());
            let message = format!("archive has a damaged directory ({reason}); copy or write the file again");
            ReadError::format(source.path(), message)
        };
        let reader = Reader { source: Arc::clone(&source), at: 0 };
        let archive = ZipArchive::with_config(Config { archive_offset: ArchiveOffset::Known(0) }, reader)
            .map_err(|error| damaged(&error))?;
        if archive.central_directory_start() != end.directory.start {
            return Err(damaged(&"it lies in two places"));
        }
        let members: Vec<OwnedZipFileEntry> = (0..archive.len())
            .map(|at| archive.by_index_data(at).map(Into::into))
            .collect::<Result<_, _>>()
            .map_err(|error| damaged(&error))?;
        let repeated = count.saturating_sub(members.len() as u64);
        let archive = Self { source: Arc::clone(&source), members, repeated };
        archive.check_extents(end.directory.start)?;
        Ok(archive)
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the members in directory order.
    pub fn members(&self) -> &[OwnedZipFileEntry] {
        &self.members
    }

    /// Returns the number of members replaced by a later one of the same name.
    pub const fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Returns up to `most` bytes of a member's content. If that is all of it, size and checksum were verified against the declared ones.
    ///
    /// # Errors
    /// The problem, worded to follow the member's name.
    pub fn content(&self, member: &OwnedZipFileEntry, most: u64) -> Result<Vec<u8>, String> {
        if member.encrypted() {
            return Err(ENCRYPTED.into());
        }
        if !matches!(member.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
            return Err(format!(
                "has compression method {:?}; write it stored or deflated",
                member.compression()
            ));
        }
        let mut reader = Reader { source: Arc::clone(&self.source), at: 0 };
        let file = member
            .as_ref()
            .with_reader(&mut reader, ZipReadOptions::new())
            .map_err(|error| format!("cannot be read: {}", printable(&error.to_string())))?;
        let mut content =
            Vec::with_capacity(usize::try_from(member.size().min(FIRST_BUFFER)).unwrap_or_default());
        // The crate verifies size and checksum at the end, one byte beyond the declared size.
        file.take(most.min(member.size().saturating_add(1)))
            .read_to_end(&mut content)
            .map_err(|error| format!("cannot be expanded: {}", printable(&error.to_string())))?;
        let (declared, found) = (member.size(), content.len() as u64);
        if found < declared.min(most) {
            return Err(format!("should expand to {declared} bytes but gives {found}"));
        }
        Ok(content)
    }

    /// Returns the byte range of an uncompressed member in the archive.
    ///
    /// # Errors
    /// The problem, worded to follow the member's name.
    pub(crate) fn stored_place(&self, member: &OwnedZipFileEntry) -> Result<Range<u64>, String> {
        if member.encrypted() {
            return Err(ENCRYPTED.into());
        }
        if member.compressed_size() != member.size() {
            return Err(format!("has two sizes, {} and {}", member.compressed_size(), member.size()));
        }
        let header = member.header_start();
        let local = self.source.section(header..header.saturating_add(LOCAL_BYTES), "a member's header");
        let local = local.map_err(|_| "has no header; the file is damaged, copy or write it again")?;
        let local = Fields(local.bytes());
        if !local.0.starts_with(LOCAL) {
            return Err(
                "does not begin with a member header; the file is damaged, copy or write it again".into()
            );
        }
        let (name, extra) = (u64::from(local.u16(26)), u64::from(local.u16(28)));
        if name != member.name_raw().len() as u64 || local.u16(8) != STORED {
            return Err("is described differently in the archive's directory; the file is damaged, copy or write it again".into());
        }
        let start = header + LOCAL_BYTES + name + extra;
        Ok(start..start.saturating_add(member.size()))
    }

    /// Rejects names that lead out of the archive, and duplicate names.
    ///
    /// # Errors
    /// [`ReadError`] that names the first such name.
    pub fn check_names(&self) -> Result<(), ReadError> {
        let refused = |message: String| Err(ReadError::format(self.source.path(), message));
        for member in &self.members {
            if let Some(fault) = name_fault(member.name_raw()) {
                let shown = printable(&String::from_utf8_lossy(member.name_raw()));
                return refused(format!("archive member name '{shown}' {fault}"));
            }
        }
        if self.repeated > 0 {
            return refused(format!(
                "archive repeats names of members ({} of them), so a value would be missed; write the file again",
                self.repeated
            ));
        }
        Ok(())
    }

    fn check_extents(&self, directory: u64) -> Result<(), ReadError> {
        let mut places: Vec<(u64, Option<u64>, &OwnedZipFileEntry)> = (self.members.iter())
            .map(|member| {
                let header = member.header_start();
                let end = header.checked_add(LOCAL_BYTES + member.name_raw().len() as u64);
                (header, end.and_then(|at| at.checked_add(member.compressed_size())), member)
            })
            .collect();
        places.sort_by_key(|(header, ..)| *header);
        let mut free = 0;
        for (header, end, member) in places {
            let next = match end {
                _ if header < free => Err("overlaps another member"),
                Some(end) if end <= directory => Ok(end),
                _ => Err("reaches beyond the end of the archive's data"),
            };
            free = next.map_err(|what| {
                let name = printable(&String::from_utf8_lossy(member.name_raw()));
                let message =
                    format!("archive member '{name}' {what}; the file is damaged, copy or write it again");
                ReadError::format(self.source.path(), message)
            })?;
        }
        Ok(())
    }
}

/// Reads a source from a given offset.
#[derive(Debug)]
struct Reader {
    source: Arc<Source>,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.at.saturating_add(buffer.len() as u64).min(self.source.len());
        if end <= self.at {
            return Ok(0);
        }
        let section = self.source.section(self.at..end, "the archive").map_err(io::Error::other)?;
        let bytes = section.bytes();
        let (into, from) = (buffer.get_mut(..bytes.len()), bytes.len());
        let Some(into) = into else { return Err(io::ErrorKind::InvalidInput.into()) };
        into.copy_from_slice(bytes);
        self.at += from as u64;
        Ok(from)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.source.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
