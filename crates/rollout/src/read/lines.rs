//! JSON and JSON Lines: which format a file has is seen from its first value.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Collected, Format, Origin, miles, nemo, plain, responses, text};
use probe_read::ReadError;
use probe_read::msprobe::with_quoted_numbers;

/// Reads a file of JSON.
pub(super) fn read(path: &Path, into: &mut Collected, of_many: bool) -> Result<Format, ReadError> {
    let origin = Origin { path, of_many };
    match first_line(path)? {
        Some(keys) if keys.contains_key("generation_logprobs") => {
            nemo::read(origin, into).map(|()| Format::NemoRl)
        }
        Some(keys) if responses::recognises(&keys) => {
            responses::read(origin, into).map(|()| Format::Responses)
        }
        Some(keys) if keys.contains_key("sample") => plain::lines(path, into).map(|()| Format::Plain),
        // A document over several lines, or a line that is a whole document.
        _ => miles::read(origin, into).map(|()| Format::Miles),
    }
}

/// Returns the object on the first line, unless the line is not an object of its own.
fn first_line(path: &Path) -> Result<Option<Map<String, Value>>, ReadError> {
    let mut first = None;
    let mut done = false;
    let stopped = text::each_line(path, |line| {
        first = serde_json::from_slice(&with_quoted_numbers(line)).ok();
        done = true;
        Err(String::new())
    });
    match stopped {
        Err(error) if !done => Err(error),
        _ => Ok(first),
    }
}
