//! Dumps and files that are read from a copy: what they are called, which is what errors and reports say, and where the copy lies.

use std::path::{Path, PathBuf};

use probe_dump::ReadError;

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
