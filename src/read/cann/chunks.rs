//! Files that the runtime hands over in pieces instead of writing them: what `acldumpRegCallback` calls back with.
//!
//! A chunk is a C structure of fixed layout: `char file_name[4096]; u32 buf_len; u32 is_last; i64 offset; i32 flag; u8 data[]`. Pieces of
//! several files may arrive in between one another. Their sizes are bounded, and a file that is abandoned takes no memory for ever.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::file::DumpFile;
use crate::read::ReadError;
use crate::read::limits::{MAX_CANN_CHUNKED_BYTES, MAX_CANN_OPEN_FILES};

/// Bytes of the name in a chunk.
const NAME_BYTES: usize = 4096;

/// Bytes of a chunk before its data: name, length, mark of the last, offset, flag.
pub const CHUNK_HEADER_BYTES: usize = NAME_BYTES + 4 + 4 + 8 + 4;

/// One piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Name of the file, as the runtime would have written it.
    pub name: &'a str,
    /// Whether it is the last of its file.
    pub last: bool,
    /// Where in the file it belongs; `None`: behind what came before it.
    pub offset: Option<u64>,
    /// The bytes.
    pub data: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Reads a chunk out of the memory that a callback was given.
    ///
    /// # Errors
    /// [`ReadError::Format`] when the bytes are fewer than the chunk says, or its name is no text.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let damaged = |message: &str| ReadError::format("a chunk of the runtime", message);
        let (head, data) = bytes
            .split_at_checked(CHUNK_HEADER_BYTES)
            .ok_or_else(|| damaged("breaks off before its data"))?;
        let (name, numbers) = head.split_at(NAME_BYTES);
        let end = name.iter().position(|&byte| byte == 0);
        let name = end.and_then(|end| std::str::from_utf8(name.get(..end)?).ok());
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| damaged("has no name that is text"))?;
        let word = |at: usize| {
            numbers.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        let offset =
            numbers.get(8..16).and_then(|eight| eight.try_into().ok()).map_or(-1, i64::from_le_bytes);
        let data = usize::try_from(word(0)).ok().and_then(|length| data.get(..length));
        Ok(Self {
            name,
            last: word(4) != 0,
            offset: u64::try_from(offset).ok(),
            data: data.ok_or_else(|| damaged("has fewer bytes than it says"))?,
        })
    }
}

/// Joins chunks to files.
#[derive(Debug)]
pub struct ChunkJoiner {
    open: HashMap<Box<str>, Vec<u8>>,
    /// Bytes of all open files, and the most there may be.
    held: usize,
    budget: usize,
}

impl ChunkJoiner {
    /// A joiner that holds at most `budget` bytes of unfinished files.
    pub fn new(budget: usize) -> Self {
        Self { open: HashMap::new(), held: 0, budget: budget.min(MAX_CANN_CHUNKED_BYTES) }
    }

    /// Takes a chunk. Returns its file where that was the last one.
    ///
    /// After an error the file concerned is forgotten: what comes of it later begins it anew, and is refused when it does not follow.
    ///
    /// # Errors
    /// [`ReadError::Limit`] when too much would be held, [`ReadError::Format`] when a chunk leaves a gap, or the joined file is no dump.
    pub fn push(&mut self, chunk: Chunk<'_>) -> Result<Option<DumpFile>, ReadError> {
        let grown = self.append(chunk);
        if grown.is_err() || chunk.last {
            let bytes = self.forget(chunk.name);
            grown?;
            return DumpFile::of_bytes(Path::new(chunk.name), Arc::new(bytes)).map(Some);
        }
        Ok(None)
    }

    /// Files that were begun and not ended, in order of their names: the runtime stopped in the middle of them.
    pub fn unfinished(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.open.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }

    fn append(&mut self, chunk: Chunk<'_>) -> Result<(), ReadError> {
        let limit = |what, found: usize, limit: usize| ReadError::Limit {
            path: chunk.name.into(),
            what,
            found: found as u64,
            limit: limit as u64,
        };
        let size = self.open.get(chunk.name).map(Vec::len);
        if size.is_none() && self.open.len() >= MAX_CANN_OPEN_FILES {
            return Err(limit("the number of unfinished files", self.open.len() + 1, MAX_CANN_OPEN_FILES));
        }
        let size = size.unwrap_or(0);
        let start = chunk.offset.map_or(Some(size), |offset| usize::try_from(offset).ok());
        // What was written before may be written again; a hole would be made of bytes that nobody wrote.
        let start = start.filter(|&start| start <= size).ok_or_else(|| {
            ReadError::format(
                chunk.name,
                format!("a chunk at byte {} of a file of which {size} have come", chunk.offset.unwrap_or(0)),
            )
        })?;
        let end = start.saturating_add(chunk.data.len());
        let more = end.saturating_sub(size);
        if self.held.saturating_add(more) > self.budget {
            return Err(limit(
                "the size of unfinished files in bytes",
                self.held.saturating_add(more),
                self.budget,
            ));
        }
        let file = self.open.entry(chunk.name.into()).or_default();
        let inside = chunk.data.len() - more;
        file[start..start + inside].copy_from_slice(&chunk.data[..inside]);
        file.extend_from_slice(&chunk.data[inside..]);
        self.held += more;
        Ok(())
    }

