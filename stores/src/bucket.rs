//! One bucket.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, WriteMultipart,
};
use probe::store::{Answer, Bucket, Fault, Object};
use tokio::runtime::Handle;

use crate::body::{Body, STALLED};

/// Files up to this size are put by one request, larger ones in parts of it.
const PART: u64 = 16 << 20;

/// Parts of an upload; stores take 10,000.
const MAX_PARTS: u64 = 9_000;

/// Parts under way.
const IN_FLIGHT: usize = 8;

#[derive(Debug)]
pub(crate) struct StoreBucket {
    store: Arc<dyn ObjectStore>,
    handle: Handle,
    pub(crate) stalled: Duration,
}

impl StoreBucket {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, handle: Handle) -> Self {
        Self { store, handle, stalled: STALLED }
    }

    async fn put_parts(&self, path: &Path, mut file: File, size: u64) -> Result<(), Fault> {
        let part = usize::try_from(size.div_ceil(MAX_PARTS).max(PART)).unwrap_or(usize::MAX);
        let upload = self.store.put_multipart(path).await.map_err(fault)?;
        let mut writer = WriteMultipart::new_with_chunk_size(upload, part);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = match file.read(&mut buffer) {
                Ok(0) => return writer.finish().await.map(drop).map_err(fault),
                Ok(read) => writer.wait_for_capacity(IN_FLIGHT).await.map(|()| read).map_err(fault),
                Err(error) => Err(Fault::Refused(error.to_string())),
            };
            match read {
                Ok(read) => writer.write(&buffer[..read]),
                Err(reason) => {
                    // Nothing is stored; what came so far the store removes by its own rules where this fails as well.
                    _ = writer.abort().await;
                    return Err(reason);
                }
            }
        }
    }
}

fn location(key: &str) -> Result<Path, Fault> {
    Path::parse(key).map_err(|error| Fault::Refused(error.to_string()))
}

fn object(meta: ObjectMeta) -> Object {
    Object { key: meta.location.to_string(), size: meta.size, tag: meta.e_tag }
}

/// Translates an error of the library for the caller.
fn fault(error: Error) -> Fault {
    match error {
        Error::NotFound { .. } => Fault::Missing,
        Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::UnknownConfigurationKey { .. } => Fault::Refused(error.to_string()),
        other => Fault::Passing(other.to_string()),
    }
}

impl Bucket for StoreBucket {
    fn head(&self, key: &str) -> Result<Object, Fault> {
        let path = location(key)?;
        self.handle.block_on(self.store.head(&path)).map(object).map_err(fault)
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        take: &mut dyn FnMut(Object) -> bool,
    ) -> Result<(), Fault> {
        let folder = prefix.trim_end_matches('/');
        let folder = if folder.is_empty() { None } else { Some(location(folder)?) };
        let mut stream = match after {
            Some(after) => self.store.list_with_offset(folder.as_ref(), &location(after)?),
            None => self.store.list(folder.as_ref()),
        };
        self.handle.block_on(async {
            while let Some(meta) = stream.next().await {
                if !take(object(meta.map_err(fault)?)) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn get(&self, key: &str, range: Range<u64>) -> Result<Answer<'_>, Fault> {
        let path = location(key)?;
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let answer = self.handle.block_on(self.store.get_opts(&path, options)).map_err(fault)?;
        let (size, tag, range) = (answer.meta.size, answer.meta.e_tag.clone(), answer.range.clone());
        // Some payloads begin to be read as soon as they become a stream.
        let _inside = self.handle.enter();
        let body = Body::new(answer.into_stream(), self.handle.clone(), self.stalled);
        Ok(Answer { size, tag, range, body: Box::new(body) })
    }

    fn put(&self, key: &str, path: &FilePath) -> Result<(), Fault> {
        let to = location(key)?;
        let unreadable = |error: std::io::Error| Fault::Refused(format!("{}: {error}", path.display()));
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > PART {
            let file = File::open(path).map_err(unreadable)?;
            return self.handle.block_on(self.put_parts(&to, file, size));
        }
        let bytes = std::fs::read(path).map_err(unreadable)?;
        self.handle.block_on(self.store.put(&to, bytes.into())).map(drop).map_err(fault)
    }

    fn accepts(&self, key: &str) -> Result<(), Fault> {
        let path = location(key)?;
        self.handle.block_on(async {
            let mut upload = self.store.put_multipart(&path).await.map_err(fault)?;
            // Begun and given up: an object of it never is.
            _ = upload.abort().await;
            Ok(())
        })
    }

    fn delete(&self, key: &str) -> Result<(), Fault> {
        let path = location(key)?;
        match self.handle.block_on(self.store.delete(&path)).map_err(fault) {
            Ok(()) | Err(Fault::Missing) => Ok(()),
            Err(other) => Err(other),
        }
    }
}
