//! Expanding deflated members.

use std::io::Read;

use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::{Archive, Member};
use crate::read::ReadError;

/// First size of the buffer for an expanded member, in bytes.
const FIRST_BUFFER: u64 = 1 << 20;

impl Archive {
    /// Expands a deflated member. The caller has checked the declared size against its limits; nothing beyond that size is
    /// ever expanded, the buffer grows with what really comes out, and size and checksum of the result must be the
    /// declared ones. `damaged` makes an error of what is wrong with the member.
    pub(crate) fn inflate(
        &self,
        member: &Member,
        damaged: &dyn Fn(String) -> ReadError,
    ) -> Result<Vec<u8>, ReadError> {
        let raw = self.raw(member)?;
        let first = usize::try_from(member.size.min(FIRST_BUFFER)).unwrap_or_default();
        let mut expanded = Vec::with_capacity(first);
        // One byte more than declared, to see a stream that goes on.
        DeflateDecoder::new(raw.bytes())
            .take(member.size.saturating_add(1))
            .read_to_end(&mut expanded)
            .map_err(|e| damaged(format!("cannot be expanded: {e}")))?;
        if expanded.len() as u64 != member.size {
            let found =
                if expanded.len() as u64 > member.size { "more".into() } else { expanded.len().to_string() };
            return Err(damaged(format!("should expand to {} bytes but gives {found}", member.size)));
        }
        check(&expanded, member).map_err(damaged)?;
        Ok(expanded)
    }
}

/// Holds the content of a member against its declared checksum.
pub(crate) fn check(content: &[u8], member: &Member) -> Result<(), String> {
    let mut crc = Crc::new();
    crc.update(content);
    if crc.sum() == member.crc {
        Ok(())
    } else {
        Err(format!("has checksum {:08x}, {:08x} is recorded", crc.sum(), member.crc))
    }
}
