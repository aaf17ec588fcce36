//! Event files of `TensorBoard`: records in `TFRecord` framing, each a protobuf message `Event`.
//!
//! Only the fields that lead to scalars are read: `Event { step = 2, summary = 5 }`, `Summary { value = 1 }`, `Value { tag = 1, simple_value =
//! 2, tensor = 8 }`, `TensorProto { dtype = 1, tensor_shape = 2, tensor_content = 4, half_val = 13, float_val = 5, double_val = 6, int_val = 7,
//! int64_val = 10 }`. Both forms of a scalar are supported: `simple_value`, and a tensor of one element.

use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};

use super::{ReadScalars, content};
use probe_files::limits;
use probe_read::ReadError;

/// Maximum size of a record in bytes: an image or a graph in it is skipped, not read.
const MAX_RECORD: usize = 1 << 30;

/// Maximum number of folders named in a message that lists them.
const NAMED: usize = 5;

/// Reads every event file of a folder, oldest first: file names contain the start time.
pub(super) fn folder(path: &Path) -> Result<ReadScalars, ReadError> {
    let (files, folders) = listed(path)?;
    // Runs of one experiment, or the folders that `add_scalars` and `add_hparams` write beside a run: it is ambiguous which one
    // is meant.
    let runs: Vec<String> = folders
        .iter()
        .filter(|folder| listed(folder).is_ok_and(|(files, _)| !files.is_empty()))
        .filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()))
        .collect();
    let several = runs.len() > NAMED;
    let names = format!(
        "{}{}",
        runs.get(..NAMED).unwrap_or(&runs).join(", "),
        if several { " and more" } else { "" }
    );
    if files.is_empty() {
        let hint = if runs.is_empty() {
            String::new()
        } else {
            format!("; folders in it have some: give one of {names}")
        };
        return Err(ReadError::usage(path, format!("no event file (*tfevents*) in this folder{hint}")));
    }
    let mut found = ReadScalars::default();
    if !runs.is_empty() {
        found.notes.push(format!("events in folders below it were not read: {names}"));
    }
    for file in &files {
        events(file, &content(file)?, &mut found)?;
    }
    Ok(found)
}

/// Returns the event files of a folder sorted by name, and its subfolders.
fn listed(path: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), ReadError> {
    let entries = fs::read_dir(path).map_err(|source| ReadError::io(path, source))?;
    let mut paths: Vec<PathBuf> =
        entries.take(limits::MAX_FOLDER_ENTRIES).filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort_unstable();
    let (folders, mut files): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.into_iter().partition(|path| path.is_dir());
    files.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().contains("tfevents")));
    Ok((files, folders))
}

/// Returns true if the bytes begin with a record whose length matches its checksum.
pub(super) fn is_record(bytes: &[u8]) -> bool {
    let head = bytes.first_chunk::<8>().zip(bytes.get(8..12).and_then(<[u8]>::first_chunk::<4>));
    head.is_some_and(|(length, sum)| masked_crc(length) == u32::from_le_bytes(*sum))
}

/// Adds the scalars of one event file. A truncated last record was still being written; everything before it counts.
pub(super) fn events(path: &Path, bytes: &[u8], found: &mut ReadScalars) -> Result<(), ReadError> {
    let wrong = |at: usize, what: &str| ReadError::format(path, format!("byte {at}: {what}"));
    let mut skipped = 0_u64;
    let mut at = 0;
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let (Some(length), Some(sum)) =
            (rest.first_chunk::<8>(), rest.get(8..12).and_then(<[u8]>::first_chunk::<4>))
        else {
            found.notes.push(format!("{}: breaks off at byte {at}, inside a record", path.display()));
            break;
        };
        if masked_crc(length) != u32::from_le_bytes(*sum) {
            return Err(wrong(
                at,
                "the checksum of a record's length is wrong: damaged, or not an event file",
            ));
        }
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_RECORD {
            return Err(wrong(at, &format!("a record of {length} bytes, more than {MAX_RECORD}")));
        }
        let (Some(data), Some(sum)) = (
            rest.get(12..12 + length),
            rest.get(12 + length..16 + length).and_then(<[u8]>::first_chunk::<4>),
        ) else {
            found.notes.push(format!("{}: breaks off at byte {at}, inside a record", path.display()));
            break;
        };
        if masked_crc(data) != u32::from_le_bytes(*sum) {
            return Err(wrong(at + 12, "the checksum of a record is wrong: the file is damaged"));
        }
        event(data, found, &mut skipped).ok_or_else(|| wrong(at + 12, "this record is not an event"))?;
        at += 16 + length;
    }
    if skipped > 0 {
        found
            .notes
            .push(format!("{skipped} values that are not scalars (images, histograms, texts) were left out"));
    }
    Ok(())
}

/// Reads one message `Event`. `None` if it violates the wire format.
fn event(data: &[u8], found: &mut ReadScalars, skipped: &mut u64) -> Option<()> {
    let (mut step, mut summaries) = (0_i64, Vec::new());
    let mut fields = Fields(data);
    while let Some(field) = fields.next()? {
        match field {
            (2, Wire::Varint(value)) => step = value.cast_signed(),
            (5, Wire::Bytes(summary)) => summaries.push(summary),
            _ => {}
        }
    }
    let step = u64::try_from(step).ok()?;
    for summary in summaries {
        let mut values = Fields(summary);
        while let Some(field) = values.next()? {
            let (1, Wire::Bytes(value)) = field else { continue };
            match scalar(value)? {
                Some((tag, value)) => found.add(tag, step, value),
                None => *skipped += 1,
            }
        }
    }
    Some(())
}

