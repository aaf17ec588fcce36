//! The members of a pack: which there are, and their content under the limits.
//!
//! Nothing is extracted, and no name is ever used as a path. Of members with the same name the last counts, as for Python.

use std::collections::HashMap;
use std::path::Path;

use crate::read::ReadError;
use crate::read::archive::{self, Archive, Member, Method};
use crate::read::limits::{
    MAX_PACK_BYTES, MAX_PACK_MEMBER_BYTES, MAX_PACK_MEMBERS, MAX_PACK_RATIO, PACK_RATIO_BYTES,
};
use crate::read::map::{FileAccess, Source};
use crate::read::tensor_file::printable;

/// First bytes of a zip file; of one without members in the second form.
const SIGNATURES: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// The members of an opened pack.
#[derive(Debug)]
pub(super) struct Members {
    archive: Archive,
    /// Sound names with their last member, in the order of the file.
    names: Vec<(String, Member)>,
    /// Places in `names`.
    places: HashMap<String, usize>,
    /// Names that occur more than once, with how often.
    pub(super) repeated: Vec<(String, usize)>,
    /// Names that were refused, made fit to show, with the reason.
    pub(super) refused: Vec<(String, String)>,
    /// Bytes that may still be expanded.
    budget: u64,
}

impl Members {
    /// Opens the zip file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        Self::from_source(Source::open(path, FileAccess::Read)?)
    }

    /// Opens a zip file that is in memory already.
    pub(super) fn from_source(source: Source) -> Result<Self, ReadError> {
        let head = source.section(0..source.len().min(4), "the first bytes")?;
        if !SIGNATURES.contains(&head.bytes()) {
            let message = "is no zip file, and a configuration pack is one; give the pack that the training script wrote";
            return Err(ReadError::format(source.path(), message));
        }
        Self::of(Archive::open_any_names(source)?)
    }

    fn of(archive: Archive) -> Result<Self, ReadError> {
        let count = archive.members().len() as u64;
        if count > MAX_PACK_MEMBERS {
            return Err(ReadError::Limit {
                path: archive.source().path().into(),
                what: "number of members of a pack",
                found: count,
                limit: MAX_PACK_MEMBERS,
            });
        }
        let (mut names, mut refused) = (Vec::<(String, Member)>::new(), Vec::new());
        let (mut places, mut counts) = (HashMap::<String, usize>::new(), HashMap::<usize, usize>::new());
        for member in archive.members() {
            let bytes = archive.name_bytes(member);
            if let Some(fault) = archive::name_fault(bytes) {
                refused.push((printable(&String::from_utf8_lossy(bytes)), format!("the name {fault}")));
                continue;
            }
            let name = archive.name(member);
            if name.ends_with('/') {
                continue;
            }
            if let Some(&place) = places.get(name) {
                *counts.entry(place).or_insert(1) += 1;
                names.get_mut(place).into_iter().for_each(|(_, kept)| *kept = *member);
            } else {
                places.insert(name.to_owned(), names.len());
                names.push((name.to_owned(), *member));
            }
        }
        let mut repeated: Vec<(usize, usize)> = counts.into_iter().collect();
        repeated.sort_unstable();
        let repeated = repeated
            .into_iter()
            .filter_map(|(place, count)| Some((printable(&names.get(place)?.0), count)))
            .collect();
        Ok(Self { archive, names, places, repeated, refused, budget: MAX_PACK_BYTES })
    }

    /// The names, each once, in the order of the file.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| &**name)
    }

    /// The content of the member called `name`, expanded under the limits; `None` where there is none.
    pub(super) fn content(&mut self, name: &str) -> Option<Result<Vec<u8>, String>> {
        let (_, member) = self.names.get(*self.places.get(name)?)?;
        let member = *member;
        Some(self.expand(&member))
    }

    fn expand(&mut self, member: &Member) -> Result<Vec<u8>, String> {
        let fault = expansion_fault(member.stored, member.size, self.budget);
        if let Some(fault) = fault {
            return Err(fault);
        }
        self.budget -= member.size;
        let path = self.archive.source().path().to_path_buf();
        let damaged = |message: String| ReadError::format(&*path, message);
        let outcome = match member.method {
            Method::Stored if member.stored == member.size => self.archive.raw(member).and_then(|section| {
                archive::check(section.bytes(), member).map_err(damaged)?;
                Ok(section.bytes().to_vec())
            }),
            Method::Stored => Err(damaged(format!("has two sizes, {} and {}", member.stored, member.size))),
            Method::Deflated => self.archive.inflate(member, &damaged),
            Method::Other(code) => {
                Err(damaged(format!("has compression method {code}; write it stored or deflated")))
            }
        };
        outcome.map_err(|error| match error {
            ReadError::Format { message, .. } => message,
            other => other.to_string(),
        })
    }
}

/// What is wrong with a member of `stored` bytes that claims to expand to `size` while `budget` bytes are left.
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
