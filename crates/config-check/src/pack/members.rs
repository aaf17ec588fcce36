//! Members of a pack: their names, and their content within the limits.
//!
//! Nothing is extracted, and no name is ever used as a path. Of members with the same name the last one counts, as in
//! Python.

use std::collections::HashMap;
use std::path::Path;

use probe_files::limits::{
    MAX_PACK_BYTES, MAX_PACK_MEMBER_BYTES, MAX_PACK_MEMBERS, MAX_PACK_RATIO, PACK_RATIO_BYTES,
};
use probe_files::map::{FileAccess, Source};
use probe_read::ReadError;
use probe_read::archive::{Zipped, name_fault};
use probe_read::tensor_file::printable;

/// First bytes of a zip file; the second form is an empty one.
const SIGNATURES: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// The members of an opened pack.
#[derive(Debug)]
pub(super) struct Members {
    archive: Zipped,
    /// Valid names with the index of their member, in file order.
    names: Vec<(String, usize)>,
    /// Indices into `names`.
    places: HashMap<String, usize>,
    /// Number of members replaced by a later one of the same name.
    pub(super) repeated: u64,
    /// Refused names, made printable, with the reason.
    pub(super) refused: Vec<(String, String)>,
    /// Bytes that may still be expanded.
    budget: u64,
}

impl Members {
    /// Opens the zip file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        Self::from_source(Source::open(path, FileAccess::Read)?)
    }

    /// Opens a zip file that is already in memory.
    pub(super) fn from_source(source: Source) -> Result<Self, ReadError> {
        let head = source.section(0..source.len().min(4), "the first bytes")?;
        if !SIGNATURES.contains(&head.bytes()) {
            let message = "is not a zip file; give the configuration pack that the training script wrote";
            return Err(ReadError::format(source.path(), message));
        }
        Ok(Self::of(Zipped::open(source, MAX_PACK_MEMBERS)?))
    }

    fn of(archive: Zipped) -> Self {
        let (mut names, mut refused) = (Vec::<(String, usize)>::new(), Vec::new());
        for (at, member) in archive.members().iter().enumerate() {
            let bytes = member.name_raw();
            let name = String::from_utf8_lossy(bytes);
            if let Some(fault) = name_fault(bytes) {
                refused.push((printable(&name), format!("the name {fault}")));
            } else if !name.ends_with('/') {
                names.push((name.into_owned(), at));
            }
        }
        let places = names.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect();
        let repeated = archive.repeated();
        Self { archive, names, places, repeated, refused, budget: MAX_PACK_BYTES }
    }

    /// Returns the names, without duplicates, in file order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| &**name)
    }

    /// Returns the content of the member called `name`, expanded within the limits; `None` if there is
    /// none.
    pub(super) fn content(&mut self, name: &str) -> Option<Result<Vec<u8>, String>> {
        let &(_, at) = self.names.get(*self.places.get(name)?)?;
        Some(self.expand(at))
    }

    fn expand(&mut self, at: usize) -> Result<Vec<u8>, String> {
        let member = self.archive.members().get(at).ok_or("is not there")?;
        let fault = expansion_fault(member.compressed_size(), member.size(), self.budget);
        if let Some(fault) = fault {
            return Err(fault);
        }
        self.budget -= member.size();
        self.archive.content(member, u64::MAX)
    }
}

/// Returns the reason to refuse a member of `stored` bytes that claims to expand to `size` while `budget` bytes
/// are left.
fn expansion_fault(stored: u64, size: u64, budget: u64) -> Option<String> {
    if size > MAX_PACK_MEMBER_BYTES {
        return Some(format!("expands to {size} bytes, the limit is {MAX_PACK_MEMBER_BYTES}"));
    }
    if size > PACK_RATIO_BYTES && size / stored.max(1) > MAX_PACK_RATIO {
        return Some(format!(
            "expands {} times, the limit is {MAX_PACK_RATIO} (a bomb, or else write it stored)",
            size / stored.max(1)
        ));
    }
    (size > budget).then(|| format!("would bring the pack beyond {MAX_PACK_BYTES} bytes when expanded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_claim_passes_its_limit() {
        assert_eq!(expansion_fault(10, 2000, MAX_PACK_BYTES), None);
        assert_eq!(expansion_fault(0, 0, 0), None);
        for (stored, size, budget) in [
            (MAX_PACK_MEMBER_BYTES, MAX_PACK_MEMBER_BYTES + 1, u64::MAX),
            (1000, 2_000_000, MAX_PACK_BYTES),
            (100, 101, 100),
        ] {
            assert!(expansion_fault(stored, size, budget).is_some(), "{stored} {size} {budget}");
        }
    }
}
