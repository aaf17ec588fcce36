//! Members of a ZIP archive (`.pt`, `.npz`, configuration packs), found through the central directory and used where they lie.
//!
//! Written here rather than taken, for two reasons: a dump has millions of archives of one tensor each, and opening one
//! must cost microseconds; and only stored members that can be used in place, without trusting the sizes in their local
//! headers (torch writes zeros there), serve that purpose. Names are labels and never become paths.
//!
//! Invariants of an opened archive: the directory ends where its end record begins, every member lies in front of the
//! directory, and no two members overlap. [`Archive::open`] sees to it that no two have the same name and that no name leads
//! out of the archive; [`Archive::open_any_names`] leaves that to its caller.

use std::ops::Range;

mod directory;
mod inflate;

use directory::{EndRecord, Fields, parse_directory};
pub(crate) use inflate::check;

use super::tensor_file::printable;
use crate::read::ReadError;
use crate::read::map::{Section, Source};

const LOCAL: &[u8] = b"PK\x03\x04";
const LOCAL_BYTES: u64 = 30;
/// Up to so many members are searched one by one.
const FEW: usize = 16;

/// How a member is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Stored,
    Deflated,
    Other(u16),
}

/// A member as the central directory describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    name_at: usize,
    name_len: u16,
    header: u64,
    /// Bytes in the archive.
    pub(crate) stored: u64,
    /// Bytes after expansion, as declared.
    pub(crate) size: u64,
    /// Checksum of the expanded bytes, as declared.
    pub(crate) crc: u32,
    pub(crate) method: Method,
    pub(crate) encrypted: bool,
}

/// An opened archive.
#[derive(Debug)]
pub(crate) struct Archive {
    source: Source,
    directory: Section,
    members: Vec<Member>,
    /// Positions in `members` by name; empty for few members.
    by_name: Vec<u32>,
}

impl Archive {
    /// Opens an archive whose names are sound.
    pub(crate) fn open(source: Source) -> Result<Self, ReadError> {
        let mut archive = Self::open_any_names(source)?;
        archive.check_names()?;
        Ok(archive)
    }

    /// Opens an archive whatever its members are called. Names may repeat, and [`name_fault`] must be asked about each.
    pub(crate) fn open_any_names(source: Source) -> Result<Self, ReadError> {
        let end = EndRecord::find(&source)?;
        let directory = source.section(end.directory.clone(), "the archive's directory")?;
        let members = parse_directory(directory.bytes(), &end)
            .map_err(|message| ReadError::format(source.path(), message))?;
        let archive = Self { source, directory, members, by_name: Vec::new() };
        archive.check_extents(end.directory.start)?;
        Ok(archive)
    }

    pub(crate) const fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn name(&self, member: &Member) -> &str {
        let bytes = self.name_bytes(member);
        // Checked when the archive was opened.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The name of a member as its bytes, whatever they are.
    pub(crate) fn name_bytes(&self, member: &Member) -> &[u8] {
        let end = member.name_at.saturating_add(usize::from(member.name_len));
        self.directory.bytes().get(member.name_at..end).unwrap_or_default()
    }

    /// The member called `name`.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Member> {
        if self.by_name.is_empty() {
            return self.members.iter().find(|member| self.name_bytes(member) == name);
        }
        let by_name =
            |&at: &u32| self.members.get(at as usize).map_or(&[][..], |m| self.name_bytes(m)).cmp(name);
        let at = self.by_name.binary_search_by(by_name).ok()?;
        self.members.get(*self.by_name.get(at)? as usize)
    }

    /// The bytes of a member as they lie in the archive, expanded or not.
    pub(crate) fn raw(&self, member: &Member) -> Result<Section, ReadError> {
        self.source.section(self.place(member)?, "an archive member")
    }

    /// The bytes of a member that is stored without compression, as torch writes all of them.
    pub(crate) fn stored(&self, member: &Member) -> Result<Section, ReadError> {
        self.source.section(self.stored_place(member)?, "an archive member")
    }

    /// Where the bytes of a member lie in the archive.
    fn place(&self, member: &Member) -> Result<Range<u64>, ReadError> {
        let name = self.name(member);
        let damaged = |what: &str| {
            let message = format!(
                "archive member '{}' {what}; the file is damaged, copy or write it again",
                printable(name)
            );
            ReadError::format(self.source.path(), message)
        };
        if member.encrypted {
            let message = format!(
                "archive member '{}' is encrypted; save the file without a password",
                printable(name)
            );
            return Err(ReadError::format(self.source.path(), message));
        }
        let local = self.source.section(member.header..member.header + LOCAL_BYTES, "a member's header")?;
        let local = Fields(local.bytes());
        if local.0.get(..4) != Some(LOCAL) {
            return Err(damaged("does not begin with a member header"));
        }
        let (name_len, extra_len) = (u64::from(local.u16(26)), u64::from(local.u16(28)));
        if name_len != u64::from(member.name_len) || local.u16(8) != member.method.code() {
            return Err(damaged("is described differently in the archive's directory"));
        }
        let start = member.header + LOCAL_BYTES + name_len + extra_len;
        Ok(start..start.saturating_add(member.stored))
    }

