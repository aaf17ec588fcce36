//! Reads a journal: an Arrow IPC stream that may be truncated anywhere.
//!
//! The frames are walked here before the library sees them, because the library cannot tell a finished stream from a
//! truncated one, and because every length must be checked against the file before use.

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;

use super::guarded;
use crate::ReadError;
use probe_files::map::{FileAccess, Source};

/// Ending of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// With its end mark: nothing is missing.
    Marked,
    /// Without end mark; complete up to the last batch.
    Open,
    /// With bytes that are not a batch.
    Damaged(String),
}

/// First bytes of every message of the stream.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Passes every complete batch to `take`, which may reject one.
///
/// # Errors
/// Errors of `take`, and [`ReadError::Io`]. Damage is not an error but an [`End`].
pub(super) fn read(
    path: &Path,
    access: FileAccess,
    mut take: impl FnMut(&RecordBatch) -> Result<(), ReadError>,
) -> Result<End, ReadError> {
    // A journal may still be growing, and truncating it while it is mapped would kill the process.
    let source = Source::open(path, access)?;
    let mut decoder = StreamDecoder::new();
    let mut at = 0;
    loop {
        let frame = match frame(&source, at)? {
            Frame::Message(end) => end,
            Frame::Mark => return Ok(End::Marked),
            Frame::Cut => return Ok(End::Open),
            Frame::Damaged(reason) => return Ok(End::Damaged(format!("at byte {at}: {reason}"))),
        };
        let section = source.section(at..frame, "a batch of the journal")?;
        let decoded = guarded(path, || {
            let mut bytes = Buffer::from(section.bytes());
            decoder
                .decode(&mut bytes)
                .map_err(|error| ReadError::format(path, format!("at byte {at}: {error}")))
        });
        match decoded {
            Ok(Some(batch)) => take(&batch)?,
            Ok(None) => {}
            Err(error) => return Ok(End::Damaged(error.to_string())),
        }
        at = frame;
    }
}

enum Frame {
    /// A complete message, up to this byte.
    Message(u64),
    Mark,
    Cut,
    Damaged(String),
}

/// Returns the frame that begins at byte `at`.
fn frame(source: &Source, at: u64) -> Result<Frame, ReadError> {
    let left = source.len().saturating_sub(at);
    if left < 8 {
        return Ok(Frame::Cut);
    }
    let head = source.section(at..at + 8, "a message of the journal")?;
    let (Some((mark, length)), true) = (head.bytes().split_first_chunk::<4>(), head.bytes().len() == 8)
    else {
        return Ok(Frame::Cut);
    };
    if *mark != CONTINUATION {
        return Ok(Frame::Damaged("no message of a journal begins here".into()));
    }
    let length = length.iter().rev().fold(0_u64, |length, &byte| length << 8 | u64::from(byte));
    if length == 0 {
        return Ok(Frame::Mark);
    }
    let body_at = at + 8 + length;
    if body_at > source.len() {
        return Ok(Frame::Cut);
    }
    let metadata = source.section(at + 8..body_at, "a message of the journal")?;
    let body = match arrow_ipc::root_as_message(metadata.bytes()) {
        Ok(message) => u64::try_from(message.bodyLength()).ok(),
        Err(error) => return Ok(Frame::Damaged(format!("the message is damaged: {error}"))),
    };
    match body.and_then(|body| body_at.checked_add(body)) {
        Some(end) if end <= source.len() => Ok(Frame::Message(end)),
        Some(_) => Ok(Frame::Cut),
        None => Ok(Frame::Damaged("the message has an impossible length".into())),
    }
}
