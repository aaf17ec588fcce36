//! Dumps and files that are read from a copy: what they are called, which is what errors and reports say, and where the copy lies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::map::FileAccess;
use super::{ReadError, open};
use crate::dump::{Dump, PartKey, PartReader, Rank, TensorData, TensorStore};

/// Folders of copies, by the name of what was copied. Names are paths as well, such as `s3://bucket/run`; a path that is below none of them is where
/// it says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copies {
    /// Name and place.
    folders: Vec<(PathBuf, PathBuf)>,
}

impl Copies {
    /// From now on, what is called `name` or lies below it is read at `place`.
    pub fn add(&mut self, name: impl Into<PathBuf>, place: impl Into<PathBuf>) {
        let folder = (name.into(), place.into());
        if !self.folders.contains(&folder) {
            self.folders.push(folder);
        }
    }

    /// Whether `path` is the name of something that is read from a copy.
    pub fn hold(&self, path: &Path) -> bool {
        self.folders.iter().any(|(name, _)| path.starts_with(name))
    }

    /// Where to read what is called `path`.
    pub fn place(&self, path: &Path) -> PathBuf {
        moved(path, self.folders.iter().map(|(name, place)| (name, place)))
    }

    /// What the file or folder at `path` is called.
    pub fn name(&self, path: &Path) -> PathBuf {
        moved(path, self.folders.iter().map(|(name, place)| (place, name)))
    }

    /// Opens what is called `path`, as [`open`](super::open) does; errors and reports say its name.
    ///
    /// # Errors
    /// As for [`open`](super::open).
    pub fn open(&self, path: &Path, access: FileAccess) -> Result<Dump, ReadError> {
        if !self.hold(path) {
            return open(path, access);
        }
        let dump = open(&self.place(path), access).map_err(|error| self.called(error))?;
        Ok(Dump {
            path: path.into(),
            faults: dump.faults.into_iter().map(|fault| self.called(fault)).collect(),
            reader: Box::new(Copied { reader: dump.reader, copies: self.clone() }),
            ..dump
        })
    }

    /// The error with the name of what it is about.
    pub fn called(&self, error: ReadError) -> ReadError {
        let name = self.name(error.path());
        error.about(name)
    }
}

/// `path` with the first of the pairs that it begins with exchanged.
fn moved<'a>(path: &Path, mut pairs: impl Iterator<Item = (&'a PathBuf, &'a PathBuf)>) -> PathBuf {
    pairs
        .find_map(|(from, to)| {
            let rest = path.strip_prefix(from).ok()?;
            // Nothing is joined to a name without a need: `join("")` would add a separator.
            Some(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) })
        })
        .unwrap_or_else(|| path.to_path_buf())
}

/// Reads parts of a copy. Places of parts are those of the copy.
struct Copied {
    reader: Box<dyn PartReader>,
    copies: Copies,
}

impl PartReader for Copied {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        let mut rank = self.reader.read(key).map_err(|error| self.copies.called(error))?;
        rank.faults = rank.faults.into_iter().map(|fault| self.copies.called(fault)).collect();
        rank.store = Arc::new(CopiedTensors { store: rank.store, copies: self.copies.clone() });
        Ok(rank)
    }

    fn place(&self, key: &PartKey) -> Option<&Path> {
        self.reader.place(key)
    }
}

struct CopiedTensors {
    store: Arc<dyn TensorStore>,
    copies: Copies,
}

impl TensorStore for CopiedTensors {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        self.store.load(key).map_err(|error| self.copies.called(error))
    }

    fn expect(&self, keys: &[&str]) {
        self.store.expect(keys);
    }

    fn is_late(&self) -> bool {
        self.store.is_late()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_are_exchanged() {
        let mut copies = Copies::default();
        copies.add("s3://bucket", "/scratch/s3/bucket");
        copies.add("s3://bucket", "/scratch/s3/bucket");
        let pairs = [
            ("s3://bucket/run/step0", "/scratch/s3/bucket/run/step0"),
            ("s3://bucket", "/scratch/s3/bucket"),
            ("/data/run", "/data/run"),
            ("s3://other/run", "s3://other/run"),
        ];
        for (name, place) in pairs {
            assert_eq!(copies.place(Path::new(name)), Path::new(place));
            assert_eq!(copies.name(Path::new(place)).to_str().unwrap(), name);
            assert_eq!(copies.hold(Path::new(name)), name.starts_with("s3://bucket"), "{name}");
        }
    }

    #[test]
    fn errors_and_parts_of_a_copy_say_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("step0/rank0");
        std::fs::create_dir_all(&part).unwrap();
        std::fs::write(part.join("dump.json"), "{\"task\": \"statistics\", \"data\": {").unwrap();
        std::fs::create_dir_all(folder.path().join("step1/rank0")).unwrap();
        let mut copies = Copies::default();
        copies.add("s3://bucket/run", folder.path());
        let dump = copies.open(Path::new("s3://bucket/run"), FileAccess::Map).unwrap();
        assert_eq!(dump.path, Path::new("s3://bucket/run"));
        assert_eq!(dump.faults[0].path(), Path::new("s3://bucket/run/step1/rank0"));
        let said = match dump.reader.read(&dump.parts[0]) {
            Ok(rank) => rank.faults[0].to_string(),
            Err(error) => error.to_string(),
        };
        assert!(said.starts_with("s3://bucket/run/step0/rank0/dump.json: "), "{said}");
        let error = copies.open(Path::new("s3://bucket/run/none"), FileAccess::Map).unwrap_err();
        assert!(error.to_string().starts_with("s3://bucket/run/none: "), "{error}");
    }
}
