//! Dumps and files that are read from a copy: errors and reports use the original name, reading uses the location of the copy.

use std::path::{Path, PathBuf};

use probe_dump::ReadError;

/// Folders of copies, by the name of the original. Names are paths too, such as `s3://bucket/run`; a path below none of them is read in place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copies {
    /// Name and location.
    folders: Vec<(PathBuf, PathBuf)>,
}

impl Copies {
    /// Reads anything called `name`, or below it, at `place` from now on.
    pub fn add(&mut self, name: impl Into<PathBuf>, place: impl Into<PathBuf>) {
        let folder = (name.into(), place.into());
        if !self.folders.contains(&folder) {
            self.folders.push(folder);
        }
    }

    /// Returns true if `path` names something that is read from a copy.
    pub fn hold(&self, path: &Path) -> bool {
        self.folders.iter().any(|(name, _)| path.starts_with(name))
    }

    /// Returns the location to read for the name `path`.
    pub fn place(&self, path: &Path) -> PathBuf {
        moved(path, self.folders.iter().map(|(name, place)| (name, place)))
    }

    /// Returns the name of the file or folder at `path`.
    pub fn name(&self, path: &Path) -> PathBuf {
        moved(path, self.folders.iter().map(|(name, place)| (place, name)))
    }

    /// Replaces the path in the error by the name of the original.
    pub fn called(&self, error: ReadError) -> ReadError {
        let name = self.name(error.path());
        error.about(name)
    }
}

/// Replaces the prefix of `path` that equals the left side of a pair by its right side; the first match wins.
fn moved<'a>(path: &Path, mut pairs: impl Iterator<Item = (&'a PathBuf, &'a PathBuf)>) -> PathBuf {
    pairs
        .find_map(|(from, to)| {
            let rest = path.strip_prefix(from).ok()?;
            // Avoids joining an empty rest: `join("")` would append a separator.
            Some(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) })
        })
        .unwrap_or_else(|| path.to_path_buf())
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
}
