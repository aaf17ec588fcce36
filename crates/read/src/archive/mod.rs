//! Members of a ZIP archive (`.pt`, `.npz`, configuration packs), found by the `zip` crate and, if stored uncompressed, used
//! in place. Names are labels and never become paths.
//!
//! Invariants of an opened archive: the directory ends where its end record begins, every member precedes the directory, and no
//! two members overlap. `Archive::open` also rejects duplicate names and names that lead out of the archive; [`Zipped::open`]
//! leaves that to its caller.

mod end;
mod zipped;

use std::ops::Range;

use zip::CompressionMethod;
use zip::read::OwnedZipFileEntry;

pub use zipped::{ENCRYPTED, Zipped};

use super::tensor_file::printable;
use crate::ReadError;
use probe_files::limits::MAX_ARCHIVE_MEMBERS;
use probe_files::map::{Section, Source};

/// Bytes between the start of a member and its content: a header of 30, its name, and torch's padding to 64. Anything longer is read separately.
const FRONT: u64 = 512;

/// Largest number of members searched linearly.
const FEW: usize = 16;

/// A member of an [`Archive`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    /// Index in the directory.
    at: usize,
    /// Bytes, as declared.
    pub(crate) size: u64,
}

/// An opened archive whose members are found by name and used in place: a torch checkpoint.
#[derive(Debug)]
pub(crate) struct Archive {
    zipped: Zipped,
    /// Indices of the members sorted by name; empty for few members.
    by_name: Vec<usize>,
}

impl Archive {
    /// Opens an archive with valid names.
    pub(crate) fn open(source: Source) -> Result<Self, ReadError> {
        let zipped = Zipped::open(source, MAX_ARCHIVE_MEMBERS)?;
        zipped.check_names()?;
        let members = zipped.members();
        let mut by_name = Vec::new();
        if members.len() > FEW {
            by_name.extend(0..members.len());
            by_name.sort_unstable_by_key(|&at| members.get(at).map(OwnedZipFileEntry::name_raw));
        }
        Ok(Self { zipped, by_name })
    }

    pub(crate) fn source(&self) -> &Source {
        self.zipped.source()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        (0..).zip(self.zipped.members()).map(|(at, member)| Member { at, size: member.size() })
    }

    pub(crate) fn name(&self, member: Member) -> &str {
        // Checked when the archive was opened.
        std::str::from_utf8(self.name_bytes(member.at)).unwrap_or_default()
    }

    fn name_bytes(&self, at: usize) -> &[u8] {
        self.zipped.members().get(at).map_or(&[], OwnedZipFileEntry::name_raw)
    }

    /// Returns the member called `name`.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Member> {
        let members = self.zipped.members();
        let at = if self.by_name.is_empty() {
            members.iter().position(|member| member.name_raw() == name)?
        } else {
            let place = self.by_name.binary_search_by(|&at| self.name_bytes(at).cmp(name)).ok()?;
            *self.by_name.get(place)?
        };
        Some(Member { at, size: members.get(at)?.size() })
    }

    /// Returns the bytes of an uncompressed member; torch never compresses.
    pub(crate) fn stored(&self, member: Member) -> Result<Section, ReadError> {
        self.source().section(self.stored_place(member)?, "an archive member")
    }

    /// Like [`stored`](Self::stored), for tensor data: see [`Source::data`].
    pub(crate) fn stored_data(&self, member: Member) -> Result<Section, ReadError> {
        self.source().data(self.stored_place(member)?, "an archive member")
    }

    /// Returns the archive's byte range that covers an uncompressed member with its header, and slightly more.
    pub(crate) fn span(&self, member: Member) -> Option<Range<u64>> {
        let start = self.zipped.members().get(member.at)?.header_start();
        Some(start..start.saturating_add(FRONT).saturating_add(member.size))
    }

    /// Returns the byte range of an uncompressed member.
    fn stored_place(&self, member: Member) -> Result<Range<u64>, ReadError> {
        let entry = self.zipped.members().get(member.at);
        let place = match entry {
            Some(entry) if entry.compression() == CompressionMethod::Stored => {
                self.zipped.stored_place(entry)
            }
            _ => {
                Err("is compressed, which torch.save never does; load the file with torch and save it again"
                    .into())
            }
        };
        place.map_err(|what| {
            let name = printable(self.name(member));
            ReadError::format(self.source().path(), format!("archive member '{name}' {what}"))
        })
    }
}

/// Returns the reason a member name is invalid.
pub fn name_fault(name: &[u8]) -> Option<&'static str> {
    match std::str::from_utf8(name) {
        Err(_) => Some("is not UTF-8"),
        Ok(text) if leaves_archive(text) => Some(
            "points outside the archive, as only a hostile file does; nothing was written, names are only labels here",
        ),
        Ok(_) => None,
    }
}

/// Returns true for names that would leave a folder if used as paths.
fn leaves_archive(name: &str) -> bool {
    name.starts_with(['/', '\\'])
        || name.contains('\0')
        || matches!(name.as_bytes(), [b'a'..=b'z' | b'A'..=b'Z', b':', b'/' | b'\\', ..])
        || (name.contains("..") && name.split(['/', '\\']).any(|part| part == ".."))
}
