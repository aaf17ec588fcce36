//! What a store has to be able to do. Calls block; several are made at a time, from several threads.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use super::Scheme;

/// An object, as a listing tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub key: String,
    /// Bytes, as the store claims.
    pub size: u64,
    /// What changes when its content does, where the store has one.
    pub tag: Option<String>,
}

/// What was sent of an object.
pub struct Answer<'a> {
    /// Bytes of the whole object, as the store claims now.
    pub size: u64,
    /// As [`Object::tag`].
    pub tag: Option<String>,
    /// Bytes that are sent, as the store claims.
    pub range: Range<u64>,
    /// The bytes. Errors of it may pass.
    pub body: Box<dyn Read + 'a>,
}

impl std::fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("size", &self.size).field("range", &self.range).finish_non_exhaustive()
    }
}

/// Why a store did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No such object.
    Missing,
    /// It will not, however often it is asked: no permission, no such bucket.
    Refused(String),
    /// It may the next time: overloaded, a broken connection.
    Passing(String),
}

/// One bucket or container.
pub trait Bucket: Send + Sync {
    /// The object of this key.
    ///
    /// # Errors
    /// [`Fault::Missing`] where there is none.
    fn head(&self, key: &str) -> Result<Object, Fault>;

    /// Hands all objects whose keys begin with `prefix` to `take`, in any order, until it returns false; only those after the key `after`, if one is given.
    ///
    /// # Errors
    /// [`Fault`]; what was handed on before does not count then.
    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        take: &mut dyn FnMut(Object) -> bool,
    ) -> Result<(), Fault>;

    /// The bytes of `range`, which is not empty.
    ///
    /// # Errors
    /// [`Fault`].
    fn get(&self, key: &str, range: Range<u64>) -> Result<Answer<'_>, Fault>;

    /// Stores the file at `path`, in several requests where it is large. An object appears whole or not at all.
    ///
    /// # Errors
    /// [`Fault`]; also for what cannot be read of the file.
    fn put(&self, key: &str, path: &Path) -> Result<(), Fault>;

    /// Whether an object of this key could be stored; nothing is left of the trial.
    ///
    /// # Errors
    /// [`Fault`] that says why not.
    fn accepts(&self, key: &str) -> Result<(), Fault>;

    /// Removes an object. One that is not there is no fault.
    ///
    /// # Errors
    /// [`Fault`].
    fn delete(&self, key: &str) -> Result<(), Fault>;
}

/// Opens buckets.
pub trait Stores: Sync {
    /// The bucket of this name.
    ///
    /// # Errors
    /// Why not, and the repair.
    fn open(&self, scheme: Scheme, bucket: &str) -> Result<Box<dyn Bucket>, String>;
}

/// None: the usual build has no code for networks in it.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoStores;

impl Stores for NoStores {
    fn open(&self, _: Scheme, _: &str) -> Result<Box<dyn Bucket>, String> {
        Err("this build of probe cannot read object stores; build probe-stores with `cargo install --path stores` in its sources, or copy the files to a disk".into())
    }
}
