//! Dumps that are read from a copy: errors and reports use the original name.

use std::path::Path;
use std::sync::Arc;

use super::{ReadError, open};
use probe_dump::{Dump, PartKey, PartReader, Rank, TensorData, TensorStore};
use probe_files::Copies;
use probe_files::map::FileAccess;

/// Opens a dump under the name `path`, like [`open`]; errors and reports use that name.
///
/// # Errors
/// As for [`open`].
pub fn open_called(path: &Path, copies: &Copies, access: FileAccess) -> Result<Dump, ReadError> {
    if !copies.hold(path) {
        return open(path, access);
    }
    let dump = open(&copies.place(path), access).map_err(|error| copies.called(error))?;
    Ok(Dump {
        path: path.into(),
        faults: dump.faults.into_iter().map(|fault| copies.called(fault)).collect(),
        reader: Box::new(Copied { reader: dump.reader, copies: copies.clone() }),
        ..dump
    })
}

/// Reads parts of a copy. The paths of parts are those of the copy.
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
    fn errors_and_parts_of_a_copy_say_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("step0/rank0");
        std::fs::create_dir_all(&part).unwrap();
        std::fs::write(part.join("dump.json"), "{\"task\": \"statistics\", \"data\": {").unwrap();
        std::fs::create_dir_all(folder.path().join("step1/rank0")).unwrap();
        let mut copies = Copies::default();
        copies.add("s3://bucket/run", folder.path());
        let dump = open_called(Path::new("s3://bucket/run"), &copies, FileAccess::Map).unwrap();
        assert_eq!(dump.path, Path::new("s3://bucket/run"));
        assert_eq!(dump.faults[0].path(), Path::new("s3://bucket/run/step1/rank0"));
        let said = match dump.reader.read(&dump.parts[0]) {
            Ok(rank) => rank.faults[0].to_string(),
            Err(error) => error.to_string(),
        };
        assert!(said.starts_with("s3://bucket/run/step0/rank0/dump.json: "), "{said}");
        let error = open_called(Path::new("s3://bucket/run/none"), &copies, FileAccess::Map).unwrap_err();
        assert!(error.to_string().starts_with("s3://bucket/run/none: "), "{error}");
    }
}
