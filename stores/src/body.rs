//! The bytes of an answer, for threads that wait for them.

use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio::runtime::Handle;

/// An answer that stands still for so long is given up.
pub(crate) const STALLED: Duration = Duration::from_secs(60);

pub(crate) struct Body {
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    /// Bytes that came and were not taken yet.
    rest: Bytes,
    handle: Handle,
    stalled: Duration,
}

impl Body {
    pub(crate) fn new(
        stream: BoxStream<'static, object_store::Result<Bytes>>,
        handle: Handle,
        stalled: Duration,
    ) -> Self {
        Self { stream, rest: Bytes::new(), handle, stalled }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            let stalled = self.stalled;
            let next =
                self.handle.block_on(async { tokio::time::timeout(stalled, self.stream.next()).await });
            match next {
                Ok(Some(Ok(bytes))) => self.rest = bytes,
                Ok(Some(Err(error))) => return Err(io::Error::other(error)),
                Ok(None) => return Ok(0),
                Err(_) => {
                    let message = format!("nothing came for {} s", stalled.as_secs_f32());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
            }
        }
        let count = self.rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.rest[..count]);
        self.rest.advance(count);
        Ok(count)
    }
}
