//! Sizes that pages of a Parquet file claim. The library behind the format makes room for what the header of a page claims, and fills it,
//! before it looks into the page: a few bytes would take gigabytes.

use std::fs::File;

use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader as _;

/// Most bytes that snappy makes of one: a copy of three bytes makes 64.
const RATIO: u64 = 22;
/// Bytes that hold nearly every header; those of pages with long statistics are read again.
const HEADERS: [usize; 2] = [256, 1 << 16];
/// Structures within structures in a header, at most. The format has three.
const DEPTH: usize = 8;

/// Checks the pages of a column that snappy compressed.
pub(super) fn check(file: &File, column: &ColumnChunkMetaData) -> Result<(), String> {
    let (mut at, length) = column.byte_range();
    let end = at.checked_add(length).ok_or("a column lies behind the end of the file")?;
    while at < end {
        let page = page(file, at, end).ok_or_else(|| format!("the page at byte {at} has no valid header"))?;
        if page.inflated > page.stored.saturating_mul(RATIO) {
            return Err(format!(
                "the page at byte {at} claims {} bytes, more than snappy makes of {}",
                page.inflated, page.stored
            ));
        }
        at = at.saturating_add(page.header).saturating_add(page.stored);
    }
    Ok(())
}

/// Sizes of a page, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Page {
    header: u64,
    stored: u64,
    inflated: u64,
}

/// Reads the header of the page at a byte of the file.
fn page(file: &File, at: u64, end: u64) -> Option<Page> {
    HEADERS.iter().find_map(|most| {
        let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(*most);
        header(&file.get_bytes(at, length).ok()?)
    })
}

/// Reads a header, a structure in Thrift's compact protocol: fields 2 and 3 are the size of the page before compression and behind it.
fn header(bytes: &[u8]) -> Option<Page> {
    let mut rest = Cursor(bytes);
    let (mut id, mut sizes) = (0_u64, [None; 2]);
    loop {
        match (rest.field(&mut id)?, id) {
            (END, _) => break,
            (I32, 2 | 3) => sizes[usize::from(id == 3)] = Some(rest.positive()?),
            (kind, _) => rest.skip(kind, DEPTH)?,
        }
    }
    let [inflated, stored] = sizes;
    Some(Page { header: (bytes.len() - rest.0.len()) as u64, stored: stored?, inflated: inflated? })
}

/// The numbers of types: the end of a structure, integers of 32 bits.
const END: u8 = 0;
const I32: u8 = 5;

/// Bytes that are still to be read.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// Reads a number of seven bits a byte.
    fn number(&mut self) -> Option<u64> {
        (0..10)
            .try_fold((0_u64, false), |(number, ended), place| {
                if ended {
                    return Some((number, true));
                }
                let byte = self.byte()?;
                Some((number | u64::from(byte & 0x7f).checked_shl(7 * place)?, byte & 0x80 == 0))
            })
            .filter(|(_, ended)| *ended)
            .map(|(number, _)| number)
    }

    /// Reads a signed number, which is to be 0 or more.
    fn positive(&mut self) -> Option<u64> {
        let number = self.number()?;
        (number & 1 == 0).then_some(number >> 1)
    }

    /// Reads the type of a field, and moves `id` to it.
    fn field(&mut self, id: &mut u64) -> Option<u8> {
        let byte = self.byte()?;
        if byte == END {
            return Some(END);
        }
        *id = match u64::from(byte >> 4) {
            0 => self.positive()?,
            more => id.checked_add(more)?,
        };
        Some(byte & 0xf).filter(|kind| *kind != END)
    }

    /// Passes a value of a type.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // Truth is told by the type of a field.
            1 | 2 => Some(()),
            3 => self.pass(1),
            4..=6 => self.number().map(|_| ()),
            7 => self.pass(8),
            8 => {
                let length = self.number()?;
                self.pass(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
                (0..count).try_for_each(|_| self.element(head & 0xf, depth))
            }
            12 => {
                let mut id = 0;
                loop {
                    match self.field(&mut id)? {
                        END => return Some(()),
                        kind => self.skip(kind, depth)?,
                    }
                }
            }
            _ => None,
        }
    }

    /// Passes an element of a list, where truth takes a byte.
    fn element(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, 1 | 2) { self.pass(1) } else { self.skip(kind, depth) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header() {
        // Type 0, 300 bytes before compression, 20 behind it, a structure with a number and a text, its end, the end.
        let bytes = [0x15, 0, 0x15, 0xd8, 0x04, 0x15, 40, 0x2c, 0x15, 6, 0x18, 2, b'a', b'b', 0, 0, 99];
        assert_eq!(header(&bytes), Some(Page { header: 16, stored: 20, inflated: 300 }));
        assert!((0..16).all(|end| header(&bytes[..end]).is_none()));
    }

    #[test]
    fn structures_end() {
        assert_eq!(header(&[0x1c; 4096]), None);
        assert_eq!(header(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), None);
    }
}
