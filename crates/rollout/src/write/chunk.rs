//! Columns of one group of rows in Parquet, made of slices and of runs. The library's own encoder looks at each value several times.

use std::io::Write as _;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter as _};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

/// A run of rows with one key of the dictionary, or without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) rows: usize,
    pub(super) key: Option<u32>,
}

/// An encoded column.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Bytes,
    pub(super) close: ColumnCloseResult,
}

/// Pages of a column.
pub(super) struct Pages {
    column: ColumnDescPtr,
    sink: TrackedWrite<Vec<u8>>,
    rows: u64,
    /// Where the pages of values begin, behind the dictionary.
    data: Option<u64>,
    has_dictionary: bool,
}

impl Pages {
    /// Begins a column of which so many bytes are expected.
    pub(super) fn new(column: ColumnDescPtr, bytes: usize) -> Self {
        let sink = TrackedWrite::new(Vec::with_capacity(bytes));
        Self { column, sink, rows: 0, data: None, has_dictionary: false }
    }

    /// Adds rows whose values were written one after another; `valid` tells which have one, if not all do.
    pub(super) fn plain(
        &mut self,
        rows: usize,
        valid: Option<&[bool]>,
        values: &[u8],
    ) -> Result<(), ParquetError> {
        let mut page = Vec::with_capacity(values.len() + rows / 8 + 16);
        if self.column.max_def_level() > 0 {
            match valid {
                None => levels(&mut page, |levels| run(levels, rows, 1, 1)),
                Some(valid) => levels(&mut page, |levels| packed(levels, valid)),
            }
        }
        page.extend_from_slice(values);
        self.add(rows, Encoding::PLAIN, page)
    }

    /// Adds rows as runs of the keys of `count` values, which are given as the format writes them.
    pub(super) fn runs(&mut self, runs: &[Run], dictionary: Vec<u8>, count: u32) -> Result<(), ParquetError> {
        let size = dictionary.len();
        let encoding = Encoding::PLAIN;
        let page =
            Page::DictionaryPage { buf: dictionary.into(), num_values: count, encoding, is_sorted: false };
        SerializedPageWriter::new(&mut self.sink).write_page(CompressedPage::new(page, size))?;
        self.has_dictionary = true;
        let mut page = Vec::new();
        if self.column.max_def_level() > 0 {
            let each = |levels: &mut Vec<u8>| {
                for each in runs {
                    run(levels, each.rows, u32::from(each.key.is_some()), 1);
                }
            };
            self::levels(&mut page, each);
        }
        let width = (u32::BITS - count.saturating_sub(1).leading_zeros()).max(1);
        page.push(u8::try_from(width).unwrap_or(32));
        for (rows, key) in runs.iter().filter_map(|run| Some((run.rows, run.key?))) {
            run(&mut page, rows, key, width.div_ceil(8) as usize);
        }
        self.add(runs.iter().map(|run| run.rows).sum(), Encoding::RLE_DICTIONARY, page)
    }

    fn add(&mut self, rows: usize, encoding: Encoding, page: Vec<u8>) -> Result<(), ParquetError> {
        self.data.get_or_insert(self.sink.bytes_written() as u64);
        let size = page.len();
        let page = Page::DataPage {
            buf: page.into(),
            num_values: u32::try_from(rows)?,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        SerializedPageWriter::new(&mut self.sink).write_page(CompressedPage::new(page, size))?;
        self.rows += rows as u64;
        Ok(())
    }

    /// Ends the column.
    pub(super) fn close(mut self) -> Result<Encoded, ParquetError> {
        self.sink.flush()?;
        let bytes: Bytes = self.sink.into_inner()?.into();
        let mut encodings = vec![Encoding::PLAIN, Encoding::RLE];
        if self.has_dictionary {
            encodings.push(Encoding::RLE_DICTIONARY);
        }
        let size = i64::try_from(bytes.len())?;
        let metadata = ColumnChunkMetaData::builder(self.column)
            .set_encodings(encodings)
            .set_compression(Compression::UNCOMPRESSED)
            .set_num_values(i64::try_from(self.rows)?)
            .set_total_compressed_size(size)
            .set_total_uncompressed_size(size)
            .set_data_page_offset(i64::try_from(self.data.unwrap_or(0))?)
            .set_dictionary_page_offset(self.has_dictionary.then_some(0))
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: self.rows,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok(Encoded { bytes, close })
    }
}

/// Adds definition levels behind their length.
fn levels(page: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = page.len();
    page.extend([0; 4]);
    write(page);
    let length = u32::try_from(page.len() - start - 4).unwrap_or(u32::MAX);
    page[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Adds a run of a value that takes so many bytes.
fn run(to: &mut Vec<u8>, rows: usize, value: u32, bytes: usize) {
    if rows > 0 {
        number(to, (rows as u64) << 1);
        to.extend_from_slice(&value.to_le_bytes()[..bytes]);
    }
}

/// Adds a bit for each row, in groups of eight.
fn packed(to: &mut Vec<u8>, bits: &[bool]) {
    number(to, (bits.len().div_ceil(8) as u64) << 1 | 1);
    to.extend(bits_of(bits));
}

/// Returns bits as bytes, the first of eight in the lowest place.
pub(super) fn bits_of(bits: &[bool]) -> impl Iterator<Item = u8> {
    bits.chunks(8).map(|bits| (0..).zip(bits).fold(0, |byte, (place, bit)| byte | u8::from(*bit) << place))
}

/// Adds a number of seven bits a byte.
fn number(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    to.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_bits_are_those_of_the_format() {
        let mut to = Vec::new();
        run(&mut to, 300, 5, 1);
        run(&mut to, 0, 9, 1);
        run(&mut to, 1, 0x0102, 2);
        assert_eq!(to, [0xd8, 4, 5, 2, 2, 1]);
        let mut to = Vec::new();
        packed(&mut to, &[true, false, true, true, false, false, false, true, false, true]);
        assert_eq!(to, [5, 0b1000_1101, 0b10]);
    }
}
