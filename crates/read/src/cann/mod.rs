//! Dumps that the CANN runtime writes itself: a binary file for each operator, read without CANN.
//!
//! ```text
//! folder    finds files, with their step and rank
//! name      parses file names, also of files whose name was too long
//! file      one file: header (wire, header), types, layout
//! debug     overflow reports of the device
//! part      the files of a step as ops
//! chunks    a chunk of a file, from the runtime's callback
//! ```
//!
//! Every length is checked against the file, and the header is read by a protobuf reader of three levels. `docs/formats.md` lists what
//! could only be verified with a file from a device.

mod chunks;
mod debug;
mod file;
mod folder;
mod header;
mod layout;
mod name;
mod part;
mod types;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

pub use chunks::{CHUNK_HEADER_BYTES, Chunk};
pub use file::DumpFile;
pub use folder::is_dump_file;
pub(super) use folder::{CannParts, find_parts, recognises};
pub use name::{MAPPING, STOPPED, is_draft, is_dump_name};

use super::{ReadError, no_such_part};
use folder::Part;
use probe_dump::{Dump, PartKey, PartReader, Rank};
use probe_files::map::FileAccess;

/// [`Dump::format`] of the runtime's dumps.
pub const FORMAT: &str = "CANN dump";

/// Opens a dump whose parts were already found.
pub(super) fn open(path: &Path, found: CannParts, access: FileAccess) -> Dump {
    Dump {
        path: path.to_path_buf(),
        format: FORMAT,
        parts: found.parts.iter().map(|part| part.key.clone()).collect(),
        faults: found.faults,
        reader: Box::new(CannReader { parts: found.parts, access }),
        environment: BTreeMap::new(),
    }
}

struct CannReader {
    parts: Vec<Part>,
    access: FileAccess,
}

impl PartReader for CannReader {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        let part = self.parts.iter().find(|part| part.key == *key);
        let part = part.ok_or_else(|| no_such_part(key))?;
        part::read(part, self.access)
    }
}