/// Reads one message `Summary.Value`: tag and number; the inner value is `None` if it is not a scalar.
#[expect(clippy::option_option, reason = "broken, no scalar, and a number")]
fn scalar(data: &[u8]) -> Option<Option<(&str, f64)>> {
    let (mut tag, mut value) = ("", None);
    let mut fields = Fields(data);
    while let Some(field) = fields.next()? {
        match field {
            (1, Wire::Bytes(text)) => tag = std::str::from_utf8(text).ok()?,
            (2, Wire::Fixed32(bits)) => value = Some(f64::from(f32::from_bits(bits))),
            (8, Wire::Bytes(tensor)) => value = tensor_value(tensor)?,
            _ => {}
        }
    }
    Some(value.map(|value| (tag, value)))
}

/// Reads the single element of a message `TensorProto`; the inner value is `None` if it has another number of elements, or no
/// numbers.
#[expect(clippy::option_option, reason = "broken, no scalar, and a number")]
fn tensor_value(data: &[u8]) -> Option<Option<f64>> {
    let (mut dtype, mut elements, mut raw, mut listed) = (0, Some(1_u64), None, None);
    let mut fields = Fields(data);
    while let Some(field) = fields.next()? {
        match field {
            (1, Wire::Varint(value)) => dtype = value,
            (2, Wire::Bytes(shape)) => elements = element_count(shape)?,
            (4, Wire::Bytes(content)) => raw = Some(content),
            // A single value is either plain or packed.
            (5, Wire::Fixed32(bits)) => listed = Some(f64::from(f32::from_bits(bits))),
            (5, Wire::Bytes(packed)) => {
                listed = packed.first_chunk().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
            }
            (6, Wire::Fixed64(bits)) => listed = Some(f64::from_bits(bits)),
            (6, Wire::Bytes(packed)) => listed = packed.first_chunk().map(|bytes| f64::from_le_bytes(*bytes)),
            (7 | 10, Wire::Varint(value)) => listed = Some(value.cast_signed() as f64),
            (7 | 10, Wire::Bytes(packed)) => listed = Some(Fields(packed).varint()?.cast_signed() as f64),
            (13, Wire::Varint(bits)) => listed = half_value(dtype, bits),
            (13, Wire::Bytes(packed)) => listed = half_value(dtype, Fields(packed).varint()?),
            _ => {}
        }
    }
    if elements != Some(1) {
        return Some(None);
    }
    Some(raw.map_or(listed, |content| element(dtype, content)))
}

/// Returns the element count of a message `TensorShapeProto`; the inner value is `None` if the product exceeds 2^64.
#[expect(clippy::option_option, reason = "no message, too many, and a number")]
fn element_count(shape: &[u8]) -> Option<Option<u64>> {
    let mut count = Some(1_u64);
    let mut dimensions = Fields(shape);
    while let Some(field) = dimensions.next()? {
        let (2, Wire::Bytes(dimension)) = field else { continue };
        let mut size = 0;
        let mut fields = Fields(dimension);
        while let Some(field) = fields.next()? {
            if let (1, Wire::Varint(value)) = field {
                size = value;
            }
        }
        count = count.and_then(|count| count.checked_mul(size));
    }
    Some(count)
}

/// Returns the element in the raw bytes of a tensor; `None` for types that are not plain numbers.
fn element(dtype: u64, content: &[u8]) -> Option<f64> {
    match dtype {
        1 => content.first_chunk().map(|bytes| f64::from(f32::from_le_bytes(*bytes))),
        2 => content.first_chunk().map(|bytes| f64::from_le_bytes(*bytes)),
        3 => content.first_chunk().map(|bytes| f64::from(i32::from_le_bytes(*bytes))),
        9 => content.first_chunk().map(|bytes| i64::from_le_bytes(*bytes) as f64),
        14 | 19 => {
            content.first_chunk().and_then(|bytes| half_value(dtype, u16::from_le_bytes(*bytes).into()))
        }
        _ => None,
    }
}

/// Returns a 16-bit number: float16 (19) or bfloat16 (14).
fn half_value(dtype: u64, bits: u64) -> Option<f64> {
    let bits = u16::try_from(bits).ok()?;
    match dtype {
        19 => Some(f16::from_bits(bits).to_f64()),
        14 => Some(bf16::from_bits(bits).to_f64()),
        _ => None,
    }
}

/// Value of a field.
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The fields of a protobuf message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the next field with its number; the inner value is `None` at the end.
    #[expect(clippy::option_option, reason = "broken, the end, and a field")]
    fn next(&mut self) -> Option<Option<(u64, Wire<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(*self.take(8)?.first_chunk()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(*self.take(4)?.first_chunk()?)),
            // Groups are not used.
            _ => return None,
        };
        Some(Some((key >> 3, wire)))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for place in 0..10 {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

/// Returns the checksum of a record: CRC-32C, rotated and offset so that a checksum of bytes that contain checksums is
/// not a special case.
pub(super) fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the CRC-32 with the Castagnoli polynomial, reflected.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0_u32; 256];
        let mut index = 0_u32;
        while index < 256 {
            let (mut value, mut bit) = (index, 0);
            while bit < 8 {
                value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
                bit += 1;
            }
            table[index as usize] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, &byte| (crc >> 8) ^ TABLE[((crc ^ u32::from(byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // Check value of CRC-32C, and a test vector of RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
