//! A chunk of a file that the runtime passes to the `acldumpRegCallback` callback instead of writing it.
//!
//! It is a C structure of fixed layout: `char file_name[4096]; u32 buf_len; u32 is_last; i64 offset; i32 flag; u8 data[]`. Chunks of
//! different files may be interleaved. `CannFiles` of `capture` reassembles them.

use crate::ReadError;

/// Bytes of the name in a chunk.
const NAME_BYTES: usize = 4096;

/// Bytes of a chunk before its data: name, length, last flag, offset, flag.
pub const CHUNK_HEADER_BYTES: usize = NAME_BYTES + 4 + 4 + 8 + 4;

/// One chunk of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Name of the file as the runtime would have written it: an absolute path.
    pub name: &'a str,
    /// True if it is the last chunk of its file.
    pub last: bool,
    /// Offset in the file; `None`: after the previous chunk.
    pub offset: Option<u64>,
    /// The bytes; `None` if there are fewer than the chunk declares.
    pub data: Option<&'a [u8]>,
}

impl<'a> Chunk<'a> {
    /// Reads a chunk from the memory passed to a callback.
    ///
    /// # Errors
    /// [`ReadError::Format`] when it ends before its data, or its name is not text.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let damaged = |message: &str| ReadError::format("a chunk of the runtime", message);
        let (head, data) =
            bytes.split_at_checked(CHUNK_HEADER_BYTES).ok_or_else(|| damaged("ends before its data"))?;
        let (name, numbers) = head.split_at(NAME_BYTES);
        let end = name.iter().position(|&byte| byte == 0);
        let name = end.and_then(|end| std::str::from_utf8(name.get(..end)?).ok());
        let name = name
            .filter(|name| !name.is_empty())
            .ok_or_else(|| damaged("has a name that is not UTF-8 text"))?;
        let word = |at: usize| {
            numbers.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        let offset =
            numbers.get(8..16).and_then(|eight| eight.try_into().ok()).map_or(-1, i64::from_le_bytes);
        Ok(Self {
            name,
            last: word(4) != 0,
            offset: u64::try_from(offset).ok(),
            data: usize::try_from(word(0)).ok().and_then(|length| data.get(..length)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds the runtime's layout.
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

    #[test]
    fn chunks_are_read_and_damaged_ones_say_what_is_wrong() {
        let good = raw("/a/b", &[1, 2, 3], true, -1);
        let read = Chunk::read(&good).unwrap();
        assert_eq!(read, Chunk { name: "/a/b", last: true, offset: None, data: Some(&[1, 2, 3]) });
        let placed = raw("/a/b", &[], false, 7);
        assert_eq!(
            Chunk::read(&placed).unwrap(),
            Chunk { name: "/a/b", last: false, offset: Some(7), data: Some(&[]) }
        );
        // The file name is known, so that its later chunks are not mistaken for the whole file.
        let short = Chunk::read(&good[..good.len() - 1]).unwrap();
        assert_eq!((short.name, short.last, short.data), ("/a/b", true, None));
        // The runtime's structure has padding after its data.
        let padded = [&good[..], &[9; 4]].concat();
        assert_eq!(Chunk::read(&padded).unwrap(), read);
        let mut unnamed = good.clone();
        unnamed[..NAME_BYTES].fill(b'x');
        for (bytes, message) in
            [(&good[..4000], "ends before its data"), (&unnamed[..], "has a name that is not UTF-8 text")]
        {
            let error = Chunk::read(bytes).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
