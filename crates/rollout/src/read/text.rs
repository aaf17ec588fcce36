//! Lines of a text file, within limits.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde::de::DeserializeOwned;

use probe_files::limits::MAX_ROLLOUT_LINE_BYTES;
use probe_files::map;
use probe_read::ReadError;
use probe_read::msprobe::with_quoted_numbers;

/// Returns the first bytes of a file.
pub(super) fn head(path: &Path) -> Result<Vec<u8>, ReadError> {
    let (file, _) = map::open_regular(path)?;
    let mut head = Vec::new();
    file.take(64).read_to_end(&mut head).map_err(|error| ReadError::io(path, error))?;
    if head.is_empty() {
        return Err(ReadError::format(path, "is empty"));
    }
    Ok(head)
}

/// Returns true for bytes as text begins with.
pub(super) fn is_text(head: &[u8]) -> bool {
    head.iter().all(|byte| *byte >= 0x20 || byte.is_ascii_whitespace())
}

/// Returns the document on a line.
///
/// # Errors
/// The description, with the column: the number of the line is the caller's to say.
pub(super) fn parsed<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice(&with_quoted_numbers(line)).map_err(|error| {
        let (text, column) = (error.to_string(), error.column());
        let end = format!(" at line {} column {column}", error.line());
        format!("{}, in column {column}", text.strip_suffix(&end).unwrap_or(&text))
    })
}

/// Passes each line that is not blank, with its number from 1, to `take`.
///
/// # Errors
/// [`ReadError`] when the file cannot be read or a line is too long; the message of `take`, with the line's number.
pub(super) fn each_line(
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), ReadError> {
    let (file, _) = map::open_regular(path)?;
    let mut reader: BufReader<File> = BufReader::with_capacity(1 << 20, file);
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let limit = MAX_ROLLOUT_LINE_BYTES;
        let read = reader.by_ref().take(limit + 1).read_until(b'\n', &mut line);
        let read = read.map_err(|error| ReadError::io(path, error))?;
        if read == 0 {
            break;
        }
        if line.len() as u64 > limit {
            return Err(ReadError::Limit {
                path: path.into(),
                what: "the length of a line",
                found: line.len() as u64,
                limit,
            });
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            take(text).map_err(|message| ReadError::format(path, format!("line {number}: {message}")))?;
        }
    }
    Ok(())
}