    /// Where the bytes of an uncompressed member lie in the archive.
    pub(crate) fn stored_place(&self, member: &Member) -> Result<Range<u64>, ReadError> {
        if member.method != Method::Stored {
            let name = printable(self.name(member));
            let message = format!(
                "archive member '{name}' is compressed, which torch.save never does; load the file with torch and save it again"
            );
            return Err(ReadError::format(self.source.path(), message));
        }
        if member.stored != member.size {
            let name = printable(self.name(member));
            let message =
                format!("archive member '{name}' has two sizes, {} and {}", member.stored, member.size);
            return Err(ReadError::format(self.source.path(), message));
        }
        self.place(member)
    }

    fn check_extents(&self, directory: u64) -> Result<(), ReadError> {
        let end_of = |member: &Member| {
            (member.header.checked_add(LOCAL_BYTES + u64::from(member.name_len)))
                .and_then(|at| at.checked_add(member.stored))
        };
        let ordered = self.members.is_sorted_by_key(|member| member.header);
        let mut sorted: Vec<&Member> = Vec::new();
        if !ordered {
            sorted = self.members.iter().collect();
            sorted.sort_by_key(|member| member.header);
        }
        let mut check = Extents { free: 0, directory };
        let outcome = if ordered {
            self.members.iter().try_for_each(|m| check.next(m, end_of(m)))
        } else {
            sorted.into_iter().try_for_each(|m| check.next(m, end_of(m)))
        };
        outcome.map_err(|(member, what)| {
            let message = format!(
                "archive member '{}' {what}; the file is damaged, copy or write it again",
                printable(self.name(&member))
            );
            ReadError::format(self.source.path(), message)
        })
    }

    fn check_names(&mut self) -> Result<(), ReadError> {
        let mut repeated = None;
        for (at, member) in self.members.iter().enumerate() {
            let name = self.name_bytes(member);
            if let Some(fault) = name_fault(name) {
                let shown = String::from_utf8_lossy(name);
                let message = format!("archive member name '{}' {fault}", printable(&shown));
                return Err(ReadError::format(self.source.path(), message));
            }
            if self.members.len() <= FEW {
                let before = self.members.get(..at).unwrap_or_default();
                if before.iter().any(|other| self.name_bytes(other) == name) {
                    repeated = Some(*member);
                }
            }
        }
        if self.members.len() > FEW {
            let count = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
            let name_at = |&at: &u32| self.members.get(at as usize).map_or(&[][..], |m| self.name_bytes(m));
            let mut by_name: Vec<u32> = (0..count).collect();
            by_name.sort_unstable_by(|a, b| name_at(a).cmp(name_at(b)));
            repeated = by_name
                .windows(2)
                .find(|pair| matches!(pair, [a, b] if name_at(a) == name_at(b)))
                .and_then(|pair| self.members.get(*pair.first()? as usize).copied());
            self.by_name = by_name;
        }
        match repeated {
            Some(member) => {
                let message = format!("archive has two members named '{}'", printable(self.name(&member)));
                Err(ReadError::format(self.source.path(), message))
            }
            None => Ok(()),
        }
    }
}

/// Walks members by position and sees that each begins after the end of the one before.
struct Extents {
    free: u64,
    directory: u64,
}

impl Extents {
    fn next(&mut self, member: &Member, end: Option<u64>) -> Result<(), (Member, &'static str)> {
        if member.header < self.free {
            return Err((*member, "overlaps another member"));
        }
        match end {
            Some(end) if end <= self.directory => self.free = end,
            _ => return Err((*member, "reaches beyond the end of the archive's data")),
        }
        Ok(())
    }
}

impl Method {
    const fn code(self) -> u16 {
        match self {
            Self::Stored => 0,
            Self::Deflated => 8,
            Self::Other(code) => code,
        }
    }
}

/// What is wrong with the name of a member.
pub(crate) fn name_fault(name: &[u8]) -> Option<&'static str> {
    match std::str::from_utf8(name) {
        Err(_) => Some("is not UTF-8"),
        Ok(text) if leaves_archive(text) => Some(
            "points outside the archive, as only a hostile file does; nothing was written, names are only labels here",
        ),
        Ok(_) => None,
    }
}

/// Names that would leave a folder if somebody used them as paths.
fn leaves_archive(name: &str) -> bool {
    name.starts_with(['/', '\\'])
        || name.contains('\0')
        || matches!(name.as_bytes(), [b'a'..=b'z' | b'A'..=b'Z', b':', b'/' | b'\\', ..])
        || (name.contains("..") && name.split(['/', '\\']).any(|part| part == ".."))
}