    fn forget(&mut self, name: &str) -> Vec<u8> {
        let bytes = self.open.remove(name).unwrap_or_default();
        self.held -= bytes.len();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::tensor_file::TensorFile;

    /// As the runtime lays it out.
    fn raw(name: &str, data: &[u8], last: bool, offset: i64) -> Vec<u8> {
        let mut bytes = vec![0; NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
        bytes.extend(u32::from(last).to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend(0_i32.to_le_bytes());
        bytes.extend(data);
        bytes
    }

    fn file() -> Vec<u8> {
        std::fs::read("testdata/cann/good/ND.matmul_padded.3.7.1700000000000000").unwrap()
    }

    #[test]
    fn a_file_is_the_same_however_its_bytes_arrive() {
        let whole = file();
        let one = DumpFile::of_bytes(Path::new("a"), Arc::new(whole.clone())).unwrap();
        for size in [1, 7, 64, whole.len()] {
            let mut joiner = ChunkJoiner::new(1 << 20);
            let count = whole.chunks(size).count();
            for (at, piece) in whole.chunks(size).enumerate() {
                // Two files arrive in between one another, one by appending, the other by place.
                let place = i64::try_from(at * size).unwrap();
                for (name, offset) in [("a", -1), ("b", place)] {
                    let raw = raw(name, piece, at + 1 == count, offset);
                    let joined = joiner.push(Chunk::read(&raw).unwrap()).unwrap();
                    assert_eq!(joined.is_some(), at + 1 == count);
                    if let Some(joined) = joined {
                        assert_eq!(joined.entries(), one.entries());
                        let bytes = |file: &DumpFile| file.load(0).unwrap().view().to_bytes();
                        assert_eq!(bytes(&joined), bytes(&one));
                    }
                }
            }
            assert_eq!((joiner.held, joiner.unfinished().len()), (0, 0));
        }
    }

    #[test]
    fn what_does_not_follow_or_asks_for_too_much_is_refused() {
        let mut joiner = ChunkJoiner::new(100);
        let chunk = |name, data, offset| Chunk { name, last: false, offset, data };
        assert!(joiner.push(chunk("a", &[0; 60], None)).unwrap().is_none());
        assert_eq!(joiner.unfinished(), ["a"]);
        let error = joiner.push(chunk("b", &[0; 41], None)).unwrap_err().to_string();
        assert_eq!(error, "b: the size of unfinished files in bytes is 101, more than the limit of 100");
        let error = joiner.push(chunk("a", &[0; 1], Some(61))).unwrap_err().to_string();
        assert_eq!(error, "a: a chunk at byte 61 of a file of which 60 have come");
        assert_eq!((joiner.held, joiner.unfinished().len()), (0, 0), "what failed is forgotten");
        let error = joiner.push(Chunk { last: true, ..chunk("a", &[1; 9], None) }).unwrap_err().to_string();
        assert!(error.starts_with("a: the header should have"), "{error}");
        let mut many = ChunkJoiner::new(usize::MAX);
        for number in 0..MAX_CANN_OPEN_FILES {
            let name = number.to_string();
            many.push(Chunk { name: &name, last: false, offset: None, data: &[0] }).unwrap();
        }
        let error = many.push(chunk("more", &[0], None)).unwrap_err().to_string();
        assert!(error.contains("unfinished files is 1025"), "{error}");
    }

    #[test]
    fn damaged_chunks_say_what_is_wrong() {
        let good = raw("a", &[1, 2, 3], true, -1);
        assert_eq!(Chunk::read(&good).unwrap().data, [1, 2, 3]);
        let mut unnamed = good.clone();
        unnamed[..NAME_BYTES].fill(b'x');
        for (bytes, message) in [
            (&good[..4000], "breaks off before its data"),
            (&good[..good.len() - 1], "has fewer bytes than it says"),
            (&unnamed[..], "has no name that is text"),
        ] {
            let error = Chunk::read(bytes).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
