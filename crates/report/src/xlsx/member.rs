//! A member of the package while it is made: its text in blocks that are compressed independently of one another, by
//! several threads, and joined to one deflate stream.

use std::io::{self, Seek, Write};
use std::path::Path;

use flate2::{Compress, Compression, Crc, FlushCompress};
use rayon::prelude::*;
use tempfile::SpooledTempFile;

/// Bytes of text per block. A block refers to nothing before it, which costs 1 % of the size.
const BLOCK: usize = 256 << 10;

/// Bytes of a compressed member up to which it is held in memory.
const IN_MEMORY: usize = 8 << 20;

/// Compression level.
const LEVEL: u32 = 2;

/// Compressed bytes, and what the directory of a package says of their content.
#[derive(Debug, Default)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    /// Checksum and length of the content.
    pub(super) crc: Crc,
    pub(super) length: u64,
}

/// Compresses `text` as a part of a stream, the last one if it `ends` it.
pub(super) fn packed(text: &[u8], ends: bool) -> io::Result<Packed> {
    compressed(&mut Compress::new(Compression::new(LEVEL), false), text, ends)
}

fn compressed(deflate: &mut Compress, text: &[u8], ends: bool) -> io::Result<Packed> {
    let flush = if ends { FlushCompress::Finish } else { FlushCompress::Full };
    deflate.reset();
    let mut bytes = Vec::with_capacity(text.len() / 4 + 64);
    loop {
        let done = usize::try_from(deflate.total_in()).unwrap_or(usize::MAX);
        deflate
            .compress_vec(text.get(done..).unwrap_or_default(), &mut bytes, flush)
            .map_err(io::Error::other)?;
        // The compressor is done when it leaves room.
        if bytes.len() < bytes.capacity() {
            break;
        }
        bytes.reserve(bytes.len() / 2);
    }
    let mut crc = Crc::new();
    crc.update(text);
    Ok(Packed { bytes, crc, length: text.len() as u64 })
}

/// The middle of a member. What comes before and behind it is known at the end.
pub(super) struct Middle {
    pending: Vec<u8>,
    /// Compressed blocks. What is too large for memory goes to an unnamed file in the report's folder, which is writable
    /// and has room for the report; the system's folder for temporary files may not be.
    blocks: SpooledTempFile,
    bytes: u64,
    crc: Crc,
    length: u64,
}

impl Middle {
    /// Begins a member of a file in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        let blocks = tempfile::spooled_tempfile_in(IN_MEMORY, folder);
        Self { pending: Vec::new(), blocks, bytes: 0, crc: Crc::new(), length: 0 }
    }

    /// Adds text. The result does not depend on how it is divided into calls, nor on the number of threads.
    pub(super) fn push(&mut self, text: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(text);
        let whole = self.pending.len() / BLOCK * BLOCK;
        let new = || Compress::new(Compression::new(LEVEL), false);
        let blocks: Vec<Packed> = self.pending[..whole]
            .par_chunks(BLOCK)
            .map_init(new, |deflate, block| compressed(deflate, block, false))
            .collect::<io::Result<_>>()?;
        self.pending.drain(..whole);
        blocks.iter().try_for_each(|block| self.add(block))
    }

    fn add(&mut self, block: &Packed) -> io::Result<()> {
        self.blocks.write_all(&block.bytes)?;
        self.bytes += block.bytes.len() as u64;
        self.crc.combine(&block.crc);
        self.length += block.length;
        Ok(())
    }

    /// Adds the member to a package, between `before` and `behind`.
    pub(super) fn place(
        mut self,
        before: &[u8],
        behind: &[u8],
        name: &str,
        package: &mut super::package::Package<impl Write>,
    ) -> io::Result<()> {
        let before = packed(before, false)?;
        let behind = packed(&[&self.pending, behind].concat(), true)?;
        let mut crc = before.crc;
        crc.combine(&self.crc);
        crc.combine(&behind.crc);
        let length = before.length + self.length + behind.length;
        let bytes = (before.bytes.len() + behind.bytes.len()) as u64 + self.bytes;
        self.blocks.rewind()?;
        let blocks = &mut self.blocks;
        package.member(name, crc.sum(), length, bytes, |out| {
            out.write_all(&before.bytes)?;
            io::copy(blocks, out)?;
            out.write_all(&behind.bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::package::Package;
    use super::*;

    /// Returns the package with `text` in the middle of a member, added in pieces of `piece` bytes.
    fn written(text: &[u8], piece: usize) -> Vec<u8> {
        let mut middle = Middle::new(&std::env::temp_dir());
        text.chunks(piece).for_each(|piece| middle.push(piece).unwrap());
        let mut package = Package::new(Vec::new());
        middle.place(b"<before>", b"<behind>", "a.xml", &mut package).unwrap();
        package.finish().unwrap()
    }

    #[test]
    fn a_member_is_the_same_for_any_pieces_and_threads() {
        let text: Vec<u8> = (0..5 * BLOCK / 2)
            .map(|place| b"<c r=\"A1\"/>"[place % 11] ^ (place / 7919).to_le_bytes()[0])
            .collect();
        let bytes = written(&text, text.len());
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(one.install(|| written(&text, 10_000)), bytes);
        let mut archive = zip::ZipArchive::new(io::Cursor::new(bytes)).unwrap();
        let mut content = Vec::new();
        archive.by_index(0).unwrap().read_to_end(&mut content).unwrap();
        assert!(content == [b"<before>", &text[..], b"<behind>"].concat());
    }
}
