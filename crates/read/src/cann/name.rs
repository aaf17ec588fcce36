//! Names of dump files: `{op_type}.{op_name}.{task_id}[.{stream_id}].{time}[.{task_type}.{context}.{thread}][.{device}]`.
//!
//! The fields vary between versions, so they are read from both ends: the two names come first, the time is the long number. A file
//! whose name does not match the pattern is still read, just without this information.

use std::collections::HashMap;
use std::path::Path;

use crate::ReadError;
use probe_files::limits;
use probe_files::map::{self, FileAccess};

/// The list of files whose names were too long, in the same folder.
pub const MAPPING: &str = "mapping.csv";

/// File with the reason a part is incomplete, as text; written by the receiver.
pub const STOPPED: &str = "stopped.txt";

/// Returns true if this file was still being received when its program ended.
pub fn is_draft(name: &str) -> bool {
    name.strip_prefix('.').and_then(|name| name.strip_suffix(".part")).is_some()
}

/// Returns true if this is the file name of an operator dump.
pub fn is_dump_name(name: &str) -> bool {
    FileName::parse(name).is_some()
}

/// Minimum digits of a time in microseconds.
const TIME_DIGITS: usize = 13;

/// Placeholder for an invalid number.
const INVALID: u64 = 65_535;

/// Fields of a file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileName {
    pub(super) op_type: Box<str>,
    pub(super) op_name: Box<str>,
    pub(super) task: Option<u64>,
    pub(super) stream: Option<u64>,
    pub(super) time: u64,
    pub(super) context: Option<u64>,
    pub(super) thread: Option<u64>,
}

impl FileName {
    /// Parses a name; `None` for names of other files.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (op_type, rest) = name.split_once('.')?;
        let (op_name, numbers) = rest.split_once('.')?;
        if op_type.is_empty() || op_name.is_empty() {
            return None;
        }
        // Each is at least a one-digit number: nothing is allocated for names of other files.
        let numbers: Vec<&str> = numbers.split('.').collect();
        let values: Vec<u64> = numbers
            .iter()
            .map(|text| if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None })
            .collect::<Option<_>>()?;
        let at = numbers.iter().position(|text| text.len() >= TIME_DIGITS)?;
        let (before, after) = (&values[..at], &values[at + 1..]);
        if !(1..=2).contains(&before.len()) || after.len() > 4 {
            return None;
        }
        let valid = |value: Option<&u64>| value.copied().filter(|&value| value != INVALID);
        Some(Self {
            op_type: op_type.into(),
            op_name: op_name.into(),
            task: valid(before.first()),
            stream: valid(before.get(1)),
            time: values[at],
            context: valid(after.get(1)),
            thread: valid(after.get(2)),
        })
    }

    /// Returns true if the file holds an overflow report of the device.
    pub(super) fn is_debug(&self) -> bool {
        &*self.op_type == "Opdebug"
    }
}

/// Returns the full names of shortened files in a folder. Empty if there is no list.
pub(super) fn mapping(folder: &Path) -> Result<HashMap<String, String>, ReadError> {
    let path = folder.join(MAPPING);
    if !path.is_file() {
        return Ok(HashMap::new());
    }
    let size = std::fs::metadata(&path).map_err(|source| ReadError::io(&path, source))?.len();
    if size > limits::MAX_HEADER_BYTES {
        let limit = limits::MAX_HEADER_BYTES;
        return Err(ReadError::Limit { path, what: "the size in bytes", found: size, limit });
    }
    let bytes = map::open(&path, FileAccess::Read)?;
    let text = String::from_utf8_lossy(bytes.in_memory().unwrap_or_default());
    // Columns beyond the second, and lines without a second one, are ignored.
    let pairs = text.lines().filter_map(|line| {
        let mut columns = line.split(',').map(str::trim);
        Some((columns.next()?.to_owned(), columns.next()?.to_owned()))
    });
    Ok(pairs.filter(|(short, long)| !short.is_empty() && !long.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_names_are_read_from_both_ends() {
        let parts = |name: &str| {
            let name = FileName::parse(name)?;
            Some((name.op_type, name.op_name, name.task, name.stream, name.time, name.context, name.thread))
        };
        let time = 1_700_000_000_000_000;
        let expect = |task, stream, context, thread| {
            Some(("MatMulV2".into(), "MatMul_1".into(), task, stream, time, context, thread))
        };
        assert_eq!(parts("MatMulV2.MatMul_1.3.1700000000000000"), expect(Some(3), None, None, None));
        assert_eq!(parts("MatMulV2.MatMul_1.3.7.1700000000000000"), expect(Some(3), Some(7), None, None));
        assert_eq!(
            parts("MatMulV2.MatMul_1.3.7.1700000000000000.0.65535.2.1"),
            expect(Some(3), Some(7), None, Some(2))
        );
        for other in [
            "",
            "a",
            "a.b",
            "a.b.1",
            "model.layers.0.weight",
            "a.b.c.1700000000000000",
            "a.b.1.2.3.1700000000000000",
            ".b.1.1700000000000000",
            "layer.0.1.2",
        ] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}
