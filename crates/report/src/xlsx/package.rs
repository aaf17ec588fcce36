//! The container of the workbook: a ZIP archive (PKWARE's APPNOTE 6.3.10) of members that are already compressed.
//!
//! Sizes are known before a member is written, so nothing is written twice, and the 64-bit forms are used only where a
//! size or a place needs them.

use std::io::{self, Write};

/// A size or place that the 32-bit forms cannot hold, and which stands for one.
const BEYOND: u64 = u32::MAX as u64;
/// Compressed by deflate.
const DEFLATE: u16 = 8;
/// 1980-01-01: packages of the same comparison must be byte-identical.
const DATE: u16 = 0x21;
/// Version of the format that a reader must know: 2.0, with 64-bit sizes 4.5.
const VERSION: u16 = 20;
const VERSION_64: u16 = 45;

/// An archive being written.
pub(super) struct Package<W> {
    out: W,
    /// Number of bytes written.
    at: u64,
    directory: Vec<u8>,
    members: u64,
}

impl<W: Write> Package<W> {
    /// Begins an archive.
    pub(super) const fn new(out: W) -> Self {
        Self { out, at: 0, directory: Vec::new(), members: 0 }
    }

    /// Adds a member whose content has the checksum `crc` and `length` bytes. `write` writes its `packed` bytes.
    pub(super) fn member(
        &mut self,
        name: &str,
        crc: u32,
        length: u64,
        packed: u64,
        write: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        let wide = length >= BEYOND || packed >= BEYOND;
        let far = self.at >= BEYOND;
        let short = |value: u64, beyond: bool| if beyond { u32::MAX } else { narrow(value) };
        let name_length = u16::try_from(name.len()).map_err(io::Error::other)?;
        // Method, time, date, checksum, sizes and the length of the name stand in both headers.
        let mut facts = Vec::with_capacity(24);
        facts.extend(DEFLATE.to_le_bytes());
        facts.extend(0_u16.to_le_bytes());
        facts.extend(DATE.to_le_bytes());
        for number in [crc, short(packed, wide), short(length, wide)] {
            facts.extend(number.to_le_bytes());
        }
        facts.extend(name_length.to_le_bytes());
        let version = |wide: bool| if wide { VERSION_64 } else { VERSION }.to_le_bytes();
        let sizes = [length, packed];

        let extra = extra_field(if wide { &sizes } else { &[] });
        let mut local = b"PK\x03\x04".to_vec();
        local.extend(version(wide));
        local.extend([0; 2]);
        local.extend(&facts);
        local.extend(extra.len().to_le_bytes().first_chunk::<2>().unwrap_or(&[0; 2]));
        local.extend(name.as_bytes());
        local.extend(extra);
        self.out.write_all(&local)?;
        write(&mut self.out)?;

        let mut beyond = if wide { sizes.to_vec() } else { Vec::new() };
        beyond.extend(far.then_some(self.at));
        let extra = extra_field(&beyond);
        let entry = &mut self.directory;
        entry.extend(b"PK\x01\x02");
        entry.extend(version(wide || far));
        entry.extend(version(wide || far));
        entry.extend([0; 2]);
        entry.extend(&facts);
        entry.extend(extra.len().to_le_bytes().first_chunk::<2>().unwrap_or(&[0; 2]));
        // No comment, the first disk, no attributes.
        entry.extend([0; 10]);
        entry.extend(short(self.at, far).to_le_bytes());
        entry.extend(name.as_bytes());
        entry.extend(extra);
        self.at += local.len() as u64 + packed;
        self.members += 1;
        Ok(())
    }

    /// Writes the directory, and returns the writer.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let length = self.directory.len() as u64;
        let (members, at) = (self.members, self.at);
        let mut end = Vec::new();
        if at >= BEYOND || length >= BEYOND {
            end.extend(b"PK\x06\x06");
            end.extend(44_u64.to_le_bytes());
            end.extend(VERSION_64.to_le_bytes());
            end.extend(VERSION_64.to_le_bytes());
            end.extend([0; 8]);
            for number in [members, members, length, at] {
                end.extend(number.to_le_bytes());
            }
            end.extend(b"PK\x06\x07");
            end.extend([0; 4]);
            end.extend((at + length).to_le_bytes());
            end.extend(1_u32.to_le_bytes());
        }
        end.extend(b"PK\x05\x06");
        end.extend([0; 4]);
        let count = u16::try_from(members).map_err(io::Error::other)?;
        end.extend(count.to_le_bytes());
        end.extend(count.to_le_bytes());
        end.extend(narrow(length).to_le_bytes());
        end.extend(narrow(at).to_le_bytes());
        end.extend([0; 2]);
        self.out.write_all(&self.directory)?;
        self.out.write_all(&end)?;
        Ok(self.out)
    }
}

/// Returns the extra field of 64-bit sizes and places; nothing if there are none.
fn extra_field(numbers: &[u64]) -> Vec<u8> {
    let mut field = Vec::new();
    if let (false, Ok(length)) = (numbers.is_empty(), u16::try_from(8 * numbers.len())) {
        field.extend(1_u16.to_le_bytes());
        field.extend(length.to_le_bytes());
        field.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }
    field
}

/// Returns the 32-bit form, which says "see the 64-bit form" for a number that it cannot hold.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, SeekFrom};

    use super::super::member::packed;
    use super::*;

    fn add(package: &mut Package<File>, name: &str, text: &str) {
        let member = packed(text.as_bytes(), true).unwrap();
        let bytes = member.bytes.len() as u64;
        let write = |out: &mut File| out.write_all(&member.bytes);
        package.member(name, member.crc.sum(), member.length, bytes, write).unwrap();
    }

    #[test]
    fn members_read_back_on_both_sides_of_4_gib() {
        for at in [0, 5 << 30] {
            // The bytes in front take no room on the disk.
            let mut file = tempfile::tempfile().unwrap();
            file.seek(SeekFrom::Start(at)).unwrap();
            let mut package = Package { at, ..Package::new(file) };
            add(&mut package, "xl/a.xml", "<a/>");
            add(&mut package, "b.xml", &"<b/>".repeat(100_000));
            let mut archive = zip::ZipArchive::new(package.finish().unwrap()).unwrap();
            assert_eq!(archive.len(), 2);
            let mut text = String::new();
            archive.by_name("b.xml").unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "<b/>".repeat(100_000));
            assert_eq!(archive.by_name("xl/a.xml").unwrap().header_start(), at);
        }
    }

    #[test]
    fn a_member_of_more_than_4_gib_says_so() {
        let length = 6 << 30;
        let mut package = Package::new(tempfile::tempfile().unwrap());
        package.member("a.xml", 1, length, 3, |out| out.write_all(b"...")).unwrap();
        let mut archive = zip::ZipArchive::new(package.finish().unwrap()).unwrap();
        let member = archive.by_index_raw(0).unwrap();
        assert_eq!((member.size(), member.compressed_size()), (length, 3));
    }
}
