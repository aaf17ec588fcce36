//! End records of a ZIP archive, including the 64-bit forms: locate its directory before any of it is read.

use std::ops::Range;

use crate::ReadError;
use probe_files::map::Source;

const END: &[u8] = b"PK\x05\x06";
const END_BYTES: u64 = 22;
const END64: &[u8] = b"PK\x06\x06";
const END64_BYTES: u64 = 56;
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_BYTES: u64 = 20;
/// Largest comment after an end record, in bytes.
const MAX_COMMENT_BYTES: u64 = 0xFFFF;

/// Location of the directory.
#[derive(Debug)]
pub(super) struct EndRecord {
    pub(super) directory: Range<u64>,
    pub(super) members: u64,
}

impl EndRecord {
    pub(super) fn find(source: &Source) -> Result<Self, ReadError> {
        let cut = || {
            ReadError::format(
                source.path(),
                "the archive has no end record; the file is cut short (disk full or interrupted write) or damaged",
            )
        };
        let len = source.len();
        if len < END_BYTES {
            return Err(cut());
        }
        // Tensor files have no comment, so one small read finds both end records.
        let short =
            source.section(len - len.min(END_BYTES + LOCATOR_BYTES)..len, "the archive's end record")?;
        let at = short.bytes().len().saturating_sub(22);
        let record = Fields(short.bytes().get(at..).unwrap_or_default());
        if record.0.starts_with(END) && record.u16(20) == 0 {
            return Self::parse(source, record, len - END_BYTES);
        }
        let start = len - len.min(END_BYTES + MAX_COMMENT_BYTES);
        let tail = source.section(start..len, "the archive's end record")?;
        let tail = tail.bytes();
        let found = (0..tail.len()).rev().find_map(|at| {
            let record = Fields(tail.get(at..)?);
            let whole = record.0.starts_with(END) && record.0.len() == 22 + usize::from(record.u16(20));
            whole.then_some((record, start + at as u64))
        });
        let (record, at) = found.ok_or_else(cut)?;
        Self::parse(source, record, at)
    }

    fn parse(source: &Source, record: Fields<'_>, at: u64) -> Result<Self, ReadError> {
        let damaged = |what: &str| {
            ReadError::format(
                source.path(),
                format!("archive {what}; the file is damaged, copy or write it again"),
            )
        };
        let short = |offset| u64::from(record.u16(offset));
        if short(4) != 0 && short(4) != 0xFFFF {
            return Err(damaged("is part of a multi-file archive, which is not supported"));
        }
        let (mut members, mut size, mut start) =
            (short(10), u64::from(record.u32(12)), u64::from(record.u32(16)));
        let mut end = at;
        let locator = match at.checked_sub(LOCATOR_BYTES) {
            Some(before) => Some(source.section(before..at, "the archive's 64-bit end record")?),
            None => None,
        };
        if let Some(locator) =
            locator.as_ref().map(|l| Fields(l.bytes())).filter(|l| l.0.starts_with(LOCATOR))
        {
            let wide_at = locator.u64(8);
            let wide = source
                .section(wide_at..wide_at.saturating_add(END64_BYTES), "the archive's 64-bit end record")?;
            let wide = Fields(wide.bytes());
            if !wide.0.starts_with(END64) {
                return Err(damaged("lacks the 64-bit end record it points to"));
            }
            // Both records describe one directory; the narrow one may hold the maximum instead,
            // meaning "too large for me".
            let agree = |narrow: u64, most: u64, wide: u64| narrow == wide || narrow == most;
            if !(agree(members, 0xFFFF, wide.u64(32))
                && agree(size, 0xFFFF_FFFF, wide.u64(40))
                && agree(start, 0xFFFF_FFFF, wide.u64(48)))
            {
                return Err(damaged("has two end records that contradict each other"));
            }
            (members, size, start, end) = (wide.u64(32), wide.u64(40), wide.u64(48), wide_at);
        }
        if start.checked_add(size) != Some(end) {
            return Err(damaged("has a directory that does not end where its end record begins"));
        }
        Ok(Self { directory: start..end, members })
    }
}

/// Little-endian numbers at fixed offsets; bytes beyond the end read as zero, so callers check lengths first.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }
}
