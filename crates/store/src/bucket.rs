//! Interface of an object store. Calls block; several are made in parallel, from several threads.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use super::Scheme;

/// An object, as described by a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub key: String,
    /// Size in bytes, as claimed by the store.
    pub size: u64,
    /// Tag that changes when the content does, if the store has one.
    pub tag: Option<String>,
}

/// Response to a request for bytes of an object.
pub struct Answer<'a> {
    /// Size of the whole object in bytes, as the store claims now.
    pub size: u64,
    /// See [`Object::tag`].
    pub tag: Option<String>,
    /// Range of the bytes sent, as claimed by the store.
    pub range: Range<u64>,
    /// The bytes. Its errors may be transient.
    pub body: Box<dyn Read + 'a>,
}

impl std::fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("size", &self.size).field("range", &self.range).finish_non_exhaustive()
    }
}

/// Reason why a store did not do as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No such object.
    Missing,
    /// A permanent failure, such as no permission or no such bucket.
    Refused(String),
    /// A transient failure, such as overload or a broken connection.
    Passing(String),
}

/// One bucket or container.
pub trait Bucket: Send + Sync {
    /// Returns the object with this key.
    ///
    /// # Errors
    /// [`Fault::Missing`] if there is none.
    fn head(&self, key: &str) -> Result<Object, Fault>;

    /// Passes all objects whose keys begin with `prefix` to `take`, in any order, until it returns false; only those after the key `after`, if given.
    ///
    /// # Errors
    /// [`Fault`]; objects passed on before it must then be discarded.
    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        take: &mut dyn FnMut(Object) -> bool,
    ) -> Result<(), Fault>;

    /// Returns the bytes of `range`, which is not empty.
    ///
    /// # Errors
    /// [`Fault`].
    fn get(&self, key: &str, range: Range<u64>) -> Result<Answer<'_>, Fault>;

    /// Stores the file at `path`, in several requests if it is large. An object appears whole or not at all.
    ///
    /// # Errors
    /// [`Fault`]; also if the file cannot be read.
    fn put(&self, key: &str, path: &Path) -> Result<(), Fault>;

    /// Checks that an object with this key could be stored, leaving nothing behind.
    ///
    /// # Errors
    /// [`Fault`] with the reason why not.
    fn accepts(&self, key: &str) -> Result<(), Fault>;

    /// Removes an object. A missing object is not an error.
    ///
    /// # Errors
    /// [`Fault`].
    fn delete(&self, key: &str) -> Result<(), Fault>;
}

/// Opens buckets.
pub trait Stores: Sync {
    /// Opens the bucket of this name.
    ///
    /// # Errors
    /// The reason why not, and the remedy.
    fn open(&self, scheme: Scheme, bucket: &str) -> Result<Box<dyn Bucket>, String>;
}

/// No stores: the usual build contains no network code.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoStores;

impl Stores for NoStores {
    fn open(&self, _: Scheme, _: &str) -> Result<Box<dyn Bucket>, String> {
        Err("this build of probe cannot read object stores; build probe-stores with `cargo install --path stores` in its sources, or copy the files to a disk".into())
    }
}
