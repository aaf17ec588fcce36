//! Opened files of a collection, and the names of their values.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ReadError;
use crate::tensor_file;
use crate::tensor_file::{Entry, TensorFile};
use probe_dump::{TensorData, TensorStore, Value};
use probe_files::late::{self, Wanted};
use probe_files::limits::MAX_HELD_FILES;
use probe_files::map::FileAccess;

/// Opened files in collection order.
pub(super) struct Store {
    access: FileAccess,
    files: Vec<StoreFile>,
}

struct StoreFile {
    path: PathBuf,
    /// Name for a value that has none of its own.
    stem: Box<str>,
    content: Content,
}

/// A folder may hold more files than a process may have maps, so only the first files stay open.
enum Content {
    Held(Box<dyn TensorFile>),
    Closed(Vec<Entry>),
}

impl Store {
    pub(super) const fn new(access: FileAccess) -> Self {
        Self { access, files: Vec::new() }
    }

    /// Adds an opened file; `stem` names its value if that has no name.
    pub(super) fn add(&mut self, path: PathBuf, stem: Box<str>, file: Box<dyn TensorFile>) {
        let content = if self.files.len() < MAX_HELD_FILES {
            Content::Held(file)
        } else {
            Content::Closed(file.entries().to_vec())
        };
        self.files.push(StoreFile { path, stem, content });
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns paths and values of all files.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &[Entry])> {
        self.files.iter().map(|file| (&*file.path, file.entries()))
    }

    /// Gives every value a unique name.
    pub(super) fn named(self) -> NamedStore {
        let mut names = HashSet::new();
        let own_names =
            || self.files.iter().flat_map(|file| file.entries().iter().map(|e| file.name(e, false)));
        let prefixed = !own_names().all(|name| names.insert(name));
        drop(names);
        let mut listed: Vec<Listed> = Vec::new();
        let mut by_name = HashMap::new();
        let mut repeated: HashMap<String, usize> = HashMap::new();
        for (at, file) in self.files.iter().enumerate() {
            for (entry, value) in file.entries().iter().enumerate() {
                let plain = file.name(value, prefixed);
                let mut name = plain.clone();
                // Within one file, only maps with equal keys, or keys with dots, get here.
                while by_name.contains_key(&*name) {
                    let count = repeated.entry(plain.clone()).or_insert(1);
                    *count += 1;
                    name = format!("{plain}#{count}");
                }
                let name: Box<str> = name.into();
                by_name.insert(name.clone(), listed.len());
                listed.push(Listed { name, file: at, entry });
            }
        }
        NamedStore { store: self, listed, by_name }
    }
}

impl StoreFile {
    fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Held(file) => file.entries(),
            Content::Closed(entries) => entries,
        }
    }

    fn name(&self, entry: &Entry, prefixed: bool) -> String {
        match &*entry.name {
            "" => self.stem.to_string(),
            own if prefixed => format!("{}.{own}", self.stem),
            own => own.to_string(),
        }
    }

    fn load(&self, index: usize, access: FileAccess) -> Result<TensorData, ReadError> {
        match &self.content {
            Content::Held(file) => file.load(index),
            Content::Closed(entries) => {
                let file = tensor_file::open(&self.path, access)?;
                if file.entries().get(index) != entries.get(index) {
                    return Err(ReadError::format(
                        &*self.path,
                        "has changed since it was listed; start again",
                    ));
                }
                file.load(index)
            }
        }
    }
}

/// A store with named values.
pub(crate) struct NamedStore {
    store: Store,
    listed: Vec<Listed>,
    by_name: HashMap<Box<str>, usize>,
}

struct Listed {
    name: Box<str>,
    file: usize,
    entry: usize,
}

impl NamedStore {
    /// Returns names and values in collection order; the data key of a tensor is its name.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, Value)> {
        self.listed.iter().filter_map(|listed| {
            let mut value = self.store.files.get(listed.file)?.entries().get(listed.entry)?.value.clone();
            if let Value::Tensor(record) = &mut value {
                Arc::make_mut(record).data = Some((&*listed.name).into());
            }
            Some((&*listed.name, value))
        })
    }
}

impl TensorStore for NamedStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let listed = self.by_name.get(key).and_then(|&at| self.listed.get(at));
        let found = listed.and_then(|listed| Some((self.store.files.get(listed.file)?, listed.entry)));
        match found {
            Some((file, entry)) => file.load(entry, self.store.access),
            None => Err(ReadError::usage(PathBuf::from(key), "no such tensor in this collection")),
        }
    }
    fn expect(&self, keys: &[&str]) {
        let wanted = keys.iter().filter_map(|&key| {
            let listed = self.listed.get(*self.by_name.get(key)?)?;
            let file = self.store.files.get(listed.file)?;
            let Content::Held(held) = &file.content else { return None };
            Some(Wanted { path: file.path.clone(), range: held.span(listed.entry)? })
        });
        late::expect(&wanted.collect::<Vec<_>>());
    }

    fn is_late(&self) -> bool {
        self.store.files.first().is_some_and(|file| late::may_be(&file.path))
    }
}
